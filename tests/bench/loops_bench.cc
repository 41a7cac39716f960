// Fixed-rule schedules at 128 ranks and 512 microbatches, from their
// parameters to the end of a replay.
#include <benchmark/benchmark.h>

#include <iterator>

#include "sim/base/check.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/replay.h"
#include "sim/schedule/verify.h"

namespace pipewright {
namespace {

struct Case {
  const char* name;
  int vpp;
  int slices;
};

// A sequence in slices has as many times the passes.
constexpr Case kCases[] = {
    {"interleaved-zb", 2, 1}, {"gis", 2, 1},      {"gis-h", 2, 1},
    {"po-h", 2, 1},           {"po-f", 4, 1},     {"seq1f1b", 1, 4},
    {"slimpipe", 1, 4},       {"terapipe", 1, 1}, {"2bp", 1, 1},
    {"zeropp", 2, 1}};

void BM_BuildVerifyReplay(benchmark::State& state) {
  const Case& each = kCases[state.range(0)];
  ScheduleParams params;
  params.pp = 128;
  params.vpp = each.vpp;
  params.microbatches = 512;
  params.slices = each.slices;
  int64_t passes = 0;
  for (auto _ : state) {
    const auto schedule = BuildSchedule(each.name, params);
    PW_CHECK(schedule.ok());
    PW_CHECK(VerifySchedule(*schedule).ok());
    benchmark::DoNotOptimize(Replay(*schedule, params.costs));
    passes = schedule->num_passes();
  }
  state.SetLabel(each.name);
  state.counters["passes"] = static_cast<double>(passes);
}
BENCHMARK(BM_BuildVerifyReplay)
    ->DenseRange(0, std::size(kCases) - 1)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace pipewright
