#include "sim/analysis/search/plan_bound.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "sim/base/status.h"
#include "sim/config/config_fields.h"
#include "sim/cost/analytic.h"
#include "sim/cost/clock.h"
#include "sim/cost/contention.h"
#include "sim/cost/exchange.h"
#include "sim/model/ops.h"
#include "sim/model/precision.h"

namespace pipewright {
namespace {

double LeastOf(const std::vector<double>& factors) {
  double least = 1;
  for (const double factor : factors) least = std::min(least, factor);
  return least;
}

// Values of stages or ranks, of which there are few: a bound takes a
// microsecond.
template <typename Value>
using Short = absl::InlinedVector<Value, 64>;

// A layout of one stage that is one block.
StageLayout OneBlock(BlockKind kind, int64_t layer) {
  StageLayout layout;
  layout.stages.push_back({{.kind = kind, .first_layer = layer, .count = 1}});
  return layout;
}

}  // namespace

PlanBounds::PlanBounds(PlanSpace* space) : space_(space) {
  const PreparedRun& probe = space->probe();
  const RunConfig& base = space->request().base;
  const bool modelled = base.costs.analytic || base.costs.profile;
  synchronised_ =
      base.strategy.optimizer.value_or(modelled ? OptimizerMode::kSynchronised
                                                : OptimizerMode::kNone) ==
      OptimizerMode::kSynchronised;
  memory_limit_ = probe.memory && probe.memory->limit_bytes
                      ? *probe.memory->limit_bytes
                      : std::numeric_limits<double>::infinity();
  least_factor_ = LeastOf(base.costs.microbatch_factor) *
                  LeastOf(base.costs.slice_factor) *
                  std::min(1.0, base.costs.pair_factor.value_or(1));
  is_exact_ = base.costs.analytic && base.costs.microbatch_factor.empty() &&
              base.costs.slice_factor.empty() && !base.costs.pair_factor &&
              !base.costs.recompute_s && !base.strategy.recompute_layers &&
              !base.strategy.recompute_every && !SlowsDevices(base.slow) &&
              !GivesLengths(base.sequences) &&
              !HasClasses(base.strategy.dp_classes);
}

const StageBound& PlanBounds::BlockOf(const PlanGroup& group, BlockKind kind,
                                      int64_t layer) {
  const ModelSpec& model = *space_->model();
  const RunConfig& base = space_->request().base;
  const Recompute recompute = base.strategy.recompute_chunks.empty() &&
                                      !base.strategy.recompute_layers &&
                                      !base.strategy.recompute_every &&
                                      !base.costs.recompute_s
                                  ? group.recompute
                                  : Recompute::kNone;
  const int layer_class = static_cast<int>(model.ClassOf(layer));
  const int64_t devices = int64_t{group.pp} * group.dp * group.tp * group.cp;
  const BlockKey key = {devices,
                        group.tp,
                        group.cp,
                        group.ep,
                        group.microbatch_size,
                        static_cast<int>(recompute),
                        static_cast<int>(kind),
                        layer_class,
                        group.dp > 1 ? 1 : 0,
                        group.microbatches > 1};
  const std::lock_guard<std::mutex> lock(mutex_);
  std::unique_ptr<StageBound>& known = blocks_[key];
  if (known != nullptr) return *known;
  known = std::make_unique<StageBound>();
  TrainingSpec training = space_->TrainingOf(group);
  training.recompute = recompute;
  const PreparedCosts& costs = space_->probe().costs;
  if (costs.analytic) {
    // A point has other devices than the probe, and another slowest one.
    AnalyticOptions own = *costs.analytic;
    const double slowest = EnergyOfSlowest(
        base.costs.analytic_speed_range.value_or(kSpeedRange), devices);
    own.device.bf16_joules_per_flop *= slowest / own.slowest_energy;
    own.slowest_energy = slowest;
    // The probe's groups have no links; no message is faster than this.
    const ShapeParams* const shape = space_->probe().network.system_shape();
    if (!own.network.has_nvlink && shape != nullptr) {
      own.network.nvlink_bytes_per_s =
          shape->MostInNode() / LeastShareOfLinks(own.device);
    }
    const PassCosts block =
        AnalyticCosts(model, training, own, OneBlock(kind, layer), {0});
    known->forward_s = block.stages[0].forward_s;
    known->backward_input_s = block.stages[0].backward_input_s;
    known->backward_weight_s = block.stages[0].backward_weight_s;
    known->backward_full_s = block.stages[0].backward_full_s;
    for (const StageCosts& joules : block.joules) {
      known->joules +=
          joules.forward_s + joules.backward_input_s + joules.backward_weight_s;
    }
  }
  for (const ModelOp& op : BlockOps(model, training, kind, layer)) {
    if (op.is_frozen || op.is_tied) continue;
    known->stepped += op.parameters;
    if (!op.is_expert) known->parameters += op.parameters;
  }
  return *known;
}

std::shared_ptr<const StageLayout> PlanBounds::LayoutOf(
    const PlanGroup& group) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::shared_ptr<const StageLayout>& known =
      layouts_[{group.pp, group.vpp, group.layout}];
  if (known != nullptr) return known;
  const ModelSpec& model = *space_->model();
  const TrainingSpec training = space_->TrainingOf(group);
  const PlanLayout& layout = space_->Layouts(group.pp, group.vpp)[group.layout];
  const StrategyChoice& given = space_->request().base.strategy;
  const std::vector<int64_t>& counts =
      layout.counts.empty() ? given.layers : layout.counts;
  const std::string& text =
      layout.text.empty() ? given.layout.value_or("") : layout.text;
  absl::StatusOr<StageLayout> made = StageLayout();
  if (layout.given &&
      given.split.value_or(LayerSplit::kEven) == LayerSplit::kBalanced) {
    // Nobody knows it before the run is prepared.
  } else if (!counts.empty()) {
    made = LayoutFromCounts(model, training, counts);
  } else if (!text.empty()) {
    made = ParseLayout(model, training, text, group.pp * group.vpp);
  } else {
    made = EvenLayout(model, training, group.pp, group.vpp);
  }
  if (!made.ok() ||
      made->stages.size() != static_cast<size_t>(group.pp) * group.vpp) {
    made = StageLayout();
  }
  known = std::make_shared<const StageLayout>(*std::move(made));
  return known;
}

