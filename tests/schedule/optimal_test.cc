// The searched schedule and its bound, against all orders there are, against
// every other schedule, and against itself.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/memory/activations.h"
#include "sim/schedule/order_bound.h"
#include "sim/schedule/order_exact.h"
#include "sim/schedule/order_search.h"
#include "sim/schedule/order_task.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/replay.h"
#include "sim/schedule/text.h"
#include "sim/schedule/verify.h"
#include "tests/support/random_schedule.h"
#include "tests/support/rounds.h"

namespace pipewright::optimal_test {
namespace {

// Times are whole numbers.
ScheduleParams AnyParams(Random& random, int pp, int microbatches,
                         int chunks = 1) {
  ScheduleParams params;
  params.pp = pp;
  params.microbatches = microbatches;
  PlanCosts& costs = params.costs;
  costs.given = true;
  costs.hop = random.Chance(50) ? 0 : random.Int(1, 8);
  costs.held_until_weight = random.Chance(66) ? 1 : random.Int(0, 2) / 2.0;
  costs.steps_together = random.Chance(50);
  const bool alike = random.Chance(33);
  const int forward = random.Int(8, 32);
  const int input = random.Int(8, 32);
  const int weight = random.Int(3, 24);
  params.vpp = chunks;
  for (int stage = 0; stage < pp * chunks; ++stage) {
    const int part = alike ? 10 : random.Int(6, 15);
    costs.stages.push_back(
        {.forward = static_cast<double>(forward * part),
         .backward_input = static_cast<double>(input * part),
         .backward_weight = static_cast<double>(weight * part)});
  }
  params.max_activations = random.Int(1, pp + 1);
  return params;
}

// The shortest of all orders, tried one after the other. Nothing of
// sim/schedule is used.
class AllOrders {
 public:
  explicit AllOrders(const ScheduleParams& params) : params_(params) {}

  // Stops where none is below `least`.
  double Shortest(double least) {
    least_ = least;
    shortest_ = std::numeric_limits<double>::infinity();
    std::vector<int> order;
    AddOrders(0, 0, 0, &order);
    chosen_.assign(params_.pp, 0);
    Choose(0);
    return shortest_;
  }

 private:
  // F, B, W of a rank are 0, 1, 2; each kind runs its microbatches in order.
  void AddOrders(int forwards, int inputs, int weights,
                 std::vector<int>* order) {
    const int m = params_.microbatches;
    if (weights == m) {
      orders_.push_back(*order);
      return;
    }
    const double held = forwards - inputs +
                        params_.costs.held_until_weight * (inputs - weights);
    const auto add = [&](int kind, bool may) {
      if (!may) return;
      order->push_back(kind);
      AddOrders(forwards + (kind == 0), inputs + (kind == 1),
                weights + (kind == 2), order);
      order->pop_back();
    };
    add(0, forwards < m && held + 1 <= *params_.max_activations + 1e-9);
    add(1, inputs < forwards);
    add(2, weights < inputs);
  }

  void Choose(int rank) {
    if (shortest_ <= least_) return;
    if (rank == params_.pp) {
      shortest_ = std::min(shortest_, Time());
      return;
    }
    for (size_t order = 0; order < orders_.size(); ++order) {
      chosen_[rank] = order;
      Choose(rank + 1);
    }
  }

  // Sweeps over the ranks until nothing changes.
  double Time() const {
    const int pp = params_.pp;
    const int m = params_.microbatches;
    const PlanCosts& costs = params_.costs;
    // [rank][kind][microbatch] ends, -1: not yet.
    std::vector<std::vector<double>> ends(3 * pp, std::vector<double>(m, -1));
    std::vector<size_t> next(pp);
    std::vector<double> clock(pp), first(pp, -1);
    std::vector<std::vector<int>> counts(pp, std::vector<int>(3));
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < pp; ++rank) {
        const std::vector<int>& order = orders_[chosen_[rank]];
        while (next[rank] < order.size()) {
          const int kind = order[next[rank]];
          const int k = counts[rank][kind];
          double ready = 0;
          if (kind == 0 && rank > 0) {
            if (ends[3 * (rank - 1)][k] < 0) break;
            ready = ends[3 * (rank - 1)][k] + costs.hop;
          }
          if (kind == 1 && rank + 1 < pp) {
            if (ends[3 * (rank + 1) + 1][k] < 0) break;
            ready = ends[3 * (rank + 1) + 1][k] + costs.hop;
          }
          const StageTimes& own = costs.stages[rank];
          const double start = std::max(ready, clock[rank]);
          if (first[rank] < 0) first[rank] = start;
          clock[rank] = start + (kind == 0   ? own.forward
                                 : kind == 1 ? own.backward_input
                                             : own.backward_weight);
          ends[3 * rank + kind][k] = clock[rank];
          ++counts[rank][kind];
          ++next[rank];
          moved = true;
        }
      }
    }
    double longest = 0;
    for (int rank = 0; rank < pp; ++rank) {
      if (next[rank] < orders_[chosen_[rank]].size()) {
        return std::numeric_limits<double>::infinity();
      }
      longest = std::max(
          longest, clock[rank] - (costs.steps_together ? 0 : first[rank]));
    }
    return longest;
  }

  const ScheduleParams params_;
  double least_ = 0;
  double shortest_ = 0;
  std::vector<std::vector<int>> orders_;
  std::vector<size_t> chosen_;  // [rank]
};

