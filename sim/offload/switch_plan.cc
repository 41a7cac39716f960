#include "sim/offload/switch_plan.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <queue>
#include <utility>

#include "sim/offload/copy_lane.h"

namespace pipewright {
namespace {

// Peaks this close are the same.
constexpr double kSamePeak = 1e-9;
constexpr double kAnyPeak = std::numeric_limits<double>::infinity();

// Bookings that one switch may try: short orders are searched, long ones are
// booked a few times.
constexpr int64_t kBookings = 20'000;
constexpr int64_t kMostTries = 2'000;

struct Candidate {
  int rank = 0;  // of the switch
  int32_t activation = 0;
};

struct Booked {
  std::vector<std::vector<PlannedMove>> moves;  // [rank]
  std::vector<double> peaks;                    // [rank]
  double highest = 0;
  double sum = 0;
  int64_t times = 0;

  bool LowerThan(const Booked& other) const {
    if (std::abs(highest - other.highest) > kSamePeak * other.highest) {
      return highest < other.highest;
    }
    if (std::abs(sum - other.sum) > kSamePeak * other.sum) {
      return sum < other.sum;
    }
    return times < other.times;
  }
};

// The highest point of bookings that can be LowerThan `best`, about.
double MostBelow(const Booked& best) {
  return best.highest * (1 + 2 * kSamePeak);
}

// `most`: a peak above it need not be known.
Booked Finish(const std::vector<RankPlan>& ranks,
              const std::vector<Candidate>& chosen,
              const std::vector<PlannedMove>& moves, double most) {
  Booked booked;
  booked.moves.resize(ranks.size());
  for (size_t index = 0; index < chosen.size(); ++index) {
    booked.moves[chosen[index].rank].push_back(moves[index]);
  }
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const PlannedPeak peak = ranks[rank].PeakWith(booked.moves[rank], most);
    booked.peaks.push_back(peak.peak);
    booked.highest = std::max(booked.highest, peak.peak);
    booked.sum += peak.peak;
    booked.times += peak.times;
    if (peak.peak > most) break;
  }
  return booked;
}

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

// One after the other in `order`, each O as early and each L as late as what is
// booked already allows; what does not fit is left out.
Booked BookInGaps(const std::vector<RankPlan>& ranks,
                  const std::vector<Candidate>& order, double most) {
  CopyLane out;
  CopyLane in;
  std::vector<Candidate> chosen;
  std::vector<PlannedMove> moves;
  for (const Candidate& candidate : order) {
    const RankPlan& rank = ranks[candidate.rank];
    const PlannedActivation& activation =
        rank.activations()[candidate.activation];
    const double out_s = out.Earliest(activation.ready_s, activation.out_s);
    const double in_s = in.Latest(activation.needed_s, activation.in_s);
    const PlannedMove move = rank.MoveOf(candidate.activation, out_s, in_s);
    if (!rank.Helps(move)) continue;
    out.Book(out_s, out_s + activation.out_s);
    in.Book(in_s, in_s + activation.in_s);
    chosen.push_back(candidate);
    moves.push_back(move);
  }
  return Finish(ranks, chosen, moves, most);
}

// Which of several copies that could run goes first.
enum class Turn { kFirstReady, kFirstNeeded, kLastNeeded };

// All at once: lanes are never idle while a copy could run, so that nothing is
// lost in gaps. Those that are late in the end are left out, the latest first.
class Queues {
 public:
  Queues(const std::vector<RankPlan>& ranks, std::vector<Candidate> chosen,
         Turn turn)
      : ranks_(ranks), chosen_(std::move(chosen)), turn_(turn) {}

  // `most` as Finish has it.
  Booked Run(double most) && {
    while (true) {
      moves_.assign(chosen_.size(), {});
      RunOut();
      RunIn();
      if (!DropLate()) return Finish(ranks_, chosen_, moves_, most);
    }
  }

 private:
  struct Waiting {
    double key;
    size_t index;
    // The queue yields the largest.
    bool operator<(const Waiting& other) const {
      return key != other.key ? key > other.key : index > other.index;
    }
  };

  const PlannedActivation& Of(size_t index) const {
    return ranks_[chosen_[index].rank].activations()[chosen_[index].activation];
  }

  // Runs every candidate once on a lane, from `ready` on; `begin(index, time)`.
  template <typename Ready, typename Key, typename Seconds, typename Begin>
  void RunLane(const Ready& ready, const Key& key, const Seconds& seconds,
               const Begin& begin) {
    std::vector<size_t> order(chosen_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t one, size_t other) {
      return ready(one) < ready(other);
    });
    std::priority_queue<Waiting> waiting;
    size_t next = 0;
    double now_s = 0;
    while (next < order.size() || !waiting.empty()) {
      if (waiting.empty()) now_s = std::max(now_s, ready(order[next]));
      for (; next < order.size() && ready(order[next]) <= now_s; ++next) {
        waiting.push({key(order[next]), order[next]});
      }
      const size_t index = waiting.top().index;
      waiting.pop();
      begin(index, now_s);
      now_s += seconds(index);
    }
  }

