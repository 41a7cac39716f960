// The optimizer on the host in time: the update of one rank on every engine
// that shares links, against the oracle and against a plain solver that knows
// no Program.
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/engine/fluid_clock.h"
#include "sim/engine/simgrid_engine.h"
#include "tests/support/host_runs.h"
#include "tests/support/json.h"
#include "tests/support/lowering.h"
#include "tests/support/oracle.h"
#include "tests/support/plain_host.h"

namespace pipewright::host_share_test {
namespace {

using testing::HostProgram;
using testing::Json;
using testing::PlainHost;
using testing::PlainStep;
using testing::PlainStepSeconds;
using testing::RunSeconds;

constexpr const char* kSharing[] = {"simgrid", "clock", "queue"};

PlainHost HostOf(const Json& params) {
  const double adam = params.at("adam_max_Bps");
  return {
      .copy_bytes_per_s = params.at("P_GBps").get<double>() * 1e9,
      .memory_bytes_per_s = params.at("W_GBps_per_rank").get<double>() * 1e9,
      .adam_bytes = params.at("adam_dram_bytes_per_param"),
      .cast_bytes = params.at("cast_dram_bytes_per_param"),
      // 1000 stands for no limit, and is none at these bandwidths.
      .adam_rate = adam * 1e9,
      .cast_rate = params.at("cast_max_Bps").get<double>() * 1e9};
}

TEST_CASE("host: the update of the oracle's machines", "[offload][engine]") {
  int compared = 0;
  const Json oracle = testing::LoadOracle("dos_schedule_cases");
  for (const Json& each : oracle.at("minides")) {
    const PlainHost host = HostOf(each.at("params"));
    PlainStep step = {.parameters = each.at("N"),
                      .subgroups = each.at("nsub"),
                      .on_host = each.at("nsub")};
    const auto check = [&](double expected_s) {
      const Program program = HostProgram(host, step);
      for (const std::string engine : kSharing) {
        INFO(each.at("set") << ", stride " << step.stride << ", " << engine);
        CHECK(RunSeconds(program, engine) ==
              Approx(expected_s).epsilon(1e-9).margin(0));
        ++compared;
      }
      CHECK(PlainStepSeconds(host, step) ==
            Approx(expected_s).epsilon(1e-9).margin(0));
    };
    check(each.at("T_zero_offload_s"));
    for (const auto& [stride, seconds] : each.at("T_dos_s").items()) {
      step.stride = std::stoi(stride);
      check(seconds);
    }
  }
  CHECK(compared == 2 * 8 * 3);
}

// The reference leaves a subgroup on the device where no trigger follows; a
// step that ends so is not done.
TEST_CASE("host: the last subgroup comes back", "[offload][engine]") {
  const PlainHost host = {.copy_bytes_per_s = 4e9, .memory_bytes_per_s = 28e9};
  PlainStep step = {
      .parameters = 2e9, .subgroups = 2, .stride = 2, .on_host = 2};
  // Stepped on the device behind 12e9 bytes in, three at a time; then as many
  // go back at 4e9 a second.
  const double without_s = RunSeconds(HostProgram(host, step), "clock");
  step.flush_last = true;
  const double with_s = RunSeconds(HostProgram(host, step), "clock");
  CHECK(with_s == Approx(without_s + 3).epsilon(1e-12));
  CHECK(PlainStepSeconds(host, step) == Approx(with_s).epsilon(1e-12));
}

// By hand: Adam on a full memory and one copy, each at the same rate in its own
// unit. 28 W + 1 = 29 bytes of memory for a parameter and a byte: of 29e9 a
// second both have 1e9.
TEST_CASE("host: a copy beside a step has a byte for each parameter",
          "[offload][engine]") {
  const PlainHost host = {.copy_bytes_per_s = 25e9, .memory_bytes_per_s = 29e9};
  Program program = Lowered(
      Parsed("pp 1 vpp 1 microbatches 1 slices 1 replicas 1 "
             "placement plain\n0: F0 BW0"),
      [&] {
        LowerOptions options = testing::HostOptions(host, {.parameters = 1});
        options.offload = {};
        options.optimizer = OptimizerMode::kNone;
        return options;
      }());
  AttachOp(program, 0, 2,
           {.kind = OpKind::kHostAdam,
            .stream = Stream::kCpu,
            .parameters = 2e9,
            .host_bytes_each = 28});
  AttachOp(
      program, 0, 2,
      {.kind = OpKind::kCopyOut, .stream = Stream::kMasterCopy, .bytes = 1e9});
  REQUIRE(VerifyProgram(program) == absl::OkStatus());
  for (const std::string engine : kSharing) {
    INFO(engine);
    // 1 s together; then 1e9 parameters at 29/28 e9 a second.
    CHECK(RunSeconds(program, engine) ==
          Approx(1 + 28.0 / 29).epsilon(1e-9).margin(0));
  }
  // Alone: 2e9 parameters at 29e9 bytes a second.
  CHECK(RunSeconds(program, "fast") ==
        Approx(2 * 28.0 / 29).epsilon(1e-12).margin(0));
}

TEST_CASE("host: random machines, against filling from scratch",
          "[offload][engine]") {
  int strides = 0;
  for (uint32_t seed = 1; seed <= 120; ++seed) {
    std::mt19937 random(seed);
    const auto between = [&](double least, double most) {
      return least +
             (most - least) * static_cast<double>(random() % 4096) / 4096;
    };
    PlainHost host = {.copy_bytes_per_s = between(2e9, 60e9),
                      .memory_bytes_per_s = between(10e9, 200e9),
                      .adam_bytes = between(4, 40),
                      .cast_bytes = between(1, 12),
                      .device_rate = between(5e9, 40e9)};
    if (seed % 10 == 0) {  // as SimGrid counts them
      host.adam_bytes = std::round(host.adam_bytes);
      host.cast_bytes = std::round(host.cast_bytes);
    }
    if (seed % 2 == 0) host.adam_rate = between(0.3e9, 4e9);
    if (seed % 3 == 0) host.cast_rate = between(0.3e9, 8e9);
    const int subgroups = 1 + static_cast<int>(random() % 24);
    PlainStep step = {
        .parameters = between(1e8, 5e9),
        .subgroups = subgroups,
        .stride = seed % 4 == 0 ? 0 : 2 + static_cast<int>(random() % 6),
        .on_host =
            seed % 5 == 0 ? static_cast<int>(random() % subgroups) : subgroups,
        .flush_last = seed % 2 == 0};
    strides += step.stride > 0 ? 1 : 0;
    INFO("seed " << seed << ": " << subgroups << " subgroups, stride "
                 << step.stride << ", on the host " << step.on_host);
    const Program program = HostProgram(host, step);
    const double expected_s = PlainStepSeconds(host, step);
    CHECK(RunSeconds(program, "clock") ==
          Approx(expected_s).epsilon(1e-9).margin(0));
    CHECK(RunSeconds(program, "queue") ==
          Approx(expected_s).epsilon(1e-9).margin(0));
    if (seed % 10 != 0) continue;
    CHECK(RunSeconds(program, "simgrid") ==
          Approx(expected_s).epsilon(1e-9).margin(0));
  }
  CHECK(strides == 90);
}

TEST_CASE("host: SimGrid says that it counts whole flows alone",
          "[offload][engine]") {
  const PlainHost host = {.copy_bytes_per_s = 25e9,
                          .memory_bytes_per_s = 36e9,
                          .adam_bytes = 28.0 + 1.0 / 8192};
  const Program program = HostProgram(
      host, {.parameters = 1e9, .subgroups = 2, .stride = 2, .on_host = 2});
  const absl::Status status = RunSimgrid(program, {}).status();
  CHECK(status.code() == absl::StatusCode::kUnimplemented);
  CHECK(absl::StrContains(status.message(), "engine fluid knows all"));
  CHECK(RunOnFluidClock(program, {}).ok());
}

// Each of these is what a mistake in the lowering or in the sharing would be;
// the oracle's number must not survive it.
TEST_CASE("host: planted faults change the update", "[offload][engine]") {
  const PlainHost host = {.copy_bytes_per_s = 25e9,
                          .memory_bytes_per_s = 36e9,
                          .cast_rate = 2.12e9};
  // Some matter where the copies are the limit, some where the host is.
  const auto changed = [&](const auto& fault) {
    for (const int stride : {2, 4}) {
      Program program = HostProgram(host, {.parameters = 2.829e9,
                                           .subgroups = 21,
                                           .stride = stride,
                                           .on_host = 21});
      const double good_s = RunSeconds(program, "clock");
      for (SideOp& op : program.ranks[0].side_ops) fault(op);
      const auto summary = RunOnFluidClock(program, {});
      if (!summary.ok() ||
          std::abs(summary->iteration_end_s[0] / good_s - 1) > 1e-3) {
        return true;
      }
    }
    return false;
  };
  CHECK_FALSE(changed([](SideOp&) {}));
  CHECK(changed([](SideOp& op) {  // a weight forgotten
    if (op.kind == OpKind::kHostAdam) op.host_bytes_each = 1;
  }));
  CHECK(changed([](SideOp& op) {  // a limit forgotten
    op.most_per_s = 0;
  }));
  CHECK(changed([](SideOp& op) {  // all arrays on one stream
    if (op.stream == Stream::kMomentumCopy) op.stream = Stream::kVarianceCopy;
  }));
  CHECK(changed([](SideOp& op) {  // both directions on one link
    if (op.kind == OpKind::kCopyOut) op.kind = OpKind::kCopyIn;
  }));
  CHECK(changed([](SideOp& op) {  // casts between the steps
    if (op.stream == Stream::kCast) op.stream = Stream::kCpu;
  }));
  CHECK(changed([](SideOp& op) {  // one weight copy at a time
    if (op.stream == Stream::kWeightCopy) op.stream = Stream::kH2D;
  }));
  CHECK(changed([](SideOp& op) {  // half of the states
    if (op.kind == OpKind::kCopyOut) op.bytes /= 2;
  }));
}

// By hand: devices of 30 GB/s each way and a share of 40 GB/s of their host's
// memory, which has 320. Each moves 30e9 bytes out and as many in, and in 40e9
// bytes of memory a step of 40/28 e9 parameters.
TEST_CASE("host: eight devices have a share of the memory each, one has more",
          "[offload][engine]") {
  const PlainHost host = {.copy_bytes_per_s = 30e9, .memory_bytes_per_s = 40e9};
  LowerOptions options =
      testing::HostOptions(host, {.parameters = 1}, /*ranks=*/8);
  options.offload = {};
  options.optimizer = OptimizerMode::kNone;
  std::string order =
      "pp 8 vpp 1 microbatches 1 slices 1 replicas 1 placement plain";
  for (int rank = 0; rank < 8; ++rank) {
    absl::StrAppend(&order, "\n", rank, ": F0 BW0");
  }
  const auto seconds = [&](int devices, bool copies, bool steps,
                           const std::string& engine) {
    Program program = Lowered(Parsed(order), options);
    for (int rank = 0; rank < devices; ++rank) {
      if (copies) {
        AttachOp(program, rank, 2,
                 {.kind = OpKind::kCopyOut,
                  .stream = Stream::kMasterCopy,
                  .bytes = 30e9});
        AttachOp(program, rank, 2,
                 {.kind = OpKind::kCopyIn,
                  .stream = Stream::kMomentumCopy,
                  .bytes = 30e9});
      }
      if (steps) {
        AttachOp(program, rank, 2,
                 {.kind = OpKind::kHostAdam,
                  .stream = Stream::kCpu,
                  .parameters = 40e9 / 28,
                  .host_bytes_each = 28});
      }
    }
    REQUIRE(VerifyProgram(program) == absl::OkStatus());
    return RunSeconds(program, engine);
  };
  for (const std::string engine : kSharing) {
    INFO(engine);
    // 60 GB/s of one device, and of five 300; six want 360, and have 53.3 each.
    CHECK(seconds(1, true, false, engine) == Approx(1).epsilon(1e-9));
    CHECK(seconds(5, true, false, engine) == Approx(1).epsilon(1e-9));
    CHECK(seconds(6, true, false, engine) == Approx(360. / 320).epsilon(1e-9));
    CHECK(seconds(8, true, false, engine) == Approx(480. / 320).epsilon(1e-9));
    // Cores have no neighbour's part, however idle he is.
    CHECK(seconds(1, false, true, engine) == Approx(1).epsilon(1e-9));
    CHECK(seconds(8, false, true, engine) == Approx(1).epsilon(1e-9));
    // Copies beside a step go on in what the neighbours leave; where all do
    // both, 100e9 bytes of each have 40 GB/s.
    CHECK(seconds(1, true, true, engine) == Approx(1).epsilon(1e-9));
    CHECK(seconds(3, true, true, engine) == Approx(1).epsilon(1e-9));
    CHECK(seconds(8, true, true, engine) == Approx(2.5).epsilon(1e-9));
  }
  // If nothing is shared, all take what they take alone: a step its share,
  // copies PCIe.
  CHECK(seconds(8, true, false, "fast") == Approx(1).epsilon(1e-12));
  CHECK(seconds(8, false, true, "fast") == Approx(1).epsilon(1e-12));
}

// A PCIe switch halves what two devices get of it at once, whatever their
// hosts' memory does.
TEST_CASE("host: two devices behind one switch", "[offload][engine]") {
  const PlainHost host = {.copy_bytes_per_s = 8e9, .memory_bytes_per_s = 1e12};
  LowerOptions options =
      testing::HostOptions(host, {.parameters = 1}, /*ranks=*/2);
  options.offload = {};
  options.optimizer = OptimizerMode::kNone;
  const auto seconds = [&](int per_switch, const std::string& engine) {
    options.network = NetworkOf(testing::HostCluster(host, 2, per_switch),
                                testing::DevicesTo(2), 2, 1);
    Program program =
        Lowered(Parsed("pp 2 vpp 1 microbatches 1 slices 1 replicas 1 "
                       "placement plain\n0: F0 BW0\n1: F0 BW0"),
                options);
    for (int rank = 0; rank < 2; ++rank) {
      AttachOp(program, rank, 2,
               {.kind = OpKind::kCopyOut,
                .stream = Stream::kMasterCopy,
                .bytes = 8e9});
    }
    return RunSeconds(program, engine);
  };
  for (const std::string engine : kSharing) {
    INFO(engine);
    CHECK(seconds(1, engine) == Approx(1).epsilon(1e-9));
    CHECK(seconds(2, engine) == Approx(2).epsilon(1e-9));
  }
  CHECK(seconds(2, "fast") == Approx(1).epsilon(1e-12));
}

}  // namespace
}  // namespace pipewright::host_share_test
