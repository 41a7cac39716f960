#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/memory/activations.h"
#include "sim/program/lower.h"
#include "sim/program/program.h"
#include "sim/schedule/registry.h"
#include "sim/trace/timeline.h"

namespace pipewright::timeline_runs_test {
namespace {

constexpr int kReplicas = 2;
constexpr int kIterations = 2;

// `schedule` on the fast engine: F=3, B=5, W=7, hop 2 (all ms), DDP.
Program LowerExample(std::shared_ptr<const Schedule> schedule) {
  LowerOptions options;
  StageCosts costs;
  costs.forward_s = 3e-3;
  costs.backward_input_s = 5e-3;
  costs.backward_weight_s = 7e-3;
  options.costs = PassCosts::Uniform(schedule->pp(), schedule->vpp(), costs);
  options.network.hop_s = 2e-3;
  options.data_parallel =
      schedule->update_every == 1 ? DataParallel::kNone : DataParallel::kDdp;
  options.replicas = kReplicas;
  options.gradient_bytes.assign(schedule->stages(), 1e6);
  options.parameter_bytes.assign(schedule->stages(), 1e6);
  options.iterations = kIterations;
  return Lower(std::move(schedule), options).value();
}

TEST_CASE("trace: every schedule's run makes a sound timeline", "[trace]") {
  for (const ScheduleInfo* info : AllSchedules()) {
    INFO(info->name);
    ScheduleParams params;
    params.pp = 4;
    params.vpp = info->default_vpp;
    params.microbatches = 8;
    const auto schedule = std::make_shared<const Schedule>(
        BuildSchedule(info->name, params).value());
    const Program program = LowerExample(schedule);
    FullTrace trace;
    EngineOptions options;
    options.trace = &trace;
    REQUIRE(FindEngine("fast").value()->run(program, options).ok());
    const Timeline timeline = BuildTimeline(program, trace.ops());
    // Engines may leave out replicas that are exactly alike.
    const int processes = static_cast<int>(timeline.processes.size());
    CHECK(processes >= params.pp);
    CHECK(processes % params.pp == 0);

    std::map<int, int64_t> end_ns;
    int64_t sends = 0;
    bool overlap = false;
    for (const Timeline::Slice& slice : timeline.slices) {
      overlap = overlap || slice.start_ns < end_ns[slice.track];
      end_ns[slice.track] = slice.end_ns;
      sends += slice.op->kind == OpKind::kSend;
    }
    CHECK(!overlap);
    const auto second_compute = std::find_if(
        timeline.tracks.begin(), timeline.tracks.end(),
        [](const Timeline::Track& track) { return track.name == "compute 2"; });
    CHECK(second_compute == timeline.tracks.end());

    // Each transfer has an arrow through pass, sender, receiver and pass.
    CHECK(sends > 0);
    CHECK(timeline.flows.size() == static_cast<size_t>(sends) * 4);
    std::map<int64_t, int64_t> last_start_ns;
    bool backwards = false;
    for (const Timeline::FlowPoint& point : timeline.flows) {
      const int64_t start_ns = timeline.slices[point.slice].start_ns;
      backwards = backwards || start_ns < last_start_ns[point.flow];
      last_start_ns[point.flow] = start_ns;
    }
    CHECK(!backwards);

    // Read off the clock, the peaks are those of the order.
    const std::vector<double> peaks = PeakActivations(*schedule, 1);
    std::set<int> seen;
    for (const Timeline::Counter& counter : timeline.counters) {
      double peak = 0;
      for (const Timeline::Sample& sample : counter.samples) {
        CHECK(sample.value >= 0);
        peak = std::max(peak, sample.value);
      }
      // Without a flush the next iteration has begun.
      const RankProgram& rank = program.ranks[counter.process % params.pp];
      CHECK(counter.samples.back().value ==
            (counter.name == "activations in flight"
                 ? static_cast<double>(rank.later_start)
                 : 0));
      if (counter.name != "activations in flight") continue;
      seen.insert(counter.process);
      CHECK(peak == Approx(peaks[counter.process % params.pp]));
    }
    CHECK(seen.size() == timeline.processes.size());
  }
}

}  // namespace
}  // namespace pipewright::timeline_runs_test
