// What `calibrate show` says of a profile that is written down here.
#include "sim/report/calibration_report.h"

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "tests/support/json.h"

namespace pipewright::calibration_report_test {
namespace {

Profile WithKernels() {
  Profile profile;
  KernelEntry product;
  product.name = "gemm.forward";
  product.shape = {4096, 4096, 4096};
  product.type = "bf16";
  product.time.median_s = 200e-6;
  product.flops = 2.0 * 4096 * 4096 * 4096;
  product.implementation = "some plan";
  KernelEntry norm;
  norm.name = "rms_norm.forward";
  norm.shape = {4096, 4096};
  norm.type = "bf16";
  norm.time.median_s = 20e-6;
  norm.bytes = 60e6;
  profile.kernels = {product, norm};
  return profile;
}

TEST_CASE("calibration report: what single kernels achieve", "[report]") {
  const std::string text = CalibrationReport(WithKernels(), false);
  INFO(text);
  // 137.4 GFLOP in 200 us.
  CHECK(absl::StrContains(text, "687 TFLOP/s  some plan"));
  CHECK(absl::StrContains(text, "3 TBps"));
  const auto json =
      testing::Json::parse(CalibrationReport(WithKernels(), true));
  REQUIRE(json["kernels"].size() == 2);
  CHECK(json["kernels"][0]["flops_per_s"].get<double>() ==
        Approx(687.19e12).epsilon(1e-4));
  CHECK(json["kernels"][0]["bytes_per_s"].is_null());
  CHECK(json["kernels"][1]["bytes_per_s"].get<double>() == Approx(3e12));
}

TEST_CASE("calibration report: transfers with their bus bandwidth",
          "[report]") {
  Profile profile;
  for (const char* operation : {"send_recv", "all_reduce", "all_gather"}) {
    profile.transfers.push_back({.operation = operation,
                                 .transport = "nccl",
                                 .ranks = 4,
                                 .bytes = 1'000'000});
    profile.transfers.back().time.median_s = 10e-6;
  }
  const std::string text = CalibrationReport(profile, false);
  INFO(text);
  CHECK(absl::StrContains(text, "-  100 GBps"));
  CHECK(absl::StrContains(text, "-  150 GBps"));
  CHECK(absl::StrContains(text, "-  75 GBps"));
  const auto json = testing::Json::parse(CalibrationReport(profile, true));
  REQUIRE(json["transfers"].size() == 3);
  CHECK(json["transfers"][1]["key"] == KeyOf(profile.transfers[1]));
  CHECK(json["transfers"][1]["bytes_per_s"].get<double>() == Approx(100e9));
  CHECK(json["transfers"][1]["bus_bytes_per_s"].get<double>() == Approx(150e9));
  CHECK(json["transfers"][2]["bus_bytes_per_s"].get<double>() == Approx(75e9));
}

}  // namespace
}  // namespace pipewright::calibration_report_test