// Whether any order is shorter than `time`: passes are begun one after the
// other by their dates, and all of a rank's passes that are left count as work.
// Any number of chunks, loop or v; nothing of sim/schedule is used. With
// recompute=choose any F may be one that runs again: of its chunk `rest` stays
// until the R, which may be any of those that have yet to come. With
// offload=choose any F may be copied behind its end, by one stream a rank,
// which gives its room back then; to take it again for the copy back, the rank
// must be between two passes.
class ShorterOrder {
 public:
  ShorterOrder(const ScheduleParams& params, double time, double rest = 0)
      : params_(params),
        time_(time),
        rest_(rest),
        recomputes_(params.own.count("recompute") > 0),
        offloads_(params.own.count("offload") > 0),
        stages_(params.pp * params.vpp),
        dropped_(stages_, std::vector<char>(params.microbatches)),
        copies_(stages_, std::vector<Copy>(params.microbatches)),
        out_(params.pp),
        in_(params.pp),
        counts_(3 * stages_),
        ends_(3 * stages_),
        clock_(params.pp),
        first_(params.pp, -1) {
    for (int stage = 0; stage < stages_; ++stage) {
      for (int kind = 0; kind < 2; ++kind) {
        after_.push_back(After(kind, stage));
      }
    }
  }

  bool Exists() { return Begin(0); }

 private:
  int RankOf(int stage) const {
    const int place = stage % params_.pp;
    const auto placement = params_.own.find("placement");
    const bool turned = placement != params_.own.end() &&
                        placement->second == "v" && stage / params_.pp % 2 == 1;
    return turned ? params_.pp - 1 - place : place;
  }
  double TicksOf(int kind, int stage) const {
    const StageTimes& own = params_.costs.stages[stage];
    return kind == 0   ? own.forward
           : kind == 1 ? own.backward_input
                       : own.backward_weight;
  }

  // Date of the next pass of a kind and stage; below 0: it cannot be next.
  double StartOf(int kind, int stage) const {
    const int k = counts_[3 * stage + kind];
    if (k == params_.microbatches) return -1;
    double start = clock_[RankOf(stage)];
    const auto wait = [&](int other_kind, int other) {
      if (counts_[3 * other + other_kind] <= k) return false;
      const double hop = RankOf(other) == RankOf(stage) ? 0 : params_.costs.hop;
      start = std::max(start, ends_[3 * other + other_kind][k] + hop);
      return true;
    };
    if (kind == 0) return stage == 0 || wait(0, stage - 1) ? start : -1;
    if (!wait(kind - 1, stage)) return -1;
    if (kind == 1 && dropped_[stage][k] != 0) return -1;
    if (kind == 1 && copies_[stage][k].goes) {
      if (!copies_[stage][k].returns) return -1;
      start = std::max(start, copies_[stage][k].back);
    }
    if (kind == 2 || stage + 1 == stages_) return start;
    return wait(1, stage + 1) ? start : -1;
  }

  double AgainOf(int stage) const {
    const std::vector<double>& again = params_.costs.recompute;
    return again.empty() ? TicksOf(0, stage) : again[stage];
  }
  int DroppedOf(int stage) const {
    return static_cast<int>(
        std::count(dropped_[stage].begin(), dropped_[stage].end(), 1));
  }

  // In chunks that a rank holds, F of which has begun and W not ended, and
  // `more`.
  bool HasRoom(int rank, double more, double date = 0) const {
    double held = more;
    for (int stage = 0; stage < stages_; ++stage) {
      if (RankOf(stage) != rank) continue;
      for (const Copy& copy : copies_[stage]) {
        if (copy.goes && !copy.returns && copy.gone <= date) held -= 1;
      }
    }
    for (int stage = 0; stage < stages_; ++stage) {
      if (RankOf(stage) != rank) continue;
      const int* const counts = &counts_[3 * stage];
      held += counts[0] - counts[1] - (1 - rest_) * DroppedOf(stage) +
              params_.costs.held_until_weight * (counts[1] - counts[2]);
    }
    return held <= *params_.max_activations * params_.vpp + 1e-9;
  }

  // The first date from `from` on with room for a chunk; -1: only passes that
  // have yet to run give any.
  double RoomFrom(int rank, double from) const {
    std::vector<double> dates = {from};
    for (int stage = 0; stage < stages_; ++stage) {
      for (const Copy& copy : copies_[stage]) {
        if (copy.goes && copy.gone > from) dates.push_back(copy.gone);
      }
    }
    std::sort(dates.begin(), dates.end());
    for (const double date : dates) {
      if (HasRoom(rank, 1, date)) return date;
    }
    return -1;
  }

  // With F of a microbatch, which has begun, as one that goes.
  bool BeginsCopied(int stage, int k, double start) {
    const int rank = RankOf(stage);
    const double out = out_[rank];
    out_[rank] = std::max(out, clock_[rank]) + params_.costs.copy_out[stage];
    copies_[stage][k] = {.goes = true, .gone = out_[rank]};
    const bool found = Begin(start);
    copies_[stage][k] = {};
    out_[rank] = out;
    return found;
  }

  // With the copy back of a microbatch as what is next on its rank.
  bool BeginsLoaded(int stage, int k, double now) {
    const int rank = RankOf(stage);
    const double clock = clock_[rank];
    const double in = in_[rank];
    Copy& copy = copies_[stage][k];
    const double date = RoomFrom(rank, std::max(clock, copy.gone));
    if (date < now) return false;
    clock_[rank] = date;
    in_[rank] = std::max(in, date) + params_.costs.copy_in[stage];
    copy.returns = true;
    copy.back = in_[rank];
    const bool found = Begin(date);
    copy.returns = false;
    in_[rank] = in;
    clock_[rank] = clock;
    return found;
  }