std::vector<StageBound> PlanBounds::Stages(const PlanGroup& group) {
  const CostChoice& given = space_->request().base.costs;
  const size_t count = static_cast<size_t>(group.pp) * group.vpp;
  std::vector<StageBound> stages;
  if (space_->model() != nullptr) {
    const std::shared_ptr<const StageLayout> layout = LayoutOf(group);
    stages.reserve(count);
    // Blocks of a kind are alike but where layers differ.
    const bool alike_all = !space_->model()->layers_differ();
    std::array<const StageBound*, static_cast<size_t>(BlockKind::kHead) + 1>
        known{};
    const auto bound_of = [&](BlockKind kind,
                              int64_t layer) -> const StageBound& {
      const StageBound*& of_kind = known[static_cast<size_t>(kind)];
      if (of_kind == nullptr || !alike_all) {
        of_kind = &BlockOf(group, kind, layer);
      }
      return *of_kind;
    };
    for (const std::vector<StageBlock>& blocks : layout->stages) {
      StageBound& sum = stages.emplace_back();
      for (const StageBlock& block : blocks) {
        // Layers that differ may stand in one run of layers.
        const int64_t alike = alike_all ? block.count : 1;
        for (int64_t at = 0; at < block.count; at += alike) {
          const double times = static_cast<double>(alike) * block.part;
          const StageBound& one = bound_of(block.kind, block.first_layer + at);
          sum.forward_s += times * one.forward_s;
          sum.backward_input_s += times * one.backward_input_s;
          sum.backward_weight_s += times * one.backward_weight_s;
          sum.backward_full_s += times * one.backward_full_s;
          sum.parameters += times * one.parameters;
          sum.stepped += times * one.stepped;
          sum.joules += times * one.joules;
        }
      }
    }
  }
  if (stages.empty()) stages.resize(count);
  if (given.analytic || given.profile) return stages;
  const auto take = [&](const std::optional<double>& uniform,
                        const std::vector<double>& each,
                        double StageBound::*member) {
    for (size_t stage = 0; stage < count; ++stage) {
      stages[stage].*member =
          each.size() == count ? each[stage] : uniform.value_or(0) / group.vpp;
    }
  };
  take(given.forward_s, given.stage_forward_s, &StageBound::forward_s);
  take(given.backward_input_s, given.stage_backward_input_s,
       &StageBound::backward_input_s);
  take(given.backward_weight_s, given.stage_backward_weight_s,
       &StageBound::backward_weight_s);
  return stages;
}

