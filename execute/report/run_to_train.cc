#include "execute/report/run_to_train.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "calibrate/grid.h"
#include "execute/report/execute_run.h"
#include "execute/train/training.h"
#include "execute/train/units.h"
#include "sim/base/error_parts.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"
#include "sim/config/refuse_slow.h"
#include "sim/model/packer.h"
#include "sim/model/precision.h"
#include "sim/program/optimizer_plan.h"
#include "sim/program/program.h"
#include "sim/schedule/schedule.h"

namespace pipewright {
namespace {

constexpr double kDefaultClip = 1;  // Megatron-LM's --clip-grad

// Gradients are reduced even if no sizes are known.
void ReduceGradients(DataParallel mode, PreparedRun* run) {
  run->lower.data_parallel = mode;
  if (!TraitsOf(mode).reduces) return;
  for (std::vector<double>* const bytes :
       {&run->lower.gradient_bytes, &run->lower.parameter_bytes}) {
    if (bytes->empty()) bytes->assign(run->schedule.lowered->stages(), 0);
  }
}

// On the real clock messages take the time that they take, so links that say
// otherwise are refused.
absl::Status CheckLinks(const PreparedRun& run, bool processes) {
  const RunConfig& config = run.config;
  if (config.costs.p2p_s.value_or(0) > 0) {
    return BadValue(
        config.Field("costs.p2p"), FormatSeconds(*config.costs.p2p_s),
        "0ms, or --clock virtual or paced (with --clock real messages take "
        "real time; calibrate --transport measures it)");
  }
  // Processes may be on the system that is given.
  if (processes) return absl::OkStatus();
  if (config.costs.hop_bytes) {
    return BadValue(
        config.Field("costs.hop_bytes"), FormatBytes(*config.costs.hop_bytes),
        "none, --clock virtual or paced, or mpirun and --bootstrap (with "
        "--clock real the threads of one process send the bytes of the model)");
  }
  if (NamesSystem(config.system)) {
    return BadValue(config.Field("system"), run.network.system,
                    "none, --clock virtual or paced, or mpirun and --bootstrap "
                    "on that system (with --clock real the threads of one "
                    "process do not use its links)");
  }
  return absl::OkStatus();
}

// What replicas gather from each other, layer by layer.
absl::Status CheckLayers(const PreparedRun& run, const Program& program,
                         const ExecuteRequest& request) {
  const RunConfig& config = run.config;
  const LayerOptions& layers = run.lower.layers;
  const std::pair<const char*, int> groups[] = {
      {"strategy.shard_group", layers.shard_group},
      {"strategy.near_group", layers.near_group}};
  for (const auto& [field, group] : groups) {
    if (group == 0 || group == program.replicas) continue;
    return BadValue(config.Field(field), absl::StrCat(group),
                    absl::StrCat("0 or all ", program.replicas,
                                 " replicas with execute, which shards over "
                                 "all of them"));
  }
  const bool odc = run.lower.data_parallel == DataParallel::kOdc;
  if (odc && request.device != "cpu") {
    return BadValue("--device", request.device,
                    "cpu with strategy.data_parallel odc (owners' memory is "
                    "shared on the host)");
  }
  // An owner that looks so rarely would seem to be lost.
  if (odc && !request.paced() && 2 * layers.poll_s >= request.timeout_s) {
    return BadValue(config.Field("strategy.owner_poll"),
                    FormatSeconds(layers.poll_s),
                    absl::StrCat("less than half of --timeout (",
                                 FormatSeconds(request.timeout_s), ")"));
  }
  if (request.replays()) {
    return FieldError("--replay-rank",
                      "runs one rank alone; allowed: without layers that "
                      "replicas gather from each other");
  }
  return absl::OkStatus();
}

// Error: a sample longer than a model with learned positions has of them.
absl::Status TakeSamples(DealtSamples samples, ExecutedModel* model) {
  model->lengths = std::move(samples.lengths);
  model->batch = 1;
  model->sequence = samples.most_tokens;
  // Rotary positions go on as far as a sample does.
  const bool learned = model->shape.style == PW_GPT;
  if (!learned || samples.longest <= model->shape.sequence) {
    return absl::OkStatus();
  }
  return BadValue("strategy.sequence", absl::StrCat(model->shape.sequence),
                  absl::StrCat("at least ", samples.longest,
                               ", the longest sample, as positions are learned "
                               "for so many tokens"));
}

// True if every backward has its R. Error: some have, and forwards are run with
// other weights than their backwards.
absl::StatusOr<bool> RecomputesByPasses(const Schedule& schedule) {
  int64_t recomputed = 0;
  int64_t backwards = 0;
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    for (const Pass pass : schedule.order(rank)) {
      recomputed += pass.kind() == PassKind::kRecompute ? 1 : 0;
      backwards += IsBackward(pass.kind()) ? 1 : 0;
    }
  }
  if (recomputed == backwards) return true;
  if (recomputed == 0 || schedule.update_every == 0) return false;
  return absl::InvalidArgumentError(absl::StrCat(
      "schedule ", schedule.name, ": ", recomputed, " of its ", backwards,
      " backwards have an R; allowed: all of them or none, as the schedule has "
      "update_every"));
}

// Refuses a tied table whose gradients cannot come together.
absl::Status CheckTied(const PreparedRun& run, const ExecutedModel& model) {
  const Schedule& schedule = *run.schedule.lowered;
  const DataParallelTraits& mode = TraitsOf(run.lower.data_parallel);
  constexpr char kField[] = "model.tied_embeddings";
  if (schedule.update_every > 0 && model.copies_table &&
      schedule.update_every < schedule.microbatches) {
    return BadValue(kField, absl::StrCat("true with schedule ", schedule.name),
                    "false (every rank steps by itself after each backward "
                    "pass, so the copies of the table on the first and the "
                    "last rank would become different)");
  }
  if (mode.shards_gradients && run.lower.replicas > 1 &&
      model.num_stages() > 1) {
    return BadValue(
        kField, absl::StrCat("true with strategy.data_parallel ", mode.name),
        "false; none, ddp or zero1 (gradients are scattered after "
        "every backward pass, stage by stage, and the shards of "
        "two stages do not hold the same rows of the table)");
  }
  return absl::OkStatus();
}

// Refuses what the executor does not train.
absl::Status CheckTrainable(const PreparedRun& run) {
  const TrainingSpec& training = run.prepared_model->training;
  const Schedule& schedule = *run.schedule.lowered;
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
  if (schedule.backward != BackwardRule::kChain) {
    return absl::InvalidArgumentError(absl::StrCat(
        "schedule ", schedule.name,
        ": its backwards do not follow the chain of stages; the executor "
        "trains only those that do"));
  }
  return absl::OkStatus();
}

std::vector<StagePart> StageParts(const std::vector<StageBlock>& blocks) {
  std::vector<StagePart> stage;
  for (const StageBlock& block : blocks) {
    if (block.kind == BlockKind::kEmbedding) {
      stage.push_back({.part = PW_EMBEDDING});
    } else if (block.kind == BlockKind::kHead) {
      stage.push_back({.part = PW_HEAD});
    } else {
      const bool experts = block.kind == BlockKind::kExpertLayer;
      for (int64_t layer = 0; layer < block.count; ++layer) {
        stage.push_back({.part = experts ? PW_EXPERT_LAYER : PW_LAYER,
                         .layer = static_cast<int>(block.first_layer + layer)});
      }
    }
  }
  return stage;
}

}  // namespace

