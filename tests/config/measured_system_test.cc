// A system file from a profile: the fit, and what a simulated step takes of it.
#include "sim/config/measured_system.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/base/json.h"
#include "sim/profile/profile.h"
#include "sim/topology/system.h"
#include "tests/support/run_binary.h"
#include "tests/support/tiny_profile.h"

namespace pipewright::measured_system_test {
namespace {

using testing::BinaryResult;
using testing::RunBinary;

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kSizes[] = {kMiB / 16, kMiB, 16 * kMiB, 256 * kMiB};

Distribution Time(double seconds) { return testing::Around(seconds * 1e6); }

// Messages in a node of eight: 4 us and 200 GB/s; copies: 10 us and 50 GB/s
// out, 40 GB/s in.
Profile NodeOfEight() {
  Profile profile;
  ProfileSource source;
  source.kind = "calibrate";
  source.device = "NVIDIA H100 80GB HBM3";
  profile.sources = {source};
  for (const int64_t bytes : kSizes) {
    const auto size = static_cast<double>(bytes);
    TransferEntry send;
    send.operation = "send_recv";
    send.transport = kNcclTransport;
    send.bytes = bytes;
    send.nodes = 1;
    send.time = Time(4e-6 + size / 200e9);
    profile.transfers.push_back(send);
    CopyEntry copy;
    copy.bytes = bytes;
    copy.time = Time(10e-6 + size / 50e9);
    profile.copies.push_back(copy);
  }
  TransferEntry all;
  all.operation = "all_reduce";
  all.transport = kNcclTransport;
  all.ranks = 8;
  all.bytes = kMiB;
  all.nodes = 1;
  all.time = Time(1e-4);
  profile.transfers.push_back(all);
  profile.host_memory_bytes_per_s = 160e9;
  return profile;
}

TEST_CASE("measured system: least squares of relative errors", "[config]") {
  // Rows (1/2, 1/2), (1/2, 1), (1/4, 1) -> 1; by hand 20/17 and 10/17.
  const FittedLine line = FitLine({{1, 2}, {2, 2}, {4, 4}});
  CHECK(line.latency_s == Approx(20.0 / 17));
  CHECK(line.bytes_per_s == Approx(1.7));
  CHECK(line.error == Approx(3.0 / 17));
  // One size, and sizes that would need a latency below 0: bandwidth alone.
  CHECK(FitLine({{10, 2}}).latency_s == 0);
  CHECK(FitLine({{10, 2}}).bytes_per_s == Approx(5));
  CHECK(FitLine({{1, 1}, {2, 3}}).latency_s == 0);
}

TEST_CASE("measured system: links are the profile's, all else the base's",
          "[config]") {
  const std::string base = SystemText("dgx-h100").value();
  const auto made = SystemOfProfile(NodeOfEight(), "p.txtpb", base, "dgx-h100");
  REQUIRE(made.ok());
  const ShapeParams measured = ParseSystem(made->text, "my.textproto").value();
  const ShapeParams before = FindSystem("dgx-h100").value();
  // A message goes over two links, a copy over one.
  CHECK(measured.nvlink.bytes_per_s == Approx(200e9).epsilon(1e-6));
  CHECK(measured.nvlink.latency_s == Approx(2e-6).epsilon(1e-6));
  CHECK(measured.pcie.bytes_per_s == Approx(50e9).epsilon(1e-6));
  CHECK(measured.pcie.latency_s == Approx(10e-6).epsilon(1e-6));
  CHECK(measured.host.bytes_per_s == Approx(20e9));
  CHECK(measured.device_name == before.device_name);
  CHECK(measured.nic == before.nic);
  CHECK(measured.memory_bytes == before.memory_bytes);
  CHECK(measured.devices_per_node == 8);
  CHECK(absl::StrContains(made->report,
                          "of dgx-h100: nic (not measured: calibrate with GPUs "
                          "of two nodes), "));
  CHECK(absl::StrContains(
      made->report, absl::StrCat("device_name ", before.device_name,
                                 " (measured was NVIDIA H100 80GB HBM3), ")));
  CHECK(
      absl::StrContains(measured.nvlink.source,
                        "fit of latency + bytes / bandwidth to 4 times of "
                        "send_recv in a node, 64 KiB to 256 MiB, in p.txtpb"));
}

TEST_CASE("measured system: a profile without links, and a base without sense",
          "[config]") {
  const std::string base = SystemText("dgx-h100").value();
  Profile profile = NodeOfEight();
  profile.copies.clear();
  for (TransferEntry& entry : profile.transfers) entry.nodes = 0;
  CHECK(SystemOfProfile(profile, "p", base, "dgx-h100").status().code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK_FALSE(SystemOfProfile(NodeOfEight(), "p", "name: 1", "b").ok());
}

TEST_CASE("measured system: a step takes what the file says", "[config][cli]") {
  const testing::TemporaryFolder folder;
  const std::string profile =
      folder.Write("p.txtpb", WriteProfile(NodeOfEight()));
  const std::string file = folder.Path("my.textproto");
  const BinaryResult made = RunBinary(
      {"calibrate", "system", profile, "--system", "dgx-h100", "-o", file});
  INFO(made.out << made.err);
  REQUIRE(made.exit_code == 0);
  CHECK(absl::StrContains(made.out, "nvlink: 200 GBps, 2 us a link"));
  for (const char* const engine : {"fast", "simgrid"}) {
    const BinaryResult run = RunBinary(
        {"simulate", "--schedule", "gpipe", "--pp", "2", "--microbatches", "1",
         "--forward", "1ms", "--backward", "2ms", "--hop-bytes", "64MiB",
         "--system", file, "--engine", engine, "--json"});
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    // Two forwards, two backwards, a hop each way.
    const absl::StatusOr<Json> report = ParseJson(run.out);
    REQUIRE(report.ok());
    CHECK((*report)["iteration_s"].get<double>() ==
          Approx(6e-3 + 2 * (4e-6 + 64.0 * kMiB / 200e9)).epsilon(1e-6));
  }
  // Estimates know the device.
  const BinaryResult estimate = RunBinary(
      {"simulate", "--model", "llama3-8b", "--schedule", "1f1b", "--pp", "4",
       "--microbatches", "8", "--system", file, "--analytic"});
  INFO(estimate.err);
  CHECK(estimate.exit_code == 0);
  const BinaryResult unknown = RunBinary(
      {"calibrate", "system", profile, "--system", "dgx-h10", "-o", file});
  CHECK(unknown.exit_code == 2);
  CHECK(absl::StrContains(unknown.err, "dgx-h100"));
  CHECK(RunBinary({"calibrate", "system", profile, "-o", file}).exit_code == 2);
  CHECK(RunBinary({"calibrate", "system", profile, "--system", "dgx-h100"})
            .exit_code == 2);
}

}  // namespace
}  // namespace pipewright::measured_system_test
