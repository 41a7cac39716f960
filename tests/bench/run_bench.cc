// What a whole run (sim/run) costs besides building its schedule and its
// engine: the price of a point of a sweep. pp 8, 64 microbatches, engine fast.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <ctime>
#include <string>
#include <vector>

#include "sim/base/check.h"
#include "sim/run/simulated_run.h"
#include "sim/schedule/registry.h"
#include "tests/bench/headline.h"

namespace pipewright {
namespace {

struct Case {
  const char* label;
  const char* schedule;
  const char* model;  // "" for given times and a delay a hop
};

const Case kCases[] = {
    {"1f1b", "1f1b", ""},
    {"interleaved-1f1b", "interleaved-1f1b", ""},
    {"zb-h1", "zb-h1", ""},
    {"1f1b, estimated on a system", "1f1b", "llama3-8b"},
};

RunConfig ConfigOf(const Case& each) {
  RunConfig config;
  config.engine = "fast";
  config.schedule.name = each.schedule;
  config.strategy.pp = 8;
  config.strategy.microbatches = 64;
  if (*each.model != '\0') {
    config.model.preset = each.model;
    config.system.preset = "dgx-h100";
    config.costs.analytic = true;
    return config;
  }
  config.costs.forward_s = 3e-3;
  config.costs.backward_input_s = 5e-3;
  config.costs.backward_weight_s = 7e-3;
  config.costs.p2p_s = 1e-3;
  return config;
}

// Time of this thread's work, whatever else the machine does.
double CpuMicros() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e6 * static_cast<double>(now.tv_sec) + 1e-3 * now.tv_nsec;
}

double Middle(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2,
                   values.end());
  return values[values.size() / 2];
}

void BM_SimulatedRun(benchmark::State& state) {
  const Case& each = kCases[state.range(0)];
  const RunConfig config = ConfigOf(each);
  RunContext context;
  const SimulatedRun run = Simulate(config, &context).value();
  ScheduleParams params;
  params.pp = 8;
  params.vpp = run.schedule().vpp();
  params.microbatches = 64;
  const EngineInfo* fast = FindEngine("fast").value();
  std::vector<double> whole;
  std::vector<double> schedule;
  std::vector<double> engine;
  for (auto _ : state) {
    const double start = CpuMicros();
    benchmark::DoNotOptimize(Simulate(config, &context));
    const double done = CpuMicros();
    benchmark::DoNotOptimize(BuildSchedule(each.schedule, params));
    const double built = CpuMicros();
    benchmark::DoNotOptimize(fast->run(*run.program, {}));
    const double ran = CpuMicros();
    whole.push_back(done - start);
    schedule.push_back(built - done);
    engine.push_back(ran - built);
  }
  state.SetLabel(each.label);
  state.counters["whole_us"] = Middle(whole);
  state.counters["schedule_us"] = Middle(schedule);
  state.counters["engine_us"] = Middle(engine);
  state.counters["besides_us"] =
      Middle(whole) - Middle(schedule) - Middle(engine);
}
BENCHMARK(BM_SimulatedRun)->DenseRange(0, std::size(kCases) - 1);

// A run of these whole, as a point of a sweep: a hundred in turn.
void BM_HundredRuns(benchmark::State& state) {
  const Case& each = kCases[state.range(0)];
  const RunConfig config = ConfigOf(each);
  RunContext context;
  Headline(state, [&] {
    double operations = 0;
    for (int run = 0; run < 100; ++run) {
      const SimulatedRun done = Simulate(config, &context).value();
      operations += static_cast<double>(done.summary.simulated_ops);
    }
    return operations;
  });
  state.SetLabel(each.label);
}
BENCHMARK(BM_HundredRuns)
    ->DenseRange(0, std::size(kCases) - 1)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace pipewright
