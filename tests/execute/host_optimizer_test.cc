// An optimizer on the host, with kernels and real copies: the same training bit
// by bit as on the device, the bytes that are predicted, and faults that must
// show.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "execute/run/fixed_worker.h"
#include "execute/run/run_threads.h"
#include "execute/train/training.h"
#include "sim/engine/fast_engine.h"
#include "sim/memory/executor_memory.h"
#include "sim/memory/schedule_memory.h"
#include "sim/schedule/registry.h"
#include "tests/support/host_runs.h"
#include "tests/support/small_training.h"

namespace pipewright::host_optimizer_test {
namespace {

struct Case {
  std::string schedule = "1f1b";
  int pp = 2;
  OptimizerPlacement placement = OptimizerPlacement::kZeroOffload;
  int dp = 1;
  DataParallel data_parallel = DataParallel::kDdp;
  double ratio = 1;
  int stride = 2;
  std::vector<int> failing_steps;
  GradientFlush flush = GradientFlush::kAsynchronous;
};

struct HostRun {
  ExecutedModel model;
  Program on_device;
  Program on_host;
  WorkerOptions worker_on_device;
  WorkerOptions worker_on_host;
  std::vector<RankMemory> predicted;
  OptimizerOffload offload;
};

std::vector<RankMemory> MemoryOf(const HostRun& run, const Schedule& schedule,
                                 const Case& of, bool on_host) {
  const ModelSpec spec = testing::SpecOf(run.model);
  TrainingSpec training;
  training.microbatch_size = static_cast<int>(run.model.batch);
  training.sequence = run.model.sequence;
  const absl::StatusOr<StageLayout> layout =
      EvenLayout(spec, training, schedule.pp(), schedule.vpp());
  REQUIRE(layout.ok());
  const ExecutorSpec executor = {.type_bytes = 4, .host_optimizer = on_host};
  MemoryOptions options;
  options.framework = ExecutorMemory(executor);
  const bool shards = TraitsOf(of.data_parallel).shards_step && of.dp > 1;
  for (int rank = 0; on_host && rank < schedule.pp(); ++rank) {
    options.optimizer.push_back(ExecutorHostStates(
        CountHostSubgroups(schedule, run.offload, rank, shards ? of.dp : 1),
        executor));
  }
  return BuildScheduleMemory(spec, training, *layout, schedule, options).ranks;
}

// Parameters of each stage, by the inventory.
std::vector<double> ParametersOf(const HostRun& run, const Schedule& schedule,
                                 int shards) {
  const ModelSpec spec = testing::SpecOf(run.model);
  TrainingSpec training;
  training.microbatch_size = static_cast<int>(run.model.batch);
  training.sequence = run.model.sequence;
  const StageLayout layout =
      EvenLayout(spec, training, schedule.pp(), schedule.vpp()).value();
  MemoryOptions options;
  options.framework = ExecutorMemory({.type_bytes = 4});
  std::vector<double> parameters;
  for (const auto& stage :
       BuildScheduleMemory(spec, training, layout, schedule, options).stages) {
    parameters.push_back(
        static_cast<double>(stage->fixed[MemoryKind::kGradients]) / 4 / shards);
  }
  return parameters;
}

HostRun MakeHostRun(const Case& of) {
  const ScheduleMatch match = FindSchedule(of.schedule).value();
  ScheduleParams params;
  params.pp = of.pp;
  params.vpp = match.info->default_vpp;
  params.microbatches = 2 * of.pp;
  const auto schedule = std::make_shared<const Schedule>(
      BuildSchedule(of.schedule, params).value());
  const int stages = schedule->stages();
  HostRun run;
  run.model = testing::SmallModel(PW_LLAMA, stages, 1);
  run.model.failing_steps = of.failing_steps;
  // An early step that clips is one that fails.
  if (of.placement == OptimizerPlacement::kSuperOffload) {
    run.model.clip_norm = 0;
  }
  LowerOptions lower;
  lower.costs = PassCosts::Uniform(
      of.pp, schedule->vpp(),
      {.forward_s = 1, .backward_input_s = 1, .backward_weight_s = 1});
  lower.costs.optimizer_s = 1;
  lower.optimizer = OptimizerMode::kSynchronised;
  lower.iterations = of.failing_steps.empty() ? 3 : 5;
  lower.replicas = of.dp;
  lower.gradient_bytes.assign(stages, 4);
  lower.parameter_bytes.assign(stages, 4);
  if (of.dp > 1) lower.data_parallel = of.data_parallel;
  run.on_device = Lower(schedule, lower).value();
  run.worker_on_device =
      WorkerOptionsFor(run.on_device, lower.data_parallel, lower.optimizer);
  const bool shards = TraitsOf(lower.data_parallel).shards_step && of.dp > 1;
  OptimizerOffload& offload = lower.offload;
  offload.placement = of.placement;
  offload.parameters = ParametersOf(run, *schedule, shards ? of.dp : 1);
  // 7 subgroups of the first rank, in the middle of tensors and stages.
  double first = 0;
  for (int chunk = 0; chunk < schedule->vpp(); ++chunk) {
    first += offload.parameters[schedule->placement.StageOf(0, chunk, 0)];
  }
  offload.subgroup_size = first / 6.5;
  offload.ratio = of.ratio;
  offload.stride = of.stride;
  offload.flush = of.flush;
  offload.flush_rate = 1e12;
  offload.device_adam_rate = 1e12;
  lower.failing_steps = of.failing_steps;
  const absl::StatusOr<Program> on_host = Lower(schedule, lower);
  INFO(on_host.status());
  REQUIRE(on_host.ok());
  run.on_host = *on_host;
  run.offload = offload;
  run.worker_on_host = WorkerOptionsFor(run.on_host, lower.data_parallel,
                                        lower.optimizer, offload);
  run.predicted = MemoryOf(run, *schedule, of, true);
  return run;
}

absl::StatusOr<TrainedRun> TryTrain(
    const HostRun& run, bool on_host, ClockKind clock = ClockKind::kVirtual,
    const PwKernels* kernels = pw_cpu_kernels()) {
  TrainingOptions options;
  options.worker = on_host ? run.worker_on_host : run.worker_on_device;
  options.execute.clock = clock;
  options.execute.trace = true;
  return TrainThreads(on_host ? run.on_host : run.on_device, run.model, kernels,
                      options);
}

TrainedRun TrainIt(const HostRun& run, bool on_host,
                   ClockKind clock = ClockKind::kVirtual) {
  const absl::StatusOr<TrainedRun> trained = TryTrain(run, on_host, clock);
  INFO(trained.status());
  REQUIRE(trained.ok());
  return *trained;
}

// What the replica steps of gradients and weights, and losses.
void CheckSameBits(const TrainedRun& one, const TrainedRun& other) {
  REQUIRE(one.records.size() == other.records.size());
  for (size_t index = 0; index < one.records.size(); ++index) {
    const WorkerRecord& left = one.records[index];
    const WorkerRecord& right = other.records[index];
    CHECK(left.loss_sum == right.loss_sum);
    REQUIRE(left.snapshots.size() == right.snapshots.size());
    REQUIRE(!left.snapshots.empty());
    for (size_t at = 0; at < left.snapshots.size(); ++at) {
      const StageSnapshot& a = left.snapshots[at];
      const StageSnapshot& b = right.snapshots[at];
      REQUIRE(a.begin == b.begin);
      REQUIRE(a.end == b.end);
      const auto bytes = static_cast<size_t>(a.end - a.begin) * 4;
      REQUIRE(bytes > 0);
      CHECK(std::memcmp(a.weights.data() + a.begin, b.weights.data() + b.begin,
                        bytes) == 0);
      CHECK(std::memcmp(a.gradients.data() + a.begin,
                        b.gradients.data() + b.begin, bytes) == 0);
    }
  }
}

void CheckBytes(const HostRun& run, const TrainedRun& trained) {
  for (size_t rank = 0; rank < run.predicted.size(); ++rank) {
    INFO("rank " << rank);
    CHECK(trained.peak_bytes[rank] ==
          static_cast<double>(run.predicted[rank].peak()));
    CHECK(trained.peak_host_bytes[rank] ==
          static_cast<double>(run.predicted[rank].peak_host()));
  }
}

std::set<OpKind> KindsOf(const TrainedRun& trained) {
  std::set<OpKind> kinds;
  for (const TraceOp& op : trained.run.ops) kinds.insert(op.kind);
  return kinds;
}

TEST_CASE("execute: an optimizer on the host steps to the same bits",
          "[execute][memory][offload]") {
  using Placement = OptimizerPlacement;
  for (const Case& of : {
           Case{.placement = Placement::kZeroOffload,
          .flush = GradientFlush::kBlocking},
           Case{.schedule = "zb-v", .placement = Placement::kZeroOffload},
           Case{.placement = Placement::kTwinFlow,
           .ratio = 0.6,
           .flush = GradientFlush::kBlocking},
           Case{.pp = 4, .placement = Placement::kDeepOptimizerStates},
           Case{.schedule = "interleaved-1f1b",
           .placement = Placement::kDeepOptimizerStates,
           .stride = 3},
           Case{.placement = Placement::kDeepOptimizerStates, .ratio = 0.7},
           Case{.schedule = "zb-h1", .placement = Placement::kSuperOffload},
           Case{.schedule = "interleaved-1f1b",
           .placement = Placement::kSuperOffload},
       }) {
    INFO(of.schedule << " pp " << of.pp << " " << TraitsOf(of.placement).name
                     << " ratio " << of.ratio);
    const HostRun run = MakeHostRun(of);
    const TrainedRun on_device = TrainIt(run, false);
    CHECK(on_device.check.same_bits);
    for (const ClockKind clock : {ClockKind::kVirtual, ClockKind::kReal}) {
      INFO("real clock " << (clock == ClockKind::kReal));
      const TrainedRun on_host = TrainIt(run, true, clock);
      CHECK(on_host.check.same_bits);
      CheckSameBits(on_host, on_device);
      CheckBytes(run, on_host);
      CHECK(KindsOf(on_host).contains(OpKind::kHostAdam));
    }
    CHECK(on_device.peak_host_bytes[0] == 0);
    CHECK(run.predicted[0].host_optimizer > 0);
  }
}

TEST_CASE("execute: replicas share what their hosts step",
          "[execute][memory][offload]") {
  for (const Case& of :
       {Case{.dp = 2}, Case{.dp = 2, .data_parallel = DataParallel::kZero1},
        Case{.placement = OptimizerPlacement::kDeepOptimizerStates,
        .dp = 2,
        .data_parallel = DataParallel::kZero2},
        Case{.placement = OptimizerPlacement::kTwinFlow,
        .dp = 2,
        .data_parallel = DataParallel::kFsdp,
        .ratio = 0.5},
        Case{.placement = OptimizerPlacement::kSuperOffload,
        .dp = 2,
        .data_parallel = DataParallel::kZero1},
        // A chunk is flushed while another one still adds up.
        Case{.schedule = "interleaved-1f1b",
        .dp = 2,
        .data_parallel = DataParallel::kZero1,
        .flush = GradientFlush::kBlocking},
        Case{.schedule = "zb-v",
        .dp = 2,
        .data_parallel = DataParallel::kZero1},
        Case{.schedule = "zb-v",
        .placement = OptimizerPlacement::kSuperOffload,
        .dp = 2,
        .data_parallel = DataParallel::kZero1}}) {
    INFO(of.schedule << " " << TraitsOf(of.placement).name << " "
                     << TraitsOf(of.data_parallel).name);
    const HostRun run = MakeHostRun(of);
    const TrainedRun on_device = TrainIt(run, false);
    for (const ClockKind clock : {ClockKind::kVirtual, ClockKind::kReal}) {
      const TrainedRun on_host = TrainIt(run, true, clock);
      CHECK(on_host.check.ok());
      CheckSameBits(on_host, on_device);
      CheckBytes(run, on_host);
    }
  }
}

TEST_CASE("execute: an early step that fails is taken back bit by bit",
          "[execute][offload]") {
  const Case of = {.placement = OptimizerPlacement::kSuperOffload,
                   .failing_steps = {1}};
  const HostRun run = MakeHostRun(of);
  for (const ClockKind clock : {ClockKind::kVirtual, ClockKind::kReal}) {
    const TrainedRun trained = TrainIt(run, true, clock);
    CHECK(trained.check.same_bits);
    CHECK(KindsOf(trained).contains(OpKind::kHostUndo));
  }
  // A failure that the program does not expect is told, not hidden.
  HostRun unexpected = MakeHostRun({.placement = of.placement});
  unexpected.model.failing_steps = {1};
  const absl::Status status = TryTrain(unexpected, true).status();
  CHECK(std::string(status.message()).find("the early step of iteration 1") !=
        std::string::npos);
}

constexpr size_t kLarge = 4096;  // more than the tokens of a pass

PwStatus NoWeights(PwDevice* device, PwStream* stream, PwCopy kind, void* to,
                   const void* from, size_t bytes) {
  if (kind == PW_HOST_TO_DEVICE && bytes > kLarge) return PW_OK;
  return pw_cpu_kernels()->copy(device, stream, kind, to, from, bytes);
}

// Bytes of a stage: copies of whole stages are snapshots'.
size_t whole_stage = 0;

PwStatus NoGradients(PwDevice* device, PwStream* stream, PwCopy kind, void* to,
                     const void* from, size_t bytes) {
  if (kind == PW_DEVICE_TO_HOST && bytes > kLarge && bytes < whole_stage) {
    return PW_OK;
  }
  return pw_cpu_kernels()->copy(device, stream, kind, to, from, bytes);
}

TEST_CASE("execute: lost weights or gradients of the host are found out",
          "[execute][offload]") {
  for (const OptimizerPlacement placement :
       {OptimizerPlacement::kZeroOffload,
        OptimizerPlacement::kDeepOptimizerStates,
        OptimizerPlacement::kSuperOffload}) {
    INFO(TraitsOf(placement).name);
    const HostRun run = MakeHostRun({.placement = placement});
    const std::vector<double>& parameters = run.offload.parameters;
    whole_stage = 4 * static_cast<size_t>(*std::min_element(parameters.begin(),
                                                            parameters.end()));
    for (const auto copy : {&NoWeights, &NoGradients}) {
      PwKernels faulty = *pw_cpu_kernels();
      faulty.copy = copy;
      const absl::StatusOr<TrainedRun> trained =
          TryTrain(run, true, ClockKind::kVirtual, &faulty);
      CHECK((!trained.ok() || !trained->check.ok()));
    }
  }
}

// Weights come back several at a time on every clock that computes times.
TEST_CASE("execute: given times of a host's step are those of engine fast",
          "[execute][offload][engine]") {
  const testing::PlainHost host = {.copy_bytes_per_s = 4e9,
                                   .memory_bytes_per_s = 30e9};
  for (const int stride : {0, 2, 3, 5}) {
    INFO("stride " << stride);
    const Program program = testing::HostProgram(
        host,
        {.parameters = 2e9, .subgroups = 11, .stride = stride, .on_host = 11});
    const RunSummary fast = RunFast(program, {}).value();
    const ExecutedRun executed =
        RunThreads(program,
                   [](Address) { return std::make_unique<FixedWorker>(); },
                   {.clock = ClockKind::kVirtual, .takes_given = true})
            .value();
    CHECK(executed.summary.iteration_end_s[0] == fast.iteration_end_s[0]);
  }
}

}  // namespace
}  // namespace pipewright::host_optimizer_test