double PlanBounds::OptimizerSeconds(const PlanGroup& group,
                                    const std::vector<StageBound>& stages,
                                    const ScheduleFacts& facts,
                                    bool is_sharded) const {
  const RunConfig& base = space_->request().base;
  if (base.strategy.optimizer_placement.value_or(OptimizerPlacement::kGpu) !=
      OptimizerPlacement::kGpu) {
    return 0;
  }
  if (base.costs.optimizer_s) return *base.costs.optimizer_s;
  const PreparedCosts& costs = space_->probe().costs;
  if (!costs.analytic) return 0;
  const TrainingSpec training = space_->TrainingOf(group);
  // Over as many devices as there may be, TrainingSpec::shards() and
  // expert_shards().
  const int dense_shards = is_sharded ? group.dp * group.cp : 1;
  const int expert_shards =
      is_sharded ? std::max(1, dense_shards * training.tp /
                                   (training.ep * training.etp()))
                 : 1;
  Short<double> stepped(group.pp, 0.0);
  double most = 0;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    const StageBound& one = stages[stage];
    double& sum = stepped[facts.rank_of_stage[stage]];
    sum += one.parameters / dense_shards +
           (one.stepped - one.parameters) / expert_shards;
    most = std::max(most, sum);
  }
  return pipewright::OptimizerSeconds(*costs.analytic, training, most, 0);
}

PlanBounds::Own PlanBounds::OwnOf(const PlanPoint& point,
                                  const ScheduleFacts& facts) {
  Own own;
  own.stages = Stages(point.group);
  const PlanGroup& group = point.group;
  if (synchronised_ && facts.flushes) {
    own.step_s = OptimizerSeconds(group, own.stages, facts,
                                  TraitsOf(point.data_parallel).shards_step);
  }
  const std::vector<Traffic> traffic = TrafficOf(point, own.stages, facts);
  own.extra = ExtraOf(point, traffic, facts);
  own.is_longer = Lengthen(point, traffic, facts, &own.stages);
  return own;
}

double PlanBounds::Passes(const PlanGroup& group,
                          const std::vector<StageBound>& stages,
                          const ScheduleFacts& facts,
                          const Extra& extra) const {
  const int count = static_cast<int>(stages.size());
  Short<double> forward_before(count + 1, 0.0);
  Short<double> backward_before(count + 1, 0.0);
  Short<double> input_before(count + 1, 0.0);
  for (int stage = 0; stage < count; ++stage) {
    const StageBound& one = stages[stage];
    forward_before[stage + 1] = forward_before[stage] + one.forward_s;
    backward_before[stage + 1] = backward_before[stage] + one.backward_s();
    input_before[stage + 1] = input_before[stage] + one.backward_input_s;
  }
  Short<double> forward(group.pp, 0.0);
  Short<double> backward(group.pp, 0.0);
  Short<int> lowest(group.pp, count);
  Short<int> highest(group.pp, -1);
  for (int direction = 0; direction < facts.directions; ++direction) {
    for (int stage = 0; stage < count; ++stage) {
      const int home = facts.rank_of_stage[stage];
      const int rank = direction == 0 ? home : group.pp - 1 - home;
      forward[rank] += stages[stage].forward_s / facts.directions;
      backward[rank] += stages[stage].backward_s() / facts.directions;
      lowest[rank] = std::min(lowest[rank], stage);
      highest[rank] = std::max(highest[rank], stage);
    }
  }
  const double microbatches = group.microbatches;
  double most = 0;
  for (int rank = 0; rank < group.pp; ++rank) {
    double seconds = microbatches * (forward[rank] + backward[rank]);
    if (synchronised_ && facts.flushes) {
      const double head = forward_before[lowest[rank]];
      // Until a first backward can begin, a rank has nothing but forwards.
      const double gap = facts.recomputes ? 0
                                          : forward_before[count] - head +
                                                input_before[count] -
                                                input_before[highest[rank] + 1];
      seconds = head + std::max(microbatches * forward[rank], gap) +
                microbatches * backward[rank];
      seconds += facts.full_backward
                     ? backward_before[lowest[rank]] + extra.after_s
                 : extra.rank_after_s.empty() ? 0
                                              : extra.rank_after_s[rank];
      seconds += extra.before_s;
    }
    most = std::max(most, seconds);
  }
  return least_factor_ * most;
}

