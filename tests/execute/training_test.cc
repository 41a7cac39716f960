// Gradients of every schedule against the sequential run.
#include "execute/train/training.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "sim/memory/activations.h"
#include "sim/program/program.h"
#include "sim/schedule/registry.h"
#include "tests/support/random_schedule.h"
#include "tests/support/small_training.h"

namespace pipewright::training_test {
namespace {

using testing::SmallModel;

struct Setup {
  std::shared_ptr<const Schedule> schedule;
  LowerOptions lower;
  ExecutedModel model;
};

// Nothing where the schedule cannot take these sizes.
std::optional<Setup> MakeSetup(const ScheduleInfo& info, int pp,
                               int microbatches, PwStyle style) {
  ScheduleParams params;
  params.pp = pp;
  params.vpp = info.default_vpp;
  params.microbatches = microbatches;
  if (info.slice_factor) params.slices = 3;
  absl::StatusOr<Schedule> built = BuildSchedule(info.name, params);
  if (!built.ok() || 24 % built->slices != 0) return std::nullopt;
  Setup setup;
  setup.model = SmallModel(style, built->stages(), built->slices);
  setup.schedule = std::make_shared<const Schedule>(*std::move(built));
  const int stages = setup.schedule->stages();
  setup.lower.costs = PassCosts::Uniform(
      pp, setup.schedule->vpp(),
      {.forward_s = 1, .backward_input_s = 1, .backward_weight_s = 1});
  setup.lower.gradient_bytes.assign(stages, 4);
  setup.lower.parameter_bytes.assign(stages, 4);
  if (setup.schedule->directions > 1) {
    setup.lower.data_parallel = DataParallel::kDdp;
  }
  setup.lower.optimizer = OptimizerMode::kSynchronised;
  setup.lower.iterations = 2;
  return setup;
}

TrainedRun Train(const Setup& setup, ExecuteOptions execute = {}) {
  const absl::StatusOr<Program> program = Lower(setup.schedule, setup.lower);
  INFO(program.status());
  REQUIRE(program.ok());
  const absl::StatusOr<TrainedRun> trained = TrainThreads(
      *program, setup.model, pw_cpu_kernels(),
      {.execute = execute,
       .worker = WorkerOptionsFor(*program, setup.lower.data_parallel,
                                  setup.lower.optimizer)});
  INFO(trained.status());
  REQUIRE(trained.ok());
  return *trained;
}

void CheckTrained(const TrainedRun& trained) {
  const TrainingCheck& check = trained.check;
  INFO("loss " << check.loss_error << " gradients " << check.gradient_error
               << " weights " << check.weight_error << " order "
               << check.same_order << " bits " << check.same_bits);
  CHECK(check.ok());
  // One thread a rank and no atomics: the CPU owes the bits.
  CHECK((!check.same_order || check.same_bits));
  CHECK(check.losses.size() == 2);
  // Random tokens: a guess among the vocabulary.
  CHECK(check.losses[0] == Approx(std::log(61.0)).epsilon(0.2));
}

// True if a rank has all bytes of a microbatch or none. Else they are those of
// the inventory (memory_test.cc), which are no multiples of a microbatch:
// chunks are unlike, B leaves its own gradients, slices share a cache.
bool HoldsWholeOrNothing(const Schedule& schedule) {
  return !schedule.Has(PassKind::kBackwardInput) && schedule.vpp() == 1 &&
         schedule.slices == 1;
}

TEST_CASE("execute: every synchronous schedule trains as without a pipeline",
          "[execute]") {
  int exact = 0;
  int trained = 0;
  int counted = 0;
  for (const ScheduleInfo* info : AllSchedules()) {
    int shapes = 0;
    for (const int pp : {2, 4}) {
      for (const int microbatches : {2 * pp, 4 * pp}) {
        const std::optional<Setup> setup =
            MakeSetup(*info, pp, microbatches,
                      microbatches == 2 * pp ? PW_LLAMA : PW_GPT);
        if (!setup || setup->schedule->update_every > 0) continue;
        INFO(info->name << " pp " << pp << " microbatches " << microbatches);
        const TrainedRun run = Train(*setup);
        CheckTrained(run);
        if (HoldsWholeOrNothing(*setup->schedule)) {
          CHECK(run.peak_activations == PeakActivations(*setup->schedule, 1));
          ++counted;
        }
        ++shapes;
        ++trained;
        exact += run.check.same_bits ? 1 : 0;
      }
    }
    if (shapes == 0) WARN(info->name << ": no shape tried");
  }
  CHECK(trained > 80);
  CHECK(exact > 60);
  CHECK(counted > 8);
}

const ScheduleInfo& Info(const std::string& name) {
  for (const ScheduleInfo* info : AllSchedules()) {
    if (info->name == name) return *info;
  }
  FAIL("no schedule " << name);
  return *AllSchedules()[0];
}

TEST_CASE("execute: data parallelism in all its forms trains alike",
          "[execute]") {
  for (const DataParallel mode : {DataParallel::kDdp, DataParallel::kZero1,
                                  DataParallel::kZero2, DataParallel::kFsdp}) {
    for (const char* name : {"1f1b", "zb-h1", "interleaved-1f1b", "zb-v"}) {
      INFO(name << " data parallel " << static_cast<int>(mode));
      std::optional<Setup> setup = MakeSetup(Info(name), 2, 4, PW_LLAMA);
      REQUIRE(setup.has_value());
      setup->lower.data_parallel = mode;
      setup->lower.replicas = 2;
      const TrainedRun run = Train(*setup);
      CheckTrained(run);
      CHECK_FALSE(run.check.same_order);
    }
  }
}

TEST_CASE("execute: a stage whose gather is left out is found out",
          "[execute]") {
  std::optional<Setup> setup = MakeSetup(Info("1f1b"), 2, 4, PW_GPT);
  setup->lower.data_parallel = DataParallel::kZero1;
  setup->lower.replicas = 2;
  absl::StatusOr<Program> program = Lower(setup->schedule, setup->lower);
  REQUIRE(program.ok());
  // The gathers become waits: parameters stay as the step left them.
  for (RankProgram& rank : program->ranks) {
    for (SideOp& op : rank.side_ops) {
      if (op.kind != OpKind::kAllGather) continue;
      op.kind = OpKind::kWait;
      op.group = -1;
    }
  }
  const absl::StatusOr<TrainedRun> trained =
      TrainThreads(*program, setup->model, pw_cpu_kernels(),
                   {.worker = WorkerOptionsFor(*program, DataParallel::kZero1,
                                               OptimizerMode::kSynchronised)});
  REQUIRE(trained.ok());
  CHECK_FALSE(trained->check.ok());
}

TEST_CASE("execute: a post-validated step holds, or is rolled back",
          "[execute]") {
  for (const char* name : {"1f1b", "zb-h1", "zb-h2", "zb-v"}) {
    for (const bool fails : {false, true}) {
      INFO(name << (fails ? " fails" : " holds"));
      std::optional<Setup> setup = MakeSetup(Info(name), 4, 8, PW_LLAMA);
      REQUIRE(setup.has_value());
      setup->lower.optimizer = OptimizerMode::kPostValidated;
      setup->lower.iterations = 5;
      setup->model.clip_norm = 0;
      if (fails) setup->lower.failing_steps = {1};
      setup->model.failing_steps = setup->lower.failing_steps;
      const TrainedRun run = Train(*setup);
      CHECK(run.check.ok());
      CHECK(run.check.losses.size() == 5);
      // A step that was scaled down moves what follows away from one that was
      // not: the sequential run tells them apart.
      Setup other = *setup;
      other.model.failing_steps =
          fails ? std::vector<int>{} : std::vector<int>{1};
      const SequentialRun unlike = *RunSequential(
          other.model, pw_cpu_kernels(), 0,
          SequentialOptionsFor(*Lower(setup->schedule, setup->lower),
                               {.post_validated = true}));
      CHECK(unlike.steps[4].loss != run.check.sequential_losses[4]);
    }
  }
}

TEST_CASE("execute: a step that fails where none should is an error",
          "[execute]") {
  std::optional<Setup> setup = MakeSetup(Info("1f1b"), 2, 4, PW_GPT);
  setup->lower.optimizer = OptimizerMode::kPostValidated;
  setup->model.clip_norm = 1e-6;
  const absl::StatusOr<Program> program = Lower(setup->schedule, setup->lower);
  REQUIRE(program.ok());
  const absl::StatusOr<TrainedRun> trained =
      TrainThreads(*program, setup->model, pw_cpu_kernels(),
                   {.worker = WorkerOptionsFor(*program, DataParallel::kNone,
                                               OptimizerMode::kPostValidated)});
  REQUIRE_FALSE(trained.ok());
  CHECK(absl::StrContains(trained.status().message(), "fails its validation"));
}

TEST_CASE("execute: activations come back from the host, passes run again",
          "[execute]") {
  std::optional<Setup> setup = MakeSetup(Info("1f1b"), 4, 8, PW_LLAMA);
  Setup recomputes = *setup;
  recomputes.model.recompute = true;
  std::vector<Setup> all = {recomputes};
  // No FREE, one right behind the O, one in front of the L.
  for (uint32_t seed = 1; seed <= 8; ++seed) {
    Random random(seed);
    all.push_back(*setup);
    all.back().schedule =
        std::make_shared<const Schedule>(WithCopies(*setup->schedule, random));
  }
  int lower = 0;
  for (const Setup& each : all) {
    const std::vector<double> peak = PeakActivations(*each.schedule, 1);
    lower += peak == PeakActivations(*setup->schedule, 1) ? 0 : 1;
    const TrainedRun run = Train(each);
    CheckTrained(run);
    CHECK(run.check.same_bits);
    const bool frees = each.schedule->Has(PassKind::kFree) ||
                       !each.schedule->Has(PassKind::kOffload);
    for (size_t rank = 0; rank < peak.size(); ++rank) {
      CAPTURE(rank);
      // Without FREE memory goes back when the copy has ended, and the order
      // does not say when that is.
      CHECK(run.peak_activations[rank] <= peak[rank]);
      if (frees) CHECK(run.peak_activations[rank] == peak[rank]);
    }
    // Copies on their own threads, in wall time.
    CheckTrained(Train(each, {.clock = ClockKind::kReal}));
  }
  // Some of the passes.
  Setup some = *setup;
  ScheduleParams params;
  params.pp = 4;
  params.microbatches = 8;
  params.max_activations = 2;
  params.own = {{"recompute", "choose"}, {"steps", "100"}};
  some.schedule =
      std::make_shared<const Schedule>(*BuildSchedule("optimal", params));
  REQUIRE(some.schedule->Has(PassKind::kRecompute));
  REQUIRE(some.schedule->num_passes() < 4 * 8 * 4);
  const TrainedRun run = Train(some);
  CheckTrained(run);
  CHECK(run.check.same_bits);
  CHECK(run.peak_bytes[0] < Train(*setup).peak_bytes[0]);
  // What is on the host is not held.
  CHECK(lower >= 2);
  CHECK(Train(recomputes).peak_bytes[0] < Train(*setup).peak_bytes[0]);
}

TEST_CASE("execute: uneven stages, wall time and holding transfers",
          "[execute]") {
  std::optional<Setup> setup = MakeSetup(Info("zb-h1"), 4, 8, PW_GPT);
  // Five layers on the first, one on each other.
  setup->model.stages = EvenStages(4, 4);
  for (int layer = 4; layer < 8; ++layer) {
    setup->model.stages[0].push_back({.part = PW_LAYER, .layer = layer});
  }
  CheckTrained(Train(*setup));
  CheckTrained(Train(*setup, {.clock = ClockKind::kReal}));
  std::optional<Setup> held = MakeSetup(Info("gpipe"), 4, 8, PW_GPT);
  for (const WaitRule rule :
       {WaitRule::kRendezvous, WaitRule::kBatched, WaitRule::kStepped}) {
    held->lower.wait_rule = rule;
    CheckTrained(Train(*held));
  }
  // Two chunks a rank.
  held = MakeSetup(Info("interleaved-1f1b"), 4, 8, PW_GPT);
  REQUIRE(held->schedule->vpp() == 2);
  held->lower.wait_rule = WaitRule::kBatched;
  CheckTrained(Train(*held));
  CheckTrained(Train(*held, {.clock = ClockKind::kReal}));
}

// Every second layer is one of experts.
Setup WithExperts(Setup setup, bool balanced) {
  PwModel& shape = setup.model.shape;
  shape.experts = 4;
  shape.experts_per_token = 2;
  shape.expert_ffn = 16;
  shape.shared_ffn = 8;
  shape.ep = 1;
  shape.balanced = balanced ? 1 : 0;
  for (std::vector<StagePart>& stage : setup.model.stages) {
    for (StagePart& part : stage) {
      if (part.layer % 2 == 1) part.part = PW_EXPERT_LAYER;
    }
  }
  return setup;
}

TEST_CASE("execute: experts train as without a pipeline", "[execute]") {
  for (const char* name : {"1f1b", "zb-h1", "interleaved-1f1b", "seq1f1b"}) {
    const std::optional<Setup> setup = MakeSetup(Info(name), 2, 4, PW_LLAMA);
    REQUIRE(setup.has_value());
    for (const bool balanced : {true, false}) {
      INFO(name << " balanced " << balanced);
      const TrainedRun run = Train(WithExperts(*setup, balanced));
      CheckTrained(run);
      CHECK(run.check.same_bits);
    }
  }
}

// Four iterations of a schedule that is never flushed.
Setup UnflushedSetup(const std::string& name, int pp, int microbatches) {
  std::optional<Setup> setup =
      MakeSetup(Info(name), pp, microbatches, PW_LLAMA);
  REQUIRE(setup.has_value());
  setup->lower.optimizer = OptimizerMode::kNone;
  setup->lower.iterations = 4;
  // Far enough from step to step that one version is no other.
  setup->model.adam.learning_rate = 1e-2f;
  SetWeightVersions(*setup->schedule, &setup->model);
  return *std::move(setup);
}

TEST_CASE("execute: every microbatch has its version of the weights",
          "[execute]") {
  for (const char* name : {"pipedream-2bw", "pipeoptim"}) {
    for (const int pp : {1, 2, 4}) {
      for (const int microbatches : {pp, 2 * pp, 2 * pp + 1}) {
        INFO(name << " pp " << pp << " microbatches " << microbatches);
        const TrainedRun run = Train(UnflushedSetup(name, pp, microbatches));
        CHECK(run.check.ok());
        CHECK(run.check.same_order);
        CHECK(run.check.same_bits);
        CHECK(run.check.losses == run.check.sequential_losses);
        CHECK(run.check.losses.size() == 4);
      }
    }
    Setup recomputes = UnflushedSetup(name, 4, 8);
    recomputes.model.recompute = true;
    CHECK(Train(recomputes).check.same_bits);
  }
  Setup replicas = UnflushedSetup("pipedream-2bw", 2, 4);
  replicas.lower.replicas = 2;
  replicas.lower.data_parallel = DataParallel::kDdp;
  CHECK(Train(replicas).check.ok());
}

TEST_CASE("execute: a version that is one off is found out", "[execute]") {
  // By the sequential run.
  for (const char* name : {"pipedream-2bw", "pipeoptim"}) {
    const Setup setup = UnflushedSetup(name, 4, 8);
    const absl::StatusOr<Program> program = Lower(setup.schedule, setup.lower);
    REQUIRE(program.ok());
    const WorkerOptions worker =
        WorkerOptionsFor(*program, DataParallel::kNone, OptimizerMode::kNone);
    const TrainedRun run = Train(setup);
    const SequentialOptions right = SequentialOptionsFor(*program, worker);
    REQUIRE(right.behind.size() == 4);
    const auto agrees = [&](const SequentialOptions& options) {
      const TrainingCheck check = CheckTraining(
          *program, setup.model, run.records,
          *RunSequential(setup.model, pw_cpu_kernels(), 0, options),
          /*deterministic=*/true);
      CHECK(check.ok() == check.same_bits);
      return check.ok();
    };
    CHECK(agrees(right));
    for (int stage = 0; stage < 4; ++stage) {
      for (const int off : {-1, 1}) {
        SequentialOptions wrong = right;
        wrong.behind[stage] += off;
        if (wrong.behind[stage] < 0) continue;
        INFO(name << " stage " << stage << " off by " << off);
        CHECK_FALSE(agrees(wrong));
      }
    }
    SequentialOptions other = right;
    other.predicts = !right.predicts;
    CHECK_FALSE(agrees(other));
  }
  // By the run: weights as new as each rank has them, or older by one more.
  for (const int delay : {0, 2}) {
    Setup setup = UnflushedSetup("pipedream-2bw", 4, 8);
    setup.model.weight_delay = delay;
    INFO("delay " << delay);
    CHECK_FALSE(Train(setup).check.ok());
  }
}

}  // namespace
}  // namespace pipewright::training_test
