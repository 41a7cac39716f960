// Activations on the host: executed memory against that of the order, the same
// training as without copies, and faults that must show.
#include <atomic>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "execute/train/memory_pool.h"
#include "execute/train/model_worker.h"
#include "execute/train/training.h"
#include "execute/train/training_wire.h"
#include "sim/memory/executor_memory.h"
#include "sim/memory/schedule_memory.h"
#include "sim/program/activation_plan.h"
#include "sim/program/program.h"
#include "sim/schedule/registry.h"
#include "tests/support/small_training.h"

namespace pipewright::offload_test {
namespace {

// PipeOffload's k: both copies of a chunk over its F, B and W.
constexpr double kRatio = 0.7;

struct Case {
  std::string schedule;
  int pp = 4;
  OffloadMode mode = OffloadMode::kFull;
  bool recompute = false;
};

struct Run {
  std::shared_ptr<const Schedule> schedule;  // with copies
  ExecutedModel model;
  Program without;  // copies
  Program program;
  WorkerOptions worker;
  std::vector<RankMemory> predicted_without;
  std::vector<RankMemory> predicted;
};

std::vector<RankMemory> Predict(const Run& run, const Schedule& schedule) {
  const ModelSpec spec = testing::SpecOf(run.model);
  TrainingSpec training;
  training.microbatch_size = static_cast<int>(run.model.batch);
  training.sequence = run.model.sequence;
  const absl::StatusOr<StageLayout> layout =
      EvenLayout(spec, training, schedule.pp(), schedule.vpp());
  REQUIRE(layout.ok());
  MemoryOptions options;
  options.framework =
      ExecutorMemory({.type_bytes = 4, .recompute = run.model.recompute});
  return BuildScheduleMemory(spec, training, *layout, schedule, options).ranks;
}

Run MakeRun(const Case& of) {
  const absl::StatusOr<ScheduleMatch> match = FindSchedule(of.schedule);
  REQUIRE(match.ok());
  ScheduleParams params;
  params.pp = of.pp;
  params.vpp = match->info->default_vpp;
  params.microbatches = 2 * of.pp;
  absl::StatusOr<Schedule> built = BuildSchedule(of.schedule, params);
  REQUIRE(built.ok());
  const auto schedule = std::make_shared<const Schedule>(*std::move(built));
  const int stages = schedule->stages();
  Run run;
  run.model = testing::SmallModel(PW_LLAMA, stages, 1);
  run.model.batch = 8;  // activations are then much of what a rank holds
  run.model.recompute = of.recompute;
  LowerOptions lower;
  lower.costs = PassCosts::Uniform(of.pp, schedule->vpp(),
                                   {.forward_s = 1,
                                    .backward_input_s = 1,
                                    .backward_weight_s = 1,
                                    .offload_s = 1.5 * kRatio,
                                    .load_s = 1.5 * kRatio});
  lower.optimizer = OptimizerMode::kSynchronised;
  lower.iterations = 2;
  absl::StatusOr<Program> without = Lower(schedule, lower);
  REQUIRE(without.ok());
  run.without = *std::move(without);
  OffloadCosts costs;
  for (const StageCosts& stage : lower.costs.stages) {
    costs.out_s.push_back(stage.offload_s);
    costs.in_s.push_back(stage.load_s);
    costs.weight.push_back(1);
  }
  absl::StatusOr<OffloadPlan> plan =
      PlanOffload(schedule, run.without,
                  {.half = of.mode == OffloadMode::kSelective}, costs);
  REQUIRE(plan.ok());
  run.schedule = plan->schedule;
  absl::StatusOr<Program> program = Lower(run.schedule, lower);
  INFO(program.status());
  REQUIRE(program.ok());
  run.program = *std::move(program);
  run.worker =
      WorkerOptionsFor(run.program, lower.data_parallel, lower.optimizer);
  run.predicted_without = Predict(run, *schedule);
  run.predicted = Predict(run, *run.schedule);
  return run;
}

TrainedRun Train(const Run& run, const Program& program,
                 ClockKind clock = ClockKind::kVirtual,
                 const PwKernels* kernels = pw_cpu_kernels()) {
  TrainingOptions options;
  options.worker = run.worker;
  options.execute.clock = clock;
  const absl::StatusOr<TrainedRun> trained =
      TrainThreads(program, run.model, kernels, options);
  INFO(trained.status());
  REQUIRE(trained.ok());
  return *trained;
}

// Losses, gradients and weights of all ranks, without what they hold.
std::string LearntBits(const TrainedRun& trained) {
  WireWriter writer;
  for (const WorkerRecord& record : trained.records) {
    WorkerRecord learnt;
    learnt.snapshots = record.snapshots;
    learnt.loss_sum = record.loss_sum;
    PutRecord(learnt, &writer);
  }
  return writer.bytes();
}

void CheckMemory(const Run& run, const TrainedRun& trained) {
  for (int rank = 0; rank < run.schedule->pp(); ++rank) {
    const RankMemory& predicted = run.predicted[rank];
    INFO("rank " << rank);
    CHECK(trained.peak_bytes[rank] == static_cast<double>(predicted.peak()));
    CHECK(trained.peak_host_bytes[rank] ==
          static_cast<double>(predicted.peak_host()));
    CHECK(trained.peak_activations[rank] ==
          Approx(predicted.peak_microbatches).epsilon(1e-12));
    CHECK(predicted.activations_at_end == 0);
  }
}

TEST_CASE("execute: offloaded activations take the bytes of their order",
          "[execute][memory][offload][long]") {
  for (const int pp : {4, 8}) {
    for (const Case& of : {Case{"po-h", pp, OffloadMode::kSelective},
                           Case{"po-f", pp, OffloadMode::kFull},
                           Case{"zb-v", pp, OffloadMode::kSelective},
                           Case{"1f1b", pp, OffloadMode::kFull},
                           Case{"1f1b", pp, OffloadMode::kFull, true}}) {
      INFO(of.schedule << " pp " << pp << " recompute " << of.recompute);
      const Run run = MakeRun(of);
      REQUIRE(run.schedule->Has(PassKind::kFree));
      // What is away counts nowhere else.
      CHECK(run.predicted[0].peak_host() > 0);
      CHECK(run.predicted[0].peak() < run.predicted_without[0].peak());
      const TrainedRun without = Train(run, run.without);
      for (const ClockKind clock : {ClockKind::kVirtual, ClockKind::kReal}) {
        INFO("real clock " << (clock == ClockKind::kReal));
        const TrainedRun trained = Train(run, run.program, clock);
        CheckMemory(run, trained);
        CHECK(trained.check.same_bits);
        CHECK(LearntBits(trained) == LearntBits(without));
      }
      CHECK(without.check.same_bits);
      CHECK(without.peak_host_bytes[0] == 0);
      CHECK(without.peak_bytes[0] ==
            static_cast<double>(run.predicted_without[0].peak()));
    }
  }
}

// A load that brings what another microbatch has left there.
PwStatus CrossedCopy(PwDevice* device, PwStream* stream, PwCopy kind, void* to,
                     const void* from, size_t bytes) {
  static std::map<std::pair<PwDevice*, size_t>, const void*> before;
  static std::mutex mutex;
  if (kind == PW_HOST_TO_DEVICE && bytes > 4096) {
    std::lock_guard lock(mutex);
    const void*& last = before[{device, bytes}];
    const void* const source = last == nullptr ? from : last;
    last = from;
    from = source;
  }
  return pw_cpu_kernels()->copy(device, stream, kind, to, from, bytes);
}

TEST_CASE("execute: a load of another microbatch's activations is found out",
          "[execute][offload]") {
  const Run run = MakeRun({"1f1b"});
  static PwKernels crossed = *pw_cpu_kernels();
  crossed.copy = CrossedCopy;
  CHECK_FALSE(
      Train(run, run.program, ClockKind::kVirtual, &crossed).check.ok());
}

std::atomic<int> allocations;

// As the CPU's, but counts what it allocates.
const PwKernels* CountingKernels() {
  static PwKernels counting = *pw_cpu_kernels();
  counting.allocate = [](PwDevice* device, size_t bytes, void** memory) {
    ++allocations;
    return pw_cpu_kernels()->allocate(device, bytes, memory);
  };
  counting.allocate_host = [](PwDevice* device, size_t bytes, void** memory) {
    ++allocations;
    return pw_cpu_kernels()->allocate_host(device, bytes, memory);
  };
  return &counting;
}

enum class Fault { kNone, kFreesNothing, kLoadsNothing };

struct ByHand {
  absl::Status status;
  WorkerRecord record;
  int allocations = 0;  // between the warm-up and the end
};

// The first rank of 1F1B alone, in its order.
ByHand RunByHand(const Run& run, Fault fault) {
  ByHand result;
  WorkerOptions options = run.worker;
  options.record = &result.record;
  const PwKernels* const kernels = CountingKernels();
  absl::StatusOr<std::unique_ptr<ModelWorker>> worker =
      ModelWorker::Create(run.program, {0, 0}, run.model, kernels, 0, options);
  REQUIRE(worker.ok());
  REQUIRE((*worker)->WarmUp().ok());
  REQUIRE((*worker)->BeginStart({}).ok());
  PwDevice* device = nullptr;
  REQUIRE(kernels->open(0, &device) == PW_OK);
  const auto others = std::make_shared<MemoryPool>(
      kernels, std::shared_ptr<PwDevice>(device, kernels->close));
  REQUIRE(others->Reserve(run.model.BoundaryBytes(), 1).ok());
  const int before = allocations;
  const auto run_entry = [&](Pass pass) -> absl::Status {
    switch (pass.kind()) {
      case PassKind::kLoad:
        if (fault == Fault::kLoadsNothing) return absl::OkStatus();
        [[fallthrough]];
      case PassKind::kOffload: {
        const absl::Status issued = (*worker)->IssueCopy(pass, 0);
        return issued.ok() ? (*worker)->RunCopy(pass, 0).status() : issued;
      }
      case PassKind::kFree:
        return fault == Fault::kFreesNothing
                   ? absl::OkStatus()
                   : (*worker)->FreeOffloaded(pass, 0);
      default:
        break;
    }
    if (IsBackward(pass.kind())) {
      Payload gradient = others->Take(run.model.BoundaryBytes()).value();
      others->ChargeMessages(&gradient);
      (*worker)->TakeInput(pass, 0, std::move(gradient));
    }
    (*worker)->BeginBlock(&pass, 1);
    const absl::Status ran = (*worker)->RunPass(pass, 0).status();
    (*worker)->EndBlock(&pass, 1);
    if (pass.kind() == PassKind::kForward) (*worker)->GiveOutput(pass, 0);
    return ran;
  };
  for (const Pass pass : run.schedule->order(0)) {
    result.status.Update(run_entry(pass));
    if (!result.status.ok()) break;
  }
  result.allocations = allocations - before;
  worker->reset();
  return result;
}

TEST_CASE("execute: a FREE that frees nothing and a missing load are found out",
          "[execute][memory][offload]") {
  const Run run = MakeRun({"1f1b"});
  const auto predicted = static_cast<double>(run.predicted[0].peak());
  const ByHand right = RunByHand(run, Fault::kNone);
  CHECK(right.status.ok());
  CHECK(static_cast<double>(right.record.peak_bytes) == predicted);
  CHECK(static_cast<double>(right.record.peak_host_bytes) ==
        static_cast<double>(run.predicted[0].peak_host()));
  const ByHand kept = RunByHand(run, Fault::kFreesNothing);
  CHECK(kept.status.ok());
  CHECK(static_cast<double>(kept.record.peak_bytes) > 1.05 * predicted);
  const ByHand away = RunByHand(run, Fault::kLoadsNothing);
  CHECK(away.status.code() == absl::StatusCode::kInternal);
  CHECK(std::string(away.status.message()).find("on the host") !=
        std::string::npos);
}

TEST_CASE("execute: the memory of copies is there before the first pass",
          "[execute][memory][offload]") {
  for (const bool recompute : {false, true}) {
    const Run run = MakeRun({"1f1b", 4, OffloadMode::kFull, recompute});
    CHECK(RunByHand(run, Fault::kNone).allocations == 0);
  }
}

}  // namespace
}  // namespace pipewright::offload_test