  void RunOut() {
    RunLane([&](size_t index) { return Of(index).ready_s; },
            [&](size_t index) {
              switch (turn_) {
                case Turn::kFirstReady:
                  return Of(index).ready_s;
                case Turn::kFirstNeeded:
                  return Of(index).needed_s;
                case Turn::kLastNeeded:
                  return -Of(index).needed_s;
              }
              return 0.0;
            },
            [&](size_t index) { return Of(index).out_s; },
            [&](size_t index, double now_s) { moves_[index].out_s = now_s; });
  }

  // The same with time turned round: from the last need backwards.
  void RunIn() {
    double last_s = 0;
    for (size_t index = 0; index < chosen_.size(); ++index) {
      last_s = std::max(last_s, Of(index).needed_s);
    }
    RunLane([&](size_t index) { return last_s - Of(index).needed_s; },
            [&](size_t index) {
              switch (turn_) {
                case Turn::kFirstReady:
                  return -Of(index).needed_s;
                case Turn::kFirstNeeded:
                  return -Of(index).ready_s;
                case Turn::kLastNeeded:
                  return Of(index).ready_s;
              }
              return 0.0;
            },
            [&](size_t index) { return Of(index).in_s; },
            [&](size_t index, double back_s) {
              moves_[index].in_s = last_s - back_s - Of(index).in_s;
            });
  }

  // False where none was late.
  bool DropLate() {
    std::vector<std::pair<double, size_t>> late;
    for (size_t index = 0; index < chosen_.size(); ++index) {
      PlannedMove& move = moves_[index];
      const auto [rank, activation] = chosen_[index];
      move = ranks_[rank].MoveOf(activation, move.out_s, move.in_s);
      if (ranks_[rank].Helps(move)) continue;
      late.emplace_back(move.out_s + Of(index).out_s - move.in_s, index);
    }
    if (late.empty()) return false;
    std::sort(late.rbegin(), late.rend());
    late.resize((late.size() + 3) / 4);
    std::vector<bool> drop(chosen_.size());
    for (const auto& [by_s, index] : late) drop[index] = true;
    std::vector<Candidate> left;
    for (size_t index = 0; index < chosen_.size(); ++index) {
      if (!drop[index]) left.push_back(chosen_[index]);
    }
    chosen_ = std::move(left);
    return true;
  }

  const std::vector<RankPlan>& ranks_;
  std::vector<Candidate> chosen_;
  const Turn turn_;
  std::vector<PlannedMove> moves_;
};

class Search {
 public:
  Search(const std::vector<RankPlan>& ranks, std::vector<Candidate> order)
      : ranks_(ranks), order_(std::move(order)) {
    best_ = BookInGaps(ranks_, order_, kAnyPeak);
    tries_ = std::min(kMostTries,
                      kBookings / std::max<int64_t>(1, std::ssize(order_)));
  }

  Booked Run() && {
    // The fewer are away, the sooner each of them is.
    for (int tenths = 10; tenths > 0; --tenths) {
      const size_t count = (order_.size() * tenths + 9) / 10;
      const std::vector<Candidate> longest(
          order_.begin(), order_.begin() + static_cast<int64_t>(count));
      for (const Turn turn :
           {Turn::kFirstReady, Turn::kFirstNeeded, Turn::kLastNeeded}) {
        Booked booked = Queues(ranks_, longest, turn).Run(MostBelow(best_));
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
        std::vector<Candidate> other = order_;
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
    std::vector<Candidate> other = order_;
    const auto of = [&](const Candidate& candidate) {
      return key(ranks_[candidate.rank].activations()[candidate.activation]);
    };
    std::stable_sort(other.begin(), other.end(),
                     [&](const Candidate& one, const Candidate& two) {
                       return of(one) < of(two);
                     });
    Try(std::move(other));
  }

  bool Try(std::vector<Candidate> other) {
    --tries_;
    Booked booked = BookInGaps(ranks_, other, MostBelow(best_));
    if (!booked.LowerThan(best_)) return false;
    best_ = std::move(booked);
    order_ = std::move(other);
    return true;
  }

  const std::vector<RankPlan>& ranks_;
  std::vector<Candidate> order_;
  Booked best_;
  int64_t tries_ = 0;
};

}  // namespace

void PlanSwitch(const std::vector<RankPlan>& ranks, const OffloadChoice& choice,
                std::vector<RankOrder>* orders, std::vector<RankOffload>* out,
                SwitchTurns* turns) {
  std::vector<Candidate> candidates;
  const Booked none = BookInGaps(ranks, candidates, kAnyPeak);
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
      [&](const Candidate& one, const Candidate& other) {
        return ranks[one.rank].activations()[one.activation].lifespan_s() >
               ranks[other.rank].activations()[other.activation].lifespan_s();
      });
  Booked best = Search(ranks, std::move(candidates)).Run();
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
