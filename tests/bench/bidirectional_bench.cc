// Generate, verify and replay bidirectional and wave schedules at 128 ranks x
// 512 microbatches: the goal is 0.5 s on one core.
#include <benchmark/benchmark.h>

#include "sim/base/check.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/replay.h"
#include "sim/schedule/verify.h"

namespace pipewright {
namespace {

void GenerateVerifyReplay(benchmark::State& state, const char* name) {
  ScheduleParams params;
  params.pp = 128;
  params.vpp = FindSchedule(name)->info->default_vpp;
  params.microbatches = 512;
  int64_t passes = 0;
  for (auto unused : state) {
    const absl::StatusOr<Schedule> schedule = BuildSchedule(name, params);
    PW_CHECK(schedule.ok());
    PW_CHECK(VerifySchedule(*schedule).ok());
    const absl::StatusOr<ReplayTimes> times = Replay(*schedule, params.costs);
    PW_CHECK(times.ok());
    benchmark::DoNotOptimize(times->span_global);
    passes = schedule->num_passes();
  }
  state.counters["passes"] = static_cast<double>(passes);
}
BENCHMARK_CAPTURE(GenerateVerifyReplay, bitpipe, "bitpipe")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(GenerateVerifyReplay, chimera, "chimera")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(GenerateVerifyReplay, dualpipe, "dualpipe")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(GenerateVerifyReplay, dualpipe_v, "dualpipe-v")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(GenerateVerifyReplay, hanayo, "hanayo")
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace pipewright