  // From the end of the last F or B of a stage to the end of W on stage 0.
  double After(int kind, int stage) const {
    const auto hop = [&](int other) {
      return RankOf(stage) == RankOf(other) ? 0 : params_.costs.hop;
    };
    if (kind == 0) {
      return stage + 1 == stages_
                 ? TicksOf(1, stage) + After(1, stage)
                 : hop(stage + 1) + TicksOf(0, stage + 1) + After(0, stage + 1);
    }
    return stage == 0
               ? TicksOf(2, 0)
               : hop(stage - 1) + TicksOf(1, stage - 1) + After(1, stage - 1);
  }

  bool IsHopeless() const {
    for (int stage = 0; stage < stages_; ++stage) {
      for (int kind = 0; kind < 2; ++kind) {
        const int left = params_.microbatches - counts_[3 * stage + kind];
        if (left > 0 && clock_[RankOf(stage)] + left * TicksOf(kind, stage) +
                                after_[2 * stage + kind] >=
                            time_ * (1 - 1e-9)) {
          return true;
        }
      }
    }
    for (int rank = 0; rank < params_.pp; ++rank) {
      double end = clock_[rank];
      if (!params_.costs.steps_together) end -= std::max(0.0, first_[rank]);
      for (int stage = 0; stage < stages_; ++stage) {
        if (RankOf(stage) != rank) continue;
        for (int kind = 0; kind < 3; ++kind) {
          end += (params_.microbatches - counts_[3 * stage + kind]) *
                 TicksOf(kind, stage);
        }
        end += DroppedOf(stage) * AgainOf(stage);
      }
      if (first_[rank] >= 0 && end >= time_ * (1 - 1e-9)) return true;
    }
    return false;
  }

  bool Begin(double now) {
    if (IsHopeless()) return false;
    bool is_done = true;
    for (int stage = 0; stage < stages_; ++stage) {
      is_done = is_done && counts_[3 * stage + 2] == params_.microbatches;
      const int rank = RankOf(stage);
      const double clock = clock_[rank];
      for (int kind = 0; kind < 3; ++kind) {
        double start = StartOf(kind, stage);
        if (start >= 0 && kind == 0) start = RoomFrom(rank, start);
        if (start < now) continue;
        const int k = counts_[3 * stage + kind];
        const double first = first_[rank];
        if (first < 0) first_[rank] = start;
        clock_[rank] = start + TicksOf(kind, stage);
        ends_[3 * stage + kind].push_back(clock_[rank]);
        ++counts_[3 * stage + kind];
        bool found = Begin(start);
        if (kind == 0 && recomputes_ && !found) {
          dropped_[stage][k] = 1;
          found = Begin(start);
          dropped_[stage][k] = 0;
        }
        if (kind == 0 && offloads_ && !found) {
          found = BeginsCopied(stage, k, start);
        }
        --counts_[3 * stage + kind];
        ends_[3 * stage + kind].pop_back();
        clock_[rank] = clock;
        first_[rank] = first;
        if (found) return true;
      }
      for (int k = 0; offloads_ && k < params_.microbatches; ++k) {
        const Copy& copy = copies_[stage][k];
        if (copy.goes && !copy.returns && BeginsLoaded(stage, k, now)) {
          return true;
        }
      }
      for (int k = 0; k < params_.microbatches; ++k) {
        if (dropped_[stage][k] == 0 || clock < now) continue;
        if (!HasRoom(rank, 1 - rest_)) continue;
        dropped_[stage][k] = 0;
        clock_[rank] = clock + AgainOf(stage);
        const bool found = Begin(clock);
        clock_[rank] = clock;
        dropped_[stage][k] = 1;
        if (found) return true;
      }
    }
    return is_done;
  }

  struct Copy {
    bool goes = false;
    bool returns = false;
    double gone = 0;  // the copy out has ended
    double back = 0;  // and that back
  };

  const ScheduleParams params_;
  const double time_;
  const double rest_;
  const bool recomputes_;
  const bool offloads_;
  const int stages_;
  std::vector<std::vector<char>> dropped_;  // [stage][microbatch] until its R
  std::vector<std::vector<Copy>> copies_;   // [stage][microbatch]
  std::vector<double> out_;                 // [rank] its stream is free
  std::vector<double> in_;                  // [rank]
  std::vector<int> counts_;                 // [3 * stage + kind]
  std::vector<std::vector<double>> ends_;   // [3 * stage + kind][microbatch]
  std::vector<double> clock_;               // [rank]
  std::vector<double> first_;               // [rank] start; -1: none
  std::vector<double> after_;               // [2 * stage + kind]
};

Schedule Searched(const ScheduleParams& params) {
  auto schedule = BuildSchedule("optimal", params);
  INFO(schedule.status());
  REQUIRE(schedule.ok());
  const absl::Status runs = VerifySchedule(*schedule);
  INFO(ScheduleToText(*schedule) << runs);
  REQUIRE(runs.ok());
  REQUIRE(schedule->found.has_value());
  return *std::move(schedule);
}

// By the replay that planners and closed forms are tested with.
double TimeOf(const Schedule& schedule, const PlanCosts& costs) {
  const auto times = Replay(schedule, costs);
  REQUIRE(times.ok());
  return costs.steps_together ? times->span_global : times->span_per_rank;
}

double Work(const ScheduleParams& params) {
  double most = 0;
  for (const StageTimes& own : params.costs.stages) {
    most =
        std::max(most, own.forward + own.backward_input + own.backward_weight);
  }
  return most * params.microbatches;
}

