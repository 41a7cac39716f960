// Points of a sweep a second, all of it: grid, workers, rows in a file. pp 8,
// 64 microbatches, engine fast, two workers; wall time.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "sim/analysis/sweep/sweep.h"
#include "sim/base/check.h"
#include "tests/bench/headline.h"
#include "tests/support/sweep_base.h"

namespace pipewright {
namespace {

struct SweepCase {
  const char* label;
  const char* base;
  const char* axis;  // an axis of many values
};

const SweepCase kSweepCases[] = {
    {"given times",
     "schedule: {name: 1f1b}\nstrategy: {pp: 8, microbatches: 64}\n"
     "costs: {uniform: {forward: 3ms, backward_input: 5ms, backward_weight: "
     "7ms}}\n",
     "costs.p2p=0us..1999us+1us"},
    {"estimated",
     "model: {preset: llama3-8b}\nsystem: {preset: dgx-h100}\n"
     "schedule: {name: 1f1b}\nstrategy: {pp: 8, microbatches: 64}\n"
     "costs: {analytic: {}}\n",
     "costs.price_per_device_hour=1..1000"},
};

void BM_Sweep(benchmark::State& state) {
  const SweepCase& each = kSweepCases[state.range(0)];
  const std::string path = absl::StrCat("/tmp/sweep_bench_", ::getpid());
  double seconds = 0;
  int64_t rows = 0;
  Headline(state, [&] {
    int64_t points_done = 0;
    RunContext context;
    SweepGrid grid;
    grid.axes.push_back(AxisOfText(each.axis).value());
    const SweepPoints points =
        SweepPoints::Create(testing::BaseOf(each.base), std::move(grid), "fast",
                            &context)
            .value();
    {
      const auto store = SweepStore::Open(path).value();
      WorkerPool pool(&points, {.workers = 2},
                      [&](const SweepChoices& choices) {
                        return EvaluatePoint(points, choices, &context);
                      });
      const auto start = std::chrono::steady_clock::now();
      const SweepCounts counts =
          RunSweep(points, store.get(), &pool, {}).value();
      seconds += std::chrono::duration<double>(
                     std::chrono::steady_clock::now() - start)
                     .count();
      PW_CHECK(counts.ok + counts.misfits == counts.points);
      points_done = counts.points;
      rows += points_done;
    }
    for (const char* ending : {"", "-wal", "-shm"}) {
      std::remove(absl::StrCat(path, ending).c_str());
    }
    return static_cast<double>(points_done);
  });
  state.SetLabel(each.label);
  state.counters["points_per_s"] = static_cast<double>(rows) / seconds;
}
BENCHMARK(BM_Sweep)
    ->DenseRange(0, std::size(kSweepCases) - 1)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace pipewright
