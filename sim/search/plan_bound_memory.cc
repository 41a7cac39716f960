// The least memory of a point: weights and optimizer, and of the activations
// that its order keeps what copies cannot have taken away.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "sim/config/least_bytes.h"
#include "sim/search/plan_bound.h"

namespace pipewright {
namespace {

// Passes of a run take what those of bounds do, but for rounding.
constexpr double kPlanSlack = 1.02;

// Of as many blocks of the same kinds, where no layer is frozen.
bool AreAlike(const std::vector<StageBlock>& one,
              const std::vector<StageBlock>& other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    [](const StageBlock& left, const StageBlock& right) {
                      return left.kind == right.kind &&
                             left.count == right.count &&
                             left.part == right.part;
                    });
}

}  // namespace

std::shared_ptr<const StageMemory> PlanBounds::MemoryOf(
    const TrainingSpec& training, const std::vector<StageBlock>& blocks) {
  std::vector<double> key = {static_cast<double>(training.tp),
                             static_cast<double>(training.cp),
                             static_cast<double>(training.ep),
                             static_cast<double>(training.dp),
                             static_cast<double>(training.zero),
                             static_cast<double>(training.microbatch_size),
                             static_cast<double>(training.recompute)};
  const bool differ = space_->model()->frozen_layers > 0;
  for (const StageBlock& block : blocks) {
    key.insert(
        key.end(),
        {static_cast<double>(block.kind), static_cast<double>(block.count),
         block.part, differ ? static_cast<double>(block.first_layer) : 0});
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = memories_.find(key);
    if (found != memories_.end()) return found->second;
  }
  auto made = std::make_shared<const StageMemory>(
      BuildStageMemory(*space_->model(), training, blocks, 0));
  const std::lock_guard<std::mutex> lock(mutex_);
  return memories_.try_emplace(std::move(key), std::move(made)).first->second;
}

const PlanBounds::Links& PlanBounds::LinksOf(const PlanGroup& group,
                                             RunContext* context) {
  const std::vector<int> key = {group.nodes, group.tp, group.cp,
                                group.pp,    group.dp, group.microbatch_size};
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = links_.find(key);
    if (found != links_.end()) return *found->second;
  }
  auto links = std::make_unique<Links>();
  PlanPoint point = {.group = group};
  if (group.dp * group.cp > 1) point.data_parallel = DataParallel::kDdp;
  absl::StatusOr<PreparedRun> run = Prepare(space_->ConfigOf(point), context);
  if (run.ok()) {
    links->hop_s = run->network.hop_s;
    links->copied_per_s = MostCopiedPerSecond(*std::move(run));
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  return *links_.try_emplace(key, std::move(links)).first->second;
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
  StageMemories memories;
  // Of every process.
  memories.fixed.assign(
      group.pp, base.strategy.memory_context_bytes.value_or(
                    space_->probe().memory
                        ? static_cast<double>(
                              space_->probe().memory->memory->ranks[0].context)
                        : 0));
  memories.stages.reserve(layout->stages.size());
  for (size_t stage = 0; stage < layout->stages.size(); ++stage) {
    // Most stages are as the one before.
    const bool as_before =
        stage > 0 && frozen_layers == 0 &&
        AreAlike(layout->stages[stage - 1], layout->stages[stage]);
    memories.stages.push_back(as_before
                                  ? memories.stages.back()
                                  : MemoryOf(training, layout->stages[stage]));
    const StageMemory& own = *memories.stages.back();
    const double bytes = static_cast<double>(own.fixed.total()) -
                         static_cast<double>(own.tied_table.total());
    const int rank = facts.rank_of_stage[stage];
    memories.fixed[rank] += bytes;
    if (facts.directions == 2) memories.fixed[group.pp - 1 - rank] += bytes;
  }
  return memories;
}

double PlanBounds::MemoryBytes(const PlanPoint& point) {
  const std::optional<StageMemories> memories = StageMemoriesOf(point);
  if (!memories) return 0;
  const std::shared_ptr<const Order> order = OrderOf(point.group);
  const bool counts = order->schedule != nullptr && !order->recomputes;
  double most = 0;
  for (int rank = 0; rank < point.group.pp; ++rank) {
    const double live =
        counts ? LiveBytes(*order, rank, memories->stages, nullptr) : 0;
    most = std::max(most, memories->fixed[rank] + live);
  }
  return most;
}

