#include "sim/schedule/registry.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "sim/base/check.h"
#include "sim/base/error_parts.h"
#include "sim/base/names.h"
#include "sim/base/status.h"
#include "sim/schedule/header.h"

namespace pipewright {
namespace {

// Passes of all ranks together, 8 bytes each: 64 GiB.
constexpr double kMaxPasses = 8589934592.0;

std::atomic<int64_t>& Built() {
  static std::atomic<int64_t> built = 0;
  return built;
}

// Names that a later version will know.
constexpr absl::string_view kLaterNames[] = {"optimal"};

bool IsLaterName(absl::string_view name) {
  return std::find(std::begin(kLaterNames), std::end(kLaterNames), name) !=
         std::end(kLaterNames);
}

// The classes that PyTorch's schedules of one and of several stages a rank
// derive from: names that its get_schedule_class takes, but no schedules.
constexpr absl::string_view kTorchSingle = "pipelineschedulesingle";
constexpr absl::string_view kTorchMulti = "pipelineschedulemulti";

// Sorted by name; filled before main by the objects in schedules/.
std::map<std::string, ScheduleInfo>& Rows() {
  static auto* rows = new std::map<std::string, ScheduleInfo>;
  return *rows;
}

absl::Status InRange(absl::string_view field, int value, int maximum) {
  if (value >= 1 && value <= maximum) return absl::OkStatus();
  return BadValue(field, absl::StrCat(value), absl::StrCat("1..", maximum));
}

absl::Status CheckSizes(const ScheduleParams& params) {
  PW_RETURN_IF_ERROR(InRange("strategy.pp", params.pp, kMaxRanks));
  PW_RETURN_IF_ERROR(InRange("strategy.vpp", params.vpp, Pass::kMaxChunks));
  PW_RETURN_IF_ERROR(InRange("strategy.microbatches", params.microbatches,
                             static_cast<int>(Pass::kMaxMicrobatches - 1)));
  PW_RETURN_IF_ERROR(
      InRange("strategy.slices", params.slices, Pass::kMaxSlices));
  // F, B and W of each stage, microbatch and slice.
  const double passes_per_microbatch =
      3.0 * params.pp * params.vpp * params.slices;
  if (passes_per_microbatch * params.microbatches > kMaxPasses) {
    return BadValue(
        "strategy.microbatches", absl::StrCat(params.microbatches),
        absl::StrCat("at most ",
                     static_cast<int64_t>(kMaxPasses / passes_per_microbatch),
                     " at this size of the pipeline (8 bytes a pass)"));
  }
  return absl::OkStatus();
}

absl::Status CheckOwnKeys(const ScheduleInfo& info,
                          const ScheduleParams& params) {
  std::vector<std::string> known = {PairParam().key};
  for (const ParamInfo& param : info.params) known.push_back(param.key);
  for (const auto& [key, value] : params.own) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    if (info.params.empty()) {
      return BadValue(absl::StrCat("schedule.params.", key), value,
                      absl::StrCat("only pair (schedule ", info.name,
                                   " has no parameters of its own)"));
    }
    return InField(
        "schedule.params",
        UnknownName(absl::StrCat("parameter of schedule ", info.name), key,
                    known));
  }
  return absl::OkStatus();
}

// Whatever the shapes are called.
bool SameRanks(const Placement& one, const Placement& other) {
  if (one.pp() != other.pp() || one.vpp() != other.vpp()) return false;
  for (int stage = 0; stage < one.stages(); ++stage) {
    if (one.RankOf(stage) != other.RankOf(stage)) return false;
  }
  return true;
}

// A row, and the parameters with those that its name implies.
struct Checked {
  const ScheduleInfo* info;
  ScheduleParams params;
};

absl::StatusOr<Checked> Check(absl::string_view name,
                              const ScheduleParams& params) {
  PW_ASSIGN_OR_RETURN(const ScheduleMatch match, FindSchedule(name));
  Checked checked = {match.info, params};
  checked.params.own.insert(match.implied.begin(), match.implied.end());
  PW_RETURN_IF_ERROR(CheckSizes(checked.params));
  PW_RETURN_IF_ERROR(CheckOwnKeys(*match.info, checked.params));
  return checked;
}

}  // namespace

Placement LoopPlacement(const ScheduleParams& params) {
  return params.vpp == 1 ? Placement::Plain(params.pp)
                         : Placement::Loop(params.pp, params.vpp);
}

Placement WavePlacement(const ScheduleParams& params) {
  if (params.vpp == 2) return Placement::V(params.pp);
  return params.vpp % 2 == 0 ? Placement::Wave(params.pp, params.vpp)
                             : LoopPlacement(params);
}

std::vector<Claim> BubbleClaims(Claim per_rank, std::vector<Claim> others) {
  std::vector<Claim> claims = {per_rank, std::move(per_rank)};
  claims[1].metric = Claim::Metric::kBubbleGlobal;
  for (Claim& other : others) claims.push_back(std::move(other));
  return claims;
}

RegisterSchedule::RegisterSchedule(ScheduleInfo info) {
  std::string name = info.name;
  PW_CHECK(Rows().emplace(std::move(name), std::move(info)).second);
}

