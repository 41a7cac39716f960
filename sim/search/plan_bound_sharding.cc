// What gradients and weights on their way cost a step at least, and the passes
// that they run beside.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "sim/cost/contention.h"
#include "sim/search/plan_bound.h"

namespace pipewright {

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
  double rate = shape->nvlink.bytes_per_s;
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
  traffic.reserve(stages.size());
  for (const StageBound& stage : stages) {
    traffic.push_back(
        {.reduce_s =
             CollectiveSeconds(point.group, holders,
                               training.gradient_bytes * stage.parameters) *
             (traits.shards_step ? 1 : 2),
         .gather_s = CollectiveSeconds(
             point.group, holders, training.weight_bytes * stage.parameters)});
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
