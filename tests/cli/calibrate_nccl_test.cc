// What `calibrate` measures between GPUs, and what it says where it cannot:
// over tests/support/fake_nccl.h.
#include "execute/transport/calibration_nccl.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "calibrate/session.h"
#include "tests/support/fake_kernels.h"
#include "tests/support/fake_nccl.h"
#include "tests/support/tiny_calibration.h"

namespace pipewright::calibrate_nccl_test {
namespace {

using testing::FakeKernels;
using testing::FakeNccl;
using testing::FakeNcclWorld;

constexpr int64_t kMiB = 1 << 20;
// Leaves room for transfers of a MiB.
constexpr int64_t kLittle = 16 * kMiB;

TimedTransports Over(const testing::FakeDevice& device, bool quick = true,
                     double timeout_s = 60) {
  return TransportsOverNccl(FakeNccl(), FakeKernels(device), quick, timeout_s);
}

void CheckNone(const TimedTransports& none, const std::string& why) {
  CHECK(none.transports.empty());
  CHECK(none.library.empty());
  REQUIRE(none.warnings.size() == 1);
  INFO(none.warnings[0]);
  CHECK(absl::StartsWith(none.warnings[0],
                         "transfers over NCCL are not measured: "));
  CHECK(absl::StrContains(none.warnings[0], why));
}

TEST_CASE("calibrate: what keeps transfers over NCCL from being measured",
          "[cli][nccl]") {
  FakeNcclWorld world;
  CheckNone(Over({.devices = 1}), "they need two GPUs, there is 1");
  CheckNone(TransportsOverNccl(
                absl::UnavailableError("libpipewright_nccl.so is not there"),
                FakeKernels({.devices = 2}), true),
            "libpipewright_nccl.so is not there");
  CheckNone(Over({.free_bytes = 1000, .devices = 2}), "buffers for transfers");
  CheckNone(Over({.devices = 2, .missing = 1}), "device 1");
  CHECK(world.made == 0);
  world.never_comes = 1;
  CheckNone(Over({.free_bytes = kLittle, .devices = 2}, true, 0.1),
            "goes on for 0.1 s");
  world.never_comes = -1;
  world.fails_alone = 1;
  CheckNone(Over({.free_bytes = kLittle, .devices = 2}), "device 1, send of");
}

TEST_CASE("calibrate: GPUs by twos, and all of them", "[cli][nccl]") {
  FakeNcclWorld world;
  const auto ranks = [](const TimedTransports& made) {
    std::vector<int> all;
    for (const Transport& each : made.transports) all.push_back(each.ranks);
    return all;
  };
  using Ranks = std::vector<int>;
  CHECK(ranks(Over({.free_bytes = kLittle, .devices = 2})) == Ranks{2});
  CHECK(ranks(Over({.free_bytes = kLittle, .devices = 6}, false)) ==
        Ranks{2, 4, 6});
  CHECK(ranks(Over({.free_bytes = kLittle, .devices = 8}, false)) ==
        Ranks{2, 4, 8});
  CHECK(ranks(Over({.free_bytes = kLittle, .devices = 8})) == Ranks{2, 8});
  CHECK(world.violations == std::vector<std::string>());
  CHECK(world.left == world.made);
}

TEST_CASE("calibrate: sizes that do not fit beside the passes are said",
          "[cli][nccl]") {
  FakeNcclWorld world;
  const TimedTransports made =
      Over({.free_bytes = kLittle, .devices = 2}, false);
  REQUIRE(made.transports.size() == 1);
  CHECK(made.library == "NCCL 2.28.9");
  CHECK(made.transports[0].sizes ==
        std::vector<int64_t>{4096, 16384, 65536, 262144, kMiB});
  REQUIRE(made.warnings.size() == 1);
  CHECK(absl::StrContains(made.warnings[0],
                          "4 MiB, 16 MiB, 64 MiB, 256 MiB are not measured"));
  CHECK(absl::StrContains(made.warnings[0], "which leaves 1 MiB"));
}

// From the devices' clock to the profile's entries.
TEST_CASE("calibrate: a profile has the transfers over NCCL",
          "[cli][nccl][long]") {
  FakeNcclWorld world;
  constexpr double kBandwidth = 100e9;
  world.seconds = [](const std::string&, size_t bytes, size_t) {
    return 5e-6 + static_cast<double>(bytes) / kBandwidth;
  };
  const testing::FakeDevice device = {
      .free_bytes = 1 << 28, .devices = 4, .name = "cuda"};
  TimedTransports made = Over(device);
  REQUIRE(made.transports.size() == 2);
  CalibrateOptions options = testing::TinyCalibration();
  options.type = "fp32";
  options.heat_s = 0;
  for (Transport& transport : made.transports) transport.sizes = {65536, kMiB};
  options.transports = made.transports;
  options.transport_library = made.library;
  options.warnings = {"something is not measured"};
  const CalibrateHooks hooks = {
      .stop = [] { return false; },
      .save = [](const Profile&) { return absl::OkStatus(); }};
  const Profile profile =
      Calibrate(FakeKernels(device), options, hooks).value().profile;
  std::vector<std::string> keys;
  for (const TransferEntry& entry : profile.transfers) {
    INFO(KeyOf(entry));
    keys.push_back(KeyOf(entry));
    CHECK(entry.transport == "nccl");
    CHECK(entry.time.median_s ==
          Approx(5e-6 + static_cast<double>(entry.bytes) / kBandwidth));
  }
  std::sort(keys.begin(), keys.end());
  // A pair is a pair, among however many.
  CHECK(keys ==
        std::vector<std::string>{
            "all_gather 1 MiB 2 ranks nccl", "all_gather 1 MiB 4 ranks nccl",
            "all_gather 64 KiB 2 ranks nccl", "all_gather 64 KiB 4 ranks nccl",
            "all_reduce 1 MiB 2 ranks nccl", "all_reduce 1 MiB 4 ranks nccl",
            "all_reduce 64 KiB 2 ranks nccl", "all_reduce 64 KiB 4 ranks nccl",
            "reduce_scatter 1 MiB 2 ranks nccl",
            "reduce_scatter 1 MiB 4 ranks nccl",
            "reduce_scatter 64 KiB 2 ranks nccl",
            "reduce_scatter 64 KiB 4 ranks nccl",
            "send_recv 1 MiB 2 ranks nccl", "send_recv 64 KiB 2 ranks nccl"});
  REQUIRE(profile.sources.size() == 1);
  CHECK(absl::StrContains(profile.sources[0].libraries, "NCCL 2.28.9"));
  CHECK(std::count(profile.sources[0].warnings.begin(),
                   profile.sources[0].warnings.end(),
                   "something is not measured") == 1);
  CHECK(world.violations == std::vector<std::string>());
}

}  // namespace
}  // namespace pipewright::calibrate_nccl_test
