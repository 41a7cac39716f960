// Two kinds of device in one pipeline: layers by the speed of ranks, in
// simulate and in plan, against every split.
#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/analysis/search/plan.h"
#include "sim/analysis/search/plan_bound.h"
#include "sim/run/simulated_run.h"

namespace pipewright::plan_slow_test {
namespace {

// Two nodes, the first of which takes so many times as long.
RunConfig Base(const std::string& slow) {
  return ReadConfig("", "",
                    {{{"model.preset", "llama3-8b", "test"},
                      {"system.preset", "dgx-h100", "test"},
                      {"system.nodes", "2", "test"},
                      {"system.memory", "1000GiB", "test"},
                      {"strategy.sequence", "2048", "test"},
                      {"engine", "fast", "test"},
                      {"slow.devices", slow, "test"},
                      {"costs.analytic.device", "auto", "test"}}})
      .value();
}

RunConfig Pipeline(const std::string& slow, int pp) {
  RunConfig config = Base(slow);
  config.schedule.name = "1f1b";
  config.strategy.tp = 8;
  config.strategy.pp = pp;
  config.strategy.dp = 2 / pp;
  config.strategy.microbatches = 16;
  return config;
}

double StepOf(const RunConfig& config, std::vector<int64_t>* layers = nullptr) {
  RunContext context;
  const auto run = Simulate(config, &context);
  INFO(run.status());
  REQUIRE(run.ok());
  if (layers != nullptr) {
    layers->clear();
    for (const auto& blocks : run->prepared.prepared_model->layout.stages) {
      layers->push_back(0);
      for (const StageBlock& block : blocks) {
        if (IsLayer(block.kind)) layers->back() += block.count;
      }
    }
  }
  return run->report.iteration_s;
}

TEST_CASE("split: balanced gives slow ranks fewer layers", "[config]") {
  for (const std::string slow : {"node0*1.5", "rank0*1.5", "rank1*2"}) {
    INFO(slow);
    RunConfig config = Pipeline(slow, 2);
    const double even = StepOf(config);
    double best = std::numeric_limits<double>::infinity();
    for (int64_t first = 4; first <= 28; ++first) {
      RunConfig split = config;
      split.strategy.layers = {first, 32 - first};
      best = std::min(best, StepOf(split));
    }
    config.strategy.split = LayerSplit::kBalanced;
    std::vector<int64_t> layers;
    const double balanced = StepOf(config, &layers);
    const bool first_is_slow = !absl::StrContains(slow, "rank1");
    CHECK((layers[0] < layers[1]) == first_is_slow);
    CHECK(balanced < 0.93 * even);
    // It weighs FLOPs, not seconds.
    CHECK(balanced < 1.06 * best);
  }
  // A rank of another replica is not slow for itself alone.
  RunConfig replicas = Pipeline("replica0/rank0*1.5", 2);
  replicas.strategy.tp = 4;
  replicas.strategy.dp = 2;
  replicas.strategy.split = LayerSplit::kBalanced;
  std::vector<int64_t> layers;
  StepOf(replicas, &layers);
  CHECK(layers[0] < layers[1]);
  // Nobody who is slow: as before.
  RunConfig healthy = Pipeline("rank0*1", 2);
  healthy.strategy.split = LayerSplit::kBalanced;
  StepOf(healthy, &layers);
  RunConfig without = healthy;
  without.slow.devices.clear();
  std::vector<int64_t> same;
  StepOf(without, &same);
  CHECK(layers == same);
  RunContext context;
  RunConfig unknown = Pipeline("rank7*1.5", 2);
  unknown.strategy.split = LayerSplit::kBalanced;
  CHECK(absl::StrContains(Simulate(unknown, &context).status().message(),
                          "slow.devices"));
}

PlanRequest Request(const std::string& slow) {
  PlanRequest request;
  request.base = Base(slow);
  request.global_batch = 32;
  request.fixed = {{"cp", {"1"}},
                   {"tp", {"2", "8"}},
                   {"pp", {"2", "4"}},
                   {"offload", {"none"}},
                   {"recompute", {"none"}},
                   {"microbatch_size", {"1"}},
                   {"data_parallel", {"ddp", "zero1"}},
                   {"schedule", {"1f1b", "zb-h1", "interleaved-1f1b"}},
                   {"vpp", {"1", "2"}}};
  return request;
}

TEST_CASE("plan: slow devices have layouts and bounds of their own",
          "[search]") {
  for (const std::string slow : {"node0*1.5", "node1/gpu3*1.2", "rank1*1.4"}) {
    INFO(slow);
    const PlanRequest request = Request(slow);
    RunContext context;
    PlanOptions options;
    options.confirm = false;
    options.top = 12;
    const PlanOutcome plan = MakePlan(request, options, &context).value();
    PlanSpace& space = *plan.space;
    PlanBounds bounds(&space);
    std::set<double> all;  // several names of one order are one
    double named = std::numeric_limits<double>::infinity();
    double others = named;
    int runs = 0;
    for (const PlanGroup& group : space.Groups()) {
      for (const PlanPoint& point : space.PointsOf(group)) {
        const auto run = Simulate(space.ConfigOf(point), &context);
        if (!run.ok()) continue;
        INFO(space.NameOf(point));
        const double step = run->report.iteration_s;
        CHECK(bounds.StepSeconds(point) <= step * (1 + kBoundRounding));
        CHECK(bounds.ReplaySeconds(point) <= step * (1 + kBoundRounding));
        const bool by_speed =
            space.Layouts(group.pp, group.vpp)[group.layout].name == kBySpeed;
        double& least = by_speed ? named : others;
        if (group.pp > 1) least = std::min(least, step);
        all.insert(step);
        ++runs;
      }
    }
    REQUIRE(plan.ranked.size() >= 12);
    std::set<double> found;
    for (int row = 0; row < 12; ++row) {
      found.insert(plan.ranked[row].iteration_s);
    }
    auto next = all.begin();
    for (const double step : found) CHECK(step == *next++);
    CHECK(plan.counts.simulated < runs);
    if (slow == "node1/gpu3*1.2") continue;
    CHECK(named < 0.95 * others);
  }
}

}  // namespace
}  // namespace pipewright::plan_slow_test