double PlanBounds::StepSeconds(const PlanGroup& group) {
  const ScheduleFacts& facts = FactsOf(group);
  if (facts.rank_of_stage.empty()) return 0;
  const std::vector<StageBound> stages = Stages(group);
  const double step = synchronised_ && facts.flushes
                          ? OptimizerSeconds(group, stages, facts, true)
                          : 0;
  return Passes(group, stages, facts, Extra()) + step;
}

// Every microbatch has all passes of every stage, whoever runs them; what is
// run again in passes of its own is part of a backward here.
double PlanBounds::PassJoules(const PlanGroup& group) {
  // Slices of a sequence draw what they take together, and not the same.
  if (space_->request().base.strategy.slices.value_or(1) > 1) return 0;
  double sum = 0;
  for (const StageBound& stage : Stages(group)) sum += stage.joules;
  return least_factor_ * sum * group.microbatches * group.tp * group.cp *
         group.dp;
}

double PlanBounds::ClosedSeconds(const PlanGroup& group,
                                 const ScheduleFacts& facts,
                                 const Own& own) const {
  // Gathers of the next step may run beside the optimizer.
  return std::max(Passes(group, own.stages, facts, own.extra) + own.step_s,
                  own.extra.stream_s);
}

double PlanBounds::StepSeconds(const PlanPoint& point) {
  const ScheduleFacts& facts = FactsOf(point.group);
  if (facts.rank_of_stage.empty()) return 0;
  return ClosedSeconds(point.group, facts, OwnOf(point, facts));
}

// What gradients and weights on their way cost a step at least, and the passes
// that they run beside.
double PlanBounds::CollectiveSeconds(const PlanGroup& group, int holders,
                                     double bytes) const {
  const PreparedRun& probe = space_->probe();
  const ShapeParams* const shape = probe.network.system_shape();
  const RunConfig& base = space_->request().base;
  if (holders == 1 || shape == nullptr || base.costs.profile ||
      !base.strategy.mapping.empty() || base.costs.gradient_bytes) {
    return 0;
  }
  // What holds the same parameters: so many in a node, with a ring each.
  const int per_node = std::max(1, space_->devices_per_node() / group.tp);
  double rate = shape->MostInNode();
  if (holders > per_node) {
    const int nics = shape->nics_per_node > 0 ? shape->nics_per_node
                                              : shape->devices_per_node;
    const double share =
        std::max(1.0, static_cast<double>(nics) / shape->devices_per_node);
    const double nic = per_node * share * shape->nic.bytes_per_s;
    if (base.strategy.collectives.value_or(CollectiveAlgorithm::kRing) !=
        CollectiveAlgorithm::kRing) {
      // Two levels may use NVLink for less; so much must leave a node.
      const double nodes = std::ceil(static_cast<double>(holders) * group.tp /
                                     space_->devices_per_node());
      return nic > 0 ? bytes * (nodes - 1) / nodes / nic : 0;
    }
    // A node of one device has no NVLink.
    rate = per_node > 1 && rate > 0 ? std::min(rate, nic) : nic;
  }
  if (rate <= 0) return 0;
  return bytes * (holders - 1) / holders / rate;
}

bool PlanBounds::MayGoByLayer(const PlanPoint& point) const {
  if (point.data_parallel == DataParallel::kOdc) return true;
  const StrategyChoice& given = space_->request().base.strategy;
  const bool layers = given.shard_blocks
                          ? *given.shard_blocks == ShardBlocks::kLayer
                          : given.framework == Framework::kTorchtitan;
  return layers && TraitsOf(point.data_parallel).shards_weights;
}

bool PlanBounds::GoesByPass(const PlanPoint& point,
                            const ScheduleFacts& facts) const {
  // One block at a time is the least that zero2 and fsdp keep back.
  return TraitsOf(point.data_parallel).shards_gradients && facts.unit == 0 &&
         !space_->request().base.strategy.shard_blocks;
}

