// How fast engines and the steps before them are. `passes/s` counts scheduled
// passes of all replicas.
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "sim/base/check.h"
#include "sim/engine/fast_engine.h"
#include "sim/engine/fluid_clock.h"
#include "sim/memory/activations.h"
#include "sim/program/lower.h"
#include "sim/program/program.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/verify.h"
#include "sim/topology/mapping.h"
#include "sim/topology/registry.h"
#include "sim/topology/system.h"
#include "tests/bench/headline.h"

namespace pipewright {
namespace {

constexpr int kRanks = kHandWrittenRanks;
constexpr int kMicrobatches = kHandWrittenMicrobatches;
constexpr const char* kSchedules[] = {"1f1b", "interleaved-1f1b", "zb-h1"};

std::shared_ptr<const Schedule> Build(const char* name, int microbatches) {
  ScheduleParams params;
  params.pp = kRanks;
  params.vpp = name == kSchedules[1] ? 2 : 1;
  params.microbatches = microbatches;
  absl::StatusOr<Schedule> schedule = BuildSchedule(name, params);
  PW_CHECK(schedule.ok());
  return std::make_shared<const Schedule>(*std::move(schedule));
}

LowerOptions Options(const Schedule& schedule) {
  LowerOptions options;
  options.costs = PassCosts::Uniform(schedule.pp(), schedule.vpp(),
                                     {.forward_s = 0.018522,
                                      .backward_input_s = 0.018086,
                                      .backward_weight_s = 0.009337});
  options.network.hop_s = 0.000601;
  options.iterations = 1;
  return options;
}

Program LowerOrDie(std::shared_ptr<const Schedule> schedule,
                   const LowerOptions& options) {
  absl::StatusOr<Program> program = Lower(std::move(schedule), options);
  PW_CHECK(program.ok());
  return *std::move(program);
}

void CountPasses(benchmark::State& state, int64_t passes) {
  state.counters["passes/s"] =
      benchmark::Counter(static_cast<double>(passes),
                         benchmark::Counter::kIsIterationInvariantRate);
}

void BM_HandWritten1f1b(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(HandWritten1f1b(kMicrobatches));
  CountPasses(state, int64_t{2} * kRanks * kMicrobatches);
}
BENCHMARK(BM_HandWritten1f1b)->Unit(benchmark::kMillisecond);

void BM_FastRun(benchmark::State& state) {
  const auto schedule =
      Build(kSchedules[state.range(0)], static_cast<int>(state.range(1)));
  const Program program = LowerOrDie(schedule, Options(*schedule));
  Headline(state, [&] {
    const RunSummary run = RunFast(program, {}).value();
    return static_cast<double>(run.simulated_ops);
  });
  state.SetLabel(schedule->name);
  CountPasses(state, schedule->num_passes());
}
BENCHMARK(BM_FastRun)
    ->ArgsProduct({{0, 1, 2}, {4096, 16384, kMicrobatches}})
    ->ArgNames({"schedule", "microbatches"})
    ->Unit(benchmark::kMillisecond);

// Everything that the command does but start-up and printing.
void BM_WholeCommand(benchmark::State& state) {
  int64_t passes = 0;
  Headline(state, [&] {
    const auto schedule = Build(kSchedules[state.range(0)], kMicrobatches);
    PW_CHECK(VerifySchedule(*schedule).ok());
    LowerOptions options = Options(*schedule);
    options.iterations = 0;
    const Program program = LowerOrDie(schedule, options);
    const RunSummary run = RunFast(program, {}).value();
    benchmark::DoNotOptimize(PeakActivations(*schedule, 1));
    passes = schedule->num_passes();
    return static_cast<double>(run.simulated_ops);
  });
  state.SetLabel(kSchedules[state.range(0)]);
  CountPasses(state, passes);
}
BENCHMARK(BM_WholeCommand)->DenseRange(0, 2)->Unit(benchmark::kMillisecond);

void BM_Verify(benchmark::State& state) {
  const auto schedule = Build(kSchedules[state.range(0)], kMicrobatches);
  Headline(state, [&] {
    PW_CHECK(VerifySchedule(*schedule).ok());
    return static_cast<double>(schedule->num_passes());
  });
  state.SetLabel(schedule->name);
  CountPasses(state, schedule->num_passes());
}
BENCHMARK(BM_Verify)->DenseRange(0, 2)->Unit(benchmark::kMillisecond);

void BM_Generate(benchmark::State& state) {
  int64_t passes = 0;
  Headline(state, [&] {
    passes = Build(kSchedules[state.range(0)], kMicrobatches)->num_passes();
    return static_cast<double>(passes);
  });
  state.SetLabel(kSchedules[state.range(0)]);
  CountPasses(state, passes);
}
BENCHMARK(BM_Generate)->DenseRange(0, 2)->Unit(benchmark::kMillisecond);

// 4096 devices: 256 replicas of 16 ranks, 64 microbatches.
Program Large(bool flows) {
  const auto schedule = Build("1f1b", 64);
  LowerOptions options = Options(*schedule);
  options.replicas = 256;
  if (flows) {
    ShapeParams system = *FindSystem("dgx-h100");
    system.nodes = 512;
    system.shape = "fat-tree";
    system.own = {{"nodes_per_leaf", "4"}, {"oversubscription", "2"}};
    absl::StatusOr<Cluster> cluster = BuildCluster(system);
    PW_CHECK(cluster.ok());
    const int devices = cluster->num_devices();
    options.network.cluster =
        std::make_shared<const Cluster>(*std::move(cluster));
    options.network.mapping = std::make_shared<const RankMapping>(
        *RankMapping::FromOrder("dp-pp", kRanks, 256, devices));
    options.hop_bytes = 16 << 20;
  }
  return LowerOrDie(schedule, options);
}

// One replica after the other of 16 ranks, on cards of their own: rings of each
// rank's parameters and gradients around every pass, and hops on the same
// cards.
Program Sharded(int replicas) {
  const auto schedule = Build("zb-h1", 64);
  LowerOptions options = Options(*schedule);
  options.iterations = 2;
  options.replicas = replicas;
  options.data_parallel = DataParallel::kFsdp;
  // 8e9 parameters in bf16 over 16 ranks, their gradients in fp32.
  options.parameter_bytes.assign(kRanks, 1e9);
  options.gradient_bytes.assign(kRanks, 2e9);
  options.hop_bytes = 64 << 20;
  ShapeParams system = *FindSystem("dgx-h100");
  system.nodes = std::max(2, kRanks * replicas / system.devices_per_node);
  absl::StatusOr<Cluster> cluster = BuildCluster(system);
  PW_CHECK(cluster.ok());
  const int devices = cluster->num_devices();
  options.network.cluster =
      std::make_shared<const Cluster>(*std::move(cluster));
  options.network.mapping = std::make_shared<const RankMapping>(
      *RankMapping::FromOrder("dp-pp", kRanks, replicas, devices));
  return LowerOrDie(schedule, options);
}

// Linear in the replicas.
void BM_SimgridSharded(benchmark::State& state) {
  const Program program = Sharded(static_cast<int>(state.range(0)));
  RunSummary run;
  Headline(state, [&] {
    run = TryOnFluidClock(program, {}, {.folds = false}).value();
    return static_cast<double>(run.flows + run.timers);
  });
  state.counters["flows"] = static_cast<double>(run.flows);
  CountPasses(state, run.passes * program.replicas * run.iterations());
}
BENCHMARK(BM_SimgridSharded)
    ->RangeMultiplier(4)
    ->Range(4, 256)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

// timers: nothing can contend. flows: every transfer is one. default: what can
// meet is a flow only while it does.
void BM_Simgrid4096(benchmark::State& state) {
  constexpr const char* kLabels[] = {"timers", "flows", "default"};
  const Program program = Large(state.range(0) > 0);
  const EngineOptions options = {.time_lone_transfers = state.range(0) != 1};
  RunSummary run;
  Headline(state, [&] {
    run = TryOnFluidClock(program, options, {.folds = false}).value();
    return static_cast<double>(run.flows + run.timers);
  });
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  state.SetLabel(kLabels[state.range(0)]);
  state.counters["flows"] = static_cast<double>(run.flows);
  state.counters["child_peak_MB"] = static_cast<double>(usage.ru_maxrss) / 1024;
  CountPasses(state, run.passes * program.replicas);
}
BENCHMARK(BM_Simgrid4096)
    ->DenseRange(0, 2)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace pipewright
