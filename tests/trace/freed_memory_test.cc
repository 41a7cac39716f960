// The curve of memory gives offloaded activations back at their FREE, not where
// their copy has ended.
#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "sim/engine/fast_engine.h"
#include "sim/memory/schedule_memory.h"
#include "sim/model/stages.h"
#include "sim/trace/memory_timeline.h"
#include "sim/trace/timeline.h"
#include "tests/support/lowering.h"
#include "tests/support/small_training.h"

namespace pipewright::freed_memory_test {
namespace {

TEST_CASE("trace: memory is given back at FREE", "[trace][memory][offload]") {
  // The copy is over while F1 runs, FREE stands behind F2.
  const auto schedule = Parsed(
      "pp 1 vpp 1 microbatches 3 slices 1 replicas 1 placement plain\n"
      "0: F0 O0 F1 F2 FREE0 L0 BW0 BW1 BW2");
  LowerOptions options;
  options.costs = PassCosts::Uniform(1, 1,
                                     {.forward_s = 4,
                                      .backward_input_s = 2,
                                      .backward_weight_s = 2,
                                      .offload_s = 1,
                                      .load_s = 1});
  options.iterations = 1;
  const Program program = Lowered(schedule, options);
  FullTrace trace;
  REQUIRE(RunFast(program, {.trace = &trace}).ok());
  const ExecutedModel model = testing::SmallModel(PW_LLAMA, 1, 1);
  const ModelSpec spec = testing::SpecOf(model);
  TrainingSpec training;
  training.sequence = model.sequence;
  const StageLayout layout = EvenLayout(spec, training, 1, 1).value();
  const ScheduleMemory memory =
      BuildScheduleMemory(spec, training, layout, *schedule, MemoryOptions());
  const int64_t kept = memory.stages[0]->kept;
  const auto samples = MemoryOverTime(program, memory, trace.ops(), 0, 0);
  const auto at = [&](double time_s) {
    int64_t held = 0;
    for (const MemorySample& sample : samples[0]) {
      if (sample.time_s > time_s) break;
      held = sample.bytes[MemoryKind::kActivations];
    }
    return held;
  };
  // F2 runs from 8 on; all three are there. FREE is at 12, the load begins.
  const int64_t inside =
      memory.stages[0]
          ->forward.peak.of[static_cast<int>(MemoryKind::kActivations)];
  CHECK(at(9) == 2 * kept + inside);
  // What is loaded is there from the begin of its copy, which ends at 13.
  CHECK(at(12.5) == 3 * kept);
  int64_t highest = 0;
  for (const MemorySample& sample : samples[0]) {
    highest = std::max(highest, sample.bytes.total());
  }
  CHECK(highest == memory.ranks[0].peak());
  CHECK(samples[0].back().bytes == memory.ranks[0].fixed);
  // The counter of traces has the same points.
  const Timeline timeline = BuildTimeline(program, trace.ops(), &memory);
  double counted = 0;
  for (const Timeline::Counter& counter : timeline.counters) {
    if (!counter.in_bytes) continue;
    for (const Timeline::Sample& sample : counter.samples) {
      counted = std::max(counted, sample.value);
    }
  }
  CHECK(counted == static_cast<double>(highest));
}

}  // namespace
}  // namespace pipewright::freed_memory_test
