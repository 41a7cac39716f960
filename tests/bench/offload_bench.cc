// How long the plan of copies takes: somebody waits for it in front of every
// run that offloads.
#include <benchmark/benchmark.h>

#include "sim/base/check.h"
#include "sim/program/activation_plan.h"
#include "sim/program/lower.h"
#include "sim/program/program.h"
#include "sim/schedule/registry.h"
#include "tests/bench/headline.h"

namespace pipewright {
namespace {

// Arguments: ranks, microbatches, chunks; ranks on each switch, which take
// turns on it; and how many percent of its time a copy takes while nothing is
// copied the other way. Offload of everything, O and L as long as F, B and W.
void BM_OffloadPlan(benchmark::State& state) {
  ScheduleParams params;
  params.pp = static_cast<int>(state.range(0));
  params.microbatches = static_cast<int>(state.range(1));
  params.vpp = static_cast<int>(state.range(2));
  auto built = BuildSchedule("po-f", params);
  PW_CHECK(built.ok());
  const auto schedule = std::make_shared<const Schedule>(*std::move(built));
  LowerOptions options;
  options.costs = PassCosts::Uniform(params.pp, params.vpp,
                                     {.forward_s = 1,
                                      .backward_input_s = 1,
                                      .backward_weight_s = 1,
                                      .offload_s = 1.5,
                                      .load_s = 1.5});
  options.iterations = 1;
  const auto program = Lower(schedule, options);
  PW_CHECK(program.ok());
  OffloadCosts costs;
  costs.out_s.assign(schedule->stages(), 1.5 / params.vpp);
  costs.in_s = costs.out_s;
  costs.weight.assign(schedule->stages(), 1);
  const auto on_switch = static_cast<int>(state.range(3));
  for (int rank = 0; rank < params.pp; ++rank) {
    costs.switch_of_rank.push_back(rank / on_switch);
  }
  const double alone = static_cast<double>(state.range(4)) / 100;
  double peak = 0;
  Headline(state, [&] {
    // A plan of the same costs is known.
    for (double& seconds : costs.out_s) seconds *= 1 + 1e-12;
    costs.out_alone_s = costs.out_s;
    costs.in_alone_s = costs.in_s;
    for (double& seconds : costs.out_alone_s) seconds *= alone;
    for (double& seconds : costs.in_alone_s) seconds *= alone;
    const auto plan = PlanOffload(schedule, *program, {}, costs);
    PW_CHECK(plan.ok());
    peak = 0;
    for (const RankOffload& rank : plan->ranks) {
      peak = std::max(peak, rank.peak_after);
    }
    return peak;
  });
  state.counters["peak_chunks"] = peak;
  state.counters["ns/pass"] = benchmark::Counter(
      static_cast<double>(schedule->num_passes()) * state.iterations(),
      benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_OffloadPlan)
    ->Args({8, 32, 4, 1, 100})
    ->Args({32, 128, 4, 1, 100})
    ->Args({32, 128, 4, 2, 100})
    ->Args({32, 128, 4, 1, 70})
    ->Args({32, 128, 4, 2, 70})
    ->Args({32, 128, 4, 8, 70})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace pipewright
