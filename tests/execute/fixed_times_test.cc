// Seconds that kernels take come out as the step that they add up to by hand:
// in the virtual clock passes of 3 (F), 5 (B) and 2 (W) a layer, steps of 7.
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "execute/train/training.h"
#include "sim/program/program.h"
#include "sim/schedule/registry.h"
#include "tests/support/fixed_time_kernels.h"
#include "tests/support/small_training.h"

namespace pipewright::fixed_times_test {
namespace {

constexpr testing::FixedTimes kTimes = {.forward_s = 3,
                                        .backward_input_s = 5,
                                        .backward_weight_s = 2,
                                        .optimizer_s = 7};

struct Sizes {
  int pp = 2;
  int microbatches = 2;
  double hop_s = 0;
  OptimizerMode optimizer = OptimizerMode::kSynchronised;
  // Layers of each stage; empty: one.
  std::vector<int> layers;
};

TrainedRun Train(const std::string& schedule, const Sizes& sizes) {
  ScheduleParams params;
  params.pp = sizes.pp;
  params.microbatches = sizes.microbatches;
  const auto built =
      std::make_shared<const Schedule>(BuildSchedule(schedule, params).value());
  ExecutedModel model = testing::SmallModel(PW_GPT, sizes.pp, 1);
  model.stages = EvenStages(sizes.pp, sizes.pp);
  for (size_t stage = 0; stage < sizes.layers.size(); ++stage) {
    for (int layer = 1; layer < sizes.layers[stage]; ++layer) {
      std::vector<StagePart>& parts = model.stages[stage];
      parts.insert(
          parts.begin() + 1,
          {.part = PW_LAYER, .layer = 100 * static_cast<int>(stage) + layer});
    }
  }
  LowerOptions lower;
  // Not what the passes take: only measured seconds may count.
  lower.costs = PassCosts::Uniform(
      sizes.pp, 1,
      {.forward_s = 100, .backward_input_s = 100, .backward_weight_s = 100});
  lower.costs.optimizer_s = 100;
  lower.network.hop_s = sizes.hop_s;
  lower.optimizer = sizes.optimizer;
  lower.iterations = 3;
  const Program program = Lower(built, lower).value();
  const absl::StatusOr<TrainedRun> trained =
      TrainThreads(program, model, testing::FixedTimeKernels(kTimes),
                   {.worker = WorkerOptionsFor(program, DataParallel::kNone,
                                               sizes.optimizer)});
  INFO(trained.status());
  REQUIRE(trained.ok());
  return *trained;
}

// Three steps of so many seconds each, in which each rank computes so long.
void CheckSteps(const std::string& schedule, const Sizes& sizes, double step_s,
                const std::vector<double>& busy_s) {
  const RunSummary& run = Train(schedule, sizes).run.summary;
  INFO(schedule << " pp " << sizes.pp << " microbatches "
                << sizes.microbatches);
  CHECK(run.iteration_end_s ==
        std::vector<double>{step_s, 2 * step_s, 3 * step_s});
  CHECK(run.iteration_s() == step_s);
  std::vector<double> busy;
  for (const RankTimes& times : run.times[0]) busy.push_back(times.busy_s);
  CHECK(busy == busy_s);
}

// m microbatches through p equal stages and back: the last rank waits for
// p - 1 forwards, the first for as many backwards.
TEST_CASE("execute: measured seconds of gpipe and 1f1b by hand", "[execute]") {
  // (m + p - 1) (3 + 5 + 2) + 7.
  CheckSteps("gpipe", {.pp = 2, .microbatches = 2}, 37, {20, 20});
  CheckSteps("gpipe", {.pp = 3, .microbatches = 4}, 67, {40, 40, 40});
  CheckSteps("1f1b", {.pp = 2, .microbatches = 4}, 57, {40, 40});
  CheckSteps("1f1b", {.pp = 4, .microbatches = 8}, 117, {80, 80, 80, 80});
}

// pp 2, the ends of passes as their dates:
//   0: F0 3 F1 6 ... B0 16 W0 18 F2 21 B1 26 W1 28 F3 31 B2 36 W2 38 . B3 44 W3
//   46
//   1: . F0 6 B0 11 F1 14 B1 19 W0 21 F2 24 B2 29 W1 31 F3 34 B3 39 W2 41 W3 43
// where B3 of rank 0 waits for that of rank 1 until 39. pp 3 the same way:
//   0: F0 3 F1 6 F2 9 B0 24 W0 26 F3 29 B1 34 W1 36 F4 39 B2 44 W2 46 F5 49
//      B3 54 W3 56 B4 62 W4 64 B5 70 W5 72
//   1: F0 6 F1 9 B0 19 F2 22 B1 27 W0 29 F3 32 B2 37 W1 39 F4 42 B3 47 W2 49
//      F5 52 B4 57 W3 59 B5 65 W4 67 W5 69
//   2: F0 9 B0 14 F1 17 B1 22 F2 25 B2 30 W0 32 F3 35 B3 40 W1 42 F4 45 B4 50
//      W2 52 F5 55 B5 60 W3 62 W4 64 W5 66
TEST_CASE("execute: measured seconds of zb-h1 by hand", "[execute]") {
  CheckSteps("zb-h1", {.pp = 2, .microbatches = 4}, 46 + 7, {40, 40});
  CheckSteps("zb-h1", {.pp = 3, .microbatches = 6}, 72 + 7, {60, 60, 60});
}

// Rank 0 is done with F0 at 3, F1 at 6; hops take 1. Rank 1: F0 4 to 7, F1 7 to
// 10, then 1f1b: F0 4-7, BW0 7-14, F1 14-17, BW1 17-24; rank 0: BW0 15-22,
// BW1 25-32. No step, so that the next iteration begins at once.
TEST_CASE("execute: measured seconds with hops by hand", "[execute]") {
  const TrainedRun run =
      Train("1f1b", {.hop_s = 1, .optimizer = OptimizerMode::kNone});
  CHECK(run.run.summary.iteration_end_s[0] == 32);
  CHECK(run.run.summary.times[0][0].busy_s == 20);
  CHECK(run.run.summary.times[0][1].busy_s == 20);
}

// Stages of 1 and 2 layers: F 3 and 6, BW 7 and 14.
// gpipe: rank 0 F0 0-3 F1 3-6; rank 1 F0 3-9 F1 9-15, BW0 15-29 BW1 29-43;
// rank 0 BW0 29-36 BW1 43-50.
TEST_CASE("execute: measured seconds of uneven stages by hand", "[execute]") {
  CheckSteps("gpipe", {.layers = {1, 2}}, 50 + 7, {20, 40});
}

}  // namespace
}  // namespace pipewright::fixed_times_test
