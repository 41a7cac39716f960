#include "sim/program/switch_plan.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "sim/program/bookings.h"
#include "sim/program/copy_lane.h"
#include "sim/program/copy_queues.h"

namespace pipewright {
namespace {

// Bookings that one switch may try: short orders are searched, long ones are
// booked a few times.
constexpr int64_t kBookings = 20'000;
constexpr int64_t kMostTries = 2'000;

// The copies of one direction in the order of their times; those of a rank stay
// in its order.
std::vector<PlannedTurn> TurnsOf(
    const std::vector<std::vector<PlannedCopy>>& copies_of_rank,
    PassKind kind) {
  std::vector<std::pair<double, PlannedTurn>> timed;
  for (size_t rank = 0; rank < copies_of_rank.size(); ++rank) {
    for (const PlannedCopy& copy : copies_of_rank[rank]) {
      if (copy.pass.kind() != kind) continue;
      timed.push_back({copy.time_s, {static_cast<int>(rank), copy.pass}});
    }
  }
  std::stable_sort(timed.begin(), timed.end(),
                   [](const auto& one, const auto& other) {
                     return one.first < other.first;
                   });
  std::vector<PlannedTurn> turns;
  turns.reserve(timed.size());
  for (const auto& [time_s, turn] : timed) turns.push_back(turn);
  return turns;
}

// What a plan has used of it.
OneWay OneWayOf(const std::vector<RankPlan>& ranks, const Bookings& booked) {
  OneWay way = {.first_in_s = kNever, .last_out_s = -kNever};
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const PlannedMove& move : booked.moves[rank]) {
      way.first_in_s = std::min(way.first_in_s, ranks[rank].IssueOf(move));
      way.last_out_s = std::max(way.last_out_s, move.away_s);
    }
  }
  return way;
}

// One after the other in `order`, each O as early and each L as late as what is
// booked already allows; what does not fit is left out. What cannot be lower
// than `best`, where it is given, may end early, with a peak of kNever.
Bookings BookInGaps(const std::vector<RankPlan>& ranks,
                    const std::vector<CopyCandidate>& order, const OneWay& way,
                    const Bookings* best) {
  // A look at the peaks takes as long as about as many bookings.
  constexpr int kLookEvery = 32;
  AwaySet away(ranks);
  for (const CopyCandidate& candidate : order) away.Add(candidate);
  int left_out = 0;
  CopyLane out;
  CopyLane in;
  std::vector<CopyCandidate> chosen;
  std::vector<PlannedMove> moves;
  for (const CopyCandidate& candidate : order) {
    const RankPlan& rank = ranks[candidate.rank];
    const PlannedActivation& activation =
        rank.activations()[candidate.activation];
    // Alone where that fits, else with both directions busy.
    double out_s = kNever;
    double away_s = kNever;
    if (activation.ready_s + activation.out_alone_s <= way.first_in_s) {
      out_s = out.Earliest(activation.ready_s, activation.out_alone_s);
      away_s = out_s + activation.out_alone_s;
    }
    if (away_s > way.first_in_s) {
      out_s = out.Earliest(activation.ready_s, activation.out_s);
      away_s = out_s + activation.out_s;
    }
    double in_s = -kNever;
    double loaded_s = 0;
    if (activation.needed_s - activation.in_alone_s >= way.last_out_s) {
      in_s = in.Latest(activation.needed_s, activation.in_alone_s);
      loaded_s = in_s + activation.in_alone_s;
    }
    if (in_s < way.last_out_s) {
      in_s = in.Latest(activation.needed_s, activation.in_s);
      loaded_s = in_s + activation.in_s;
    }
    const PlannedMove move =
        rank.MoveOf(candidate.activation, out_s, away_s, in_s);
    if (!rank.Helps(move) || !way.Keeps(rank, move)) {
      away.Remove(candidate);
      if (best != nullptr && ++left_out % kLookEvery == 0 &&
          away.CannotBeLowerThan(*best)) {
        return {};
      }
      continue;
    }
    out.Book(out_s, away_s);
    in.Book(in_s, loaded_s);
    chosen.push_back(candidate);
    moves.push_back(move);
  }
  return BookingsOf(ranks, chosen, moves, best);
}

class Search {
 public:
  Search(const std::vector<RankPlan>& ranks, const CopyQueues& queues,
         std::vector<CopyCandidate> order, const OneWay& way)
      : ranks_(ranks), queues_(queues), order_(std::move(order)), way_(way) {
    best_ = BookInGaps(ranks_, order_, way_, nullptr);
    tries_ = std::min(kMostTries,
                      kBookings / std::max<int64_t>(1, std::ssize(order_)));
  }

