#include "sim/program/rank_plan.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace pipewright {
namespace {

// Two times this close are one: sums of pass times round.
constexpr double kSame = 1e-9;

Pass Copy(PassKind kind, Pass forward) {
  return {kind, forward.microbatch(), forward.chunk(), forward.slice(),
          forward.direction()};
}

const std::vector<double>& AloneOf(const std::vector<double>& alone_s,
                                   const std::vector<double>& both_s) {
  return alone_s.empty() ? both_s : alone_s;
}

}  // namespace

RankPlan::RankPlan(const Schedule& schedule, int rank,
                   const RankPassTimes& times, const OffloadCosts& costs)
    : schedule_(schedule),
      rank_(rank),
      order_(schedule.order(rank)),
      times_(times),
      costs_(costs),
      starts_(times.start_s),
      ends_(times.end_s) {
  absl::flat_hash_map<uint64_t, int32_t> index;
  for (const Pass pass : order_) {
    const int stage =
        schedule.placement.StageOf(rank, pass.chunk(), pass.direction());
    const double weight = costs.weight[stage];
    entries_.push_back({pass.kind(), pass.joint_with_next(), weight,
                        costs.until_weight.empty()
                            ? weight * costs.held_until_weight
                            : costs.until_weight[stage]});
  }
  for (size_t position = 0; position < order_.size(); ++position) {
    const Pass pass = order_[position];
    if (pass.kind() == PassKind::kForward) {
      const int stage =
          schedule.placement.StageOf(rank, pass.chunk(), pass.direction());
      index[pass.activation()] = static_cast<int32_t>(activations_.size());
      const int64_t behind =
          static_cast<int64_t>(position) + (pass.joint_with_next() ? 2 : 1);
      activations_.push_back(
          {.forward = pass,
           .forward_s = times.end_s[position] - times.start_s[position],
           .ready_s = times.end_s[position],
           .needed_s = -1,
           .behind = behind,
           .out_s = costs.out_s[stage] / schedule.slices,
           .in_s = costs.in_s[stage] / schedule.slices,
           .out_alone_s =
               AloneOf(costs.out_alone_s, costs.out_s)[stage] / schedule.slices,
           .in_alone_s =
               AloneOf(costs.in_alone_s, costs.in_s)[stage] / schedule.slices});
      moved_.push_back(MovedOf(pass));
    } else if (ReadsActivations(pass.kind())) {
      PlannedActivation& activation = activations_[index.at(pass.activation())];
      if (activation.needed_s >= 0) continue;  // an R came first
      activation.needed_s = times.start_s[position];
      const bool second =
          position > 0 && order_[position - 1].joint_with_next();
      activation.needed_at = static_cast<int64_t>(position) - (second ? 1 : 0);
    }
  }
  levels_ = LevelsWithoutCopies();
}

double RankPlan::MovedOf(Pass pass) const {
  const int stage =
      schedule_.placement.StageOf(rank_, pass.chunk(), pass.direction());
  return costs_.moved.empty() ? costs_.weight[stage] : costs_.moved[stage];
}

