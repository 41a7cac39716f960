#include "sim/cost/kernel_time.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"

namespace pipewright::kernel_time_test {
namespace {

TEST_CASE("cost: every number of a device has a source", "[cost]") {
  for (const DeviceSpec& device : AllDevices()) {
    INFO(device.name);
    const auto has_source = [&device](const char* field) {
      return device.sources.find(field) != device.sources.end();
    };
    for (const char* field :
         {"bf16_flops", "hbm_bytes_per_s", "memory_bytes", "multiprocessors",
          "bf16_sustained", "hbm_sustained", "attention_forward",
          "attention_backward", "collective_sustained"}) {
      INFO(field);
      CHECK(has_source(field));
    }
    CHECK((device.fp8_flops > 0) == has_source("fp8_flops"));
    CHECK(FindDevice(device.device_name)->name == device.name);
  }
  CHECK(absl::StrContains(FindDevice("h10").status().message(), "'h100'"));
}

TEST_CASE("cost: a matrix product is never above its peaks", "[cost]") {
  for (const DeviceSpec& device : AllDevices()) {
    for (const double size : {16.0, 100.0, 128.0, 1000.0, 4096.0, 20000.0}) {
      const double bytes = 6 * size * size;
      const double seconds =
          GemmSeconds(device, Precision::kBf16, size, size, size, 1, bytes);
      CHECK(2 * size * size * size / seconds < device.bf16_flops);
      CHECK(bytes / seconds < device.hbm_bytes_per_s);
    }
  }
}

TEST_CASE("cost: more of anything never takes less time", "[cost]") {
  const DeviceSpec device = *FindDevice("a100-80gb");
  double before = 0;
  for (double m = 64; m <= 8192; m *= 2) {
    const double seconds =
        GemmSeconds(device, Precision::kBf16, m, 4096, 4096, 1, 0);
    CHECK(seconds >= before);
    before = seconds;
  }
  before = 0;
  for (double k = 64; k <= 65536; k *= 2) {
    const double seconds =
        GemmSeconds(device, Precision::kBf16, 512, 512, k, 1, 0);
    CHECK(seconds >= before);
    before = seconds;
  }
}

TEST_CASE("cost: half a wave of tiles takes as long as a whole one", "[cost]") {
  DeviceSpec device = *FindDevice("h100");
  const auto seconds = [&](double rows) {
    return GemmSeconds(device, Precision::kBf16, rows, 128, 512, 1, 0);
  };
  // 132 tiles of 64 x 128 are one wave; one more tile is two, whichever shape
  // is chosen.
  CHECK(seconds(132 * 256) < seconds(132 * 256 + 1));
  CHECK(seconds(66 * 256 + 1) == Approx(seconds(66 * 256 + 64)));
}

// Products of one tile in every shape of tile: up to 132 of them are one wave.
TEST_CASE("cost: a wave takes its time however few tiles are in it", "[cost]") {
  const DeviceSpec device = *FindDevice("h100");
  REQUIRE(device.multiprocessors == 132);
  const auto seconds = [&](double count) {
    return GemmSeconds(device, Precision::kBf16, 64, 64, 512, count, 0) -
           kKernelGapSeconds;
  };
  CHECK(seconds(1) == Approx(seconds(132)));
  CHECK(seconds(133) == Approx(2 * seconds(132)));
  CHECK(seconds(264) == Approx(2 * seconds(132)));
}

TEST_CASE("cost: long inner products of few tiles are cut", "[cost]") {
  const DeviceSpec device = *FindDevice("h100");
  const double once =
      GemmSeconds(device, Precision::kBf16, 256, 256, 1024, 1, 0);
  const double long_one =
      GemmSeconds(device, Precision::kBf16, 256, 256, 16 * 1024, 1, 0);
  CHECK(long_one < 4 * once);
}

TEST_CASE("cost: attention's backward and short sequences are slower",
          "[cost]") {
  const DeviceSpec device = *FindDevice("h200");
  const double flops = 1e13;
  CHECK(AttentionSeconds(device, OpPass::kForward, true, flops, 8192) <
        AttentionSeconds(device, OpPass::kBackwardInput, true, flops, 8192));
  CHECK(AttentionSeconds(device, OpPass::kForward, true, flops, 8192) <
        AttentionSeconds(device, OpPass::kForward, true, flops, 1024));
  CHECK(AttentionSeconds(device, OpPass::kForward, false, flops, 2048) <
        AttentionSeconds(device, OpPass::kForward, true, flops, 2048));
}

}  // namespace
}  // namespace pipewright::kernel_time_test
