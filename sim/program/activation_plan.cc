#include "sim/program/activation_plan.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <type_traits>
#include <utility>

#include "absl/base/casts.h"
#include "absl/strings/str_cat.h"
#include "sim/base/kept.h"
#include "sim/base/status.h"
#include "sim/program/pass_times.h"
#include "sim/program/rank_plan.h"
#include "sim/program/switch_plan.h"
#include "sim/schedule/verify.h"

namespace pipewright {
namespace {

// The order with a FREE for every O that has none. Copies run first in first
// out.
RankOrder OrderWithFrees(const Schedule& schedule, int rank,
                         const RankPassTimes& times,
                         const OffloadCosts& costs) {
  const RankOrder& order = schedule.order(rank);
  std::set<uint64_t> has_free;
  for (const Pass pass : order) {
    if (pass.kind() == PassKind::kFree) has_free.insert(pass.activation());
  }
  std::vector<std::pair<size_t, Pass>> frees;
  double lane_s = 0;
  for (size_t position = 0; position < order.size(); ++position) {
    const Pass pass = order[position];
    if (pass.kind() != PassKind::kOffload) continue;
    const int stage =
        schedule.placement.StageOf(rank, pass.chunk(), pass.direction());
    lane_s = std::max(lane_s, times.end_s[position]) +
             costs.out_s[stage] / schedule.slices;
    if (has_free.contains(pass.activation())) continue;
    // In front of its own L at the latest, and never inside a block.
    size_t at = position + 1;
    while (at < order.size() && times.start_s[at] < lane_s &&
           !(order[at].kind() == PassKind::kLoad &&
             order[at].activation() == pass.activation())) {
      at += order[at].joint_with_next() ? 2 : 1;
    }
    frees.emplace_back(at, Pass(PassKind::kFree, pass.microbatch(),
                                pass.chunk(), pass.slice(), pass.direction()));
  }
  std::stable_sort(frees.begin(), frees.end(),
                   [](const auto& one, const auto& other) {
                     return one.first < other.first;
                   });
  RankOrder with;
  size_t next = 0;
  for (size_t position = 0; position <= order.size(); ++position) {
    for (; next < frees.size() && frees[next].first == position; ++next) {
      with.push_back(frees[next].second);
    }
    if (position < order.size()) with.push_back(order[position]);
  }
  return with;
}

// All that a plan follows from, word by word.
class PlanInputs {
 public:
  PlanInputs(const Schedule& schedule, const std::vector<RankPassTimes>& times,
             const OffloadChoice& choice, const OffloadCosts& costs) {
    Add(schedule.pp());
    Add(schedule.vpp());
    Add(schedule.slices);
    for (int rank = 0; rank < schedule.pp(); ++rank) {
      Add(std::ssize(schedule.order(rank)));
      for (const Pass pass : schedule.order(rank)) Add(pass.bits());
      AddAll(times[rank].start_s);
      AddAll(times[rank].end_s);
    }
    for (int direction = 0; direction < schedule.directions; ++direction) {
      for (int stage = 0; stage < schedule.stages(); ++stage) {
        Add(schedule.placement.RankOf(stage, direction));
        Add(schedule.placement.ChunkOf(stage));
      }
    }
    Add(choice.half ? 1 : 0);
    AddAll(choice.chunks);
    Add(choice.fraction);
    AddAll(costs.out_s);
    AddAll(costs.in_s);
    AddAll(costs.out_alone_s);
    AddAll(costs.in_alone_s);
    AddAll(costs.weight);
    AddAll(costs.moved);
    Add(costs.held_until_weight);
    AddAll(costs.until_weight);
    AddAll(costs.switch_of_rank);
  }
  std::vector<uint64_t> Take() && { return std::move(words_); }

 private:
  template <typename Value>
  void Add(Value value) {
    if constexpr (std::is_same_v<Value, double>) {
      words_.push_back(absl::bit_cast<uint64_t>(value));
    } else {
      words_.push_back(static_cast<uint64_t>(value));
    }
  }
  template <typename Value>
  void AddAll(const std::vector<Value>& values) {
    Add(std::ssize(values));
    for (const Value value : values) Add(value);
  }