TEST_CASE("optimal: against all orders, the bound holds and the best is found",
          "[schedule]") {
  Random random(45);
  struct Size {
    int pp, microbatches, cases;
  };
  int cases = 0, found = 0, tight = 0, above_work = 0;
  double gaps = 0;
  for (const Size& size : {Size{1, 3, 5}, Size{2, 2, 20}, Size{2, 3, 40},
                           Size{3, 2, 20}, Size{3, 3, 12}, Size{2, 4, 8}}) {
    for (int draw = 0; draw < testing::Rounds(size.cases); ++draw) {
      const ScheduleParams params =
          AnyParams(random, size.pp, size.microbatches);
      const Schedule schedule = Searched(params);
      const FoundOrder& order = *schedule.found;
      const double best =
          std::min(order.time, AllOrders(params).Shortest(order.least_time));
      INFO(ScheduleToText(schedule)
           << " limit " << *params.max_activations << " found " << order.time
           << " best " << best << " bound " << order.least_time);
      CHECK(order.least_time <= best * (1 + 1e-9));
      CHECK(TimeOf(schedule, params.costs) == Approx(order.time));
      ++cases;
      found += order.time <= best * (1 + 1e-9);
      if (best <= Work(params) * (1 + 1e-9)) continue;
      ++tight;
      above_work += order.least_time > Work(params) * (1 + 1e-9);
      gaps += best / order.least_time - 1;
    }
  }
  INFO(found << " of " << cases << ", " << tight << " tight, " << above_work
             << " above the work, mean gap " << gaps / tight);
  CHECK(found >= 0.95 * cases);
  CHECK(above_work >= 0.8 * tight);
  CHECK(gaps / tight <= 0.05);
}

TEST_CASE("optimal: of small tasks no order is shorter, with chunks neither",
          "[schedule]") {
  Random random(46);
  struct Size {
    int pp, chunks, microbatches, cases;
  };
  int proved = 0, cases = 0, better = 0;
  for (const Size& size :
       {Size{2, 1, 4, 20}, Size{3, 1, 3, 20}, Size{2, 2, 1, 10},
        Size{2, 2, 2, 30}, Size{1, 3, 2, 5}, Size{3, 2, 1, 10}}) {
    for (int draw = 0; draw < testing::Rounds(size.cases); ++draw) {
      ScheduleParams params =
          AnyParams(random, size.pp, size.microbatches, size.chunks);
      if (size.chunks > 1) {
        params.own["placement"] =
            size.chunks == 2 && random.Chance(50) ? "v" : "loop";
      }
      const Schedule schedule = Searched(params);
      const FoundOrder& order = *schedule.found;
      INFO(ScheduleToText(schedule)
           << " limit " << *params.max_activations << " found " << order.time
           << " bound " << order.least_time);
      CHECK(TimeOf(schedule, params.costs) == Approx(order.time));
      CHECK_FALSE(ShorterOrder(params, order.time).Exists());
      // The test sees what there is to see.
      CHECK(ShorterOrder(params, order.time * (1 + 1e-6)).Exists());
      ++cases;
      proved += order.gap() < 1e-9;
      better += order.time < order.start_time;
    }
  }
  CHECK(proved == cases);
  CHECK(better > 0);
}

OrderTask TaskOf(const ScheduleParams& params, const Placement& placement) {
  OrderTask task = {.placement = placement,
                    .microbatches = params.microbatches,
                    .steps_together = params.costs.steps_together};
  for (const StageTimes& own : params.costs.stages) {
    task.stages.push_back(
        {.forward = static_cast<int64_t>(own.forward),
         .backward_input = static_cast<int64_t>(own.backward_input),
         .backward_weight = static_cast<int64_t>(own.backward_weight),
         .hop = static_cast<int64_t>(params.costs.hop)});
  }
  task.kept.assign(task.num_stages(), 1);
  task.left.assign(task.num_stages(), params.costs.held_until_weight);
  task.room.assign(task.pp(), *params.max_activations * params.vpp);
  task.most_room = task.room;
  return task;
}

// Without a start that may be the shortest anyway.
TEST_CASE("optimal: all ways lead to the shortest order", "[schedule]") {
  Random random(47);
  for (int draw = 0; draw < testing::Rounds(60); ++draw) {
    const int chunks = random.Int(1, 2);
    const int pp = random.Int(2, 3);
    ScheduleParams params =
        AnyParams(random, pp, pp * chunks > 4 ? 1 : random.Int(1, 2), chunks);
    if (chunks == 1) params.microbatches = random.Int(2, 3);
    const bool turned = chunks == 2 && random.Chance(50);
    params.own["placement"] = turned ? "v" : "loop";
    const OrderTask task =
        TaskOf(params, turned ? Placement::V(pp) : Placement::Loop(pp, chunks));
    const auto shortest = FindShortestOrder(task, OrderTimes::kEndless);
    REQUIRE(shortest.has_value());
    REQUIRE(!shortest->orders.empty());
    const int64_t ticks = shortest->ticks;
    INFO(ScheduleToText(task.ToSchedule("optimal", shortest->orders))
         << " limit " << *params.max_activations << " ticks " << ticks);
    CHECK(task.Fits(shortest->orders));
    CHECK(OrderTimes(task).Run(shortest->orders) == ticks);
    CHECK_FALSE(ShorterOrder(params, static_cast<double>(ticks)).Exists());
    // What can end below a limit is not left out, however near the limit is.
    const auto again = FindShortestOrder(task, ticks + 1);
    REQUIRE(again.has_value());
    CHECK(again->ticks == ticks);
    CHECK(FindShortestOrder(task, ticks)->orders.empty());
  }
}

