// `plan` of the question that people ask most: a model of 70B on DGX H100.
// Bounds, candidates and the runs of engine fast, without confirmation. `count`
// is what was simulated, refused or had copies looked at.
#include <benchmark/benchmark.h>

#include "sim/analysis/search/plan.h"
#include "sim/base/check.h"
#include "tests/bench/headline.h"

namespace pipewright {
namespace {

// Arguments: nodes, samples of a step.
void BM_Plan(benchmark::State& state) {
  PlanRequest request;
  request.base.model.preset = "llama3-70b";
  request.base.system.preset = "dgx-h100";
  request.base.system.nodes = static_cast<int>(state.range(0));
  request.base.costs.analytic = true;
  request.global_batch = state.range(1);
  PlanCounts counts;
  Headline(state, [&] {
    RunContext context;
    const PlanOutcome outcome =
        MakePlan(request, {.confirm = false}, &context).value();
    counts = outcome.counts;
    return static_cast<double>(counts.tried);
  });
  state.counters["legal"] = static_cast<double>(counts.legal);
  state.counters["simulated"] = static_cast<double>(counts.simulated);
  state.counters["refused"] = static_cast<double>(counts.refused);
}
BENCHMARK(BM_Plan)
    ->Args({64, 1024})
    ->Args({8, 128})
    ->ArgNames({"nodes", "batch"})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace pipewright
