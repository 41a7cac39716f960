#include "sim/offload/rank_plan.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <numeric>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "sim/offload/copy_lane.h"

namespace pipewright {
namespace {

// Two times this close are one: sums of pass times round.
constexpr double kSame = 1e-9;

// Bookings that one rank may try: short orders are searched, long ones are
// booked a few times.
constexpr int64_t kBookings = 200'000;
constexpr int64_t kMostTries = 2'000;

Pass Copy(PassKind kind, Pass forward) {
  return {kind, forward.microbatch(), forward.chunk(), forward.slice(),
          forward.direction()};
}

}  // namespace

RankPlan::RankPlan(const Schedule& schedule, int rank, const PassTimes& times,
                   const OffloadCosts& costs)
    : schedule_(schedule),
      rank_(rank),
      order_(schedule.order(rank)),
      times_(times),
      costs_(costs) {
  absl::flat_hash_map<uint64_t, int32_t> index;
  for (size_t position = 0; position < order_.size(); ++position) {
    const Pass pass = order_[position];
    if (pass.kind() == PassKind::kForward) {
      const int stage =
          schedule.placement.StageOf(rank, pass.chunk(), pass.direction());
      index[pass.activation()] = static_cast<int32_t>(activations_.size());
      activations_.push_back({.forward = pass,
                              .ready_s = times.end_s[position],
                              .needed_s = -1,
                              .out_s = costs.out_s[stage] / schedule.slices,
                              .in_s = costs.in_s[stage] / schedule.slices});
    } else if (ReadsActivations(pass.kind())) {
      Activation& activation = activations_[index.at(pass.activation())];
      if (activation.needed_s >= 0) continue;  // an R came first
      activation.needed_s = times.start_s[position];
    }
  }
}

std::vector<int32_t> RankPlan::Candidates(const OffloadChoice& choice) const {
  std::vector<int32_t> all(activations_.size());
  std::iota(all.begin(), all.end(), 0);
  const auto lives_longer = [&](int32_t one, int32_t other) {
    const double difference =
        activations_[one].lifespan_s() - activations_[other].lifespan_s();
    const bool same =
        std::abs(difference) <= kSame * std::abs(activations_[one].needed_s);
    return same ? one < other : difference > 0;
  };
  // Whole chunks, where the choice is one of chunks.
  std::vector<int64_t> chunks = choice.chunks;
  if (choice.half && schedule_.vpp() > 1) {
    std::map<int, std::pair<double, int64_t>> lifespan;  // sum and count
    for (const Activation& activation : activations_) {
      auto& [sum_s, count] = lifespan[activation.forward.chunk()];
      sum_s += activation.lifespan_s();
      ++count;
    }
    std::vector<std::pair<double, int>> longest;
    for (const auto& [chunk, sum] : lifespan) {
      longest.emplace_back(-sum.first / static_cast<double>(sum.second), chunk);
    }
    std::sort(longest.begin(), longest.end());
    longest.resize((longest.size() + 1) / 2);
    for (const auto& [lifespan_s, chunk] : longest) chunks.push_back(chunk);
  }
  if (!chunks.empty()) {
    std::erase_if(all, [&](int32_t index) {
      return std::find(chunks.begin(), chunks.end(),
                       activations_[index].forward.chunk()) == chunks.end();
    });
  }
  std::stable_sort(all.begin(), all.end(), lives_longer);
  const double share =
      choice.half && schedule_.vpp() == 1 ? 0.5 : choice.fraction;
  const auto most = static_cast<size_t>(
      std::ceil(share * static_cast<double>(activations_.size()) - kSame));
  if (all.size() > most) all.resize(most);
  return all;
}

int64_t RankPlan::FirstStart(double time_s) const {
  return std::lower_bound(times_.start_s.begin(), times_.start_s.end(),
                          time_s * (1 - kSame)) -
         times_.start_s.begin();
}

int64_t RankPlan::FirstEnd(double time_s) const {
  return std::upper_bound(times_.end_s.begin(), times_.end_s.end(),
                          time_s * (1 + kSame)) -
         times_.end_s.begin();
}

RankPlan::Result RankPlan::Book(const std::vector<int32_t>& order) const {
  CopyLane out;
  CopyLane in;
  Result result;
  for (const int32_t index : order) {
    const Activation& activation = activations_[index];
    const double out_s = out.Earliest(activation.ready_s, activation.out_s);
    const double away_s = out_s + activation.out_s;
    const double in_s = in.Latest(activation.needed_s, activation.in_s);
    if (in_s < away_s) continue;
    // Compute comes to the O and the L when the entry before them ends.
    const int64_t free_at = FirstStart(away_s);
    const int64_t load_at = FirstEnd(in_s);
    if (load_at <= free_at) continue;  // nothing runs while it is away
    out.Book(out_s, away_s);
    in.Book(in_s, in_s + activation.in_s);
    const auto add = [&](int64_t position, double time_s, PassKind kind) {
      result.entries.push_back(
          {position, time_s, Copy(kind, activation.forward)});
    };
    add(FirstEnd(out_s), out_s, PassKind::kOffload);
    add(free_at, away_s, PassKind::kFree);
    add(load_at, in_s, PassKind::kLoad);
    ++result.offloaded;
  }
  // At one time what gives memory back comes first, and an O before its FREE.
  const auto turn = [](PassKind kind) {
    return kind == PassKind::kOffload ? 0 : kind == PassKind::kFree ? 1 : 2;
  };
  std::sort(result.entries.begin(), result.entries.end(),
            [&](const Entry& one, const Entry& other) {
              if (one.position != other.position) {
                return one.position < other.position;
              }
              if (one.time_s != other.time_s) return one.time_s < other.time_s;
              return turn(one.pass.kind()) != turn(other.pass.kind())
                         ? turn(one.pass.kind()) < turn(other.pass.kind())
                         : one.pass.bits() < other.pass.bits();
            });
  Weigh(&result);
  return result;
}

// Walks the order with the copies, as memory/activations.cc counts.
void RankPlan::Weigh(Result* result) const {
  double now = 0;
  std::vector<double> levels;
  const auto weight = [&](Pass pass) {
    const int stage =
        schedule_.placement.StageOf(rank_, pass.chunk(), pass.direction());
    return costs_.weight[stage];
  };
  const auto see = [&] {
    if (now > result->peak) result->peak = now;
  };
  size_t entry = 0;
  const auto copies_before = [&](int64_t position) {
    for (; entry < result->entries.size() &&
           result->entries[entry].position <= position;
         ++entry) {
      const Pass pass = result->entries[entry].pass;
      if (pass.kind() == PassKind::kFree) now -= weight(pass);
      if (pass.kind() == PassKind::kLoad) {
        now += weight(pass);
        levels.push_back(now);
      }
      see();
    }
  };
  const auto size = static_cast<int64_t>(order_.size());
  const double held = costs_.held_until_weight;
  for (int64_t position = 0; position < size;) {
    copies_before(position);
    const int64_t behind =
        position + (order_[position].joint_with_next() ? 2 : 1);
    for (int64_t at = position; at < behind; ++at) {
      if (order_[at].kind() == PassKind::kForward) now += weight(order_[at]);
    }
    levels.push_back(now);
    see();
    for (int64_t at = position; at < behind; ++at) {
      const Pass pass = order_[at];
      if (pass.kind() == PassKind::kBackwardFull) now -= weight(pass);
      if (pass.kind() == PassKind::kBackwardInput) {
        now -= weight(pass) * (1 - held);
      }
      if (pass.kind() == PassKind::kBackwardWeight) now -= weight(pass) * held;
    }
    position = behind;
  }
  copies_before(size);
  for (const double level : levels) {
    if (level > result->peak * (1 - kSame)) ++result->above;
  }
}

void RankPlan::Improve(std::vector<int32_t> order, Result* best) const {
  const int64_t count = std::max<int64_t>(1, std::ssize(order));
  const int64_t most = std::min(kMostTries, kBookings / count);
  int64_t tries = 0;
  const auto better = [](const Result& one, const Result& other) {
    if (std::abs(one.peak - other.peak) > kSame * other.peak) {
      return one.peak < other.peak;
    }
    return one.above < other.above;
  };
  // Other ways to begin: the soonest needed, the first that is there.
  for (const bool by_need : {true, false}) {
    std::vector<int32_t> other = order;
    std::stable_sort(other.begin(), other.end(), [&](int32_t a, int32_t b) {
      return by_need ? activations_[a].needed_s < activations_[b].needed_s
                     : activations_[a].ready_s < activations_[b].ready_s;
    });
    Result result = Book(other);
    ++tries;
    if (!better(result, *best)) continue;
    *best = std::move(result);
    order = std::move(other);
  }
  // One activation goes first, as long as that helps.
  for (bool improved = true; improved && tries < most;) {
    improved = false;
    for (size_t index = 1; index < order.size() && tries < most; ++index) {
      std::vector<int32_t> other = order;
      std::rotate(other.begin(), other.begin() + static_cast<int64_t>(index),
                  other.begin() + static_cast<int64_t>(index) + 1);
      Result result = Book(other);
      ++tries;
      if (!better(result, *best)) continue;
      *best = std::move(result);
      order = std::move(other);
      improved = true;
    }
  }
}

RankOrder RankPlan::Plan(const OffloadChoice& choice, RankOffload* out) {
  Result none;
  Weigh(&none);
  const std::vector<int32_t> candidates = Candidates(choice);
  Result best = Book(candidates);
  if (best.peak > 0) Improve(candidates, &best);
  // Copies that do not lower the peak are left out.
  if (best.peak >= none.peak) best = none;
  *out = {.activations = std::ssize(activations_),
          .candidates = std::ssize(candidates),
          .offloaded = best.offloaded,
          .peak_before = none.peak,
          .peak_after = best.peak};
  RankOrder order;
  order.reserve(order_.size() + best.entries.size());
  size_t entry = 0;
  for (size_t position = 0; position <= order_.size(); ++position) {
    for (; entry < best.entries.size() &&
           best.entries[entry].position == static_cast<int64_t>(position);
         ++entry) {
      order.push_back(best.entries[entry].pass);
    }
    if (position < order_.size()) order.push_back(order_[position]);
  }
  return order;
}

}  // namespace pipewright
