// Tied embeddings: one table where first and last stage are on one rank, else
// two copies whose gradients are summed, in the executor, in the sequential run
// and in the float64 reference.
#include <catch2/catch.hpp>
#include <cstring>
#include <optional>
#include <string>

#include "execute/train/training.h"
#include "sim/program/program.h"
#include "sim/schedule/registry.h"
#include "tests/support/faulty_kernels.h"
#include "tests/support/small_training.h"

namespace pipewright::tied_test {
namespace {

struct Sizes {
  int pp = 2;
  int dp = 1;
  DataParallel mode = DataParallel::kDdp;
  OptimizerMode optimizer = OptimizerMode::kSynchronised;
  PwType type = PW_FP32;
  bool tied = true;
};

struct Setup {
  ExecutedModel model;
  Program program;
  TrainingOptions options;
};

Setup Make(const std::string& schedule, const Sizes& sizes) {
  ScheduleParams params;
  params.pp = sizes.pp;
  params.vpp = FindSchedule(schedule)->info->default_vpp;
  params.microbatches = 4 * sizes.pp;
  const auto built =
      std::make_shared<const Schedule>(BuildSchedule(schedule, params).value());
  Setup setup;
  setup.model = testing::SmallModel(PW_GPT, built->stages(), built->slices);
  setup.model.shape.type = sizes.type;
  // So that a norm that counts the table twice clips otherwise.
  setup.model.clip_norm =
      sizes.optimizer == OptimizerMode::kSynchronised ? 0.01 : 0;
  SetWeightVersions(*built, &setup.model);
  LowerOptions lower;
  lower.costs = PassCosts::Uniform(
      sizes.pp, built->vpp(),
      {.forward_s = 1, .backward_input_s = 1, .backward_weight_s = 1});
  lower.gradient_bytes.assign(built->stages(), 4);
  lower.parameter_bytes.assign(built->stages(), 4);
  if (sizes.dp > 1 || built->directions > 1) lower.data_parallel = sizes.mode;
  lower.replicas = sizes.dp;
  lower.optimizer =
      built->update_every > 0 ? OptimizerMode::kNone : sizes.optimizer;
  lower.iterations = 3;
  if (sizes.tied) {
    TieTable(*built, &setup.model);
    lower.tied_bytes = 4.0 * 61 * 32;
  }
  const absl::StatusOr<Program> program = Lower(built, lower);
  INFO(program.status());
  REQUIRE(program.ok());
  setup.program = *program;
  setup.options.worker =
      WorkerOptionsFor(setup.program, lower.data_parallel, lower.optimizer);
  setup.options.reference = true;
  KeepFirstStep(setup.program, &setup.options.worker);
  return setup;
}

TrainedRun Train(const Setup& setup,
                 const PwKernels* kernels = pw_cpu_kernels()) {
  const absl::StatusOr<TrainedRun> trained =
      TrainThreads(setup.program, setup.model, kernels, setup.options);
  INFO(trained.status());
  REQUIRE(trained.ok());
  return *trained;
}

void CheckTrained(const TrainedRun& run) {
  INFO("gradients " << run.check.gradient_error << " weights "
                    << run.check.weight_error << " same order "
                    << run.check.same_order << "; reference: gradients "
                    << run.reference->gradient_error << " in "
                    << run.reference->worst_gradient << " weights "
                    << run.reference->weight_error.value_or(-1) << " in "
                    << run.reference->worst_weight);
  CHECK(run.check.ok());
  CHECK((!run.check.same_order || run.check.same_bits));
  CHECK(run.reference->ok());
  CHECK(run.reference->gradient_error < 1e-5);
}

// Side operations that sum a table, of all ranks.
int TableSums(const Program& program) {
  int sums = 0;
  for (const RankProgram& rank : program.ranks) {
    for (const SideOp& op : rank.side_ops) {
      if (!op.tied) continue;
      CHECK(op.kind == OpKind::kAllReduce);
      CHECK(op.bytes > 0);
      ++sums;
    }
  }
  return sums;
}

// Copy in the last stage, or the table in the first, behind a step.
std::vector<float> CopyIn(const TrainedRun& run, const ExecutedModel& model,
                          int stage, bool weights) {
  for (const WorkerRecord& record : run.records) {
    for (const StageSnapshot& snapshot : record.snapshots) {
      if (snapshot.stage != stage || snapshot.iteration != 2) continue;
      const std::vector<float>& all =
          weights ? snapshot.weights : snapshot.gradients;
      return stage == 0 ? std::vector<float>(
                              all.begin(), all.begin() + model.TableElements())
                        : std::vector<float>(all.end() - model.TableElements(),
                                             all.end());
    }
  }
  return {};
}

TEST_CASE("tied: two ranks sum the gradients of their copies", "[execute]") {
  for (const char* schedule :
       {"gpipe", "1f1b", "zb-h1", "interleaved-1f1b", "pipedream-2bw"}) {
    for (const int pp : {2, 4}) {
      INFO(schedule << " pp " << pp);
      const Setup setup = Make(schedule, {.pp = pp});
      CHECK(setup.model.copies_table);
      CHECK(TableSums(setup.program) == 2);
      const TrainedRun run = Train(setup);
      CheckTrained(run);
      CHECK(run.check.same_bits);
      const int last = setup.model.num_stages() - 1;
      for (const bool weights : {true, false}) {
        CHECK(CopyIn(run, setup.model, 0, weights) ==
              CopyIn(run, setup.model, last, weights));
      }
    }
  }
}

TEST_CASE("tied: on one rank there is one table", "[execute]") {
  const struct {
    const char* schedule;
    int pp;
  } runs[] = {{"1f1b", 1},      {"zb-h1", 1},     {"pipedream-2bw", 1},
              {"pipeoptim", 1}, {"zb-v", 2},      {"zb-v", 4},
              {"v-half", 2},    {"dualpipe-v", 2}};
  for (const auto& [schedule, pp] : runs) {
    INFO(schedule << " pp " << pp);
    const Setup setup = Make(schedule, {.pp = pp});
    CHECK_FALSE(setup.model.copies_table);
    CHECK(TableSums(setup.program) == 0);
    CheckTrained(Train(setup));
  }
}

TEST_CASE("tied: two directions, replicas, shards, validation, bf16",
          "[execute]") {
  for (const char* schedule : {"chimera", "dualpipe"}) {
    for (const int pp : {2, 4}) {
      INFO(schedule << " pp " << pp);
      const Setup setup = Make(schedule, {.pp = pp});
      // Each of both ranks has an embedding and a head to sum.
      CHECK(TableSums(setup.program) == 2);
      CheckTrained(Train(setup));
    }
  }
  for (const DataParallel mode : {DataParallel::kDdp, DataParallel::kZero1}) {
    for (const char* schedule : {"1f1b", "zb-h1", "zb-v"}) {
      INFO(schedule << " mode " << static_cast<int>(mode));
      CheckTrained(Train(Make(schedule, {.dp = 2, .mode = mode})));
    }
  }
  for (const char* schedule : {"1f1b", "zb-v"}) {
    CheckTrained(
        Train(Make(schedule, {.optimizer = OptimizerMode::kPostValidated})));
    const TrainedRun half =
        Train(Make(schedule, {.type = PW_BF16}),
              testing::FaultyKernels(testing::KernelFault::kNone));
    CHECK(half.check.ok());
    CHECK(half.reference->ok());
  }
}

TEST_CASE("tied: a sum that is left out is found", "[execute]") {
  for (const char* schedule : {"1f1b", "pipedream-2bw"}) {
    Setup setup = Make(schedule, {});
    for (RankProgram& rank : setup.program.ranks) {
      for (SideOp& op : rank.side_ops) {
        if (!op.tied) continue;
        op.kind = OpKind::kWait;
        op.group = -1;
        op.stream = Stream::kCompute;
      }
    }
    const TrainedRun run = Train(setup);
    CHECK_FALSE(run.check.ok());
    CHECK_FALSE(run.reference->ok());
  }
  // A model that is trained apart is another one.
  const TrainedRun tied = Train(Make("1f1b", {}));
  const TrainedRun apart = Train(Make("1f1b", {.tied = false}));
  CHECK(apart.reference->ok());
  CHECK(tied.check.losses[2] != apart.check.losses[2]);
}

// fp32 master, gradient and two moments; passes of fp32 read the master.
TEST_CASE("tied: memory holds the table as often as it is there", "[execute]") {
  const auto resident = [](const char* schedule, int pp, bool tied, int rank) {
    return Train(Make(schedule, {.pp = pp, .tied = tied})).resident_bytes[rank];
  };
  // In whole blocks of the arena.
  const double table = 4 * 4 * 61 * 32;
  CHECK(resident("1f1b", 1, false, 0) - resident("1f1b", 1, true, 0) ==
        Approx(table).epsilon(0.2));
  CHECK(resident("zb-v", 2, false, 0) - resident("zb-v", 2, true, 0) ==
        Approx(table).epsilon(0.2));
  CHECK(resident("1f1b", 2, false, 1) ==
        Approx(resident("1f1b", 2, true, 1)).epsilon(0.01));
}

}  // namespace
}  // namespace pipewright::tied_test
