// Bounds of `plan` against the steps that they bound.
#include "sim/analysis/search/plan_bound.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "sim/run/simulated_run.h"

namespace pipewright::plan_bound_test {
namespace {

// Large gradients over two nodes of eight devices, hardly any work.
PlanRequest Request(const std::string& collectives) {
  PlanRequest request;
  request.base = ReadConfig("", "",
                            {{{"model.preset", "llama3-8b", "test"},
                              {"system.preset", "dgx-h100", "test"},
                              {"system.nodes", "2", "test"},
                              {"system.memory", "10TB", "test"},
                              {"strategy.collectives", collectives, "test"},
                              {"strategy.sequence", "128", "test"},
                              {"engine", "fast", "test"},
                              {"costs.analytic.device", "auto", "test"}}})
                     .value();
  request.global_batch = 16;
  request.fixed = {{"cp", {"1", "2"}},     {"offload", {"none"}},
                   {"layout", {"even"}},   {"recompute", {"none"}},
                   {"schedule", {"1f1b"}}, {"microbatch_size", {"1"}}};
  return request;
}

// Shows every run of a plan's space beside its bounds, which are at most its
// step.
template <class See>
void ForEachRun(const PlanRequest& request, See see) {
  RunContext context;
  const auto space = PlanSpace::Make(request, &context);
  INFO(space.status());
  REQUIRE(space.ok());
  PlanBounds bounds(space->get());
  for (const PlanGroup& group : (*space)->Groups()) {
    for (const PlanPoint& point : (*space)->PointsOf(group)) {
      const auto run = Simulate((*space)->ConfigOf(point), &context);
      if (!run.ok()) continue;
      INFO((*space)->NameOf(point));
      CHECK(bounds.StepSeconds(point) <=
            run->report.iteration_s * (1 + kBoundRounding));
      see(**space, &bounds, point, *run);
    }
  }
}

TEST_CASE("plan: no bound is above the step of odc with parts of a context",
          "[search]") {
  PlanRequest request = Request("ring");
  request.base.strategy.data_parallel = DataParallel::kOdc;
  int contexts = 0;
  ForEachRun(request, [&](const PlanSpace&, PlanBounds*, const PlanPoint& point,
                          const SimulatedRun&) {
    contexts += point.group.cp > 1 && point.group.dp == 1;
  });
  CHECK(contexts > 0);
}

// What hides behind another microbatch is hidden in the bound, too; where there
// is none, in neither.
TEST_CASE("plan: no bound is above the step of exchanges beside other passes",
          "[search]") {
  for (const bool experts : {false, true}) {
    INFO(experts);
    PlanRequest request = Request("ring");
    request.base.system.preset = "dgx-h100";
    request.base.strategy.sequence = 4096;
    request.fixed["cp"] = {"1"};
    request.fixed["data_parallel"] = {"ddp", "none"};
    request.fixed["microbatch_size"] = {"1", "2"};
    StrategyChoice& strategy = request.base.strategy;
    if (experts) {
      request.base.model.preset = "qwen3-30b-a3b";
      request.fixed["tp"] = {"1"};
      strategy.overlap_experts = true;
    } else {
      request.fixed["tp"] = {"2", "8"};
      strategy.braided_tensor = true;
    }
    int alone = 0;
    int hidden = 0;
    RunContext context;
    ForEachRun(request, [&](const PlanSpace& space, PlanBounds* bounds,
                            const PlanPoint& point, const SimulatedRun& run) {
      const Execution& own = run.prepared.prepared_model->training.execution;
      CHECK(space.TrainingOf(point.group).execution == own);
      alone += point.group.microbatches == 1;
      RunConfig plain = space.ConfigOf(point);
      plain.strategy.overlap_experts.reset();
      plain.strategy.braided_tensor.reset();
      const auto exposed = Simulate(plain, &context);
      REQUIRE(exposed.ok());
      hidden += run.report.iteration_s < exposed->report.iteration_s &&
                bounds->StepSeconds(point) > 0;
    });
    CHECK(alone > 0);
    CHECK(hidden > 0);
  }
}
TEST_CASE("plan: no bound is above the step, whatever collectives run",
          "[search]") {
  for (const char* collectives : {"ring", "tree", "hierarchical", "fastest"}) {
    INFO(collectives);
    int reduced = 0;
    int contexts = 0;
    ForEachRun(
        Request(collectives), [&](const PlanSpace&, PlanBounds* bounds,
                                  const PlanPoint& point, const SimulatedRun&) {
          const bool counts =
              bounds->StepSeconds(point) > bounds->StepSeconds(point.group);
          reduced += counts;
          contexts += counts && point.group.cp > 1 && point.group.dp == 1;
        });
    // Gradients do count, those of parts of a context alone, too.
    CHECK(reduced > 0);
    CHECK(contexts > 0);
  }
}

// What experts send is most of what such a step takes.
TEST_CASE("plan: bounds count what experts send, and no more", "[search]") {
  PlanRequest request = Request("ring");
  request.base.model.preset = "qwen3-30b-a3b";
  request.fixed["cp"] = {"1"};
  request.fixed["tp"] = {"1", "2"};
  request.fixed["pp"] = {"1", "2"};
  int near = 0;
  int split = 0;
  ForEachRun(request, [&](const PlanSpace&, PlanBounds* bounds,
                          const PlanPoint& point, const SimulatedRun& run) {
    if (point.data_parallel != DataParallel::kFsdp) return;
    near += bounds->StepSeconds(point) > 0.8 * run.report.iteration_s;
    split += point.group.ep > 1;
  });
  CHECK(near > 0);
  CHECK(split > 0);
}

// Experts are sharded over more devices than the rest.
TEST_CASE("plan: no bound is above the step of experts that are not split",
          "[search]") {
  PlanRequest request = Request("ring");
  request.base.model.preset = "qwen3-30b-a3b";
  request.base.strategy.etp = 1;
  request.fixed["cp"] = {"1"};
  request.fixed["tp"] = {"4", "8"};
  int split = 0;
  ForEachRun(request, [&](const PlanSpace& space, PlanBounds*,
                          const PlanPoint& point, const SimulatedRun&) {
    const TrainingSpec training = space.TrainingOf(point.group);
    split += training.expert_shards() > point.group.dp;
  });
  CHECK(split > 0);
}

TEST_CASE("plan: no bound is above the step without NVLink", "[search]") {
  for (const char* peers : {"none", "switch"}) {
    for (const bool experts : {false, true}) {
      INFO(peers << experts);
      PlanRequest request = Request("ring");
      SystemChoice& system = request.base.system;
      system.nodes = 1;
      system.nvlink.bytes_per_s = 0;
      system.pcie_per_switch = 4;
      system.pcie.bytes_per_s = 25e9;
      system.params["pcie_peers"] = peers;
      request.base.strategy.sequence = 2048;
      if (experts) request.base.model.preset = "qwen3-30b-a3b";
      request.fixed["cp"] = {"1"};
      request.fixed["pp"] = {"1", "2"};
      int seen = 0;
      ForEachRun(request,
                 [&](const PlanSpace&, PlanBounds*, const PlanPoint& point,
                     const SimulatedRun&) { seen += point.group.tp > 1; });
      CHECK(seen > 0);
    }
  }
}

TEST_CASE("plan: no bound is above the step or the memory of a framework",
          "[search]") {
  for (const Framework framework :
       {Framework::kMegatron, Framework::kTorchtitan, Framework::kDeepSpeed}) {
    PlanRequest request = Request("ring");
    request.base.strategy.framework = framework;
    request.fixed["tp"] = {"1", "8"};
    request.fixed["cp"] = {"1"};
    INFO(static_cast<int>(framework));
    int seen = 0;
    ForEachRun(request, [&](const PlanSpace& space, PlanBounds* bounds,
                            const PlanPoint& point, const SimulatedRun& run) {
      ++seen;
      CHECK(space.TrainingOf(point.group).sequence_parallel ==
            run.prepared.prepared_model->training.sequence_parallel);
      double most = 0;
      for (const RankMemory& rank : run.prepared.memory->memory->ranks) {
        most = std::max(most, static_cast<double>(rank.needed()));
      }
      CHECK(bounds->MemoryBytes(point) <= most * (1 + kBoundRounding));
    });
    CHECK(seen > 0);
  }
}

}  // namespace
}  // namespace pipewright::plan_bound_test