// Microbatches through a stage that run again.
int CountR(const Schedule& schedule) {
  int count = 0;
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    for (const Pass pass : schedule.order(rank)) {
      count += pass.kind() == PassKind::kRecompute ? 1 : 0;
    }
  }
  return count;
}

TEST_CASE("optimal: with R, too, no order of a small task is shorter",
          "[schedule]") {
  Random random(49);
  struct Size {
    int pp, microbatches, cases;
  };
  int cases = 0, found = 0, shorter = 0, some = 0;
  for (const Size& size :
       {Size{1, 3, 10}, Size{2, 2, 30}, Size{2, 3, 40}, Size{3, 2, 20}}) {
    for (int draw = 0; draw < testing::Rounds(size.cases); ++draw) {
      ScheduleParams params = AnyParams(random, size.pp, size.microbatches);
      params.max_activations = random.Int(2, 2 * size.pp + 1) / 2.0;
      for (const StageTimes& own : params.costs.stages) {
        const int forward = static_cast<int>(own.forward);
        params.costs.recompute.push_back(
            random.Chance(50) ? forward : random.Int(0, forward));
      }
      const FoundOrder without = *Searched(params).found;
      params.own["recompute"] = "choose";
      const Schedule schedule = Searched(params);
      const FoundOrder& order = *schedule.found;
      INFO(ScheduleToText(schedule)
           << " limit " << *params.max_activations << " found " << order.time
           << " bound " << order.least_time << " without " << without.time);
      CHECK(TimeOf(schedule, params.costs) == Approx(order.time));
      CHECK(order.time <= without.time);
      CHECK(order.least_time <= order.time);
      for (const double peak :
           PeakActivations(schedule, params.costs.held_until_weight)) {
        CHECK(peak <= *params.max_activations + 1e-9);
      }
      CHECK_FALSE(ShorterOrder(params, order.least_time).Exists());
      ++cases;
      found += ShorterOrder(params, order.time).Exists() ? 0 : 1;
      shorter += order.time < without.time;
      const int again = CountR(schedule);
      some += 0 < again && again < size.pp * size.microbatches;

      // The bound and all ways, with some of what runs again left.
      const double rest = random.Chance(50) ? 0 : random.Int(1, 5) / 10.0;
      OrderTask task = TaskOf(params, Placement::Plain(size.pp));
      const auto plain = FindShortestOrder(task, OrderTimes::kEndless);
      task.recomputes = true;
      task.dropped.assign(size.pp, 1 - rest);
      for (int stage = 0; stage < size.pp; ++stage) {
        task.stages[stage].again =
            static_cast<int64_t>(params.costs.recompute[stage]);
      }
      const auto shortest = FindShortestOrder(task, plain->ticks + 1);
      REQUIRE(shortest.has_value());
      const int64_t ticks = shortest->ticks;
      INFO(ScheduleToText(task.ToSchedule("optimal", shortest->orders))
           << " rest " << rest << " ticks " << ticks);
      CHECK(task.Fits(shortest->orders));
      CHECK(OrderTimes(task).Run(shortest->orders) == ticks);
      CHECK(LeastTicks(task) <= ticks);
      const auto time = static_cast<double>(ticks);
      CHECK_FALSE(ShorterOrder(params, time, rest).Exists());
      // The test sees what there is to see.
      CHECK(ShorterOrder(params, time * (1 + 1e-6), rest).Exists());
    }
  }
  CHECK(found >= 0.95 * cases);
  CHECK(shorter > cases / 10);
  CHECK(some > 0);
}

// Times of an order with copies, by walking over the ranks until nothing
// changes: O and L run one after the other each way, FREE waits for its O, a B
// for its L.
double TimeWithCopies(const Schedule& schedule, const PlanCosts& costs) {
  const int pp = schedule.pp();
  std::map<std::tuple<PassKind, int, int>, double> ends;  // kind, stage, k
  std::vector<size_t> next(pp);
  std::vector<double> clock(pp), out(pp), in(pp), first(pp, -1);
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < pp; ++rank) {
      for (; next[rank] < schedule.order(rank).size(); ++next[rank]) {
        const Pass pass = schedule.order(rank)[next[rank]];
        const int stage = schedule.placement.StageOf(rank, pass.chunk());
        const int k = pass.microbatch();
        const auto end = [&](PassKind kind, int of) {
          const auto found = ends.find({kind, of, k});
          return found == ends.end() ? -1 : found->second;
        };
        double ready = clock[rank];
        const bool forward = pass.kind() == PassKind::kForward;
        const int other = stage + (forward ? -1 : 1);
        const bool waits =
            (forward || pass.kind() == PassKind::kBackwardInput) &&
            other >= 0 && other < schedule.stages();
        if (waits) {
          const double arrival = end(pass.kind(), other);
          if (arrival < 0) break;
          const bool far = schedule.placement.RankOf(other) != rank;
          ready = std::max(ready, arrival + (far ? costs.hop : 0));
        }
        double& own = ends[{pass.kind(), stage, k}];
        moved = true;
        switch (pass.kind()) {
          case PassKind::kOffload:
            own = out[rank] =
                std::max(out[rank], clock[rank]) + costs.copy_out[stage];
            continue;
          case PassKind::kFree:
            own = clock[rank] =
                std::max(clock[rank], end(PassKind::kOffload, stage));
            continue;
          case PassKind::kLoad:
            own = in[rank] = std::max({in[rank], clock[rank],
                                       end(PassKind::kOffload, stage)}) +
                             costs.copy_in[stage];
            continue;
          case PassKind::kBackwardInput:
            ready = std::max(ready, end(PassKind::kLoad, stage));
            break;
          default:
            break;
        }
        const StageTimes& times = costs.stages[stage];
        if (first[rank] < 0) first[rank] = ready;
        own = clock[rank] = ready + (forward ? times.forward
                                     : pass.kind() == PassKind::kBackwardInput
                                         ? times.backward_input
                                         : times.backward_weight);
      }
    }
  }
  double longest = 0;
  for (int rank = 0; rank < pp; ++rank) {
    REQUIRE(next[rank] == schedule.order(rank).size());
    longest = std::max(longest,
                       clock[rank] - (costs.steps_together ? 0 : first[rank]));
  }
  return longest;
}