  Bookings Run() && {
    // The fewer are away, the sooner each of them is.
    for (int tenths = 10; tenths > 0; --tenths) {
      const int64_t count = (std::ssize(order_) * tenths + 9) / 10;
      for (const CopyTurn turn : {CopyTurn::kFirstReady, CopyTurn::kFirstNeeded,
                                  CopyTurn::kLastNeeded}) {
        Bookings booked = queues_.Run(count, way_, turn, best_);
        if (booked.LowerThan(best_)) best_ = std::move(booked);
      }
    }
    // Other ways to begin: the soonest needed, the first that is there.
    TrySorted([](const PlannedActivation& each) { return each.needed_s; });
    TrySorted([](const PlannedActivation& each) { return each.ready_s; });
    // One activation goes first, as long as that helps.
    for (bool improved = true; improved && tries_ > 0;) {
      improved = false;
      for (size_t index = 1; index < order_.size() && tries_ > 0; ++index) {
        std::vector<CopyCandidate> other = order_;
        const auto chosen = other.begin() + static_cast<int64_t>(index);
        std::rotate(other.begin(), chosen, chosen + 1);
        improved |= Try(std::move(other));
      }
    }
    return std::move(best_);
  }

 private:
  template <typename Key>
  void TrySorted(const Key& key) {
    std::vector<CopyCandidate> other = order_;
    const auto of = [&](const CopyCandidate& candidate) {
      return key(ranks_[candidate.rank].activations()[candidate.activation]);
    };
    std::stable_sort(other.begin(), other.end(),
                     [&](const CopyCandidate& one, const CopyCandidate& two) {
                       return of(one) < of(two);
                     });
    Try(std::move(other));
  }

  bool Try(std::vector<CopyCandidate> other) {
    --tries_;
    Bookings booked = BookInGaps(ranks_, other, way_, &best_);
    if (!booked.LowerThan(best_)) return false;
    best_ = std::move(booked);
    order_ = std::move(other);
    return true;
  }

  const std::vector<RankPlan>& ranks_;
  const CopyQueues& queues_;  // for `order_` as it was given
  std::vector<CopyCandidate> order_;
  const OneWay way_;
  Bookings best_;
  int64_t tries_ = 0;
};

bool KnowsAlone(const std::vector<RankPlan>& ranks) {
  for (const RankPlan& rank : ranks) {
    for (const PlannedActivation& each : rank.activations()) {
      if (each.out_alone_s < each.out_s || each.in_alone_s < each.in_s) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

void PlanSwitch(const std::vector<RankPlan>& ranks, const OffloadChoice& choice,
                std::vector<RankOrder>* orders, std::vector<RankOffload>* out,
                SwitchTurns* turns) {
  std::vector<CopyCandidate> candidates;
  const Bookings none = BookInGaps(ranks, candidates, OneWay(), nullptr);
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::vector<int32_t> own = ranks[rank].Candidates(choice);
    out->push_back({.activations = std::ssize(ranks[rank].activations()),
                    .candidates = std::ssize(own),
                    .peak_before = none.peaks[rank]});
    for (const int32_t activation : own) {
      candidates.push_back({static_cast<int>(rank), activation});
    }
  }
  std::stable_sort(
      candidates.begin(), candidates.end(),
      [&](const CopyCandidate& one, const CopyCandidate& other) {
        return ranks[one.rank].activations()[one.activation].lifespan_s() >
               ranks[other.rank].activations()[other.activation].lifespan_s();
      });
  const CopyQueues queues(ranks, candidates);
  OneWay way;
  Bookings best = Search(ranks, queues, candidates, way).Run();
  // The times of the first plan's L and O are what the second is made for. Its
  // own may leave more room, so again, a few times.
  constexpr int kMostAgain = 3;
  const int again = KnowsAlone(ranks) ? kMostAgain : 0;
  for (int time = 0; time < again; ++time) {
    const OneWay next = OneWayOf(ranks, best);
    if (next == way) break;
    way = next;
    Bookings booked = Search(ranks, queues, candidates, way).Run();
    if (!booked.LowerThan(best)) break;
    best = std::move(booked);
  }
  std::vector<std::vector<PlannedCopy>> copies;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    // Copies that do not lower the peak are left out.
    if (best.peaks[rank] >= none.peaks[rank]) {
      best.moves[rank].clear();
      best.peaks[rank] = none.peaks[rank];
    }
    copies.push_back(ranks[rank].CopiesOf(best.moves[rank]));
    orders->push_back(ranks[rank].OrderWith(copies.back()));
    (*out)[rank].offloaded = std::ssize(best.moves[rank]);
    (*out)[rank].peak_after = best.peaks[rank];
  }
  turns->out = TurnsOf(copies, PassKind::kOffload);
  turns->in = TurnsOf(copies, PassKind::kLoad);
}

}  // namespace pipewright
