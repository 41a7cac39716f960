#include "sim/cli/execute_model.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "calibrate/grid.h"
#include "execute/train/training.h"
#include "execute/train/units.h"
#include "sim/base/status.h"
#include "sim/cli/execute_replicas.h"
#include "sim/config/refuse_slow.h"
#include "sim/model/precision.h"
#include "sim/run/describe_run.h"
#include "sim/schedule/schedule.h"

namespace pipewright {
namespace {

constexpr double kDefaultClip = 1;  // Megatron-LM's --clip-grad

int64_t CountRecomputed(const Schedule& schedule) {
  int64_t recomputed = 0;
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    for (const Pass pass : schedule.order(rank)) {
      recomputed += pass.kind() == PassKind::kRecompute ? 1 : 0;
    }
  }
  return recomputed;
}

// Every backward has its R, or none has. Error: some have.
absl::StatusOr<bool> RecomputesByPasses(const Schedule& schedule) {
  const int64_t recomputed = CountRecomputed(schedule);
  int64_t backwards = 0;
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    for (const Pass pass : schedule.order(rank)) {
      backwards += IsBackward(pass.kind()) ? 1 : 0;
    }
  }
  if (recomputed == 0 || recomputed == backwards) return recomputed > 0;
  return absl::InvalidArgumentError(absl::StrCat(
      "schedule ", schedule.name, ": ", recomputed, " of its ", backwards,
      " backwards have an R; allowed: all of them or none (the executor "
      "recomputes every stage or none)"));
}

