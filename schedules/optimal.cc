// An order that is searched for, from the best of all schedules that are legal
// here, with a bound that says how much might still be saved.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "sim/base/error_parts.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"
#include "sim/schedule/order_bound.h"
#include "sim/schedule/order_exact.h"
#include "sim/schedule/order_search.h"
#include "sim/schedule/order_starts.h"
#include "sim/schedule/order_task.h"
#include "sim/schedule/params.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/schedule.h"

namespace pipewright::optimal {
namespace {

constexpr char kName[] = "optimal";
constexpr char kAuto[] = "auto";
constexpr char kNone[] = "none";
constexpr char kChoose[] = "choose";
// Passes that are timed unless somebody says how many steps there are.
constexpr int64_t kUsualVisits = 40'000'000;
constexpr int kLeastSteps = 100;
constexpr int kUsualSteps = 2'000;
constexpr int kUsualStepsWithCopies = 20'000;
constexpr int kMostSteps = 1'000'000'000;
constexpr double kLongestBudget = 86'400;  // s
// Patterns and warm-ups that the search may start from.
constexpr int kStarts = 4;

constexpr char kPlain[] = "plain";
constexpr char kLoop[] = "loop";
constexpr char kWave[] = "v";

Placement PlacementOfParams(const ScheduleParams& params) {
  if (params.vpp == 1) return Placement::Plain(params.pp);
  const auto own = params.own.find("placement");
  const bool is_wave = own != params.own.end() && own->second == kWave;
  return is_wave && params.vpp % 2 == 0 ? WavePlacement(params)
                                        : LoopPlacement(params);
}

absl::Status CheckPlacement(const ScheduleParams& params) {
  PW_ASSIGN_OR_RETURN(
      const std::string placement,
      ChoiceParam(params, "placement", kAuto, {kAuto, kPlain, kLoop, kWave}));
  if (placement == kPlain && params.vpp > 1) {
    return BadValue("schedule.params.placement", placement,
                    "loop, or v with an even strategy.vpp; plain is for vpp 1");
  }
  if (placement == kWave && params.vpp % 2 == 1) {
    return BadValue("schedule.params.placement", placement,
                    "plain or loop; v is for an even strategy.vpp");
  }
  return absl::OkStatus();
}

OrderTask TaskOf(const ScheduleParams& params, bool splits, bool whole) {
  OrderTask task;
  task.placement = PlacementOfParams(params);
  task.microbatches = params.microbatches;
  task.stages = TicksOfStages(params);
  task.splits = splits;
  task.steps_together = whole;
  for (PlanTicks& stage : task.stages) {
    if (splits) continue;
    stage.backward_input += stage.backward_weight;
    stage.backward_weight = 0;
  }
  const bool by_bytes = !params.max_activations && !params.costs.room.empty();
  if (by_bytes) {
    task.kept = params.costs.kept;
    task.left = params.costs.left;
    task.room = params.costs.room;
    for (double& kept : task.kept) kept = std::max(kept, 1.0);
    task.dropped =
        params.costs.dropped.empty() ? task.kept : params.costs.dropped;
    task.moved = params.costs.moved.empty() ? task.kept : params.costs.moved;
    for (int rank = 0; rank < task.pp(); ++rank) {
      // One microbatch runs whatever there is; the report says what it needs.
      const double one = task.MostOnRank(rank);
      task.room[rank] = std::max(task.room[rank], one);
      // What passes need as they run differs by the order, so that another may
      // hold more: the bound does not count memory.
      task.most_room.push_back(one * params.microbatches);
    }
    return task;
  }
  task.kept.assign(task.num_stages(), 1.0 / params.vpp);
  task.left.assign(task.num_stages(),
                   params.costs.held_until_weight / params.vpp);
  task.room.assign(task.pp(), params.max_activations.value_or(
                                  2.0 * params.pp * params.microbatches));
  task.most_room = task.room;
  task.dropped = task.moved = task.kept;
  return task;
}

// Microbatches that every rank has room for, for schedules that take a limit.
double LimitOf(const OrderTask& task) {
  double limit = task.microbatches;
  for (int rank = 0; rank < task.pp(); ++rank) {
    limit = std::min(limit, task.room[rank] / task.MostOnRank(rank));
  }
  return limit;
}

bool StandsAlike(const ScheduleInfo& info, const ScheduleParams& params,
                 const OrderTask& task) {
  if (info.name == kName) return false;
  const Placement placement = info.placement(params);
  if (placement.stages() != task.num_stages()) return false;
  for (int stage = 0; stage < task.num_stages(); ++stage) {
    if (placement.RankOf(stage) != task.placement.RankOf(stage)) return false;
  }
  return true;
}

bool IsStopped(const ScheduleParams& params) {
  return params.stops && params.stops();
}

// Offers what registered schedules and patterns give; the name of the best, or
// nothing if what was offered before is better.
std::string OfferStarts(const ScheduleParams& params, const OrderTask& task,
                        int64_t least, OrderSearch* search) {
  std::string best;
  ScheduleParams theirs = params;
  theirs.own.clear();
  const OrderTask wide = WithRoomForAll(task);
  const auto is_over = [&] {
    return search->is_least() || (IsStopped(params) && !search->best().empty());
  };
  const double limit = LimitOf(task);
  // Where ranks differ, what is planned without a limit may fit as well, and
  // with R it may wherever they are.
  for (const bool limited : {true, false}) {
    const bool binds = limit < params.microbatches;
    const bool less = task.recomputes || task.offloads;
    const bool may_fit = !params.costs.room.empty() || less;
    if (limited ? !binds : binds && !may_fit) continue;
    theirs.max_activations.reset();
    if (limited) theirs.max_activations = limit;
    for (const ScheduleInfo* const info : AllSchedules()) {
      if (!StandsAlike(*info, theirs, task)) continue;
      const absl::StatusOr<Schedule> schedule = info->build(theirs);
      if (!schedule.ok()) continue;
      const PassOrders orders = task.OrdersOf(*schedule);
      if (!orders.empty() && search->Offer(orders)) best = info->name;
      if (is_over()) return best;
      if (!orders.empty() || limited || !less) continue;
      const PassOrders too_wide = wide.OrdersOf(*schedule);
      if (too_wide.empty()) continue;
      for (const PassOrders& own :
           OrdersWithLess(task, wide, too_wide, /*has_weights=*/true)) {
        if (own.empty() || !task.Fits(own) || !search->Offer(own)) continue;
        best =
            absl::StrCat(info->name, task.offloads ? ", some of it on the host"
                                                   : ", some of it again");
      }
    }
  }
  for (const PassOrders& orders : StartOrders(task, least, kStarts)) {
    if (search->Offer(orders)) best = "a list or pattern of its own";
  }
  return best;
}

// Finds and proves the shortest order of a small task.
void TryAllOrders(const OrderTask& task, OrderSearch* search) {
  if (search->is_least() || task.offloads) return;
  const std::optional<ExactOrder> shortest =
      FindShortestOrder(task, search->best_ticks());
  if (!shortest) return;
  if (!shortest->orders.empty()) search->Offer(shortest->orders);
  for (int rank = 0; rank < task.pp(); ++rank) {
    if (task.room[rank] < task.most_room[rank]) return;
  }
  search->set_least(search->best_ticks());
}

// Seconds of "2s"; 0: no budget was given.
absl::StatusOr<double> BudgetOf(const ScheduleParams& params) {
  const auto own = params.own.find("budget");
  if (own == params.own.end()) return 0.0;
  const absl::StatusOr<double> seconds =
      ParseQuantity(own->second, Unit::kTime);
  if (seconds.ok() && *seconds > 0 && *seconds <= kLongestBudget) {
    return *seconds;
  }
  return BadValue("schedule.params.budget", own->second,
                  "a time above 0 and of a day at most, such as 2s");
}

// Until which part of all there is to do, steps or a budget, is over.
struct Effort {
  int64_t steps = 0;
  double budget = 0;  // s; 0: by steps
  std::chrono::steady_clock::time_point begin;

