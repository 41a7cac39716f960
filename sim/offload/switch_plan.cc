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

// When nothing is copied the other way: before the first L of the switch, and
// from the end of its last O on. A plan that is made for such times keeps to
// them: no L comes before `first_in_s`, no O ends after `last_out_s`.
struct OneWay {
  double first_in_s = -kAnyPeak;  // not known yet: both directions are busy
  double last_out_s = kAnyPeak;

  double OutSeconds(const PlannedActivation& activation, double out_s) const {
    return out_s + activation.out_alone_s <= first_in_s ? activation.out_alone_s
                                                        : activation.out_s;
  }
  double InSeconds(const PlannedActivation& activation, double end_s) const {
    return end_s - activation.in_alone_s >= last_out_s ? activation.in_alone_s
                                                       : activation.in_s;
  }
  bool Keeps(const RankPlan& rank, const PlannedMove& move) const {
    return move.away_s <= last_out_s && rank.IssueOf(move) >= first_in_s;
  }
};

// What a plan has used of it.
OneWay OneWayOf(const std::vector<RankPlan>& ranks, const Booked& booked) {
  OneWay way = {.first_in_s = kAnyPeak, .last_out_s = -kAnyPeak};
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const PlannedMove& move : booked.moves[rank]) {
      way.first_in_s = std::min(way.first_in_s, ranks[rank].IssueOf(move));
      way.last_out_s = std::max(way.last_out_s, move.away_s);
    }
  }
  return way;
}

// One after the other in `order`, each O as early and each L as late as what is
// booked already allows; what does not fit is left out.
Booked BookInGaps(const std::vector<RankPlan>& ranks,
                  const std::vector<Candidate>& order, const OneWay& way,
                  double most) {
  CopyLane out;
  CopyLane in;
  std::vector<Candidate> chosen;
  std::vector<PlannedMove> moves;
  for (const Candidate& candidate : order) {
    const RankPlan& rank = ranks[candidate.rank];
    const PlannedActivation& activation =
        rank.activations()[candidate.activation];
    // Alone where that fits, else with both directions busy.
    double out_s = kAnyPeak;
    double away_s = kAnyPeak;
    if (activation.ready_s + activation.out_alone_s <= way.first_in_s) {
      out_s = out.Earliest(activation.ready_s, activation.out_alone_s);
      away_s = out_s + activation.out_alone_s;
    }
    if (away_s > way.first_in_s) {
      out_s = out.Earliest(activation.ready_s, activation.out_s);
      away_s = out_s + activation.out_s;
    }
    double in_s = -kAnyPeak;
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
    if (!rank.Helps(move) || !way.Keeps(rank, move)) continue;
    out.Book(out_s, away_s);
    in.Book(in_s, loaded_s);
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
         const OneWay& way, Turn turn)
      : ranks_(ranks), chosen_(std::move(chosen)), way_(way), turn_(turn) {}

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

  // Runs every candidate once on a lane, from `ready` on; `begin(index, time)`
  // says what it takes.
  template <typename Ready, typename Key, typename Begin>
  void RunLane(const Ready& ready, const Key& key, const Begin& begin) {
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
      now_s += begin(index, now_s);
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
            [&](size_t index, double now_s) {
              const double seconds = way_.OutSeconds(Of(index), now_s);
              moves_[index].out_s = now_s;
              moves_[index].away_s = now_s + seconds;
              return seconds;
            });
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
            [&](size_t index, double back_s) {
              const double end_s = last_s - back_s;
              const double seconds = way_.InSeconds(Of(index), end_s);
              moves_[index].in_s = end_s - seconds;
              return seconds;
            });
  }

  // False where none was late.
  bool DropLate() {
    std::vector<std::pair<double, size_t>> late;
    for (size_t index = 0; index < chosen_.size(); ++index) {
      PlannedMove& move = moves_[index];
      const auto [rank, activation] = chosen_[index];
      move =
          ranks_[rank].MoveOf(activation, move.out_s, move.away_s, move.in_s);
      if (ranks_[rank].Helps(move) && way_.Keeps(ranks_[rank], move)) continue;
      late.emplace_back(move.away_s - move.in_s, index);
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
  const OneWay way_;
  const Turn turn_;
  std::vector<PlannedMove> moves_;
};

class Search {
 public:
  Search(const std::vector<RankPlan>& ranks, std::vector<Candidate> order,
         const OneWay& way)
      : ranks_(ranks), order_(std::move(order)), way_(way) {
    best_ = BookInGaps(ranks_, order_, way_, kAnyPeak);
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
        Booked booked =
            Queues(ranks_, longest, way_, turn).Run(MostBelow(best_));
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
    Booked booked = BookInGaps(ranks_, other, way_, MostBelow(best_));
    if (!booked.LowerThan(best_)) return false;
    best_ = std::move(booked);
    order_ = std::move(other);
    return true;
  }

  const std::vector<RankPlan>& ranks_;
  std::vector<Candidate> order_;
  const OneWay way_;
  Booked best_;
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
  std::vector<Candidate> candidates;
  const Booked none = BookInGaps(ranks, candidates, OneWay(), kAnyPeak);
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
  Booked best = Search(ranks, candidates, OneWay()).Run();
  // The times of the first plan's L and O are what the second is made for. Its
  // own may leave more room, so again, a few times.
  constexpr int kMostAgain = 3;
  const int again = KnowsAlone(ranks) ? kMostAgain : 0;
  for (int time = 0; time < again; ++time) {
    Booked booked = Search(ranks, candidates, OneWayOf(ranks, best)).Run();
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
