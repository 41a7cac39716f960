// How long the V family takes to generate, verify and replay: the costs of the
// zero-bubble paper's 28.3B model (arXiv 2401.10241, table 9).
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <iterator>

#include "sim/base/check.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/replay.h"
#include "sim/schedule/verify.h"

namespace pipewright {
namespace {

constexpr const char* kSchedules[] = {"1f1b-v", "v-min", "v-half", "v-zb"};
constexpr PlanCosts kCosts = {.forward = 10419,
                              .backward_input = 10207,
                              .backward_weight = 7715,
                              .hop = 408,
                              .given = true};

// costs 0: the fixed rules, and F=B=W for v-zb.
void BM_VFamily(benchmark::State& state) {
  ScheduleParams params;
  params.pp = static_cast<int>(state.range(1));
  params.vpp = 2;
  params.microbatches = static_cast<int>(state.range(2));
  if (state.range(3) != 0) params.costs = kCosts;
  double span = 0;
  for (auto _ : state) {
    const absl::StatusOr<Schedule> schedule =
        BuildSchedule(kSchedules[state.range(0)], params);
    PW_CHECK(schedule.ok());
    PW_CHECK(VerifySchedule(*schedule).ok());
    span = Replay(*schedule, params.costs)->span_per_rank;
  }
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  state.SetLabel(kSchedules[state.range(0)]);
  state.counters["bubble"] =
      1 - params.microbatches * params.costs.work() / span;
  state.counters["peak_MB"] = static_cast<double>(usage.ru_maxrss) / 1024;
}
BENCHMARK(BM_VFamily)
    ->ArgNames({"schedule", "pp", "microbatches", "costs"})
    ->ArgsProduct({benchmark::CreateDenseRange(0, std::size(kSchedules) - 1, 1),
                   {32},
                   {128},
                   {0, 1}})
    ->ArgsProduct({benchmark::CreateDenseRange(0, std::size(kSchedules) - 1, 1),
                   {128},
                   {512},
                   {0, 1}})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace pipewright