int CountOf(const Schedule& schedule, PassKind kind) {
  int count = 0;
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    for (const Pass pass : schedule.order(rank)) count += pass.kind() == kind;
  }
  return count;
}

TEST_CASE("optimal: with copies, too, the bound holds and the best is found",
          "[schedule]") {
  Random random(50);
  struct Size {
    int pp, microbatches, cases;
  };
  int cases = 0, found = 0, shorter = 0, some = 0, tight = 0;
  std::string missed;
  for (const Size& size : {Size{1, 3, 10}, Size{2, 2, 30}, Size{2, 3, 30}}) {
    for (int draw = 0; draw < testing::Rounds(size.cases); ++draw) {
      ScheduleParams params = AnyParams(random, size.pp, size.microbatches);
      params.max_activations = random.Int(2, 2 * size.pp + 1) / 2.0;
      for (const StageTimes& own : params.costs.stages) {
        // Copies that hide, and that do not.
        const int forward = static_cast<int>(own.forward);
        params.costs.copy_out.push_back(random.Int(0, 2 * forward));
        params.costs.copy_in.push_back(random.Int(0, 2 * forward));
      }
      const FoundOrder without = *Searched(params).found;
      params.own["offload"] = "choose";
      const Schedule schedule = Searched(params);
      const FoundOrder& order = *schedule.found;
      INFO(ScheduleToText(schedule)
           << " limit " << *params.max_activations << " found " << order.time
           << " bound " << order.least_time << " without " << without.time);
      CHECK(TimeWithCopies(schedule, params.costs) == Approx(order.time));
      CHECK(order.time <= without.time);
      CHECK(order.least_time <= order.time);
      for (const double peak :
           PeakActivations(schedule, params.costs.held_until_weight)) {
        CHECK(peak <= *params.max_activations + 1e-9);
      }
      CHECK_FALSE(ShorterOrder(params, order.least_time).Exists());
      // The test sees what there is to see.
      CHECK(ShorterOrder(params, order.time * (1 + 1e-6)).Exists());
      ++cases;
      const bool is_missed = ShorterOrder(params, order.time).Exists();
      if (is_missed) {
        absl::StrAppend(&missed, ScheduleToText(schedule), order.time,
                        " is not the least, limit ", *params.max_activations,
                        "\n");
      }
      found += is_missed ? 0 : 1;
      shorter += order.time < without.time;
      tight += order.least_time > Work(params) * (1 + 1e-9);
      const int copied = CountOf(schedule, PassKind::kOffload);
      CHECK(CountOf(schedule, PassKind::kFree) == copied);
      CHECK(CountOf(schedule, PassKind::kLoad) == copied);
      some += 0 < copied && copied < size.pp * size.microbatches;
    }
  }
  INFO(found << " of " << cases << ", shorter " << shorter << ", some " << some
             << ", above the work " << tight << "\n"
             << missed);
  CHECK(found >= 0.95 * cases);
  CHECK(shorter > cases / 10);
  CHECK(some > 0);
  CHECK(tight > 0);
}

TEST_CASE("optimal: a search keeps the best of its moves", "[schedule]") {
  Random random(48);
  int improved = 0;
  for (int draw = 0; draw < 5; ++draw) {
    ScheduleParams params = AnyParams(random, 5, 12);
    params.max_activations = 6;
    const OrderTask task = TaskOf(params, Placement::Plain(5));
    OrderSearch search(task, 0, /*seed=*/1);
    REQUIRE(search.Offer(task.OrdersOf(*BuildSchedule("1f1b", params))));
    const int64_t start = search.best_ticks();
    int64_t last = start;
    search.Improve([&](int64_t moves) {
      CHECK(search.best_ticks() <= last);
      last = search.best_ticks();
      return static_cast<double>(moves) / 1500;
    });
    CHECK(task.Fits(search.best()));
    CHECK(OrderTimes(task).Run(search.best()) == search.best_ticks());
    improved += search.best_ticks() < start;
  }
  CHECK(improved > 0);
}

