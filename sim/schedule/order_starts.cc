#include "sim/schedule/order_starts.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>
#include <utility>

#include "sim/schedule/order_copies.h"

namespace pipewright {
namespace {

using Patience = WeightFiller::Patience;
using Weights = CyclicPattern::Weights;

// Periods grow by this part of themselves, up to so much above what the bound
// lets a microbatch take.
constexpr int64_t kPeriodSteps = 300;
constexpr double kLongestPeriod = 1.6;
// Patterns whose orders are timed; neighbours often have the same.
constexpr int kTimedPatterns = 12;
// Microbatches under way at a time in lists of passes, in quarters of the
// ranks.
constexpr int kTogether[] = {1, 2, 3, 4, 5, 6, 8, 12};
// Lengths of a warm-up over that of 1F1B, in quarters; from less on if passes
// run again.
constexpr int kLeastWarmup = 4;
constexpr int kLeastWarmupWithR = 2;
constexpr int kMostWarmup = 8;

// When a rank is busy with a pattern, by phase.
class Phases {
 public:
  explicit Phases(int64_t period) : period_(period) {}

  // The earliest start from `from` on of something that takes `ticks`; -1 if
  // there is no gap for it.
  int64_t Place(int64_t from, int64_t ticks) {
    int64_t start = from;
    for (size_t tries = 0; tries < 2 * busy_.size() + 2; ++tries) {
      const int64_t blocked = BlockedUntil(start, ticks);
      if (blocked == 0) {
        busy_.emplace_back(start % period_, ticks);
        return start;
      }
      start += blocked;
      if (start - from > period_) break;
    }
    return -1;
  }

 private:
  // How much later it could start for the first that is in its way; 0: now.
  int64_t BlockedUntil(int64_t start, int64_t ticks) const {
    for (const auto& [begin, taken] : busy_) {
      const int64_t behind = (start % period_ - begin + period_) % period_;
      if (behind < taken) return taken - behind;
      if (behind + ticks > period_) return period_ - behind + taken;
    }
    return ticks > period_ ? period_ + 1 : 0;
  }

  int64_t period_;
  std::vector<std::pair<int64_t, int64_t>> busy_;  // phase, ticks
};

// 1F1B with so many forwards in front on each rank, one stage a rank.
PassOrders WarmupOrders(const OrderTask& task, int quarters) {
  PassOrders orders(task.pp());
  for (int rank = 0; rank < task.pp(); ++rank) {
    const double more = task.MostOf(rank) - task.kept[rank];
    const double room =
        (WithRounding(task.room[rank]) - more) / task.kept[rank];
    int ahead = (quarters * (task.pp() - rank) + 3) / 4;
    ahead = std::min({ahead, task.microbatches,
                      static_cast<int>(std::min<double>(room, ahead))});
    for (int k = 0; k < ahead; ++k) {
      orders[rank].push_back(task.Number(0, rank, k));
    }
    for (int k = 0; k < task.microbatches; ++k) {
      orders[rank].push_back(task.Number(1, rank, k));
      if (k + ahead >= task.microbatches) continue;
      orders[rank].push_back(task.Number(0, rank, k + ahead));
    }
  }
  return orders;
}

// Orders of F and B by a list: what can start first does, B before F, late
// stages first, with so many microbatches under way at most. A rank keeps room
// for what is left of its oldest microbatch, so that none waits for ever.
class ListOrders {
 public:
  ListOrders(const OrderTask& task, int together, bool with_weights)
      : task_(task),
        together_(together),
        with_weights_(with_weights),
        counts_(2 * task.num_stages()),
        end_(counts_.size() * task.microbatches),
        clock_(task.pp()),
        held_(task.pp()),
        orders_(task.pp()) {}

  PassOrders Make() {
    const int rows = static_cast<int>(counts_.size());
    for (int row = 0; row < rows; ++row) start_.push_back(StartOf(row));
    for (size_t done = 0; done < end_.size(); ++done) {
      int chosen = rows - 1;
      for (int row = rows - 2; row >= 0; --row) {
        if (start_[row] < start_[chosen]) chosen = row;
      }
      if (start_[chosen] == OrderTimes::kEndless) return {};
      Add(chosen);
    }
    return std::move(orders_);
  }

