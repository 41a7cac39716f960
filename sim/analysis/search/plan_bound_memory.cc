// The least memory of a point: weights and optimizer, and of the activations
// that its order keeps what copies cannot have taken away.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "sim/analysis/search/plan_bound.h"
#include "sim/memory/schedule_memory.h"

namespace pipewright {
namespace {

// True for as many blocks of the same kinds, if no layer is frozen.
bool AreAlike(const std::vector<StageBlock>& one,
              const std::vector<StageBlock>& other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    [](const StageBlock& left, const StageBlock& right) {
                      return left.kind == right.kind &&
                             left.count == right.count &&
                             left.layer_kind == right.layer_kind &&
                             left.part == right.part;
                    });
}

}  // namespace

// There are few kinds of stages for each way to split a model.
const StageMemory* PlanBounds::MemoryOf(const TrainingSpec& training,
                                        const std::vector<StageBlock>& blocks,
                                        KnownStages* known) const {
  const bool differ = space_->model()->frozen_layers > 0;
  const std::lock_guard<std::mutex> lock(known->mutex);
  for (const auto& [other, memory] : known->stages) {
    if (AreAlike(blocks, other) &&
        (!differ || blocks[0].first_layer == other[0].first_layer)) {
      return memory.get();
    }
  }
  known->stages.emplace_back(
      blocks, std::make_unique<const StageMemory>(
                  BuildStageMemory(*space_->model(), training, blocks, 0)));
  return known->stages.back().second.get();
}

// Nothing where it cannot be told.
std::optional<PlanBounds::StageMemories> PlanBounds::StageMemoriesOf(
    const PlanPoint& point) {
  const PlanGroup& group = point.group;
  const RunConfig& base = space_->request().base;
  if (space_->model() == nullptr ||
      base.strategy.optimizer_placement.value_or(OptimizerPlacement::kGpu) !=
          OptimizerPlacement::kGpu ||
      !base.strategy.recompute_chunks.empty()) {
    return std::nullopt;
  }
  const std::shared_ptr<const StageLayout> layout = LayoutOf(group);
  const ScheduleFacts& facts = FactsOf(group);
  // What is sharded layer by layer is known once the run is prepared.
  if (layout->stages.empty() || facts.rank_of_stage.empty() ||
      MayGoByLayer(point)) {
    return std::nullopt;
  }
  TrainingSpec training = space_->TrainingOf(group);
  training.zero = TraitsOf(point.data_parallel).zero_stage();
  const int64_t frozen_layers = space_->model()->frozen_layers;
  KnownStages* known = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::unique_ptr<KnownStages>& of = memories_[{
        training.tp, training.cp, training.ep, training.dp, training.zero,
        training.microbatch_size, static_cast<int>(training.recompute)}];
    if (of == nullptr) of = std::make_unique<KnownStages>();
    known = of.get();
  }
  StageMemories memories;
  // Context of every process.
  memories.fixed.assign(
      group.pp, base.strategy.memory_context_bytes.value_or(
                    space_->probe().memory
                        ? static_cast<double>(
                              space_->probe().memory->memory->ranks[0].context)
                        : 0));
  memories.summed.assign(group.pp, 0.0);
  memories.stages.reserve(layout->stages.size());
  for (size_t stage = 0; stage < layout->stages.size(); ++stage) {
    // Most stages are as the one before.
    const bool as_before =
        stage > 0 && frozen_layers == 0 &&
        AreAlike(layout->stages[stage - 1], layout->stages[stage]);
    memories.stages.push_back(
        as_before ? memories.stages.back()
                  : MemoryOf(training, layout->stages[stage], known));
    const StageMemory& own = *memories.stages.back();
    const double bytes = static_cast<double>(own.fixed.total()) -
                         static_cast<double>(own.tied_table.total());
    const int rank = facts.rank_of_stage[stage];
    memories.summed[rank] += bytes;
    if (facts.directions == 2) memories.summed[group.pp - 1 - rank] += bytes;
  }
  for (int rank = 0; rank < group.pp; ++rank) {
    memories.fixed[rank] += memories.summed[rank];
  }
  return memories;
}

bool PlanBounds::IsHalf(const PlanPoint& point) const {
  const StrategyChoice& given = space_->request().base.strategy;
  return point.offload == OffloadMode::kSelective &&
         given.offload_chunks.empty() && !given.offload_fraction;
}