TEST_CASE("optimal: within its limit, and as fast as any schedule that is",
          "[schedule]") {
  Random random(7);
  for (int draw = 0; draw < testing::Rounds(40); ++draw) {
    ScheduleParams params =
        AnyParams(random, random.Int(2, 6), random.Int(1, 14));
    params.vpp = random.Chance(30) ? 2 : 1;
    if (params.vpp == 2) {
      const std::vector<StageTimes> half = params.costs.stages;
      params.costs.stages.insert(params.costs.stages.end(), half.begin(),
                                 half.end());
      params.own["placement"] = random.Chance(50) ? "v" : "loop";
    }
    params.own["steps"] = "200";
    const Schedule schedule = Searched(params);
    const FoundOrder& order = *schedule.found;
    INFO(ScheduleToText(schedule));
    CHECK(TimeOf(schedule, params.costs) == Approx(order.time));
    CHECK(order.least_time <= order.time);
    CHECK(order.time <= order.start_time);
    const double held = params.costs.held_until_weight;
    const double limit = *params.max_activations * (1 + 1e-9);
    for (const double peak : PeakActivations(schedule, held)) {
      CHECK(peak <= limit);
    }
    ScheduleParams theirs = params;
    theirs.own.clear();
    for (const ScheduleInfo* info : AllSchedules()) {
      const auto other = BuildSchedule(info->name, theirs);
      if (!other.ok() || info->name == "optimal" || other->directions == 2 ||
          other->update_every > 0 || other->Has(PassKind::kOffload) ||
          other->backward != BackwardRule::kChain || other->slices > 1) {
        continue;
      }
      bool alike = true;
      for (int stage = 0; stage < schedule.stages(); ++stage) {
        alike =
            alike && other->stages() == schedule.stages() &&
            other->placement.RankOf(stage) == schedule.placement.RankOf(stage);
      }
      const std::vector<double> peaks = PeakActivations(*other, held);
      if (!alike || *std::max_element(peaks.begin(), peaks.end()) > limit) {
        continue;
      }
      INFO(info->name);
      CHECK(order.time <= TimeOf(*other, params.costs) * (1 + 1e-9));
      CHECK(order.least_time <= TimeOf(*other, params.costs) * (1 + 1e-9));
    }
  }
}

// F 1, B 1.05, W 0.8, as published questions have them.
ScheduleParams Alike(int pp, int microbatches, double limit, double hop) {
  ScheduleParams params;
  params.pp = pp;
  params.microbatches = microbatches;
  params.max_activations = limit;
  params.costs.given = true;
  params.costs.forward = 1;
  params.costs.backward_input = 1.05;
  params.costs.backward_weight = 0.8;
  params.costs.hop = hop;
  params.own["steps"] = "0";
  return params;
}

void CheckGaps(int pp, int microbatches) {
  for (const double hop : {0.0, 0.05}) {
    for (const double part : {1 / 6.0, 1 / 3.0, 1 / 2.0, 1.0, 2.0}) {
      const Schedule schedule =
          Searched(Alike(pp, microbatches, part * pp, hop));
      INFO(pp << " x " << microbatches << ", limit " << part << " pp, hop "
              << hop << ": " << schedule.found->time << " of "
              << schedule.found->least_time << " from "
              << schedule.found->start);
      CHECK(schedule.found->gap() <= (part < 1 ? 0.1 : 0.01));
    }
  }
}

TEST_CASE("optimal: near its bound, above and below 1F1B's memory",
          "[schedule]") {
  CheckGaps(24, 96);
}

TEST_CASE("optimal: 128 ranks and 512 microbatches are near the bound",
          "[schedule][long]") {
  CheckGaps(128, 512);
}

TEST_CASE("optimal: R pays where memory is short, and only there",
          "[schedule]") {
  for (const int chunks : {1, 2}) {
    for (const double limit : {8 / 3.0, 4.0, 8.0, 32.0}) {
      ScheduleParams params = Alike(8, 32, limit, 0);
      params.vpp = chunks;
      params.own["steps"] = "200";
      const Schedule without = Searched(params);
      params.own["recompute"] = "choose";
      const Schedule with = Searched(params);
      INFO(chunks << " chunks, limit " << limit << ": " << without.found->time
                  << " of " << without.found->least_time << ", with "
                  << CountR(with) << " R " << with.found->time << " of "
                  << with.found->least_time << " from " << with.found->start);
      CHECK(with.found->time <= without.found->time);
      CHECK(with.found->least_time <= without.found->time);
      CHECK(with.found->gap() <= 0.2);
      CHECK(TimeOf(with, params.costs) == Approx(with.found->time));
      for (const double peak : PeakActivations(with, 1)) {
        CHECK(peak <= limit + 1e-9);
      }
      if (chunks == 1 && limit <= 4) {
        CHECK(with.found->time <= 0.8 * without.found->time);
      }
      if (limit == 32) CHECK(ScheduleToText(with) == ScheduleToText(without));
    }
  }
  ScheduleParams params = Alike(2, 2, 1, 0);
  params.own["recompute"] = "choose";
  params.costs.backward_recomputes = true;
  CHECK_FALSE(BuildSchedule("optimal", params).ok());
}