const std::vector<const ScheduleInfo*>& AllSchedules() {
  static const auto* all = [] {
    auto* list = new std::vector<const ScheduleInfo*>;
    for (const auto& [name, info] : Rows()) list->push_back(&info);
    return list;
  }();
  return *all;
}

absl::StatusOr<ScheduleMatch> FindSchedule(absl::string_view name) {
  const std::string lower = absl::AsciiStrToLower(name);
  const auto own = Rows().find(lower);
  if (own != Rows().end()) return ScheduleMatch{&own->second, {}};
  const absl::string_view bare = absl::StripPrefix(lower, "schedule");
  std::vector<std::string> known;
  std::vector<std::string> derived;  // those of the class that is asked for
  for (const ScheduleInfo* info : AllSchedules()) {
    known.push_back(info->name);
    if (!info->torch_name.empty() &&
        bare == (info->default_vpp == 1 ? kTorchSingle : kTorchMulti)) {
      derived.push_back(info->torch_name);
    }
    if (!info->torch_name.empty() &&
        bare == absl::AsciiStrToLower(info->torch_name)) {
      return ScheduleMatch{info, info->torch_params};
    }
  }
  if (!derived.empty()) {
    const std::string allowed = absl::StrJoin(derived, ", ");
    return WithValue(
        absl::InvalidArgumentError(absl::StrCat(
            "schedule '", name, "' is an abstract class of PyTorch; allowed: ",
            allowed, ", which derive from it")),
        name, allowed);
  }
  if (IsLaterName(lower) || IsLaterName(bare)) {
    const std::string allowed = absl::StrJoin(known, ", ");
    return WithValue(
        absl::InvalidArgumentError(absl::StrCat(
            "schedule '", name,
            "' is not available in this version (known: ", allowed, ")")),
        name, allowed);
  }
  return UnknownName("schedule", name, known);
}

const ParamInfo& PairParam() {
  static const auto* param = new ParamInfo{
      "pair", "joint", "joint|dependencies",
      "overlapped passes (X&Y) run as one, or each when it can; files too"};
  return *param;
}

// The gaps of a rank once each of its pairs is two actions. The second one
// takes a step of the next gap, so that what follows stays in its step.
void SplitPairs(const RankOrder& order, std::vector<StepGap>* gaps) {
  int64_t action = 0;
  int64_t pairs = 0;
  int64_t taken = 0;
  bool is_second = false;
  auto gap = gaps->begin();
  const auto move = [&] {
    gap->action += pairs;
    const int64_t steps = std::min(gap->steps, pairs - taken);
    gap->steps -= steps;
    taken += steps;
  };
  for (const Pass pass : order) {
    // An R belongs to the action behind it.
    if (!IsComputePass(pass.kind()) || pass.kind() == PassKind::kRecompute) {
      continue;
    }
    for (; !is_second && gap != gaps->end() && gap->action <= action; ++gap) {
      move();
    }
    is_second = pass.joint_with_next();
    is_second ? ++pairs : ++action;
  }
  for (; gap != gaps->end(); ++gap) move();
}

absl::StatusOr<Schedule> WithPair(Schedule schedule, absl::string_view value) {
  if (value == "joint") return schedule;
  if (value != "dependencies") {
    return BadValue("schedule.params.pair", value, PairParam().legal);
  }
  const auto is_joint = [](Pass pass) { return pass.joint_with_next(); };
  for (size_t rank = 0; rank < schedule.orders.size(); ++rank) {
    std::shared_ptr<const RankOrder>& order = schedule.orders[rank];
    if (std::none_of(order->begin(), order->end(), is_joint)) continue;
    if (rank < schedule.gaps.size()) {
      SplitPairs(*order, &schedule.gaps[rank]);
    }
    RankOrder single = *order;
    for (Pass& pass : single) pass = pass.WithJoint(false);
    order = std::make_shared<const RankOrder>(std::move(single));
  }
  return schedule;
}

absl::StatusOr<Schedule> BuildSchedule(absl::string_view name,
                                       const ScheduleParams& params) {
  PW_ASSIGN_OR_RETURN(const Checked checked, Check(name, params));
  ++Built();
  absl::StatusOr<Schedule> schedule = checked.info->build(checked.params);
  if (!schedule.ok()) return schedule;
  if (!SameRanks(schedule->placement,
                 checked.info->placement(checked.params))) {
    return absl::InternalError(
        absl::StrCat("schedule ", checked.info->name, " builds placement ",
                     schedule->placement.ToString(),
                     ", but `placement` of its row says otherwise"));
  }
  const auto pair = checked.params.own.find(PairParam().key);
  if (pair == checked.params.own.end()) return schedule;
  return WithPair(*std::move(schedule), pair->second);
}

absl::StatusOr<Placement> PlacementOf(absl::string_view name,
                                      const ScheduleParams& params) {
  PW_ASSIGN_OR_RETURN(const Checked checked, Check(name, params));
  return checked.info->placement(checked.params);
}

int64_t NumBuiltSchedules() { return Built(); }

}  // namespace pipewright
