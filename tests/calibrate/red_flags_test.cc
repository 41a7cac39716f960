// Each red flag is raised by a profile that deserves it, and by no other.
#include "calibrate/red_flags.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"

namespace pipewright::red_flags_test {
namespace {

ProfileSource Gpu() {
  ProfileSource source;
  source.backend = "cuda";
  source.device = "NVIDIA H100 80GB HBM3";
  source.cores = 132;
  source.memory_bytes = 85017493504;
  source.before.max_clock_mhz = source.after.max_clock_mhz = 1980;
  source.before.pcie_generation = source.after.pcie_generation = 5;
  source.before.pcie_width = source.after.pcie_width = 16;
  return source;
}

constexpr int64_t kCache = 50 << 20;

std::vector<std::string> FlagsOf(const Profile& profile,
                                 const ProfileSource& source) {
  std::vector<std::string> warnings;
  AppendRedFlags(profile, source, {}, kCache, &warnings);
  return warnings;
}

Profile WithPass(ProfilePass pass, double seconds, double flops) {
  Profile profile;
  PassEntry entry;
  entry.model.style = "llama";
  entry.pass = pass;
  entry.type = "bf16";
  entry.time.median_s = seconds;
  entry.flops = flops;
  profile.passes = {entry};
  return profile;
}

void CheckOne(const Profile& profile, const ProfileSource& source,
              const std::string& part) {
  const std::vector<std::string> flags = FlagsOf(profile, source);
  INFO(part);
  REQUIRE(flags.size() == 1);
  CHECK(absl::StrContains(flags[0], part));
}

TEST_CASE("red flags: rates beyond the device", "[calibrate]") {
  const Profile plausible = WithPass(ProfilePass::kForward, 1e-3, 700e9);
  CHECK(FlagsOf(plausible, Gpu()).empty());
  CheckOne(WithPass(ProfilePass::kForward, 1e-3, 900e9), Gpu(), "900 TFLOP/s");
  ProfileSource cpu;
  cpu.backend = "cpu";
  CheckOne(plausible, cpu, "700 TFLOP/s");
  Profile attention;
  attention.kernels = {{.name = "attention.forward", .flops = 800e9}};
  attention.kernels[0].time.median_s = 1e-3;
  CheckOne(attention, Gpu(), "800 TFLOP/s");
  attention.kernels[0].name = "gemm.forward";
  CHECK(FlagsOf(attention, Gpu()).empty());
}

TEST_CASE("red flags: fp8 has limits of its own", "[calibrate]") {
  Profile profile = WithPass(ProfilePass::kForward, 1e-3, 1200e9);
  CheckOne(profile, Gpu(), "1200 TFLOP/s");
  profile.passes[0].type = "fp8";
  CHECK(FlagsOf(profile, Gpu()).empty());
  profile.passes[0].flops = 1800e9;
  CheckOne(profile, Gpu(), "1800 TFLOP/s, more than the 1700");
  // The head of such a run is not in fp8.
  profile.passes[0].part = ProfilePart::kHead;
  profile.passes[0].flops = 1200e9;
  CheckOne(profile, Gpu(), "more than the 850");
  Profile product;
  product.kernels = {{.name = "gemm.forward", .type = "fp8", .flops = 1200e9}};
  product.kernels[0].time.median_s = 1e-3;
  CHECK(FlagsOf(product, Gpu()).empty());
  product.kernels[0].flops = 1800e9;
  CheckOne(product, Gpu(), "1800 TFLOP/s");
  Profile ratio = WithPass(ProfilePass::kForward, 1.8e-3, 0);
  ratio.passes.push_back(ratio.passes[0]);
  ratio.passes[1].pass = ProfilePass::kBackwardWeight;
  ratio.passes[1].time.median_s = 1e-3;
  CheckOne(ratio, Gpu(), "plausible are 0.9 to 1.5");
  for (PassEntry& entry : ratio.passes) entry.type = "fp8";
  CHECK(FlagsOf(ratio, Gpu()).empty());
  ratio.passes[0].time.median_s = 2.2e-3;
  CheckOne(ratio, Gpu(), "plausible are 0.9 to 2.0");
}

TEST_CASE("red flags: copies faster than the wires", "[calibrate]") {
  Profile profile;
  profile.copies = {{.bytes = 1 << 30}};
  profile.copies[0].time.median_s = (1 << 30) / 55e9;
  CHECK(FlagsOf(profile, Gpu()).empty());
  profile.copies[0].time.median_s = (1 << 30) / 65e9;
  CheckOne(profile, Gpu(), "65 GBps");
  // Read and written, but for what stays in the cache: 4 TB/s is more than an
  // H100 has, but not an H200.
  profile.copies[0].direction = CopyDirection::kDeviceToDevice;
  profile.copies[0].time.median_s = (2.0 * (1 << 30) - kCache) / 4e12;
  CheckOne(profile, Gpu(), "4 TBps");
  ProfileSource h200 = Gpu();
  h200.device = "NVIDIA H200";
  h200.memory_bytes = 150754820096;
  CHECK(FlagsOf(profile, h200).empty());
  // Half of a PCIe 4.0's 16 lanes, or an unknown number of them.
  ProfileSource narrow = Gpu();
  narrow.before.pcie_generation = narrow.after.pcie_generation = 4;
  profile.copies[0].direction = CopyDirection::kHostToDevice;
  profile.copies[0].time.median_s = (1 << 30) / 35e9;
  CheckOne(profile, narrow, "more than the 30 GBps");
  narrow.before.pcie_generation = narrow.after.pcie_generation = -1;
  CHECK(FlagsOf(profile, narrow).empty());
}

// An H100 copied 16 MiB at "3.4 TB/s": what it wrote was still in its L2.
TEST_CASE("red flags: writes that stay in the cache are not counted",
          "[calibrate]") {
  Profile profile;
  profile.copies = {
      {.direction = CopyDirection::kDeviceToDevice, .bytes = 16 << 20}};
  profile.copies[0].time.median_s = 9.872e-6;
  CHECK(FlagsOf(profile, Gpu()).empty());
  profile.copies[0].time.median_s = (16 << 20) / 3.6e12;
  CheckOne(profile, Gpu(), "3.6 TBps");
  Profile kernel;
  kernel.kernels = {{.name = "swiglu.forward", .bytes = 150e6}};
  kernel.kernels[0].time.median_s = 150e6 / 4.5e12;
  CHECK(FlagsOf(kernel, Gpu()).empty());
  kernel.kernels[0].time.median_s = 150e6 / 6e12;
  CheckOne(kernel, Gpu(), "swiglu.forward");
}

TEST_CASE("red flags: limits are the device's own", "[calibrate]") {
  // Nothing is known of this one but that none is so fast.
  ProfileSource other = Gpu();
  other.device = "NVIDIA Something";
  CHECK(FlagsOf(WithPass(ProfilePass::kForward, 1e-3, 3000e9), other).empty());
  CheckOne(WithPass(ProfilePass::kForward, 1e-3, 30000e9), other,
           "30000 TFLOP/s");
  ProfileSource a100 = Gpu();
  a100.device = "NVIDIA A100-SXM4-80GB";
  a100.cores = 108;
  a100.before.clock_mhz = a100.after.clock_mhz = 1200;
  a100.before.max_clock_mhz = a100.after.max_clock_mhz = 1410;
  CHECK(FlagsOf(WithPass(ProfilePass::kForward, 1e-3, 300e9), a100).empty());
  CheckOne(WithPass(ProfilePass::kForward, 1e-3, 320e9), a100,
           "more than the 312");
}

TEST_CASE("red flags: attention that cuDNN refused", "[calibrate]") {
  Profile profile;
  profile.kernels = {{.name = "attention.causal.forward"}};
  profile.kernels[0].implementation = "own attention";
  CHECK(FlagsOf(profile, Gpu()).empty());
  profile.kernels[0].implementation = "own attention; cudnn 9.19.0: no engine";
  CheckOne(profile, Gpu(), "no plan: cudnn 9.19.0: no engine");
}

TEST_CASE("red flags: transfers faster than NVLink", "[calibrate]") {
  const auto profile = [](const char* operation, int64_t ranks, int64_t bytes,
                          double seconds) {
    Profile out;
    out.transfers = {{.operation = operation,
                      .transport = "nccl",
                      .ranks = ranks,
                      .bytes = bytes}};
    out.transfers[0].time.median_s = seconds;
    return out;
  };
  constexpr int64_t kBytes = 256 << 20;
  const auto at = [&](double gigabytes) {
    return static_cast<double>(kBytes) / (gigabytes * 1e9);
  };
  CHECK(FlagsOf(profile("send_recv", 2, kBytes, at(380)), Gpu()).empty());
  CheckOne(profile("send_recv", 2, kBytes, at(500)), Gpu(), "500 GBps");
  // 7 of 8 parts leave a rank: 560 GBps of the whole are 490 of the link.
  CHECK(FlagsOf(profile("all_gather", 8, kBytes, at(420)), Gpu()).empty());
  CheckOne(profile("all_gather", 8, kBytes, at(560)), Gpu(), "490 GBps");
  CheckOne(profile("reduce_scatter", 8, kBytes, at(560)), Gpu(), "490 GBps");
  // The switch adds up: bus bandwidth 480 GBps is 274 of the buffer.
  CHECK(FlagsOf(profile("all_reduce", 8, kBytes, at(274)), Gpu()).empty());
  CheckOne(profile("all_reduce", 8, kBytes, at(460)), Gpu(), "460 GBps");
  CHECK(FlagsOf(profile("send_recv", 2, 4096, 8e-6), Gpu()).empty());
  CheckOne(profile("send_recv", 2, 4096, 1e-6), Gpu(), "1 us, less than");
  // Threads share memory.
  Profile threads = profile("send_recv", 2, 4096, 1e-6);
  threads.transfers[0].transport = "threads";
  CHECK(FlagsOf(threads, Gpu()).empty());
}

TEST_CASE("red flags: F over W", "[calibrate]") {
  Profile profile = WithPass(ProfilePass::kForward, 3e-3, 0);
  profile.passes.push_back(profile.passes[0]);
  profile.passes[1].pass = ProfilePass::kBackwardWeight;
  profile.passes[1].time.median_s = 2.8e-3;
  CHECK(FlagsOf(profile, Gpu()).empty());
  profile.passes[1].time.median_s = 1.5e-3;
  CheckOne(profile, Gpu(), "F / W is 2.00");
  // W of experts has many small products.
  profile.passes[0].time.median_s = 1.04e-3;
  CheckOne(profile, Gpu(), "F / W is 0.69");
  for (PassEntry& entry : profile.passes) {
    entry.part = ProfilePart::kExpertLayer;
  }
  CHECK(FlagsOf(profile, Gpu()).empty());
  profile.passes[0].time.median_s = 0.6e-3;
  CheckOne(profile, Gpu(), "plausible are 0.5 to 1.5");
  // Launches take longer than what they launch.
  for (PassEntry& entry : profile.passes) {
    entry.part = ProfilePart::kLayer;
    entry.time.median_s = 25e-6;
  }
  profile.passes[0].time.median_s = 75e-6;
  CHECK(FlagsOf(profile, Gpu()).empty());
}

TEST_CASE("red flags: clocks and throttling", "[calibrate]") {
  ProfileSource source = Gpu();
  source.before.clock_mhz = source.after.clock_mhz = 1755;
  CHECK(FlagsOf({}, source).empty());
  source.after.throttle = 4;
  CheckOne({}, source, "throttled (reasons 0x4)");
  source.after.throttle = 1;  // the card idles
  CHECK(FlagsOf({}, source).empty());
  source.after.throttle = -1;  // not known
  source.before.clock_mhz = source.after.clock_mhz = 1200;
  CheckOne({}, source, "1200 MHz");
  source.before.clock_mhz = 1980;
  source.after.clock_mhz = 1500;
  CheckOne({}, source, "between 1500 and 1980 MHz");
  // Rounds count, where there are some.
  std::vector<std::string> flags;
  ProfileState round;
  round.clock_mhz = 1755;
  round.throttle = 8 | 1;
  AppendRedFlags({}, source, {round, round}, kCache, &flags);
  REQUIRE(flags.size() == 1);
  CHECK(absl::StrContains(flags[0], "throttled (reasons 0x8)"));
}

TEST_CASE("red flags: a chain that is not the sum of its passes",
          "[calibrate]") {
  Profile profile = WithPass(ProfilePass::kForward, 1e-3, 0);
  for (const ProfilePass pass :
       {ProfilePass::kBackwardInput, ProfilePass::kBackwardWeight}) {
    profile.passes.push_back(profile.passes[0]);
    profile.passes.back().pass = pass;
  }
  SplitEntry split;
  split.model = profile.passes[0].model;
  split.type = "bf16";
  split.chain.median_s = 3.05e-3;
  profile.splits = {split};
  CHECK(FlagsOf(profile, Gpu()).empty());
  profile.splits[0].chain.median_s = 2.5e-3;
  CheckOne(profile, Gpu(), "+20.0 %");
  // Without R nothing can be said of a chain with it.
  profile.splits[0].recompute = true;
  CHECK(FlagsOf(profile, Gpu()).empty());
}

TEST_CASE("red flags: matrix products that outlast their pass", "[calibrate]") {
  Profile profile = WithPass(ProfilePass::kForward, 1e-3, 0);
  profile.passes[0].gemm_s = 0.9e-3;
  CHECK(FlagsOf(profile, Gpu()).empty());
  profile.passes[0].gemm_s = 1.2e-3;
  CheckOne(profile, Gpu(), "its matrix products alone take 1.2 ms");
}

}  // namespace
}  // namespace pipewright::red_flags_test