std::vector<double> PlanBounds::MemoryWithCopies(
    const std::vector<PlanPoint>& points, double most_s, RunContext* context) {
  std::vector<double> bytes(points.size(), 0.0);
  if (points.empty()) return bytes;
  const PlanGroup& group = points[0].group;
  const RunConfig& base = space_->request().base;
  std::vector<std::optional<StageMemories>> memories;
  for (const PlanPoint& point : points) {
    const bool as_before =
        !memories.empty() &&
        points[memories.size() - 1].data_parallel == point.data_parallel;
    memories.push_back(as_before ? memories.back() : StageMemoriesOf(point));
    if (!memories.back()) return bytes;
  }
  const std::shared_ptr<const Order> order = OrderOf(group);
  const ScheduleFacts& facts = FactsOf(group);
  Copies copies;
  if (synchronised_ && facts.flushes) copies.passes = Stages(group);
  const bool counts = order->schedule != nullptr && !order->recomputes;
  const auto is_half = [&](const PlanPoint& point) {
    return point.offload == OffloadMode::kSelective &&
           base.strategy.offload_chunks.empty() &&
           !base.strategy.offload_fraction;
  };
  // `live_of(point)` is [rank] besides what is there all the time. Copies of
  // half take away no more than those of all, which come last.
  const auto look = [&](const auto& live_of) {
    std::vector<double> live[2];
    bool fits = false;
    for (size_t index = points.size(); index-- > 0;) {
      const PlanPoint& point = points[index];
      if (bytes[index] > memory_limit_) continue;
      std::vector<double>& known = live[is_half(point) ? 1 : 0];
      if (known.empty()) known = live_of(point);
      for (int rank = 0; rank < group.pp; ++rank) {
        bytes[index] =
            std::max(bytes[index], memories[index]->fixed[rank] + known[rank]);
      }
      fits = fits || bytes[index] <= memory_limit_;
    }
    return fits;
  };
  const auto within = [&](double within_s) {
    copies.most_s = within_s;
    return look([&](const PlanPoint& point) {
      copies.half = is_half(point);
      std::vector<double> live(group.pp, 0.0);
      for (int rank = 0; counts && rank < group.pp; ++rank) {
        live[rank] = LiveBytes(*order, rank, memories[0]->stages, &copies);
      }
      return live;
    });
  };
  if (!counts || copies.passes.empty()) {
    copies.passes.clear();
    within(most_s);
    return bytes;
  }
  const Links& links = LinksOf(group, context);
  copies.bytes_per_s = links.copied_per_s;
  if (!within(most_s) || !is_exact_) return bytes;
  // A plan knows nothing but passes and hops.
  const std::vector<double> ends =
      EndsOf(*order->schedule, copies.passes, 1, links.hop_s, 1);
  if (ends.empty()) return bytes;
  const double end_s = *std::max_element(ends.begin(), ends.end());
  within(std::min(most_s, kPlanSlack * end_s));
  return bytes;
}

double PlanBounds::PlannedBytes(const PlanPoint& point, RunContext* context) {
  const PlanGroup& group = point.group;
  const std::optional<StageMemories> memories = StageMemoriesOf(point);
  if (!memories) return 0;
  std::vector<int> key = KeyOf(group);
  key.push_back(static_cast<int>(point.offload));
  std::shared_ptr<const std::vector<double>> live;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = planned_.find(key);
    if (found != planned_.end()) live = found->second;
  }
  if (live == nullptr) {
    PlanPoint without = point;
    without.offload = OffloadMode::kNone;
    absl::StatusOr<PreparedRun> run =
        Prepare(space_->ConfigOf(without), context);
    absl::StatusOr<std::vector<double>> least;
    if (run.ok()) {
      least = LeastLiveBytes(*std::move(run), point.offload,
                             LinksOf(group, context).copied_per_s);
    }
    live = std::make_shared<const std::vector<double>>(
        least.ok() ? *std::move(least) : std::vector<double>(group.pp, 0.0));
    const std::lock_guard<std::mutex> lock(mutex_);
    planned_.try_emplace(std::move(key), live);
  }
  double most = 0;
  for (int rank = 0; rank < group.pp; ++rank) {
    most = std::max(most, memories->fixed[rank] + (*live)[rank]);
  }
  return most;
}

// Of a rank between passes at its fullest; `copies` may be null.
double PlanBounds::LiveBytes(
    const Order& order, int rank,
    const std::vector<std::shared_ptr<const StageMemory>>& stages,
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

// Of what is kept, by the rules of sim/offload: O end before the pass begins
// and L begin behind it, one after the other in each direction, and a rank's
// passes and copies all fit into the step.
double PlanBounds::MostAway(
    const Order& order, int rank, const Held& held,
    const std::vector<std::shared_ptr<const StageMemory>>& stages,
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
  double away = 0;
  if (copies.half && vpp > 1) {
    std::sort(of_chunk.rbegin(), of_chunk.rend());
    of_chunk.resize((vpp + 1) / 2);
  }
  for (const double bytes : of_chunk) away += bytes;
  if (copies.half && vpp == 1) {
    const double all = static_cast<double>(order.schedule->microbatches) *
                       order.schedule->directions;
    away = std::min(away, std::ceil(all / 2) * largest);
  }
  if (copies.passes.empty()) return away;
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
