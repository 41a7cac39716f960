#include "sim/program/lower.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/status.h"
#include "sim/program/lane_exchanges.h"
#include "sim/program/lowering.h"
#include "sim/program/time_steps.h"
#include "sim/schedule/wiring.h"
#include "sim/topology/mapping.h"

namespace pipewright {
namespace {

// More iterations are not tried (docs/architecture.md, Command line).
constexpr int kMostIterations = 8;

}  // namespace

int HoldersOf(const LowerOptions& options) {
  return options.data_parallel == DataParallel::kOdc
             ? options.replicas
             : options.replicas * options.network.context_parallel;
}

absl::Status LoweringCheck::Run() const {
  const auto stages = static_cast<size_t>(schedule_.stages());
  if (options_.costs.stages.size() != stages) {
    return BadValue("costs",
                    absl::StrCat(options_.costs.stages.size(), " stages"),
                    absl::StrCat("pp * vpp = ", stages));
  }
  const auto microbatches =
      static_cast<size_t>(schedule_.microbatches_per_direction());
  const size_t factors = options_.costs.microbatch_factor.size();
  if (factors != 0 && factors != microbatches) {
    return BadValue("costs.microbatch_factor", absl::StrCat(factors, " values"),
                    absl::StrCat("one a microbatch: ", microbatches));
  }
  const size_t slice_factors = options_.costs.slice_factor.size();
  if (slice_factors != 0 &&
      slice_factors != static_cast<size_t>(schedule_.slices)) {
    return BadValue("costs.slice_factor",
                    absl::StrCat(slice_factors, " values"),
                    absl::StrCat("one a slice: ", schedule_.slices));
  }
  if (options_.replicas < 1) {
    return BadValue("strategy.dp", absl::StrCat(options_.replicas),
                    "1 or more");
  }
  if (schedule_.backward == BackwardRule::kNone) {
    constexpr absl::string_view kNothing =
        "none, as a schedule without backward has no gradients";
    if (traits().reduces) {
      return BadValue("strategy.data_parallel", "a reduction", kNothing);
    }
    if (options_.optimizer != OptimizerMode::kNone) {
      return BadValue("strategy.optimizer", "a step", kNothing);
    }
  }
  if (reduces() && options_.gradient_bytes.size() != stages) {
    return BadValue("gradient bytes",
                    absl::StrCat(options_.gradient_bytes.size(), " stages"),
                    absl::StrCat("pp * vpp = ", stages));
  }
  if (traits().shards_step && schedule_.directions > 1) {
    return BadValue(
        "strategy.data_parallel", traits().name,
        absl::StrCat("none, ddp: schedule ", schedule_.name,
                     " holds every stage twice, and a sharded optimizer of "
                     "both copies is not lowered yet"));
  }
  if (shards() && options_.shard_blocks == ShardBlocks::kUnit &&
      schedule_.unit < 1) {
    return BadValue("strategy.shard_blocks", "unit",
                    absl::StrCat("pass, run: schedule ", schedule_.name,
                                 " has no units of microbatches"));
  }
  if (shards_step() && options_.parameter_bytes.size() != stages) {
    return BadValue("parameter bytes",
                    absl::StrCat(options_.parameter_bytes.size(), " stages"),
                    absl::StrCat("pp * vpp = ", stages));
  }
  if (!options_.activation_bytes.empty() &&
      options_.activation_bytes.size() != stages) {
    return BadValue("activation bytes",
                    absl::StrCat(options_.activation_bytes.size(), " stages"),
                    absl::StrCat("pp * vpp = ", stages));
  }
  if (layered()) PW_RETURN_IF_ERROR(CheckLayers());
  PW_RETURN_IF_ERROR(CheckOffload());
  PW_RETURN_IF_ERROR(CheckFailingSteps());
  PW_RETURN_IF_ERROR(CheckUpdates());
  const Network& network = options_.network;
  if (network.cluster != nullptr &&
      (network.mapping == nullptr || network.mapping->pp() != schedule_.pp() ||
       network.mapping->dp() != options_.replicas)) {
    return absl::InvalidArgumentError(
        absl::StrCat("strategy.mapping: does not place ", schedule_.pp(),
                     " ranks times ", options_.replicas, " replicas"));
  }
  return absl::OkStatus();
}

absl::Status LoweringCheck::CheckFailingSteps() const {
  const std::vector<int>& failing = options_.failing_steps;
  if (failing.empty()) return absl::OkStatus();
  constexpr char kField[] = "strategy.rollback_iterations";
  const bool early =
      options_.offload.placement == OptimizerPlacement::kSuperOffload;
  if (options_.optimizer != OptimizerMode::kPostValidated && !early) {
    return absl::InvalidArgumentError(absl::StrCat(
        kField,
        ": only a step of strategy.optimizer post-validated, or of "
        "strategy.optimizer_placement superoffload, rolls back"));
  }
  // What has been sent in vain belongs to steps that its receivers do not
  // reach.
  if (!early && WalksSteps(schedule_, options_.wait_rule)) {
    const bool batched = options_.wait_rule == WaitRule::kBatched;
    return BadValue(
        "strategy.waiting", std::string(WaitRuleName(options_.wait_rule)),
        absl::StrCat("buffered, rendezvous", batched ? "" : ", batched",
                     " with ", kField, ", which begin in vain"));
  }
  for (size_t index = 0; index < failing.size(); ++index) {
    if (failing[index] < 0 ||
        (index > 0 && failing[index] <= failing[index - 1])) {
      return BadValue(kField, absl::StrCat(failing[index]),
                      "iterations from 0 on, ascending");
    }
  }
  // The iteration behind it begins twice; two more show the period again.
  const int needed = failing.back() + 4;
  if (options_.iterations != 0 && options_.iterations < needed) {
    return BadValue("iterations", absl::StrCat(options_.iterations),
                    absl::StrCat("at least ", needed,
                                 ", or left out, since the step of iteration ",
                                 failing.back(), " fails"));
  }
  return absl::OkStatus();
}

void PassLowering::AddGlobals() {
  program_.network = options_.network;
  program_.wait_rule = options_.wait_rule;
  program_.copies_in_turn = options_.copies_in_turn;
  program_.replicas = options_.replicas;
  program_.jitter = options_.jitter;
  program_.interference = options_.interference;
  if (program_.interference != nullptr) {
    for (const StageCosts& stage : options_.costs.stages) {
      const double sum_s = stage.backward_input_s + stage.backward_weight_s;
      program_.input_part.push_back(sum_s > 0 ? stage.backward_input_s / sum_s
                                              : 0.5);
    }
  }
  program_.until_steady =
      options_.iterations == 0 && options_.jitter == nullptr;
  const std::vector<int>& failing = options_.failing_steps;
  if (options_.offload.active()) program_.undone_steps = failing;
  program_.iterations = options_.iterations;
  if (options_.iterations == 0) {
    program_.iterations =
        kMostIterations + (failing.empty() ? 0 : failing.back() + 1);
  }
  program_.microbatch_factor = options_.costs.microbatch_factor;
  program_.pair_factor = options_.costs.pair_factor;
  program_.slice_factor = options_.costs.slice_factor;
}

void PassLowering::AddPasses() {
  const Wiring wiring = WireSchedule(schedule_);
  for (const WiredChannel& wired : wiring.channels) {
    program_.channels.push_back({.kind = wired.gradient
                                             ? ChannelKind::kGradient
                                             : ChannelKind::kActivation,
                                 .from_rank = wired.from_rank,
                                 .to_rank = wired.to_rank,
                                 .bytes = options_.hop_bytes,
                                 .stage = wired.stage,
                                 .direction = wired.direction});
  }
  program_.ranks.resize(schedule_.pp());
  for (int rank = 0; rank < schedule_.pp(); ++rank) {
    RankProgram& target = program_.ranks[rank];
    target.order = schedule_.orders[rank];
    const std::vector<WiredLane>& wired = wiring.lanes[rank];
    target.lanes.resize(wired.size());
    for (size_t index = 0; index < wired.size(); ++index) {
      if (wired[index].stage < 0) continue;
      const auto kind = Pass::KindOf(index);
      const int stage = wired[index].stage;
      const bool copy = kind == PassKind::kOffload || kind == PassKind::kLoad;
      target.lanes[index] = {
          .seconds = options_.costs.Seconds(kind, stage, schedule_.slices),
          .stage = stage,
          .input = wired[index].input,
          .output = wired[index].output,
          .bytes = copy && !options_.activation_bytes.empty()
                       ? options_.activation_bytes[stage] / schedule_.slices
                       : 0};
    }
    for (const Pass pass : *target.order) ++target.lanes[pass.lane()].passes;
  }
  AddLaneExchanges();
}

// Lanes of one stage and kind have the same.
void PassLowering::AddLaneExchanges() {
  const PassCosts& costs = options_.costs;
  std::map<std::pair<int, PassKind>, int32_t> known;
  for (RankProgram& rank : program_.ranks) {
    for (size_t index = 0; index < rank.lanes.size(); ++index) {
      Lane& lane = rank.lanes[index];
      const auto kind = Pass::KindOf(index);
      if (lane.stage < 0 || !IsComputePass(kind) ||
          static_cast<size_t>(lane.stage) >= costs.exchanges.size()) {
        continue;
      }
      const auto [entry, is_new] = known.try_emplace({lane.stage, kind}, -1);
      if (is_new) {
        LaneExchanges own = LaneExchangesOf(costs.exchanges[lane.stage], kind,
                                            costs.Seconds(kind, lane.stage, 1));
        if (!own.each.empty()) {
          entry->second = static_cast<int32_t>(program_.exchanges.size());
          program_.exchanges.push_back(std::move(own));
        }
      }
      lane.exchanges = entry->second;
    }
  }
}

absl::Status PassLowering::Run() {
  AddGlobals();
  AddPasses();
  return never_flushes() ? OverlapIterations() : absl::OkStatus();
}

absl::StatusOr<Program> Lower(std::shared_ptr<const Schedule> given,
                              const LowerOptions& options) {
  Program program;
  program.name = given->name;
  program.schedule = std::move(given);
  const LoweringStep step(*program.schedule, options, &program);
  PW_RETURN_IF_ERROR(LoweringCheck(step).Run());
  PW_RETURN_IF_ERROR(PassLowering(step).Run());

  RankEvents events(program.pp());
  TableSum table(step);
  GradientReduction reduction(step, &table);
  BlockShards blocks(step);
  LayerShards layers(step);
  PassLengthening lengthening(step);
  if (step.layered()) {
    layers.Add(&events);
    lengthening.LengthenLayers(layers);
  } else if (step.shards()) {
    blocks.Add(&events);
    lengthening.LengthenPasses();
  } else if (step.reduces()) {
    PW_RETURN_IF_ERROR(reduction.Add(&events));
  }
  table.AddBehind(&events);

  OffloadedStep host(step);
  if (options.offload.active()) {
    PW_RETURN_IF_ERROR(host.AddFlush(reduction, table, &events));
  }
  PostValidatedStep validated(step);
  PW_RETURN_IF_ERROR(OptimizerStep(step, &host, &validated).Add(events));
  if (step.gathers()) {
    ParameterGather(step).Add(
        step.shards() ? blocks.groups() : reduction.groups(), &validated);
  }
  if (step.layered() && step.is_odc()) layers.AddEnd();

  for (RankProgram& rank : program.ranks) {
    std::stable_sort(rank.attachments.begin(), rank.attachments.end(),
                     [](const Attachment& a, const Attachment& b) {
                       return a.position < b.position;
                     });
  }
  validated.Finish();
  PW_RETURN_IF_ERROR(AddStepPosts(&program));
  PW_RETURN_IF_ERROR(VerifyProgram(program));
  return program;
}

}  // namespace pipewright
