// Bytes that the executor holds against those of the inventory of its tensors:
// the one side is counted by its allocator, the other follows from the order of
// passes (sim/memory/executor_memory.h).
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "execute/train/memory_pool.h"
#include "execute/train/model_worker.h"
#include "execute/train/training.h"
#include "sim/memory/executor_tensors.h"
#include "sim/memory/schedule_memory.h"
#include "sim/program/program.h"
#include "sim/schedule/registry.h"
#include "tests/support/random_schedule.h"
#include "tests/support/small_training.h"

namespace pipewright::memory_test {
namespace {

struct Sizes {
  std::string schedule;
  int pp = 4;
  PwStyle style = PW_LLAMA;
  PwType type = PW_FP32;
  bool recompute = false;
  OptimizerMode optimizer = OptimizerMode::kSynchronised;
  int slices = 1;
  bool experts = false;
  bool copies = false;  // to the host and back
  int dp = 1;
  DataParallel data_parallel = DataParallel::kNone;
  bool tied = false;   // embedding and head share a table
  double limit = 0;    // of activations, for which some passes run again
  int64_t batch = 16;  // activations are then most of what a rank holds
};

std::string Words(const Sizes& sizes) {
  return absl::StrCat(sizes.schedule, " pp ", sizes.pp, " style ", sizes.style,
                      " type ", sizes.type, " recompute ", sizes.recompute,
                      " optimizer ", static_cast<int>(sizes.optimizer),
                      " slices ", sizes.slices, " experts ", sizes.experts,
                      " copies ", sizes.copies, " dp ", sizes.dp, " mode ",
                      static_cast<int>(sizes.data_parallel), " tied ",
                      sizes.tied, " batch ", sizes.batch);
}

struct Run {
  std::shared_ptr<const Schedule> schedule;
  ExecutedModel model;
  Program program;
  WorkerOptions worker;
  ScheduleMemory predicted;
};

void AddExperts(ModelSpec* spec, ExecutedModel* model) {
  spec->experts = model->shape.experts = 4;
  spec->experts_per_token = model->shape.experts_per_token = 2;
  spec->expert_ffn_hidden = model->shape.expert_ffn = 16;
  spec->shared_ffn_hidden = model->shape.shared_ffn = 8;
  model->shape.ep = 1;
  model->shape.balanced = 1;
  spec->first_dense_layers = 1;
  for (std::vector<StagePart>& stage : model->stages) {
    for (StagePart& part : stage) {
      if (part.layer > 0) part.part = PW_EXPERT_LAYER;
    }
  }
}

Run MakeRun(const Sizes& sizes) {
  Run run;
  const absl::StatusOr<ScheduleMatch> match = FindSchedule(sizes.schedule);
  REQUIRE(match.ok());
  ScheduleParams params;
  params.pp = sizes.pp;
  params.vpp = match->info->default_vpp;
  params.microbatches = 2 * sizes.pp;
  params.slices = sizes.slices;
  if (sizes.limit > 0) {
    params.max_activations = sizes.limit;
    params.own = {{"recompute", "choose"}, {"steps", "100"}};
  }
  absl::StatusOr<Schedule> built = BuildSchedule(sizes.schedule, params);
  REQUIRE(built.ok());
  Random random(7);
  run.schedule = std::make_shared<const Schedule>(
      sizes.copies ? WithCopies(*built, random) : *built);
  const Schedule& schedule = *run.schedule;
  run.model =
      testing::SmallModel(sizes.style, schedule.stages(), schedule.slices);
  run.model.shape.type = sizes.type;
  run.model.batch = sizes.batch;
  run.model.recompute = sizes.recompute;
  SetWeightVersions(schedule, &run.model);
  ModelSpec spec = testing::SpecOf(run.model);
  if (sizes.experts) AddExperts(&spec, &run.model);

  LowerOptions lower;
  if (sizes.tied) {
    TieTable(schedule, &run.model);
    spec.tied_embeddings = true;
    lower.tied_bytes = 4.0 * static_cast<double>(spec.vocabulary * spec.hidden);
  }
  lower.costs = PassCosts::Uniform(
      sizes.pp, schedule.vpp(),
      {.forward_s = 1, .backward_input_s = 1, .backward_weight_s = 1});
  lower.data_parallel =
      schedule.directions > 1 ? DataParallel::kDdp : sizes.data_parallel;
  lower.replicas = sizes.dp;
  lower.gradient_bytes.assign(schedule.stages(), 4);
  lower.parameter_bytes.assign(schedule.stages(), 4);
  lower.optimizer =
      schedule.update_every > 0 ? OptimizerMode::kNone : sizes.optimizer;
  lower.iterations = 2;
  absl::StatusOr<Program> program = Lower(run.schedule, lower);
  INFO(program.status());
  REQUIRE(program.ok());
  run.program = *std::move(program);
  run.worker =
      WorkerOptionsFor(run.program, lower.data_parallel, lower.optimizer);

  TrainingSpec training;
  training.microbatch_size = static_cast<int>(run.model.batch);
  training.sequence = run.model.sequence;
  training.slices = schedule.slices;
  const absl::StatusOr<StageLayout> layout =
      EvenLayout(spec, training, sizes.pp, schedule.vpp());
  REQUIRE(layout.ok());
  MemoryOptions options;
  options.framework = ExecutorMemory(
      {.type_bytes = sizes.type == PW_FP32 ? 4 : 2,
       .recompute = sizes.recompute,
       .keeps_versions = run.model.keeps_versions,
       .ties_table = sizes.tied,
       .keeps_last_step = lower.optimizer == OptimizerMode::kPostValidated});
  run.predicted =
      BuildScheduleMemory(spec, training, *layout, schedule, options);
  return run;
}

TrainedRun Train(const Run& run) {
  TrainingOptions options;
  options.worker = run.worker;
  options.check = false;
  const absl::StatusOr<TrainedRun> trained =
      TrainThreads(run.program, run.model, pw_cpu_kernels(), options);
  INFO(trained.status());
  REQUIRE(trained.ok());
  return *trained;
}

bool HasType(PwType type) {
  PwDevice* device = nullptr;
  PwDeviceInfo info{};
  REQUIRE(pw_cpu_kernels()->open(0, &device) == PW_OK);
  REQUIRE(pw_cpu_kernels()->info(device, &info) == PW_OK);
  pw_cpu_kernels()->close(device);
  return (info.types & 1 << type) != 0;
}

void CheckSame(const Sizes& sizes) {
  INFO(Words(sizes));
  const Run run = MakeRun(sizes);
  const TrainedRun trained = Train(run);
  for (int rank = 0; rank < run.schedule->pp(); ++rank) {
    const RankMemory& predicted = run.predicted.ranks[rank];
    INFO("rank " << rank);
    // Older weights and those to go back to come with the first step.
    const bool grows = run.schedule->update_every > 0 ||
                       sizes.optimizer == OptimizerMode::kPostValidated;
    const auto fixed = static_cast<double>(predicted.fixed.total());
    CHECK((grows || trained.resident_bytes[rank] == fixed));
    CHECK(trained.peak_bytes[rank] == static_cast<double>(predicted.peak()));
    // Sums in another order.
    CHECK(trained.peak_activations[rank] ==
          Approx(predicted.peak_microbatches).epsilon(1e-12));
    CHECK(predicted.activations_at_end == 0);
  }
}

TEST_CASE("execute: peaks in bytes are those of the inventory of tensors",
          "[execute][memory]") {
  for (const char* const schedule :
       {"1f1b", "gpipe", "zb-h1", "zb-h2", "zb-v"}) {
    for (const int pp : {4, 8}) {
      for (const bool recompute : {false, true}) {
        CheckSame({.schedule = schedule,
                   .pp = pp,
                   .style = pp == 4 ? PW_GPT : PW_LLAMA,
                   .recompute = recompute});
      }
    }
  }
}

TEST_CASE("execute: the inventory holds for slices, experts, pairs and steps",
          "[execute][memory]") {
  const std::vector<Sizes> all = {
      {.schedule = "seq1f1b", .slices = 2},
      {.schedule = "seq1f1b", .recompute = true, .slices = 2},
      {.schedule = "interleaved-1f1b"},
      {.schedule = "dualpipe"},
      {.schedule = "dualpipe-v", .recompute = true},
      {.schedule = "zb-v", .experts = true},
      {.schedule = "1f1b", .style = PW_GPT, .experts = true},
      {.schedule = "1f1b", .copies = true},
      {.schedule = "1f1b", .recompute = true, .copies = true},
      {.schedule = "zb-h1", .optimizer = OptimizerMode::kPostValidated},
      {.schedule = "1f1b", .dp = 2, .data_parallel = DataParallel::kDdp},
      {.schedule = "zb-v", .dp = 2, .data_parallel = DataParallel::kFsdp},
      // Weights and what is reduced are most of what a rank holds.
      {.schedule = "1f1b",
       .dp = 2,
       .data_parallel = DataParallel::kDdp,
       .batch = 1},
      {.schedule = "1f1b",
       .dp = 2,
       .data_parallel = DataParallel::kZero1,
       .batch = 1},
      {.schedule = "zb-h1",
       .dp = 2,
       .data_parallel = DataParallel::kZero2,
       .batch = 1},
      {.schedule = "chimera", .batch = 1},
      {.schedule = "1f1b", .style = PW_GPT, .tied = true},
      {.schedule = "zb-h1", .tied = true},
      {.schedule = "zb-v", .tied = true},
      {.schedule = "1f1b", .pp = 1, .tied = true},
      {.schedule = "optimal", .limit = 2},
      {.schedule = "optimal", .style = PW_GPT, .limit = 1.5},
      {.schedule = "pipedream-2bw"},
      {.schedule = "pipedream-2bw", .style = PW_GPT, .recompute = true},
      {.schedule = "pipeoptim"}};
  for (const Sizes& sizes : all) CheckSame(sizes);
  for (const char* const schedule : {"1f1b", "zb-h1", "pipedream-2bw"}) {
    if (!HasType(PW_BF16)) continue;
    CheckSame({.schedule = schedule, .type = PW_BF16});
    CheckSame({.schedule = schedule, .type = PW_BF16, .recompute = true});
  }
}

// What no run here can show: types that this processor does not have.
TEST_CASE("execute: each part of the inventory is as large as its kernels say",
          "[execute][memory]") {
  static PwKernels with_fp8 = *pw_cpu_kernels();
  with_fp8.info = [](PwDevice* device, PwDeviceInfo* info) {
    const PwStatus status = pw_cpu_kernels()->info(device, info);
    info->fp8_gemm = 1;
    return status;
  };
  PwDevice* device = nullptr;
  REQUIRE(with_fp8.open(0, &device) == PW_OK);
  int checked = 0;
  for (const PwStyle style : {PW_GPT, PW_LLAMA}) {
    for (const PwType type : {PW_FP32, PW_BF16}) {
      for (const bool fp8 : {false, true}) {
        for (const int slices : {1, 3}) {
          for (const BlockKind kind :
               {BlockKind::kEmbedding, BlockKind::kDenseLayer,
                BlockKind::kExpertLayer, BlockKind::kHead}) {
            ExecutedModel model = testing::SmallModel(style, 2, slices);
            model.batch = 16;
            model.shape.type = type;
            model.shape.fp8_linear = fp8 ? 1 : 0;
            ModelSpec spec = testing::SpecOf(model);
            const bool experts = kind == BlockKind::kExpertLayer;
            if (experts && fp8) continue;
            if (experts) AddExperts(&spec, &model);
            TrainingSpec training;
            training.microbatch_size = static_cast<int>(model.batch);
            training.sequence = model.sequence;
            training.slices = slices;
            const ExecutorPart mine = ExecutorPartOf(ExecutorTensors(
                spec, training,
                {.type_bytes = type == PW_FP32 ? 4 : 2, .fp8 = fp8}, kind));
            const PwPart part = kind == BlockKind::kEmbedding ? PW_EMBEDDING
                                : kind == BlockKind::kHead    ? PW_HEAD
                                : experts                     ? PW_EXPERT_LAYER
                                                              : PW_LAYER;
            // The last slice sees the most keys.
            const PwWork work = model.WorkOf(slices - 1);
            PwPartSize theirs{};
            REQUIRE(pw_part_size(&with_fp8, device, &model.shape, &work, part,
                                 &theirs) == PW_OK);
            INFO(BlockKindName(kind) << " style " << style << " type " << type
                                     << " fp8 " << fp8 << " slices " << slices);
            // The logits are a gradient's room, but there from F on.
            const bool head = part == PW_HEAD;
            CHECK(mine.parameters == theirs.parameters);
            CHECK(mine.saved == static_cast<int64_t>(theirs.saved));
            CHECK(mine.inputs ==
                  static_cast<int64_t>(theirs.inputs +
                                       (head ? theirs.grads : 0)));
            CHECK(mine.grads == static_cast<int64_t>(head ? 0 : theirs.grads));
            CHECK(mine.microbatch == static_cast<int64_t>(theirs.cache));
            CHECK(mine.workspace == static_cast<int64_t>(theirs.workspace));
            CHECK(mine.quantized == static_cast<int64_t>(theirs.quantized));
            ++checked;
          }
        }
      }
    }
  }
  CHECK(checked == 2 * 2 * (2 * 2 * 3 + 2));
  with_fp8.close(device);
}

enum class Fault { kNone, kKeepsOutputs, kFreesLate };

// The first rank alone, its passes in order. Bytes at most.
size_t PeakByHand(const Run& run, Fault fault) {
  const Schedule& schedule = *run.schedule;
  const PwKernels* const kernels = pw_cpu_kernels();
  WorkerRecord record;
  WorkerOptions options = run.worker;
  options.record = &record;
  absl::StatusOr<std::unique_ptr<ModelWorker>> worker =
      ModelWorker::Create(run.program, {0, 0}, run.model, kernels, 0, options);
  REQUIRE(worker.ok());
  REQUIRE((*worker)->WarmUp().ok());
  REQUIRE((*worker)->BeginStart({}).ok());
  PwDevice* device = nullptr;
  REQUIRE(kernels->open(0, &device) == PW_OK);
  const auto others = std::make_shared<MemoryPool>(
      kernels, std::shared_ptr<PwDevice>(device, kernels->close));
  const auto run_pass = [&](const Pass& pass) {
    if (IsBackward(pass.kind())) {
      Payload gradient = others->Take(run.model.BoundaryBytes()).value();
      others->ChargeMessages(&gradient);
      (*worker)->TakeInput(pass, 0, std::move(gradient));
    }
    (*worker)->BeginBlock(&pass, 1);
    REQUIRE((*worker)->RunPass(pass, 0).ok());
    (*worker)->EndBlock(&pass, 1);
    if (pass.kind() == PassKind::kForward && fault != Fault::kKeepsOutputs) {
      (*worker)->GiveOutput(pass, 0);
    }
  };
  std::vector<Pass> late;
  for (const Pass pass : schedule.order(0)) {
    if (fault == Fault::kFreesLate &&
        pass.kind() == PassKind::kBackwardWeight) {
      late.push_back(pass);
    } else {
      run_pass(pass);
    }
  }
  for (const Pass& pass : late) run_pass(pass);
  worker->reset();
  return record.peak_bytes;
}

TEST_CASE("execute: a tensor too many or freed too late is no longer predicted",
          "[execute][memory]") {
  const Run run = MakeRun({.schedule = "zb-h1"});
  const auto predicted = static_cast<double>(run.predicted.ranks[0].peak());
  const auto off = [&](Fault fault) {
    return static_cast<double>(PeakByHand(run, fault)) / predicted - 1;
  };
  CHECK(off(Fault::kNone) == 0);
  // One block of a boundary for each microbatch.
  CHECK(off(Fault::kKeepsOutputs) > 0.05);
  CHECK(off(Fault::kFreesLate) > 0.05);
}

TEST_CASE("execute: what is given away is on nobody's account but messages'",
          "[execute][memory]") {
  PwDevice* device = nullptr;
  const PwKernels* const kernels = pw_cpu_kernels();
  REQUIRE(kernels->open(0, &device) == PW_OK);
  const std::shared_ptr<PwDevice> shared(device, kernels->close);
  const auto sender = std::make_shared<MemoryPool>(kernels, shared);
  const auto receiver = std::make_shared<MemoryPool>(kernels, shared);
  Payload block = sender->Take(1000).value();
  Payload copy = block;
  CHECK(sender->used() == 1000);
  copy = {};
  CHECK(sender->used() == 1000);
  sender->ChargeMessages(&block);
  CHECK(sender->used() == 0);
  CHECK(sender->messages_peak() == 1000);
  receiver->ChargeUsed(&block);
  CHECK(receiver->used() == 1000);
  receiver->ChargeUsed(&block);
  CHECK(receiver->peak() == 1000);
  block = {};
  CHECK(receiver->used() == 0);
  CHECK(sender->peak() == 1000);
}

}  // namespace
}  // namespace pipewright::memory_test