// As Prepare counts it, of Megatron-LM.
void PlanBounds::TakeFixed(const PlanPoint& point, const Schedule& schedule,
                           StageMemories* memories) {
  static const std::shared_ptr<const MemoryFramework> framework =
      MegatronMemory();
  TrainingSpec training = space_->TrainingOf(point.group);
  training.zero = TraitsOf(point.data_parallel).zero_stage();
  const MemoryOptions options;
  // Bounds keep them.
  std::vector<std::shared_ptr<const StageMemory>> stages;
  for (const StageMemory* const stage : memories->stages) {
    stages.emplace_back(std::shared_ptr<const StageMemory>(), stage);
  }
  for (int rank = 0; rank < point.group.pp; ++rank) {
    memories->fixed[rank] +=
        static_cast<double>(framework
                                ->fixed({.schedule = schedule,
                                         .stages = stages,
                                         .training = training,
                                         .options = options,
                                         .rank = rank})
                                .total()) -
        memories->summed[rank];
  }
}

template <typename LiveOf>
std::vector<double> PlanBounds::BytesOf(const std::vector<PlanPoint>& points,
                                        const Schedule* schedule, bool stops,
                                        const LiveOf& live_of) {
  std::vector<double> bytes(points.size(), 0.0);
  if (points.empty()) return bytes;
  const int pp = points[0].group.pp;
  // Those that shard most first: what fits with none of them fits with no
  // other. Copies of all before those of half, which take away no more.
  std::vector<size_t> order(points.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto rank_of = [&](size_t index) {
    const PlanPoint& point = points[index];
    return std::make_tuple(-TraitsOf(point.data_parallel).zero_stage(),
                           point.data_parallel, !IsHalf(point) ? 0 : 1);
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t one, size_t other) {
    return rank_of(one) < rank_of(other);
  });
  enum Kind { kWithout, kAll, kHalf };
  struct Known {
    std::vector<double> live;  // [rank], whatever is sharded
    double hopeless = 0;       // bytes, where nothing shards more and fits
  };
  std::array<Known, 3> kinds;
  std::optional<StageMemories> memories;
  DataParallel sharding = points[order[0]].data_parallel;
  std::vector<double> enough;
  for (const size_t index : order) {
    const PlanPoint& point = points[index];
    const Kind kind = point.offload == OffloadMode::kNone ? kWithout
                      : IsHalf(point)                     ? kHalf
                                                          : kAll;
    Known& known = kinds[kind];
    if (kind == kHalf && known.hopeless == 0) {
      known.hopeless = kinds[kAll].hopeless;
    }
    if (stops && known.hopeless > 0) {
      bytes[index] = known.hopeless;
      continue;
    }
    if (!memories || sharding != point.data_parallel) {
      sharding = point.data_parallel;
      memories = StageMemoriesOf(point);
      if (!memories) return std::vector<double>(points.size(), 0.0);
      if (schedule != nullptr) TakeFixed(point, *schedule, &*memories);
    }
    for (int rank = std::ssize(enough); rank < pp; ++rank) {
      enough.push_back(memory_limit_ - memories->fixed[rank]);
    }
    for (int rank = std::ssize(known.live); rank < pp; ++rank) {
      known.live.push_back(
          live_of(point, rank, memories->stages, enough[rank]));
      if (!stops || known.live.back() <= enough[rank]) continue;
      known.hopeless = memories->fixed[rank] + known.live.back();
      known.live.resize(pp, 0.0);
    }
    for (int rank = 0; rank < pp; ++rank) {
      bytes[index] =
          std::max(bytes[index], memories->fixed[rank] + known.live[rank]);
    }
  }
  return bytes;
}

std::vector<double> PlanBounds::MemoryBytes(
    const std::vector<PlanPoint>& points, double most_s, RunContext* context) {
  if (points.empty()) return {};
  const PlanGroup& group = points[0].group;
  const std::shared_ptr<const Order> order = OrderOf(group);
  const bool counts = order->schedule != nullptr && !order->recomputes;
  Copies copies;
  return BytesOf(
      points, nullptr, std::isfinite(most_s),
      [&](const PlanPoint& point, int rank, const MemoryOfStages& stages,
          double) {
        if (!counts) return 0.0;
        const bool copied = point.offload != OffloadMode::kNone;
        copies.half = IsHalf(point);
        if (copied && copies.passes.empty() && std::isfinite(most_s) &&
            synchronised_ && FactsOf(group).flushes) {
          copies.most_s = most_s;
          copies.bytes_per_s = LinksOf(group, context).copied_per_s;
          copies.passes = Stages(group);
        }
        return LiveBytes(*order, rank, stages, copied ? &copies : nullptr);
      });
}