// Refuses a tied table whose gradients cannot come together.
absl::Status CheckTied(const PreparedRun& run, const ExecutedModel& model) {
  const Schedule& schedule = *run.schedule.lowered;
  constexpr char kField[] = "model.tied_embeddings";
  if (schedule.update_every > 0 && model.copies_table &&
      schedule.update_every < schedule.microbatches) {
    return BadValue(kField, absl::StrCat("true with schedule ", schedule.name),
                    "false (every rank steps by itself after each backward "
                    "pass, so the copies of the table on the first and the "
                    "last rank would become different)");
  }
  const bool scattered = TraitsOf(run.lower.data_parallel).shards_gradients &&
                         run.lower.replicas > 1;
  if (scattered && model.num_stages() > 1) {
    return BadValue(kField,
                    absl::StrCat("true with strategy.data_parallel ",
                                 TraitsOf(run.lower.data_parallel).name),
                    "false; none, ddp or zero1 (gradients are scattered after "
                    "every backward pass, stage by stage, and the shards of "
                    "two stages do not hold the same rows of the table)");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PreparedRun> PrepareToTrain(const RunConfig& read,
                                           std::vector<std::string>* warnings) {
  PW_RETURN_IF_ERROR(RefuseSlow(read, "execute"));
  PW_ASSIGN_OR_RETURN(PreparedRun run, Prepare(read));
  if (run.failing) {
    warnings->push_back(
        "reliability.mtbf_per_device has no effect on execute: nothing fails, "
        "and simulate has the goodput");
  }
  const bool unflushed = run.schedule.lowered->update_every > 0;
  if (!read.strategy.optimizer && !unflushed) {
    // So that the warnings are those of a run that steps.
    RunConfig steps = read;
    steps.strategy.optimizer = OptimizerMode::kSynchronised;
    PW_ASSIGN_OR_RETURN(run, Prepare(steps));
  }
  const bool copies =
      run.lower.replicas > 1 || run.schedule.lowered->directions > 1;
  if (copies && !TraitsOf(run.lower.data_parallel).reduces) {
    if (read.strategy.data_parallel) {
      warnings->push_back(
          "strategy.data_parallel is none: copies of a stage become different, "
          "and the check against the sequential run will say so");
    } else {
      run.lower.data_parallel = DataParallel::kDdp;  // of all classes, below
    }
  }
  ReduceInClasses(&run);
  return run;
}

bool HasTimes(const PreparedRun& run) {
  return run.costs.profile || run.costs.analytic ||
         run.config.costs.forward_s ||
         !run.config.costs.stage_forward_s.empty();
}

void DescribeExecuted(const PreparedRun& run, Report* report) {
  report->engine = "hardware";
  DescribeRun(run, report);
  report->gradient_sync = report->data_parallel;
}

absl::StatusOr<ExecutedModel> ModelToTrain(const PreparedRun& run, PwType type,
                                           uint64_t seed,
                                           std::vector<std::string>* warnings) {
  if (!run.prepared_model) {
    return absl::InvalidArgumentError(
        "model: missing; allowed: a model to train (--model gpt-tiny), or "
        "--clock paced, which runs no kernels");
  }
  const PreparedModel& prepared = *run.prepared_model;
  const TrainingSpec& training = prepared.training;
  if (training.tp * training.cp * training.ep > 1) {
    return absl::InvalidArgumentError(
        "strategy.tp, cp, ep: the executor does not run them; allowed: 1");
  }
  if (run.offload && !training.offloaded.all()) {
    return BadValue(run.config.Field("strategy.offload_tensors"),
                    absl::StrJoin(run.config.strategy.offload_tensors, ","),
                    "input,attention,mlp (the executor copies all that a "
                    "stage keeps)");
  }
  if (IsNarrow(training.precision) && training.precision != Precision::kFp8) {
    return BadValue("strategy.precision", PrecisionName(training.precision),
                    "bf16, fp8");
  }
  if (training.recompute_layers > 0) {
    return BadValue("strategy.recompute_layers",
                    absl::StrCat(training.recompute_layers),
                    "absent (the executor recomputes every layer or none)");
  }
  if (training.vocabulary == VocabularyPlacement::kSpread) {
    return BadValue("strategy.vocabulary", "spread", "ends");
  }
  if (run.schedule.lowered->backward != BackwardRule::kChain) {
    return absl::InvalidArgumentError(absl::StrCat(
        "schedule ", run.schedule.lowered->name,
        ": its backwards do not follow the chain of stages; the executor "
        "trains only those that do"));
  }
  PW_ASSIGN_OR_RETURN(const Grid grid,
                      MakeGrid(prepared.spec, type,
                               {.microbatch_sizes = {training.microbatch_size},
                                .sequences = {training.sequence},
                                .tps = {1},
                                .fp8 = training.precision == Precision::kFp8}));
  warnings->insert(warnings->end(), grid.warnings.begin(), grid.warnings.end());
  ExecutedModel model;
  model.shape = grid.shapes[0].model;
  model.batch = training.microbatch_size;
  model.sequence = training.sequence;
  model.slices = run.schedule.lowered->slices;
  model.seed = seed;
  // Otherwise no rank waits for the norm. A step that is taken before it is
  // known fails where it clips, and the program has to know that.
  if (run.lower.optimizer == OptimizerMode::kSynchronised &&
      run.lower.offload.placement != OptimizerPlacement::kSuperOffload) {
    model.clip_norm = kDefaultClip;
  }
  model.failing_steps = run.lower.failing_steps;
  SetWeightVersions(*run.schedule.lowered, &model);
  if (prepared.spec.tied_embeddings) {
    TieTable(*run.schedule.lowered, &model);
  }
  switch (training.recompute) {
    case Recompute::kNone:
      break;
    case Recompute::kFull:
      model.recompute = true;
      break;
    default:
      warnings->push_back(
          "strategy.recompute: the executor recomputes whole stages or "
          "nothing; here nothing");
  }
  if (std::count(training.recompute_chunks.begin(),
                 training.recompute_chunks.end(), false) > 0) {
    return BadValue("strategy.recompute_chunks", "some of the chunks",
                    "all of them (the executor recomputes every stage or "
                    "none)");
  }
  PW_ASSIGN_OR_RETURN(const bool passes,
                      RecomputesByPasses(*run.schedule.lowered));
  model.recompute |= passes;
  for (const std::vector<StageBlock>& blocks : prepared.layout.stages) {
    std::vector<StagePart>& stage = model.stages.emplace_back();
    for (const StageBlock& block : blocks) {
      switch (block.kind) {
        case BlockKind::kEmbedding:
          stage.push_back({.part = PW_EMBEDDING});
          break;
        case BlockKind::kHead:
          stage.push_back({.part = PW_HEAD});
          break;
        default:
          for (int64_t layer = 0; layer < block.count; ++layer) {
            stage.push_back(
                {.part = block.kind == BlockKind::kExpertLayer ? PW_EXPERT_LAYER
                                                               : PW_LAYER,
                 .layer = static_cast<int>(block.first_layer + layer)});
          }
      }
    }
  }
  if (run.sequences) PW_RETURN_IF_ERROR(TakeLengths(run, &model));
  const bool layered = !run.lower.layers.stages.empty() &&
                       TraitsOf(run.lower.data_parallel).shards_weights &&
                       run.lower.replicas > 1;
  if (layered) model.stages = SplitIntoLayers(model.stages);
  if (prepared.spec.tied_embeddings) PW_RETURN_IF_ERROR(CheckTied(run, model));
  return model;
}

}  // namespace pipewright
