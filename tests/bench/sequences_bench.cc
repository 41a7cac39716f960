// Many draws of lengths, packing included: 64 devices, a model of 32 layers,
// minibatch 4, engine fast, two threads. A packing alone. And one step of odc
// with very many devices, engine alone.
#include <benchmark/benchmark.h>

#include <chrono>
#include <utility>

#include "sim/base/check.h"
#include "sim/config/prepare.h"
#include "sim/config/prepare_draws.h"
#include "sim/engine/fast_engine.h"
#include "sim/engine/fluid_clock.h"
#include "sim/engine/known_times.h"
#include "sim/model/lengths.h"
#include "sim/model/packer.h"
#include "sim/program/program.h"
#include "sim/run/monte_carlo.h"
#include "tests/bench/headline.h"

namespace pipewright {
namespace {

constexpr int kDevices = 64;
constexpr int kEach = 4;
constexpr int kDraws = 1000;

RunConfig ConfigOf(DataParallel mode, Packer packer) {
  RunConfig config;
  config.engine = "fast";
  config.schedule.name = "gpipe";
  config.model.preset = "llama3-8b";
  config.system.preset = "dgx-h100";
  config.system.nodes = kDevices / 8;
  config.costs.analytic = true;
  config.strategy.pp = 1;
  config.strategy.dp = kDevices;
  config.strategy.data_parallel = mode;
  config.sequences.lengths = "longalign";
  config.sequences.minibatch = kEach;
  config.sequences.packer = packer;
  config.sequences.packer_cost = PackerCost::kFit;
  return config;
}

// 1,000 draws are to take less than 10 s on two cores.
void BM_Draws(benchmark::State& state, DataParallel mode, Packer packer) {
  const RunConfig config = ConfigOf(mode, packer);
  for (auto _ : state) {
    RunContext context;
    const auto result = RunMonteCarlo({{"run", config}}, kDraws, 2, &context);
    PW_CHECK(result.ok());
    benchmark::DoNotOptimize(result->strategies[0].mean_s);
  }
  state.counters["draws"] = kDraws;
}
BENCHMARK_CAPTURE(BM_Draws, ddp_lb_mini, DataParallel::kDdp, Packer::kLbMini)
    ->Unit(benchmark::kSecond)
    ->Iterations(1)
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_Draws, fsdp_lb_micro, DataParallel::kFsdp,
                  Packer::kLbMicro)
    ->Unit(benchmark::kSecond)
    ->Iterations(1)
    ->UseRealTime();

BENCHMARK_CAPTURE(BM_Draws, odc_lb_mini, DataParallel::kOdc, Packer::kLbMini)
    ->Unit(benchmark::kSecond)
    ->Iterations(1)
    ->UseRealTime();

// What a draw of odc takes over the engine's part of it: packing, classes and
// all that a draw could have in common with others. A ratio, so that it is
// about the same on every machine; up to 4.
void BM_DrawOverRun(benchmark::State& state) {
  constexpr int kFew = 50;
  const RunConfig config = ConfigOf(DataParallel::kOdc, Packer::kLbMini);
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  RunContext context;
  const auto run = Prepare(config, &context);
  PW_CHECK(run.ok());
  double draws_s = 0;
  double runs_s = 0;
  for (auto _ : state) {
    const auto start = Clock::now();
    PW_CHECK(RunMonteCarlo({{"run", config}}, kFew, 1, &context).ok());
    draws_s += seconds_since(start);
    DrawPlan plan;
    KnownTimes times;
    for (int64_t draw = 0; draw < kFew; ++draw) {
      PreparedRun drawn = *run;
      PW_CHECK(TakeDraw(draw, &drawn, &plan).ok());
      const auto program = LowerRun(drawn, &plan);
      PW_CHECK(program.ok());
      // Times are known, as of a later draw.
      PW_CHECK(RunFastKnowing(*program, {}, &times).ok());
      const auto again = Clock::now();
      PW_CHECK(RunFastKnowing(*program, {}, &times).ok());
      runs_s += seconds_since(again);
    }
  }
  state.counters["draw_over_run"] = draws_s / runs_s;
}
BENCHMARK(BM_DrawOverRun)
    ->Unit(benchmark::kSecond)
    ->Iterations(1)
    ->UseRealTime();

// Step of so many devices with 64 samples each: packed, or a microbatch each.
// With 1,024 it is to take less than 60 s on `simgrid`, and to grow with
// devices.
void BM_OdcStep(benchmark::State& state, Packer packer) {
  const auto devices = static_cast<int>(state.range(0));
  RunConfig config = ConfigOf(DataParallel::kOdc, packer);
  config.engine = "simgrid";
  config.schedule.name = "1f1b";
  config.system.nodes = devices / 8;
  config.strategy.dp = devices;
  config.sequences.minibatch = 64;
  config.iterations = 1;
  const auto prepared = Prepare(config);
  PW_CHECK(prepared.ok());
  const auto program = LowerRun(*prepared);
  PW_CHECK(program.ok());
  RunSummary run;
  Headline(state, [&] {
    run = RunOnFluidClock(*program, {}).value();
    return static_cast<double>(run.flows + run.timers);
  });
  state.counters["flows"] = static_cast<double>(run.flows);
}
BENCHMARK_CAPTURE(BM_OdcStep, lb_mini, Packer::kLbMini)
    ->Arg(64)
    ->Arg(256)
    ->Arg(1024)
    ->Unit(benchmark::kSecond)
    ->Iterations(1)
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_OdcStep, a_sample_each, Packer::kNone)
    ->Arg(64)
    ->Arg(1024)
    ->Unit(benchmark::kSecond)
    ->Iterations(1)
    ->UseRealTime();

// Devices and samples of each.
void BM_Pack(benchmark::State& state) {
  const auto devices = static_cast<int>(state.range(0));
  const LengthSource source = LengthSource::OfLaw(LengthLaws()[0]);
  Headline(state, [&] {
    PackRequest request;
    request.devices = devices;
    request.lengths = source.Draw(0, devices * state.range(1), true);
    request.max_token_len = source.longest();
    request.packer = Packer::kLbMini;
    request.cost.kind = PackerCost::kFit;
    const Packing packing = Pack(request).value();
    double microbatches = 0;
    for (const Parts& parts : packing) {
      microbatches += static_cast<double>(parts.size());
    }
    return microbatches;
  });
}
BENCHMARK(BM_Pack)
    ->Args({kDevices, kEach})
    ->Args({1024, 64})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace pipewright