RunConfig WithoutUnexecuted(RunConfig read, ClockKind clock) {
  if (clock != ClockKind::kReal && read.costs.profile &&
      !read.costs.interference) {
    read.costs.interference = false;
  }
  read.timed_by_run = clock != ClockKind::kPaced;
  return read;
}

absl::StatusOr<PreparedRun> PrepareToTrain(const RunConfig& read,
                                           std::vector<std::string>* warnings) {
  PW_RETURN_IF_ERROR(RefuseSlow(read, "execute"));
  const OptimizerKind kind = OptimizerRuleOf(read.strategy).kind;
  if (kind != OptimizerKind::kAdam) {
    return BadValue(read.Field("strategy.optimizer_kind"),
                    ChoiceName(OptimizerKindChoices(), kind),
                    "adam: execute steps by no other rule (simulate has them)");
  }
  PW_ASSIGN_OR_RETURN(PreparedRun run, Prepare(read));
  if (run.costs.in_units) {
    return MissingValue(read.Field("costs.uniform.forward"),
                        "times of passes (--forward TIME --backward TIME), "
                        "which the paced clock keeps");
  }
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
  DataParallel mode = run.lower.data_parallel;
  const bool copies =
      run.lower.replicas > 1 || run.schedule.lowered->directions > 1;
  if (copies && !TraitsOf(mode).reduces) {
    if (read.strategy.data_parallel) {
      warnings->push_back(
          "strategy.data_parallel is none: copies of a stage become different, "
          "and the check against the sequential run will say so");
    } else {
      mode = DataParallel::kDdp;
    }
  }
  ReduceGradients(mode, &run);
  for (PreparedClass& own : run.classes) {
    PreparedRun alike = *own.run;
    ReduceGradients(mode, &alike);
    own.run = std::make_shared<const PreparedRun>(std::move(alike));
  }
  return run;
}

