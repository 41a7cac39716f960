// An optimizer on the host as a Program: what runs, in which order, how often,
// and by hand how long.
#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/engine/fast_engine.h"
#include "sim/engine/fluid_clock.h"
#include "sim/program/cursor.h"
#include "tests/support/host_runs.h"
#include "tests/support/lowering.h"
#include "tests/support/reference_engine.h"

namespace pipewright::lower_offload_test {
namespace {

using testing::HostOptions;
using testing::PlainHost;
using testing::RunSeconds;

constexpr char kOne[] =
    "pp 1 vpp 1 microbatches 1 slices 1 replicas 1 placement plain\n"
    "0: F0 BW0";
constexpr char kTwo[] =
    "pp 2 vpp 1 microbatches 2 slices 1 replicas 1 placement plain\n"
    "0: F0 F1 BW0 BW1\n"
    "1: F0 BW0 F1 BW1";
constexpr char kChunks[] =
    "pp 2 vpp 2 microbatches 2 slices 1 replicas 1 placement loop\n"
    "0: F0.0 F1.0 F0.1 F1.1 BW0.1 BW1.1 BW0.0 BW1.0\n"
    "1: F0.0 F1.0 F0.1 F1.1 BW0.1 BW1.1 BW0.0 BW1.0";

// How often each kind of operation runs in one iteration of a rank.
std::map<OpKind, int> CountsOf(const Program& program, int rank) {
  std::map<OpKind, int> counts;
  OpCursor cursor(program, rank, 1);
  for (Op op; cursor.Next(&op);) ++counts[op.kind];
  return counts;
}

// One device whose copies move 8e9 bytes a second each way and whose host steps
// 1e9 and casts 4e9 parameters a second, whatever its memory.
const PlainHost kRound = {.copy_bytes_per_s = 8e9,
                          .memory_bytes_per_s = 1e18,
                          .adam_rate = 1e9,
                          .cast_rate = 4e9,
                          .device_rate = 4e9};

// F takes 1 s, BW 2 s; 4e9 parameters in two subgroups.
LowerOptions RoundOptions(OptimizerPlacement placement) {
  LowerOptions options =
      HostOptions(kRound, {.parameters = 4e9, .subgroups = 2, .on_host = 2});
  options.costs = PassCosts::Uniform(
      1, 1, {.forward_s = 1, .backward_input_s = 1, .backward_weight_s = 1});
  options.offload.placement = placement;
  options.offload.flush = TraitsOf(placement).flush;
  options.offload.flush_rate = 2e9;
  return options;
}

void CheckEnd(const Program& program, double seconds) {
  for (const std::string engine : {"fast", "clock", "queue", "simgrid"}) {
    INFO(engine);
    CHECK(RunSeconds(program, engine) == Approx(seconds).epsilon(1e-9));
  }
}

// By hand. 3 s of passes, a flush of 2 s, and twice 2 s of step, 0.5 s of cast
// and 0.5 s of copy.
TEST_CASE("offload: ZeRO-Offload by hand", "[offload]") {
  LowerOptions options = RoundOptions(OptimizerPlacement::kZeroOffload);
  CheckEnd(Lowered(Parsed(kOne), options), 3 + 2 + 2 * 3);
  // A copy of 8e9 bytes instead.
  options.offload.flush = GradientFlush::kAsynchronous;
  CheckEnd(Lowered(Parsed(kOne), options), 3 + 1 + 2 * 3);
}

// Half of the subgroups stay: half of the flush, one subgroup of the host, and
// one of the device in 0.5 s.
TEST_CASE("offload: TwinFlow by hand", "[offload]") {
  LowerOptions options = RoundOptions(OptimizerPlacement::kTwinFlow);
  options.offload.ratio = 0.5;
  CheckEnd(Lowered(Parsed(kOne), options), 3 + 1 + 3 + 0.5);
  options.offload.ratio = 0;
  CheckEnd(Lowered(Parsed(kOne), options), 3 + 2 * 0.5);
}

// Gradients of the first subgroup alone: 4e9 bytes in 0.5 s. The host steps it
// in 2 s while three arrays of 8e9 bytes of the second one come; the device
// steps that in 0.5 s, and it goes back.
TEST_CASE("offload: Deep Optimizer States by hand", "[offload]") {
  LowerOptions options = RoundOptions(OptimizerPlacement::kDeepOptimizerStates);
  options.offload.stride = 2;
  options.offload.flush_last = true;
  const Program program = Lowered(Parsed(kOne), options);
  // Nothing shared: the arrays are there before the host is ready.
  CHECK(RunSeconds(program, "fast") == Approx(3 + 0.5 + 2 + 0.5 + 1));
  // In 2.5 s the arrays have had 20e9 bytes. Then the weights of the first one
  // come beside them, four quarters of the link: 4/3 e9 more of each take 2/3
  // s. Going back takes 3 s.
  for (const std::string engine : {"clock", "queue", "simgrid"}) {
    INFO(engine);
    CHECK(RunSeconds(program, engine) ==
          Approx(3 + 0.5 + 2.5 + 2.0 / 3 + 0.5 + 3).epsilon(1e-9));
  }
}

// Cast 0.5 s, copy 1 s, step 2 s, copy back 1 s, cast 0.5 s: of the first
// subgroup from 3 s on, of the second behind it on each stream.
TEST_CASE("offload: SuperOffload by hand", "[offload]") {
  LowerOptions options = RoundOptions(OptimizerPlacement::kSuperOffload);
  const Program program = Lowered(Parsed(kOne), options);
  CheckEnd(program, 10);
  CHECK(CountsOf(program, 0)[OpKind::kCast] == 4);
  CHECK(CountsOf(program, 0)[OpKind::kHostUndo] == 0);

  // The step of iteration 1 is undone: behind it 2 s + 2 s for each subgroup,
  // the last one's copy and cast.
  options.failing_steps = {1};
  options.iterations = 5;
  const Program undone = Lowered(Parsed(kOne), options);
  for (const auto run : {RunFast, RunOnFluidClock}) {
    const auto summary = run(undone, {});
    REQUIRE(summary.ok());
    const std::vector<double>& ends = summary->iteration_end_s;
    REQUIRE(ends.size() == 5);
    CHECK(ends[0] == Approx(10));
    CHECK(ends[1] - ends[0] == Approx(10 + 8 + 1 + 0.5));
    CHECK(ends[2] - ends[1] == Approx(10));
    CHECK(ends[4] - ends[3] == Approx(10));
  }
}

// Every placement with every form of data parallelism, one and two chunks: each
// subgroup is stepped once, and the naive reference agrees where nothing is
// shared.
TEST_CASE("offload: with pipelines and replicas", "[offload]") {
  int programs = 0;
  for (const DataParallelTraits& mode : kDataParallelModes) {
    // Works on layers, which have no optimizer on the host.
    if (mode.mode == DataParallel::kOdc) continue;
    for (const PlacementTraits& placement : kOptimizerPlacements) {
      if (placement.placement == OptimizerPlacement::kGpu) continue;
      for (const std::string text : {kTwo, kChunks}) {
        INFO(mode.name << ", " << placement.name << "\n" << text);
        const auto schedule = Parsed(text);
        const int stages = schedule->stages();
        LowerOptions options = HostOptions(
            kRound, {.parameters = 1e9, .subgroups = 5, .on_host = 5}, 2);
        options.costs = PassCosts::Uniform(
            2, schedule->vpp(),
            {.forward_s = 1, .backward_input_s = 1, .backward_weight_s = 1});
        options.data_parallel = mode.mode;
        options.replicas = mode.reduces ? 2 : 1;
        options.network = NetworkOf(
            testing::HostCluster(kRound, 2 * options.replicas, 1, 1e-5),
            testing::DevicesTo(2 * options.replicas), 2, options.replicas);
        options.hop_bytes = 1e8;
        options.gradient_bytes.assign(stages, 4e9);
        options.parameter_bytes.assign(stages, 2e9);
        options.iterations = 3;
        OptimizerOffload& offload = options.offload;
        offload.placement = placement.placement;
        offload.flush = placement.flush;
        offload.flush_rate = 1e9;
        offload.parameters.assign(stages, 1e9);
        offload.subgroup_size = 1e8;
        offload.stride = 3;
        offload.ratio = placement.has_ratio ? 0.75 : 1;
        offload.flush_last = true;
        const Program program = Lowered(schedule, options);
        ++programs;
        const int subgroups = 10 * schedule->vpp();
        for (int rank = 0; rank < 2; ++rank) {
          std::map<OpKind, int> counts = CountsOf(program, rank);
          CHECK(counts[OpKind::kHostAdam] + counts[OpKind::kOptimizer] ==
                subgroups);
          const SubgroupPlan plan = PlanOf(*schedule, offload, rank);
          const int visitors = plan.Count(SubgroupStep::kDevice);
          if (placement.has_stride) CHECK(visitors > 0);
          if (placement.placement != OptimizerPlacement::kSuperOffload) {
            CHECK(counts[OpKind::kHostCast] == counts[OpKind::kHostAdam]);
            CHECK(counts[OpKind::kCopyIn] ==
                  counts[OpKind::kHostAdam] + 3 * visitors);
          }
          const bool blocks = placement.flush == GradientFlush::kBlocking;
          CHECK(counts[OpKind::kFlush] == (blocks ? schedule->vpp() : 0));
        }
        const auto fast = RunFast(program, {});
        const auto reference = RunReference(program);
        const auto clock = RunOnFluidClock(program, {});
        REQUIRE(fast.ok());
        REQUIRE(reference.ok());
        REQUIRE(clock.ok());
        for (size_t index = 0; index < 3; ++index) {
          CHECK(fast->iteration_end_s[index] ==
                Approx(reference->iteration_end_s[index]).epsilon(1e-9));
          // Sharing never helps.
          CHECK(clock->iteration_end_s[index] >=
                fast->iteration_end_s[index] * (1 - 1e-9));
        }
        CHECK(RunSeconds(program, "queue") ==
              Approx(clock->iteration_end_s[0]).epsilon(1e-9));
      }
    }
  }
  CHECK(programs == 5 * 4 * 2);
}

// An offload never makes a step silently better.
TEST_CASE("offload: a slow link and a free one", "[offload]") {
  PlainHost host = {.memory_bytes_per_s = 40e9, .cast_rate = 2e9};
  double last_s = 0;
  for (const double copies : {1e15, 1e11, 1e10, 1e9, 1e6, 1e3}) {
    host.copy_bytes_per_s = copies;
    const double step_s =
        RunSeconds(testing::HostProgram(host, {.parameters = 2e9,
                                               .subgroups = 8,
                                               .stride = 3,
                                               .on_host = 8,
                                               .flush_last = true}),
                   "clock");
    CHECK(step_s >= last_s);
    last_s = step_s;
  }
  CHECK(last_s > 1e6);
}

TEST_CASE("offload: what is refused", "[offload]") {
  const auto refusal = [](const LowerOptions& options) {
    return std::string(Lower(Parsed(kOne), options).status().message());
  };
  LowerOptions options = RoundOptions(OptimizerPlacement::kZeroOffload);
  REQUIRE(refusal(options).empty());
  options.optimizer = OptimizerMode::kNone;
  CHECK(refusal(options).find("strategy.optimizer_placement") == 0);
  options = RoundOptions(OptimizerPlacement::kZeroOffload);
  options.offload.subgroup_size = 1;
  CHECK(refusal(options).find("strategy.subgroup_size") == 0);
  options = RoundOptions(OptimizerPlacement::kZeroOffload);
  options.failing_steps = {1};
  CHECK(refusal(options).find("strategy.rollback_iterations") == 0);
}

}  // namespace
}  // namespace pipewright::lower_offload_test
