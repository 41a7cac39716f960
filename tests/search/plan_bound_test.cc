// Bounds of `plan` against the steps that they bound.
#include "sim/search/plan_bound.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "sim/run/simulated_run.h"

namespace pipewright {
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

TEST_CASE("plan: no bound is above the step of odc with parts of a context",
          "[search]") {
  PlanRequest request = Request("ring");
  request.base.strategy.data_parallel = DataParallel::kOdc;
  RunContext context;
  const auto space = PlanSpace::Make(std::move(request), &context);
  INFO(space.status());
  REQUIRE(space.ok());
  PlanBounds bounds(space->get());
  int contexts = 0;
  for (const PlanGroup& group : (*space)->Groups()) {
    for (const PlanPoint& point : (*space)->PointsOf(group)) {
      const auto run = Simulate((*space)->ConfigOf(point), &context);
      if (!run.ok()) continue;
      INFO((*space)->NameOf(point));
      CHECK(bounds.StepSeconds(point) <=
            run->report.iteration_s * (1 + kBoundRounding));
      contexts += group.cp > 1 && group.dp == 1;
    }
  }
  CHECK(contexts > 0);
}

TEST_CASE("plan: no bound is above the step, whatever collectives run",
          "[search]") {
  for (const char* collectives : {"ring", "tree", "hierarchical", "fastest"}) {
    RunContext context;
    const auto space = PlanSpace::Make(Request(collectives), &context);
    INFO(collectives << " " << space.status());
    REQUIRE(space.ok());
    PlanBounds bounds(space->get());
    int reduced = 0;
    int contexts = 0;
    for (const PlanGroup& group : (*space)->Groups()) {
      for (const PlanPoint& point : (*space)->PointsOf(group)) {
        const auto run = Simulate((*space)->ConfigOf(point), &context);
        if (!run.ok()) continue;
        INFO((*space)->NameOf(point));
        CHECK(bounds.StepSeconds(point) <=
              run->report.iteration_s * (1 + kBoundRounding));
        const bool counts =
            bounds.StepSeconds(point) > bounds.StepSeconds(group);
        reduced += counts;
        contexts += counts && group.cp > 1 && group.dp == 1;
      }
    }
    // Gradients do count, those of parts of a context alone, too.
    CHECK(reduced > 0);
    CHECK(contexts > 0);
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
    RunContext context;
    const auto space = PlanSpace::Make(request, &context);
    INFO(static_cast<int>(framework) << " " << space.status());
    REQUIRE(space.ok());
    PlanBounds bounds(space->get());
    int seen = 0;
    for (const PlanGroup& group : (*space)->Groups()) {
      for (const PlanPoint& point : (*space)->PointsOf(group)) {
        const auto run = Simulate((*space)->ConfigOf(point), &context);
        if (!run.ok()) continue;
        ++seen;
        INFO((*space)->NameOf(point));
        CHECK((*space)->TrainingOf(group).sequence_parallel ==
              run->prepared.prepared_model->training.sequence_parallel);
        CHECK(bounds.StepSeconds(point) <=
              run->report.iteration_s * (1 + kBoundRounding));
        double most = 0;
        for (const RankMemory& rank : run->prepared.memory->memory->ranks) {
          most = std::max(most, static_cast<double>(rank.needed()));
        }
        CHECK(bounds.MemoryBytes(point) <= most * (1 + kBoundRounding));
      }
    }
    CHECK(seen > 0);
  }
}

}  // namespace
}  // namespace pipewright