std::vector<PlanBounds::Traffic> PlanBounds::TrafficOf(
    const PlanPoint& point, const std::vector<StageBound>& stages,
    const ScheduleFacts& facts) const {
  std::vector<Traffic> traffic;
  if (space_->model() == nullptr || facts.directions != 1) return traffic;
  const DataParallelTraits& traits = TraitsOf(point.data_parallel);
  // odc knows of no parts of a context.
  const int holders = point.data_parallel == DataParallel::kOdc
                          ? point.group.dp
                          : point.group.dp * point.group.cp;
  if (!traits.reduces || holders == 1) return traffic;
  // Reductions and gathers of layers hide behind passes, or come once a step.
  if (MayGoByLayer(point)) return traffic;
  const TrainingSpec training = space_->TrainingOf(point.group);
  const double weight_bytes =
      training.narrow_weights
          ? std::min(training.weight_bytes, GatheredWeightBytes(training))
          : training.weight_bytes;
  traffic.reserve(stages.size());
  for (const StageBound& stage : stages) {
    // Experts go with the rest (Prepare).
    const double parameters =
        stage.parameters +
        training.expert_share() * (stage.stepped - stage.parameters);
    traffic.push_back(
        {.reduce_s = CollectiveSeconds(point.group, holders,
                                       training.gradient_bytes * parameters) *
                     (traits.shards_step ? 1 : 2),
         .gather_s = CollectiveSeconds(point.group, holders,
                                       weight_bytes * parameters)});
  }
  return traffic;
}

PlanBounds::Extra PlanBounds::ExtraOf(const PlanPoint& point,
                                      const std::vector<Traffic>& traffic,
                                      const ScheduleFacts& facts) const {
  Extra extra;
  extra.rank_after_s.assign(point.group.pp, 0.0);
  if (traffic.empty()) return extra;
  const DataParallelTraits& traits = TraitsOf(point.data_parallel);
  std::vector<double> least(point.group.pp,
                            std::numeric_limits<double>::infinity());
  std::vector<double> sum(point.group.pp, 0.0);
  for (size_t stage = 0; stage < traffic.size(); ++stage) {
    const int rank = facts.rank_of_stage[stage];
    least[rank] = std::min(least[rank], traffic[stage].reduce_s);
    sum[rank] += traffic[stage].reduce_s;
    if (traits.shards_weights) sum[rank] += 2 * traffic[stage].gather_s;
  }
  extra.rank_after_s = least;
  extra.after_s = traffic[0].reduce_s;
  if (traits.shards_step && !traits.shards_weights &&
      space_->request().base.iterations.value_or(0) != 1) {
    extra.before_s = traffic[0].gather_s;
  }
  if (GoesByPass(point, facts)) {
    for (const double seconds : sum) {
      extra.stream_s =
          std::max(extra.stream_s, point.group.microbatches * seconds);
    }
  }
  return extra;
}

// As LengthenPasses of sim/program does it, with the least that each collective
// takes: what they cost a pass grows with both.
bool PlanBounds::Lengthen(const PlanPoint& point,
                          const std::vector<Traffic>& traffic,
                          const ScheduleFacts& facts,
                          std::vector<StageBound>* stages) const {
  const PreparedCosts& costs = space_->probe().costs;
  const double contention = costs.analytic ? costs.analytic->contention : 1;
  const DataParallelTraits& traits = TraitsOf(point.data_parallel);
  // R passes take of a backward what its forward takes alone.
  if (traffic.empty() || contention <= 1 || facts.recomputes ||
      !MeetsEveryMicrobatch(traits) || !GoesByPass(point, facts)) {
    return false;
  }
  const auto beside = [&](double pass_s, double beside_s) {
    return pass_s + ContentionSeconds(contention, pass_s, beside_s);
  };
  for (size_t stage = 0; stage < stages->size(); ++stage) {
    StageBound& one = (*stages)[stage];
    const double reduce_s = traffic[stage].reduce_s;
    const double gather_s = traits.shards_weights ? traffic[stage].gather_s : 0;
    const double full_s = beside(one.backward_s(), gather_s + reduce_s);
    one.forward_s = beside(one.forward_s, gather_s);
    one.backward_input_s = beside(one.backward_input_s, gather_s);
    one.backward_weight_s = beside(one.backward_weight_s, reduce_s);
    one.backward_full_s =
        facts.full_backward
            ? full_s
            : std::min(full_s, one.backward_input_s + one.backward_weight_s);
  }
  return true;
}

}  // namespace pipewright