std::map<OffloadMode, std::vector<double>> PlanBounds::LeastLive(
    const PlanGroup& group, bool stops, RunContext* context) {
  std::map<OffloadMode, std::vector<double>> live;
  std::vector<PlanPoint> points;
  for (const PlanPoint& point : space_->PointsOf(group)) {
    if (point.offload == OffloadMode::kNone) continue;
    points.push_back(point);
    live[point.offload].assign(group.pp, 0.0);
  }
  if (!is_exact_) return live;
  const std::shared_ptr<const Order> order = OrderOf(group);
  const Links& links = LinksOf(group, context);
  if (order->schedule == nullptr || order->recomputes || !links.is_exact) {
    return live;
  }
  const std::optional<Times> times = TimesOf(*order, Stages(group), links);
  if (!times) return live;
  BytesOf(points, order->schedule.get(), stops,
          [&](const PlanPoint& point, int rank, const MemoryOfStages& stages,
              double enough) {
            const double least =
                TimedLive(*order, rank, (*times)[rank], stages, IsHalf(point),
                          links.copied_per_s, stops ? enough : memory_limit_);
            live[point.offload][rank] = least;
            return least;
          });
  // No other copies take away more than those of all.
  if (const auto all = live.find(OffloadMode::kFull); all != live.end()) {
    for (auto& [mode, own] : live) {
      for (int rank = 0; rank < group.pp; ++rank) {
        own[rank] = std::max(own[rank], all->second[rank]);
      }
    }
  }
  return live;
}

double PlanBounds::BytesBeside(const PlanPoint& point,
                               const std::vector<double>& live) {
  return BytesOf({point}, OrderOf(point.group)->schedule.get(), false,
                 [&](const PlanPoint&, int rank, const MemoryOfStages&,
                     double) { return live[rank]; })[0];
}

// Bytes of a rank between passes at its fullest; `copies` may be null.
double PlanBounds::LiveBytes(const Order& order, int rank,
                             const MemoryOfStages& stages,
                             const Copies* copies) const {
  double live = 0;
  for (const Held& held : order.held[rank]) {
    double bytes = 0;
    for (size_t lane = 0; lane < held.kept.size(); ++lane) {
      const StageMemory& stage = *stages[StageOf(order, rank, lane)];
      bytes += held.kept[lane] * static_cast<double>(stage.kept) +
               held.weight[lane] * static_cast<double>(stage.weight_part);
    }
    if (copies != nullptr) {
      bytes -= MostAway(order, rank, held, stages, *copies);
    }
    live = std::max(live, bytes);
  }
  return live;
}

// Most of what is kept that can be away, by the rules of a plan of copies
// (sim/program/activation_plan.h): O end before the pass begins and L begin
// behind it, one after the other in each direction, and a rank's passes and
// copies all fit into the step.
double PlanBounds::MostAway(const Order& order, int rank, const Held& held,
                            const MemoryOfStages& stages,
                            const Copies& copies) const {
  const size_t lanes = held.kept.size();
  const size_t vpp = order.schedule->vpp();
  std::vector<double> of_chunk(vpp, 0.0);
  double largest = 0;
  for (size_t lane = 0; lane < lanes; ++lane) {
    const auto bytes =
        static_cast<double>(stages[StageOf(order, rank, lane)]->away);
    of_chunk[lane % vpp] += held.kept[lane] * bytes;
    largest = std::max(largest, bytes);
  }
  const double away =
      MostChosen(*order.schedule, std::move(of_chunk), largest, copies.half);
  if (copies.passes.empty() || std::isinf(copies.bytes_per_s)) return away;
  double before_s = 0;
  double after_s = 0;
  for (size_t kind = 0; kind < kNumPassKinds; ++kind) {
    for (size_t lane = 0; lane < lanes; ++lane) {
      const double begun = held.passes[kind * lanes + lane];
      const double all = order.passes[rank][kind * lanes + lane];
      if (all == 0) continue;
      const double seconds =
          least_factor_ * copies.passes[StageOf(order, rank, lane)].SecondsOf(
                              static_cast<PassKind>(kind));
      before_s += begun * seconds;
      after_s += (all - begun) * seconds;
    }
  }
  const double rounded_s = copies.most_s * (1 + kBoundRounding);
  const double least_s = std::min(rounded_s - after_s, rounded_s - before_s);
  return std::min(away, std::max(0.0, least_s) * copies.bytes_per_s);
}

}  // namespace pipewright