  std::vector<uint64_t> words_;
};

struct PlannedOrders {
  std::vector<std::shared_ptr<const RankOrder>> orders;  // [rank]
  std::vector<RankOffload> ranks;
  std::map<int, SwitchTurns> turns;
};

std::shared_ptr<const PlannedOrders> PlanOrders(
    const Schedule& schedule, const std::vector<RankPassTimes>& times,
    const OffloadChoice& choice, const OffloadCosts& costs) {
  auto plan = std::make_shared<PlannedOrders>();
  std::map<int, std::vector<int>> switches;
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    switches[costs.switch_of_rank.empty() ? rank : costs.switch_of_rank[rank]]
        .push_back(rank);
  }
  plan->orders.resize(schedule.pp());
  plan->ranks.resize(schedule.pp());
  for (const auto& [number, members] : switches) {
    std::vector<RankPlan> ranks;
    for (const int rank : members) {
      ranks.emplace_back(schedule, rank, times[rank], costs);
    }
    std::vector<RankOrder> orders;
    std::vector<RankOffload> planned;
    SwitchTurns turns;
    PlanSwitch(ranks, choice, &orders, &planned, &turns);
    if (members.size() > 1) {
      for (std::vector<PlannedTurn>* const each : {&turns.out, &turns.in}) {
        for (PlannedTurn& turn : *each) turn.rank = members[turn.rank];
      }
      plan->turns[number] = std::move(turns);
    }
    for (size_t index = 0; index < members.size(); ++index) {
      plan->orders[members[index]] =
          std::make_shared<const RankOrder>(std::move(orders[index]));
      plan->ranks[members[index]] = planned[index];
    }
  }
  return plan;
}

// A search for the best run tries orders with one sharding after the other,
// which no plan of copies depends on.
std::shared_ptr<const PlannedOrders> SharedPlan(
    const Schedule& schedule, const std::vector<RankPassTimes>& times,
    const OffloadChoice& choice, const OffloadCosts& costs) {
  constexpr int kPlans = 16;
  constexpr int64_t kMostPasses = 1 << 16;
  static auto* const known =
      new Memo<std::vector<uint64_t>, const PlannedOrders>(kPlans);
  const auto plan = [&] { return PlanOrders(schedule, times, choice, costs); };
  if (schedule.num_passes() > kMostPasses) return plan();
  return known->Get(PlanInputs(schedule, times, choice, costs).Take(), plan);
}

}  // namespace

absl::StatusOr<OffloadPlan> PlanOffload(
    std::shared_ptr<const Schedule> schedule, const Program& program,
    const OffloadChoice& choice, const OffloadCosts& costs) {
  PW_ASSIGN_OR_RETURN(std::vector<RankPassTimes> times, EarliestTimes(program));
  DelayWarmUp(program, &times);
  OffloadPlan plan;
  Schedule with = *schedule;
  // Lines of a file are those of the orders that stand in it.
  with.lines.clear();
  const std::shared_ptr<const PlannedOrders> planned =
      SharedPlan(*schedule, times, choice, costs);
  with.orders = planned->orders;
  plan.ranks = planned->ranks;
  plan.turns = planned->turns;
  // An error of the plan, not of who asked for it.
  const absl::Status runs = VerifySchedule(with);
  if (!runs.ok()) {
    return absl::InternalError(
        absl::StrCat("a plan of copies cannot run: ", runs.message()));
  }
  plan.schedule = std::make_shared<const Schedule>(std::move(with));
  return plan;
}

absl::StatusOr<std::shared_ptr<const Schedule>> WithFrees(
    std::shared_ptr<const Schedule> schedule, const Program& program,
    const OffloadCosts& costs) {
  if (!schedule->Has(PassKind::kOffload)) return schedule;
  PW_ASSIGN_OR_RETURN(const std::vector<RankPassTimes> times,
                      EarliestTimes(program));
  Schedule with = *schedule;
  for (int rank = 0; rank < schedule->pp(); ++rank) {
    with.orders[rank] = std::make_shared<const RankOrder>(
        OrderWithFrees(*schedule, rank, times[rank], costs));
  }
  return std::make_shared<const Schedule>(std::move(with));
}

}  // namespace pipewright