 private:
  // kEndless: it cannot be next.
  int64_t StartOf(int row) const {
    const int stages = task_.num_stages();
    const int k = counts_[row];
    if (k == task_.microbatches) return OrderTimes::kEndless;
    const int stage = row % stages;
    const int rank = task_.placement.RankOf(stage);
    const int pass = task_.Number(row / stages, stage, k);
    if (row == 0 && k >= counts_[stages] + together_) {
      return OrderTimes::kEndless;
    }
    if (row < stages && !HasRoom(rank, stage, k)) return OrderTimes::kEndless;
    const int input = task_.InputOf(pass);
    if (input < 0) return clock_[rank];
    if (counts_[input / task_.microbatches] <= k) return OrderTimes::kEndless;
    return std::max(clock_[rank],
                    end_[input] + task_.Hop(task_.StageOf(input), stage));
  }

  bool HasRoom(int rank, int stage, int k) const {
    const int stages = task_.num_stages();
    const auto stage_of = [&](int chunk) {
      return task_.placement.StageOf(rank, chunk);
    };
    const int oldest = counts_[stages + stage_of(0)];
    double needed = held_[rank] + task_.MostOf(stage);
    for (int chunk = 0; chunk < task_.placement.vpp() && k > oldest; ++chunk) {
      const int other = stage_of(chunk);
      if (counts_[other] <= oldest) needed += task_.MostOf(other);
    }
    return needed <= WithRounding(task_.room[rank]);
  }

  void Add(int row) {
    const int stages = task_.num_stages();
    const int stage = row % stages;
    const int rank = task_.placement.RankOf(stage);
    const bool back = row >= stages;
    const int pass = row * task_.microbatches + counts_[row]++;
    orders_[rank].push_back(pass);
    end_[pass] = start_[row] + task_.Ticks(pass);
    clock_[rank] = end_[pass];
    if (back && with_weights_) clock_[rank] += task_.TicksOf(2, stage);
    held_[rank] += back ? -task_.MostOf(stage) : task_.MostOf(stage);
    // Nothing else has changed for other ranks.
    for (int chunk = 0; chunk < task_.placement.vpp(); ++chunk) {
      const int own = task_.placement.StageOf(rank, chunk);
      start_[own] = StartOf(own);
      start_[stages + own] = StartOf(stages + own);
    }
    if (const int output = task_.OutputOf(pass); output >= 0) {
      const int waiting = output / task_.microbatches;
      start_[waiting] = StartOf(waiting);
    }
  }