bool HasTimes(const PreparedRun& run) {
  return run.costs.profile || run.costs.analytic ||
         run.config.costs.forward_s ||
         !run.config.costs.stage_forward_s.empty();
}

absl::Status CheckPredictable(const PreparedRun& run,
                              const ExecuteRequest& request, bool processes) {
  if (request.real() && !request.replays()) {
    PW_RETURN_IF_ERROR(CheckLinks(run, processes));
  }
  const RunConfig& config = run.config;
  if (!request.real() && config.costs.interference.value_or(false)) {
    return BadValue(config.Field("costs.interference"), "on",
                    "off, or --clock real (with the other clocks no pass slows "
                    "another down)");
  }
  if (request.paced()) return absl::OkStatus();
  const DpClassChoice& classes = config.strategy.dp_classes;
  const std::pair<const char*, const std::vector<double>*> factors[] = {
      {"costs.microbatch_factor", &config.costs.microbatch_factor},
      {"strategy.dp_classes.microbatch_factor", &classes.microbatch_factor},
      {"strategy.dp_classes.slower", &classes.slower}};
  for (const auto& [field, values] : factors) {
    const auto unlike = std::find_if(values->begin(), values->end(),
                                     [](double factor) { return factor != 1; });
    if (unlike == values->end()) continue;
    return BadValue(config.Field(field), absl::StrCat(*unlike),
                    "1, or --clock paced (kernels take the time that they "
                    "take, of microbatches of one length or of --lengths)");
  }
  if (config.costs.pair_factor.value_or(1) != 1) {
    return BadValue(config.Field("costs.pair_factor"),
                    absl::StrCat(*config.costs.pair_factor),
                    "1, or --clock paced (the kernels of a pair run one after "
                    "the other)");
  }
  return absl::OkStatus();
}

absl::Status CheckReplicas(const PreparedRun& run, const Program& program,
                           const ExecuteRequest& request) {
  const Schedule& schedule = *program.schedule;
  const RunConfig& config = run.config;
  const bool differ = program.num_classes() > 1 || run.sequences;
  if (differ && request.replays()) {
    return FieldError("--replay-rank",
                      "runs the ranks of one replica for those of all; "
                      "allowed: replicas that run alike, without lengths");
  }
  if (differ && (schedule.directions > 1 || schedule.update_every > 0)) {
    return BadValue(
        config.Field("schedule.name"), schedule.name,
        "one of one direction that is flushed, with replicas that differ or "
        "lengths");
  }
  const bool layered = !program.ranks[0].layers.empty();
  if (run.lower.offload.active() && (layered || program.num_classes() > 1)) {
    return BadValue(
        config.Field("strategy.optimizer_placement"),
        TraitsOf(run.lower.offload.placement).name,
        layered ? "gpu where replicas gather layers one by one (the executor "
                  "steps on the host with strategy.data_parallel none, ddp, "
                  "zero1, zero2, or fsdp with strategy.shard_blocks pass)"
                : "gpu where replicas differ (the executor steps on the host "
                  "in replicas that run alike)");
  }
  return layered ? CheckLayers(run, program, request) : absl::OkStatus();
}

