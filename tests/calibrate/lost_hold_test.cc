// A held stream that ran on by itself: that sample has gaps, the others count.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "calibrate/device.h"
#include "calibrate/session.h"
#include "tests/support/fake_kernels.h"
#include "tests/support/tiny_calibration.h"

namespace pipewright::lost_hold_test {
namespace {

using testing::FakeKernels;
using testing::TinyCalibration;

TEST_CASE("calibrate: a hold that runs out is told from a broken device",
          "[calibrate]") {
  const auto device =
      MeasuredDevice::Open(FakeKernels({.failing_release = 1}), 0).value();
  Stopwatch watch(device.get());
  std::vector<double> seconds;
  for (const bool lost : {true, false}) {
    REQUIRE(watch.Start().ok());
    REQUIRE(watch.Mark().ok());
    REQUIRE(watch.Mark().ok());
    const absl::Status status = watch.Stop(&seconds);
    CHECK(absl::IsDeadlineExceeded(status) == lost);
    CHECK(status.ok() == !lost);
  }
}

TEST_CASE("calibrate: a hold that runs out costs one sample", "[calibrate]") {
  CalibrateHooks hooks;
  hooks.stop = [] { return false; };
  hooks.save = [](const Profile&) { return absl::OkStatus(); };
  const CalibrateResult result =
      Calibrate(FakeKernels({.failing_release = 9}), TinyCalibration(), hooks)
          .value();
  CHECK(result.missing == 0);
  const std::vector<std::string>& warnings =
      result.profile.sources.at(0).warnings;
  CHECK(std::count_if(warnings.begin(), warnings.end(),
                      [](const std::string& warning) {
                        return absl::StrContains(warning, " were lost: ");
                      }) == 1);
}

}  // namespace
}  // namespace pipewright::lost_hold_test