  const OrderTask& task_;
  const int together_;
  const bool with_weights_;     // a rank runs W behind B
  std::vector<int> counts_;     // [kind * stages + stage]
  std::vector<int64_t> start_;  // [kind * stages + stage] of what is next
  std::vector<int64_t> end_;    // [pass]
  std::vector<int64_t> clock_;  // [rank]
  std::vector<double> held_;    // [rank]
  PassOrders orders_;
};

// Each microbatch alone; fits wherever one does.
PassOrders OneByOne(const OrderTask& task) {
  PassOrders orders(task.pp());
  for (int rank = 0; rank < task.pp(); ++rank) {
    for (int k = 0; k < task.microbatches; ++k) {
      const auto add = [&](int kind, int chunk) {
        const int stage = task.placement.StageOf(rank, chunk);
        orders[rank].push_back(task.Number(kind, stage, k));
      };
      for (int chunk = 0; chunk < task.placement.vpp(); ++chunk) add(0, chunk);
      for (int chunk = task.placement.vpp() - 1; chunk >= 0; --chunk) {
        for (int kind = 1; kind < task.kinds(); ++kind) add(kind, chunk);
      }
    }
  }
  return orders;
}

}  // namespace

PassOrders WeightFiller::Fill(const PassOrders& orders, Patience patience) {
  const int pp = task_.pp();
  const std::vector<char> again = task_.RunAgain(orders);
  size_t passes =
      task_.splits ? size_t{1} * task_.num_stages() * task_.microbatches : 0;
  for (const std::vector<int>& order : orders) passes += order.size();
  end_.assign(task_.num_numbers(), -1);
  std::vector<size_t> next(pp), next_weight(pp);
  std::vector<double> held(pp);
  std::vector<int64_t> clock(pp);
  PassOrders weights(pp), filled(pp);
  using Event = std::pair<int64_t, int>;  // date, rank
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
  for (int rank = 0; rank < pp; ++rank) events.emplace(0, rank);
  size_t done = 0;
  const auto begin = [&](int rank, int64_t now, int pass) {
    clock[rank] = end_[pass] = now + task_.Ticks(pass);
    held[rank] += task_.Taken(pass);
    if (!again.empty() && task_.KindOf(pass) == 0 && again[pass] != 0) {
      held[rank] -= task_.dropped[task_.StageOf(pass)];
    }
    filled[rank].push_back(pass);
    ++done;
    if (task_.splits && task_.KindOf(pass) == 1) {
      weights[rank].push_back(pass + task_.num_stages() * task_.microbatches);
    }
    if (const int output = task_.OutputOf(pass); output >= 0) {
      const int other = task_.RankOf(output);
      if (other != rank) events.emplace(std::max(now, clock[other]), other);
    }
    events.emplace(clock[rank], rank);
  };
  while (!events.empty()) {
    const auto [now, rank] = events.top();
    events.pop();
    if (now < clock[rank]) continue;
    const bool has_next = next[rank] < orders[rank].size();
    const int pass = has_next ? orders[rank][next[rank]] : -1;
    bool has_room = has_next;
    bool is_known = has_next;
    int64_t arrival = 0;  // or the least it can be
    if (has_next) {
      has_room =
          held[rank] + task_.Taken(pass) <= WithRounding(task_.room[rank]);
      if (const int input = task_.InputOf(pass); input >= 0) {
        is_known = end_[input] >= 0;
        arrival = (is_known ? end_[input] : now + task_.Ticks(input)) +
                  task_.Hop(task_.StageOf(input), task_.StageOf(pass));
      }
      if (has_room && is_known && arrival <= now) {
        ++next[rank];
        begin(rank, now, pass);
        continue;
      }
    }
    if (next_weight[rank] < weights[rank].size()) {
      const int weight = weights[rank][next_weight[rank]];
      const bool waits = has_room && arrival < now + task_.Ticks(weight) &&
                         (patience == Patience::kPossible ||
                          (patience == Patience::kKnown && is_known));
      if (!waits) {
        ++next_weight[rank];
        begin(rank, now, weight);
        continue;
      }
    }
    if (has_room && is_known) events.emplace(arrival, rank);
  }
  return done == passes ? filled : PassOrders();
}

std::optional<CyclicPattern> CyclicPattern::Place(const OrderTask& task,
                                                  int64_t period,
                                                  Weights weights) {
  CyclicPattern pattern(task, period);
  std::vector<Phases> ranks(task.pp(), Phases(period));
  const int stages = task.num_stages();
  const auto place = [&](int kind, int stage, int64_t from, int64_t ticks) {
    const int64_t start =
        ranks[task.placement.RankOf(stage)].Place(from, ticks);
    pattern.start_[kind * stages + stage] = start;
    return start;
  };
  int64_t now = 0;
  for (int stage = 0; stage < stages; ++stage) {
    if (stage > 0) now += task.Hop(stage - 1, stage);
    const int64_t ticks = task.stages[stage].forward;
    now = place(0, stage, now, ticks);
    if (now < 0) return {};
    now += ticks;
  }
  const bool behind = weights == Weights::kBehind;
  for (int stage = stages - 1; stage >= 0; --stage) {
    if (stage + 1 < stages) now += task.Hop(stage + 1, stage);
    const PlanTicks& own = task.stages[stage];
    now = place(1, stage, now,
                own.backward_input + (behind ? own.backward_weight : 0));
    if (now < 0) return {};
    now += own.backward_input;
    if (behind) pattern.start_[2 * stages + stage] = now;
  }
  for (int stage = stages - 1; stage >= 0 && !behind; --stage) {
    const int64_t from =
        pattern.start_[stages + stage] + task.stages[stage].backward_input;
    if (place(2, stage, from, task.stages[stage].backward_weight) < 0) {
      return {};
    }
  }
  pattern.FindSkips();
  return pattern;
}

void CyclicPattern::FindSkips() {
  const OrderTask& task = *task_;
  const int stages = task.num_stages();
  // Microbatches that there is room for, and periods that one is there.
  double room = task.microbatches;
  int64_t periods = 1;
  for (int rank = 0; rank < task.pp(); ++rank) {
    for (int chunk = 0; chunk < task.placement.vpp(); ++chunk) {
      const int stage = task.placement.StageOf(rank, chunk);
      const PlanTicks& own = task.stages[stage];
      const int64_t until =
          task.splits && task.left[stage] > 0
              ? start_[2 * stages + stage] + own.backward_weight
              : start_[stages + stage] + own.backward_input;
      const int64_t life = until - start_[stage];
      periods = std::max(periods, (life + period_ - 1) / period_);
    }
    room =
        std::min(room, WithRounding(task.room[rank]) / task.MostOnRank(rank));
  }
  together_ = std::max(1, static_cast<int>(room));
  spread_ = std::max<int64_t>(periods, together_);
  ticks_each_ =
      static_cast<double>(period_) * static_cast<double>(spread_) / together_;
}

int64_t CyclicPattern::PeriodsBefore(int microbatch) const {
  return microbatch / together_ * spread_ + microbatch % together_;
}

PassOrders CyclicPattern::Orders(bool with_weights) const {
  const OrderTask& task = *task_;
  const int kinds = with_weights ? task.kinds() : 2;
  PassOrders orders(task.pp());
  // Start, then what gives room back first, and pass, on one rank.
  std::vector<std::tuple<int64_t, int, int>> starts;
  for (int rank = 0; rank < task.pp(); ++rank) {
    starts.clear();
    for (int chunk = 0; chunk < task.placement.vpp(); ++chunk) {
      const int stage = task.placement.StageOf(rank, chunk);
      for (int kind = 0; kind < kinds; ++kind) {
        const int64_t first = start_[kind * task.num_stages() + stage];
        for (int k = 0; k < task.microbatches; ++k) {
          starts.emplace_back(first + PeriodsBefore(k) * period_, -kind,
                              task.Number(kind, stage, k));
        }
      }
    }
    std::sort(starts.begin(), starts.end());
    for (const auto& start : starts) {
      orders[rank].push_back(std::get<2>(start));
    }
  }
  return orders;
}

namespace {

// Calls add(orders, whether W are in them) with warm-ups or lists, and patterns
// of a task.
template <class Add>
void AddBaseOrders(const OrderTask& task, int64_t least, const Add& add) {
  if (task.placement.vpp() == 1) {
    for (int quarters = task.recomputes ? kLeastWarmupWithR : kLeastWarmup;
         quarters <= kMostWarmup; ++quarters) {
      add(WarmupOrders(task, quarters), false);
    }
  } else {
    for (const int quarters : kTogether) {
      const int together = (quarters * task.pp() + 3) / 4;
      for (const bool with_weights : {false, true}) {
        if (with_weights && !task.splits) continue;
        add(ListOrders(task, together, with_weights).Make(), false);
      }
      if (together >= task.microbatches) break;
    }
  }
  int64_t shortest = 1;  // period: the work of the busiest rank
  for (int rank = 0; rank < task.pp(); ++rank) {
    int64_t work = 0;
    for (int chunk = 0; chunk < task.placement.vpp(); ++chunk) {
      work += task.stages[task.placement.StageOf(rank, chunk)].work();
    }
    shortest = std::max(shortest, work);
  }
  const double longest =
      kLongestPeriod * std::max(static_cast<double>(shortest),
                                static_cast<double>(least) / task.microbatches);
  std::vector<std::pair<double, CyclicPattern>> patterns;
  for (int64_t period = shortest; static_cast<double>(period) <= longest;
       period += std::max<int64_t>(1, period / kPeriodSteps)) {
    for (const Weights weights : {Weights::kInGaps, Weights::kBehind}) {
      std::optional<CyclicPattern> pattern =
          CyclicPattern::Place(task, period, weights);
      if (!pattern) continue;
      patterns.emplace_back(pattern->TicksEach(), *std::move(pattern));
    }
  }
  std::stable_sort(
      patterns.begin(), patterns.end(),
      [](const auto& a, const auto& b) { return a.first < b.first; });
  for (int index = 0;
       index < std::min<int>(kTimedPatterns, std::ssize(patterns)); ++index) {
    const CyclicPattern& pattern = patterns[index].second;
    add(pattern.Orders(true), true);
    add(pattern.Orders(false), false);
  }
}

// Orders of F and B with W in them, in several ways; none: of no task that
// splits.
std::vector<PassOrders> Filled(const OrderTask& task,
                               const PassOrders& orders) {
  if (!task.splits || orders.empty()) return {orders};
  WeightFiller filler(task);
  std::vector<PassOrders> filled;
  for (const Patience patience :
       {Patience::kNone, Patience::kKnown, Patience::kPossible}) {
    filled.push_back(filler.Fill(orders, patience));
  }
  return filled;
}

// `orders` of a task with room for all with R where this one has none.
std::vector<PassOrders> OrdersWithR(const OrderTask& task,
                                    const PassOrders& orders) {
  const auto fit = [&](const OrderTask& to, PassOrders own) {
    for (int rank = 0; rank < task.pp(); ++rank) {
      own[rank] = FitByR(to, own[rank], rank);
      if (own[rank].empty()) return PassOrders();
    }
    return own;
  };
  const auto is_weight = [&](int pass) { return task.KindOf(pass) == 2; };
  std::vector<PassOrders> found;
  const bool has_weights =
      std::any_of(orders[0].begin(), orders[0].end(), is_weight);
  if (has_weights || !task.splits) found.push_back(fit(task, orders));
  if (!task.splits) return found;
  // As if each W came with its B.
  OrderTask whole = task;
  std::fill(whole.left.begin(), whole.left.end(), 0);
  PassOrders bare = orders;
  for (std::vector<int>& order : bare) std::erase_if(order, is_weight);
  bare = fit(whole, std::move(bare));
  if (bare.empty()) return found;
  for (PassOrders& own : Filled(task, bare)) found.push_back(std::move(own));
  return found;
}

}  // namespace

OrderTask WithRoomForAll(const OrderTask& task) {
  OrderTask wide = task;
  for (int rank = 0; rank < task.pp(); ++rank) {
    wide.room[rank] = task.MostOnRank(rank) * (task.microbatches + 1);
  }
  return wide;
}

std::vector<PassOrders> OrdersWithLess(const OrderTask& task,
                                       const OrderTask& wide,
                                       const PassOrders& orders,
                                       bool has_weights) {
  if (!task.offloads) return OrdersWithR(task, orders);
  std::vector<PassOrders> found;
  for (const PassOrders& whole :
       has_weights ? std::vector<PassOrders>{orders} : Filled(wide, orders)) {
    if (whole.empty()) continue;
    for (PassOrders& own : OrdersWithCopies(task, whole)) {
      found.push_back(std::move(own));
    }
  }
  return found;
}

std::vector<PassOrders> StartOrders(const OrderTask& task, int64_t least,
                                    int most) {
  std::vector<std::pair<int64_t, PassOrders>> found;
  OrderTimes times(task);
  const auto add = [&](PassOrders orders) {
    if (orders.empty() || !task.Fits(orders)) return;
    const int64_t ticks = times.Run(orders);
    if (ticks == OrderTimes::kEndless) return;
    const auto behind = std::upper_bound(
        found.begin(), found.end(), ticks,
        [](int64_t own, const auto& other) { return own < other.first; });
    found.emplace(behind, ticks, std::move(orders));
    if (std::ssize(found) > most) found.pop_back();
  };
  add(OneByOne(task));
  AddBaseOrders(task, least, [&](PassOrders orders, bool has_weights) {
    if (has_weights) return add(std::move(orders));
    for (PassOrders& own : Filled(task, orders)) add(std::move(own));
  });
  if (task.recomputes || task.offloads) {
    const OrderTask wide = WithRoomForAll(task);
    AddBaseOrders(wide, least, [&](const PassOrders& orders, bool has_weights) {
      if (orders.empty()) return;
      for (PassOrders& own : OrdersWithLess(task, wide, orders, has_weights)) {
        add(std::move(own));
      }
    });
  }
  std::vector<PassOrders> orders;
  for (auto& [ticks, own] : found) orders.push_back(std::move(own));
  return orders;
}

}  // namespace pipewright