TEST_CASE("optimal: copies pay where memory is short and they hide",
          "[schedule]") {
  for (const int chunks : {1, 2}) {
    double last = 0;
    for (const double copy : {0.0, 0.5, 1.4, 20.0}) {
      ScheduleParams params = Alike(8, 32, 4, 0);
      params.vpp = chunks;
      params.own["steps"] = "200";
      const Schedule without = Searched(params);
      params.own["offload"] = "choose";
      params.costs.copy_out.assign(8 * chunks, copy / chunks);
      params.costs.copy_in = params.costs.copy_out;
      const Schedule with = Searched(params);
      INFO(chunks << " chunks, copies of " << copy << ": "
                  << without.found->time << " of " << without.found->least_time
                  << ", with " << CountOf(with, PassKind::kOffload) << " O "
                  << with.found->time << " of " << with.found->least_time
                  << " from " << with.found->start);
      CHECK(with.found->time <= without.found->time);
      CHECK(with.found->least_time <= without.found->time);
      CHECK(with.found->least_time >= last);
      last = with.found->least_time;
      for (const double peak : PeakActivations(with, 1)) {
        CHECK(peak <= 4 + 1e-9);
      }
      if (copy <= 0.5) CHECK(with.found->time <= 0.9 * without.found->time);
    }
  }
  // With R besides it is no worse than with either, and nothing has both.
  ScheduleParams params = Alike(4, 16, 2, 0);
  params.own["steps"] = "200";
  params.costs.copy_out.assign(4, 1.2);
  params.costs.copy_in.assign(4, 1.2);
  params.own["recompute"] = "choose";
  const double with_r = Searched(params).found->time;
  params.own["offload"] = "choose";
  const Schedule both = Searched(params);
  CHECK(both.found->time <= with_r);
  for (int rank = 0; rank < 4; ++rank) {
    std::map<int, int> ways;
    for (const Pass pass : both.order(rank)) {
      ways[pass.microbatch()] += pass.kind() == PassKind::kRecompute ||
                                 pass.kind() == PassKind::kOffload;
    }
    for (const auto& [microbatch, count] : ways) CHECK(count <= 1);
  }
  // Without times nobody chooses copies.
  params.costs.copy_out.clear();
  params.costs.copy_in.clear();
  CHECK_FALSE(Searched(params).Has(PassKind::kOffload));
}

TEST_CASE("optimal: a seed and its steps give one order", "[schedule]") {
  Random random(3);
  int others = 0;
  for (int draw = 0; draw < 6; ++draw) {
    ScheduleParams params = AnyParams(random, 5, 12);
    const auto text = [&](const char* seed, const char* steps) {
      params.own = {{"seed", seed}, {"steps", steps}};
      return ScheduleToText(Searched(params));
    };
    const std::string first = text("1", "400");
    CHECK(text("1", "400") == first);
    others += text("2", "400") != first;
    params.own = {{"seed", "1"}, {"steps", "2000"}};
    const double more = Searched(params).found->time;
    params.own = {{"seed", "1"}, {"steps", "0"}};
    CHECK(more <= Searched(params).found->time);
  }
  CHECK(others > 0);
}

TEST_CASE("optimal: the unit of times does not matter", "[schedule]") {
  Random random(5);
  ScheduleParams params = AnyParams(random, 4, 10);
  params.own["steps"] = "300";
  const Schedule one = Searched(params);
  params.costs.hop /= 1000;
  for (StageTimes& own : params.costs.stages) {
    own = {own.forward / 1000, own.backward_input / 1000,
           own.backward_weight / 1000};
  }
  const Schedule other = Searched(params);
  CHECK(ScheduleToText(one) == ScheduleToText(other));
  CHECK(other.found->time == Approx(one.found->time / 1000));
}

TEST_CASE("optimal: room by rank in bytes counts where no limit is given",
          "[schedule]") {
  ScheduleParams params = Alike(4, 16, 1, 0);
  params.max_activations.reset();
  params.costs.kept = {4, 4, 4, 4};
  params.costs.left = {4, 4, 4, 4};
  params.costs.room = {8, 16, 16, 16};
  const Schedule schedule = Searched(params);
  const std::vector<double> peaks = PeakActivations(schedule, 1);
  CHECK(peaks[0] <= 2);
  CHECK(*std::max_element(peaks.begin(), peaks.end()) <= 4);
  params.costs.room[0] = 16;
  CHECK(Searched(params).found->time < schedule.found->time);
}

TEST_CASE("optimal: what B leaves to W may be more than F has kept",
          "[schedule]") {
  Random random(11);
  for (int draw = 0; draw < testing::Rounds(60); ++draw) {
    ScheduleParams params = AnyParams(random, random.Int(1, 4), 6);
    const int chunks = random.Int(1, 2);
    params.max_activations.reset();
    params.vpp = chunks;
    PlanCosts& costs = params.costs;
    for (int stage = 0; stage < params.pp; ++stage) {
      if (chunks == 2) costs.stages.push_back(costs.stages[stage]);
      costs.room.push_back(random.Int(1, 30));
    }
    for (int stage = 0; stage < params.pp * chunks; ++stage) {
      costs.kept.push_back(random.Int(1, 8));
      costs.left.push_back(random.Int(0, 16));
    }
    const FoundOrder found = *Searched(params).found;
    CHECK(found.least_time <= found.time * (1 + 1e-9));
  }
}

TEST_CASE("optimal: a budget of time is spent on moves", "[schedule]") {
  ScheduleParams params = Alike(6, 30, 2, 0);
  for (int stage = 0; stage < 6; ++stage) {
    const double part = 1 + 0.07 * (stage % 4);
    params.costs.stages.push_back({part, 1.05 * part, 0.8 * part});
  }
  const double start = Searched(params).found->time;
  params.own = {{"budget", "500ms"}};
  const FoundOrder found = *Searched(params).found;
  CHECK(found.time <= start);
  CHECK(found.steps > 100);
}

TEST_CASE("optimal: a whole backward is one pass", "[schedule]") {
  ScheduleParams params = Alike(3, 6, 3, 0);
  params.own["backward"] = "full";
  const Schedule schedule = Searched(params);
  CHECK(schedule.Has(PassKind::kBackwardFull));
  CHECK(!schedule.Has(PassKind::kBackwardWeight));
  const auto usual = BuildSchedule("1f1b", params);
  REQUIRE(!usual.ok());  // own parameters are refused
  params.own.clear();
  CHECK(schedule.found->time ==
        Approx(TimeOf(*BuildSchedule("1f1b", params), params.costs)));
}

}  // namespace
}  // namespace pipewright::optimal_test