// A stage without layers leaves nothing; where weights do not say so, neither
// its forward nor its copies take time.
bool RankPlan::LeavesNothing(const PlannedActivation& activation) const {
  return MovedOf(activation.forward) == 0 ||
         (activation.forward_s == 0 && activation.out_s + activation.in_s == 0);
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
    for (const PlannedActivation& activation : activations_) {
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
  std::erase_if(
      all, [&](int32_t index) { return LeavesNothing(activations_[index]); });
  std::stable_sort(all.begin(), all.end(), lives_longer);
  const double share =
      choice.half && schedule_.vpp() == 1 ? 0.5 : choice.fraction;
  const auto most = static_cast<size_t>(
      std::ceil(share * static_cast<double>(activations_.size()) - kSame));
  if (all.size() > most) all.resize(most);
  return all;
}

int64_t RankPlan::FirstStart(double time_s) const {
  return starts_.FirstFrom(time_s * (1 - kSame));
}

int64_t RankPlan::FirstEnd(double time_s) const {
  return ends_.FirstAfter(time_s * (1 + kSame));
}

// Compute comes to a FREE when the entry behind it can begin, to an O or L when
// the entry before it has ended. Of passes that take no time a time alone does
// not tell which are before it.
PlannedMove RankPlan::MoveOf(int32_t index, double out_s, double away_s,
                             double in_s) const {
  const PlannedActivation& activation = activations_[index];
  const int64_t out = FirstEnd(out_s);
  return {.activation = index,
          .out_s = out_s,
          .away_s = away_s,
          .in_s = in_s,
          .out = out,
          .free = std::max(out, FirstStart(away_s)),
          .in = std::min(FirstEnd(in_s), activation.needed_at)};
}

bool RankPlan::Helps(const PlannedMove& move) const {
  return move.away_s <= move.in_s && move.free < move.in;
}

// At one time an O comes before its FREE, and what gives memory back before
// what takes it.
std::vector<PlannedCopy> RankPlan::CopiesOf(
    const std::vector<PlannedMove>& moves) const {
  std::vector<PlannedCopy> copies;
  copies.reserve(3 * moves.size());
  for (const PlannedMove& move : moves) {
    const PlannedActivation& activation = activations_[move.activation];
    const auto add = [&](int64_t position, double time_s, PassKind kind) {
      copies.push_back({position, time_s, Copy(kind, activation.forward)});
    };
    add(move.out, move.out_s, PassKind::kOffload);
    add(move.free, move.away_s, PassKind::kFree);
    add(move.in, move.in_s, PassKind::kLoad);
  }
  const auto turn = [](const PlannedCopy& copy) {
    const PassKind kind = copy.pass.kind();
    return kind == PassKind::kOffload ? 0 : kind == PassKind::kFree ? 1 : 2;
  };
  std::sort(copies.begin(), copies.end(),
            [&](const PlannedCopy& one, const PlannedCopy& other) {
              return std::make_tuple(one.position, one.time_s, turn(one),
                                     one.pass.bits()) <
                     std::make_tuple(other.position, other.time_s, turn(other),
                                     other.pass.bits());
            });
  return copies;
}

// In the order of CopiesOf, dealt out by position first: few stand at one.
std::vector<RankPlan::Change> RankPlan::ChangesOf(
    const std::vector<PlannedMove>& moves) const {
  std::vector<int32_t> next(entries_.size() + 2);
  for (const PlannedMove& move : moves) {
    ++next[move.free + 1];
    ++next[move.in + 1];
  }
  std::partial_sum(next.begin(), next.end(), next.begin());
  std::vector<Change> changes(2 * moves.size());
  for (const PlannedMove& move : moves) {
    const PlannedActivation& activation = activations_[move.activation];
    const double bytes = moved_[move.activation];
    changes[next[move.free]++] = {
        move.free, move.away_s, false,
        Copy(PassKind::kFree, activation.forward).bits(), bytes};
    changes[next[move.in]++] = {
        move.in, move.in_s, true,
        Copy(PassKind::kLoad, activation.forward).bits(), bytes};
  }
  const auto before = [](const Change& one, const Change& other) {
    return std::tie(one.time_s, one.takes, one.bits) <
           std::tie(other.time_s, other.takes, other.bits);
  };
  for (size_t first = 0; first < changes.size();) {
    size_t end = first + 1;
    while (end < changes.size() &&
           changes[end].position == changes[first].position) {
      ++end;
    }
    if (end - first > 1) {
      std::sort(changes.begin() + static_cast<std::ptrdiff_t>(first),
                changes.begin() + static_cast<std::ptrdiff_t>(end), before);
    }
    first = end;
  }
  return changes;
}

// Counts as memory/activations.cc does: `copies_before(position)` is told in
// front of each block and of the end, `see(level, position)` what a block
// needs.
template <typename CopiesBefore, typename See>
void RankPlan::Walk(double* now, const CopiesBefore& copies_before,
                    const See& see) const {
  const auto size = static_cast<int64_t>(entries_.size());
  for (int64_t position = 0; position < size;) {
    copies_before(position);
    const int64_t behind =
        position + (entries_[position].joint_with_next ? 2 : 1);
    for (int64_t at = position; at < behind; ++at) {
      if (entries_[at].kind == PassKind::kForward) *now += entries_[at].weight;
    }
    if (!see(*now, position)) return;
    const double during = *now;
    for (int64_t at = position; at < behind; ++at) {
      const Entry& entry = entries_[at];
      if (entry.kind == PassKind::kBackwardFull) *now -= entry.weight;
      if (entry.kind == PassKind::kBackwardInput) {
        *now -= entry.weight - entry.left_to_weight;
      }
      if (entry.kind == PassKind::kBackwardWeight) *now -= entry.left_to_weight;
    }
    // Gradients that W needs can weigh more than what B gives back.
    if (*now > during && !see(*now, position)) return;
    position = behind;
  }
  copies_before(size);
}

PlannedPeak RankPlan::PeakWith(const std::vector<PlannedMove>& moves,
                               double most) const {
  const std::vector<Change> changes = ChangesOf(moves);
  double now = 0;
  PlannedPeak highest;
  std::vector<double> levels;
  levels.reserve(2 * entries_.size() + moves.size());
  const auto see = [&](double level, int64_t) {
    levels.push_back(level);
    highest.peak = std::max(highest.peak, level);
    return highest.peak <= most;
  };
  size_t next = 0;
  const auto copies_before = [&](int64_t position) {
    for (; next < changes.size() && changes[next].position <= position;
         ++next) {
      if (!changes[next].takes) {
        now -= changes[next].bytes;
        continue;
      }
      now += changes[next].bytes;
      see(now, position);
    }
  };
  Walk(&now, copies_before, see);
  highest.times = std::count_if(
      levels.begin(), levels.end(),
      [&](double level) { return level > highest.peak * (1 - kSame); });
  return highest;
}

std::vector<double> RankPlan::LevelsWithoutCopies() const {
  std::vector<double> levels(entries_.size());
  double now = 0;
  Walk(
      &now, [](int64_t) {},
      [&](double level, int64_t position) {
        levels[position] = std::max(levels[position], level);
        return true;
      });
  return levels;
}

double RankPlan::LeastPeak(const std::vector<bool>& away) const {
  // What is given back in front of each position, less what is taken.
  std::vector<double> given(entries_.size() + 1);
  for (size_t index = 0; index < away.size(); ++index) {
    if (!away[index]) continue;
    given[activations_[index].behind] += moved_[index];
    given[activations_[index].needed_at] -= moved_[index];
  }
  double peak = 0;
  double gone = 0;
  for (size_t position = 0; position < levels_.size(); ++position) {
    gone += given[position];
    peak = std::max(peak, levels_[position] - gone);
  }
  return peak;
}

RankOrder RankPlan::OrderWith(const std::vector<PlannedCopy>& copies) const {
  RankOrder order;
  order.reserve(order_.size() + copies.size());
  size_t next = 0;
  for (size_t position = 0; position <= order_.size(); ++position) {
    for (; next < copies.size() &&
           copies[next].position == static_cast<int64_t>(position);
         ++next) {
      order.push_back(copies[next].pass);
    }
    if (position < order_.size()) order.push_back(order_[position]);
  }
  return order;
}

}  // namespace pipewright