void WarnOfIdle(const PreparedRun& run, const ExecuteRequest& request,
                std::vector<std::string>* warnings) {
  const auto warn = [&](bool idle, absl::string_view flag,
                        absl::string_view why) {
    if (idle) {
      warnings->push_back(absl::StrCat(flag, " has no effect ", why));
    }
  };
  const bool seeded = request.seed != ExecuteRequest().seed;
  constexpr char kPaced[] = "with --clock paced, which runs no kernels";
  warn(request.paced() && request.no_check, "--no-check", kPaced);
  warn(request.paced() && request.one_at_a_time, "--one-at-a-time", kPaced);
  warn(request.paced() && seeded, "--train-seed", kPaced);
  warn(request.replays() && request.no_check, "--no-check",
       "with --replay-rank, which checks no gradients");
  warn(request.replays() && request.one_at_a_time, "--one-at-a-time",
       "with --replay-rank, which runs one rank at a time");
  constexpr char kSize[] = "strategy.microbatch_size";
  warn(run.sequences && !request.paced() && run.config.origins.contains(kSize),
       run.config.Field(kSize),
       "on what is trained with lengths, of which the packer makes the "
       "microbatches");
  if (HasTimes(run)) return;
  for (const std::string& path : GivenPaths(run.config)) {
    const bool told = std::any_of(
        run.unused.begin(), run.unused.end(),
        [&](const UnusedField& field) { return field.path == path; });
    const bool system = absl::StartsWith(path, "system.");
    const bool times_links =
        !request.real() &&
        (system || path == "costs.p2p" || path == "costs.hop_bytes" ||
         path == "costs.gradient_bytes");
    const bool read = times_links || path == "system.memory" ||
                      path == "costs.held_until_weight";
    warn(!told && !read &&
             (system || absl::StartsWith(path, "costs.") || path == "engine" ||
              path == "network"),
         run.config.Field(path),
         "without pass times to predict from (costs.uniform, costs.profile)");
  }
}

DealtSamples DealtSamplesOf(const PreparedSequences& sequences) {
  DealtSamples dealt;
  for (const Parts& microbatches : sequences.packing) {
    for (const std::vector<int>& samples : microbatches) {
      std::vector<int64_t>& own = dealt.lengths.emplace_back();
      int64_t tokens = 0;
      for (const int sample : samples) {
        own.push_back(sequences.request.lengths[sample]);
        tokens += own.back();
        dealt.longest = std::max(dealt.longest, own.back());
      }
      dealt.most_tokens = std::max(dealt.most_tokens, tokens);
    }
  }
  return dealt;
}

absl::StatusOr<ExecutedModel> ModelToTrain(const PreparedRun& run, PwType type,
                                           uint64_t seed,
                                           std::vector<std::string>* warnings) {
  if (!run.prepared_model) {
    return absl::InvalidArgumentError(
        "model: missing; allowed: a model to train (--model gpt-tiny), or "
        "--clock paced, which runs no kernels");
  }
  PW_RETURN_IF_ERROR(CheckTrainable(run));
  const PreparedModel& prepared = *run.prepared_model;
  const TrainingSpec& training = prepared.training;
  const Schedule& schedule = *run.schedule.lowered;
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
  model.slices = schedule.slices;
  model.seed = seed;
  // Otherwise no rank waits for the norm. A step that is taken before it is
  // known fails if it clips, and the program has to know that.
  if (run.lower.optimizer == OptimizerMode::kSynchronised &&
      run.lower.offload.placement != OptimizerPlacement::kSuperOffload) {
    model.clip_norm = kDefaultClip;
  }
  model.failing_steps = run.lower.failing_steps;
  SetWeightVersions(schedule, &model);
  if (prepared.spec.tied_embeddings) TieTable(schedule, &model);
  model.recompute = training.recompute == Recompute::kFull;
  if (!model.recompute && training.recompute != Recompute::kNone) {
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
  PW_ASSIGN_OR_RETURN(const bool passes, RecomputesByPasses(schedule));
  model.recompute |= passes;
  for (const std::vector<StageBlock>& blocks : prepared.layout.stages) {
    model.stages.push_back(StageParts(blocks));
  }
  if (run.sequences) {
    PW_RETURN_IF_ERROR(TakeSamples(DealtSamplesOf(*run.sequences), &model));
  }
  const bool layered = !run.lower.layers.stages.empty() &&
                       TraitsOf(run.lower.data_parallel).shards_weights &&
                       run.lower.replicas > 1;
  if (layered) model.stages = SplitIntoLayers(model.stages);
  if (prepared.spec.tied_embeddings) PW_RETURN_IF_ERROR(CheckTied(run, model));
  return model;
}

}  // namespace pipewright