  double Done(int64_t moves) const {
    if (budget > 0) {
      const std::chrono::duration<double> spent =
          std::chrono::steady_clock::now() - begin;
      return spent.count() / budget;
    }
    return steps == 0 ? 1
                      : static_cast<double>(moves) / static_cast<double>(steps);
  }
};

// Searches from the starts and from what was offered before; sets what it was
// made from. Error: there is no order to start from.
absl::Status Search(const ScheduleParams& params, const OrderTask& task,
                    const Effort& effort, OrderSearch* search,
                    FoundOrder* found) {
  const std::string start = OfferStarts(params, task, search->least(), search);
  if (search->best().empty()) {
    return absl::InternalError("no order to start from");
  }
  if (!start.empty()) found->start = start;
  found->start_time = static_cast<double>(search->best_ticks());
  found->from = std::make_shared<const Schedule>(
      task.ToSchedule(found->start, search->best()));
  TryAllOrders(task, search);
  search->Improve([&](int64_t moves) {
    found->is_cut = IsStopped(params);
    return found->is_cut ? 1.0 : effort.Done(moves);
  });
  found->time = static_cast<double>(search->best_ticks());
  found->least_time = static_cast<double>(search->least());
  found->steps += search->steps();
  return absl::OkStatus();
}

// Searches on with more that may be chosen, from the best without it on, so
// that it is never worse. `schedule` is what was found before.
absl::Status SearchOn(const ScheduleParams& params, const OrderTask& task,
                      const Effort& effort, uint64_t seed, const char* start,
                      PassOrders* best, FoundOrder* found, Schedule* schedule) {
  OrderSearch search(task, LeastTicks(task), seed);
  found->start = start;
  found->start_time = found->time;
  schedule->name = start;
  found->from = std::make_shared<const Schedule>(*schedule);
  schedule->name = kName;
  found->least_time = static_cast<double>(search.least());
  if (found->is_cut) return absl::OkStatus();
  search.Offer(*best);
  FoundOrder more;
  PW_RETURN_IF_ERROR(Search(params, task, effort, &search, &more));
  found->time = more.time;
  found->steps += more.steps;
  found->is_cut = more.is_cut;
  *best = search.best();
  *schedule = task.ToSchedule(kName, *best);
  return absl::OkStatus();
}

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  PW_RETURN_IF_ERROR(RequireOnly(kName, "strategy.slices", params.slices, 1));
  PW_RETURN_IF_ERROR(CheckPlacement(params));
  PW_ASSIGN_OR_RETURN(
      const std::string backward,
      ChoiceParam(params, "backward", "split", {"split", "full"}));
  PW_ASSIGN_OR_RETURN(
      const std::string objective,
      ChoiceParam(params, "objective", kAuto, {kAuto, "rank", "whole"}));
  PW_ASSIGN_OR_RETURN(const int steps,
                      IntParam(params, "steps", -1, 0, kMostSteps));
  PW_ASSIGN_OR_RETURN(const int seed,
                      IntParam(params, "seed", 1, 0, kMostSteps));
  PW_ASSIGN_OR_RETURN(const double budget, BudgetOf(params));
  PW_ASSIGN_OR_RETURN(
      const std::string recompute,
      ChoiceParam(params, "recompute", kNone, {kNone, kChoose}));
  if (recompute == kChoose && params.costs.backward_recomputes) {
    return BadValue("schedule.params.recompute", recompute,
                    "none, as strategy.recompute runs every forward again");
  }
  PW_ASSIGN_OR_RETURN(const std::string offload,
                      ChoiceParam(params, "offload", kNone, {kNone, kChoose}));
  const bool whole =
      objective == kAuto ? params.costs.steps_together : objective == "whole";
  const OrderTask task = TaskOf(params, backward == "split", whole);
  if (const double limit = params.max_activations.value_or(1); !(limit >= 1)) {
    return InField("strategy.max_activations",
                   WithValue(absl::ResourceExhaustedError(absl::StrCat(
                                 limit,
                                 " cannot be met; the smallest limit "
                                 "that works with schedule ",
                                 kName, " is 1")),
                             absl::StrCat(limit), "1 or more"));
  }
  Effort effort = {.steps = steps,
                   .budget = steps < 0 ? budget : 0,
                   .begin = std::chrono::steady_clock::now()};
  if (steps < 0) {
    effort.steps = std::clamp<int64_t>(kUsualVisits / task.num_passes(),
                                       kLeastSteps, kUsualSteps);
  }
  const bool binds = LimitOf(task) < params.microbatches;
  const bool recomputes = recompute == kChoose && binds;
  // Without times of copies nobody can choose them.
  const bool offloads =
      offload == kChoose && binds && !params.costs.copy_out.empty();
  const double budget_each =
      effort.budget / (1 + (recomputes ? 1 : 0) + (offloads ? 1 : 0));
  effort.budget = budget_each;
  FoundOrder found = {.is_whole = whole};
  OrderSearch search(task, LeastTicks(task), static_cast<uint64_t>(seed));
  PW_RETURN_IF_ERROR(Search(params, task, effort, &search, &found));
  PassOrders best = search.best();
  Schedule schedule = task.ToSchedule(kName, best);
  OrderTask more = task;
  if (recomputes) {
    more.recomputes = true;
    effort.budget += budget_each;
    PW_RETURN_IF_ERROR(SearchOn(params, more, effort, seed,
                                "the best without R", &best, &found,
                                &schedule));
  }
  if (offloads) {
    more.offloads = true;
    effort.budget += budget_each;
    if (steps < 0) {
      // Small ones are not tried to the end, and take no time.
      effort.steps = std::clamp<int64_t>(kUsualVisits / task.num_passes(),
                                         kLeastSteps, kUsualStepsWithCopies);
    }
    PW_RETURN_IF_ERROR(SearchOn(params, more, effort, seed,
                                "the best without copies", &best, &found,
                                &schedule));
  }
  const double tick = TickOf(params);
  found.time *= tick;
  found.least_time *= tick;
  found.start_time *= tick;
  schedule.found = std::move(found);
  return schedule;
}

const RegisterSchedule kRow({
    .name = kName,
    .summary = "searched: the best legal schedule here, made faster, with a "
               "proved bound on what any order takes",
    .source = "derived: sim/schedule/order_bound.h, order_search.h",
    .torch_name = "",
    .torch_params = {},
    .default_vpp = 1,
    .params =
        {{"placement", kAuto, "auto|plain|loop|v",
          "where stages stand: plain with vpp 1; loop, or to and fro (v, even "
          "vpp); auto is plain or loop"},
         {"backward", "split", "split|full", "B and W as passes of their own"},
         {"recompute", kNone, "none|choose",
          "choose: where memory is short, passes may run again (R) in place of "
          "keeping their activations"},
         {"offload", kNone, "none|choose",
          "choose: where memory is short, activations may wait on the host (O, "
          "FREE, L); needs what copies take, as strategy.offload does"},
         {"objective", kAuto, "auto|rank|whole",
          "what is made short: the span of the longest rank, or of all "
          "together; auto: whole if all ranks step together"},
         {"steps", "by size", "0..",
          "moves that are tried; the same steps and seed give the same order "
          "on any machine"},
         {"seed", "1", "0..", "of the moves"},
         {"budget", "none", "TIME",
          "such as 2s, in place of steps; how far it comes then depends "
          "on the machine"}},
    .build = Build,
    .placement = PlacementOfParams,
    .asks_for_room = true,
});

}  // namespace
}  // namespace pipewright::optimal
