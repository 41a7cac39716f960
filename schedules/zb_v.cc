// ZB-V: two chunks a rank in a V, no bubble at the memory of 1F1B. The
// published pattern, or the planner where costs or a limit are given.
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "absl/strings/str_format.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"
#include "sim/schedule/builder.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/replay.h"
#include "sim/schedule/zb_v_plan.h"

namespace pipewright::zb_v {
namespace {

constexpr char kName[] = "zb-v";
constexpr char kHandcrafted[] = "handcrafted";
constexpr char kAutomatic[] = "automatic";

constexpr PassKind kForward = PassKind::kForward;
constexpr PassKind kInput = PassKind::kBackwardInput;
constexpr PassKind kWeight = PassKind::kBackwardWeight;

// The pattern needs 2p-1 microbatches; with fewer it has holes.
void AddHandcraftedRank(int pp, int rank, int microbatches,
                        ScheduleBuilder* builder) {
  const int filled = std::max(microbatches, 2 * pp - 1);
  int placed[3][2] = {};  // [kind][chunk]
  const auto count = [&](PassKind kind, int chunk) -> int& {
    return placed[static_cast<int>(kind)][chunk];
  };
  const auto add = [&](PassKind kind, int chunk) {
    const int microbatch = count(kind, chunk)++;
    if (microbatch < microbatches) builder->Add(rank, kind, microbatch, chunk);
  };
  const auto repeat = [&](int times,
                          std::initializer_list<std::pair<PassKind, int>> all) {
    for (int time = 0; time < times; ++time) {
      for (const auto& [kind, chunk] : all) add(kind, chunk);
    }
  };
  repeat(2 * (pp - rank) - 1, {{kForward, 0}});
  repeat(rank, {{kForward, 1}, {kForward, 0}});
  repeat(pp - rank, {{kForward, 1}, {kInput, 1}, {kWeight, 1}});
  while (count(kForward, 1) < count(kForward, 0) ||
         count(kForward, 0) < filled) {
    if (count(kForward, 0) < filled) add(kForward, 0);
    repeat(
        1,
        {{kInput, 0}, {kWeight, 0}, {kForward, 1}, {kInput, 1}, {kWeight, 1}});
  }
  repeat(rank, {{kInput, 0}, {kInput, 1}});
  repeat(pp - rank, {{kInput, 0}, {kWeight, 0}});
  repeat(filled - count(kWeight, 1), {{kWeight, 1}});
  repeat(filled - count(kWeight, 0), {{kWeight, 0}});
}

Schedule Handcrafted(const ScheduleParams& params) {
  ScheduleBuilder builder(kName, Placement::V(params.pp), params.microbatches);
  for (int rank = 0; rank < params.pp; ++rank) {
    builder.Reserve(rank, int64_t{6} * params.microbatches);
    AddHandcraftedRank(params.pp, rank, params.microbatches, &builder);
  }
  return std::move(builder).Finish();
}

// The peak of the busiest rank; a split B leaves `held` of its chunk until W.
double PeakOf(const Schedule& schedule, double held) {
  double peak = 0;
  for (const auto& order : schedule.orders) {
    double live = 0;
    for (const Pass pass : *order) {
      if (pass.kind() == kForward) live += 0.5;
      peak = std::max(peak, live);
      if (pass.kind() == kInput) live -= 0.5 * (1 - held);
      if (pass.kind() == kWeight) live -= 0.5 * held;
    }
  }
  return peak;
}

bool IsAutomatic(const ScheduleParams& params) {
  const auto variant = params.own.find("variant");
  if (variant != params.own.end()) return variant->second == kAutomatic;
  return params.costs.given || params.max_activations.has_value();
}

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  PW_RETURN_IF_ERROR(RequireOnly(kName, "strategy.vpp", params.vpp, 2));
  PW_RETURN_IF_ERROR(RequireOnly(kName, "strategy.slices", params.slices, 1));
  PW_RETURN_IF_ERROR(
      ChoiceParam(params, "variant", kHandcrafted, {kHandcrafted, kAutomatic})
          .status());
  if (!IsAutomatic(params)) return Handcrafted(params);
  // With fewer than pp microbatches a plan for pp may do with less.
  const double limit = params.max_activations.value_or(params.pp);
  ZbVPlanner planner(params, std::max<double>(limit, params.pp));
  // Rounded up to what the message prints.
  const double least = std::ceil(planner.peak() * 1e4 - 1e-6) / 1e4;
  if (!(planner.peak() <= limit * (1 + kLimitRounding))) {
    const absl::Status missed = absl::ResourceExhaustedError(absl::StrFormat(
        "%g cannot be met; the smallest limit that works with schedule %s is "
        "%.10g",
        limit, kName, least));
    return InField("strategy.max_activations",
                   WithValue(missed, absl::StrFormat("%g", limit),
                             absl::StrFormat("%.10g or more", least)));
  }
  ScheduleBuilder builder(kName, Placement::V(params.pp), params.microbatches);
  planner.Record(&builder);
  Schedule planned = std::move(builder).Finish();
  if (params.own.count("variant") > 0) return planned;
  // The planner is a heuristic; the pattern may suit the costs better.
  Schedule pattern = Handcrafted(params);
  const double held = params.costs.held_until_weight;
  if (PeakOf(pattern, held) > planner.peak() * (1 + kLimitRounding)) {
    return planned;
  }
  PW_ASSIGN_OR_RETURN(const ReplayTimes of_plan, Replay(planned, params.costs));
  PW_ASSIGN_OR_RETURN(const ReplayTimes of_pattern,
                      Replay(pattern, params.costs));
  const bool better =
      of_pattern.span_per_rank < of_plan.span_per_rank * (1 - kLimitRounding);
  return better ? pattern : planned;
}

bool IsEqual(const ScheduleParams& params) {
  return params.costs.equal_without_hop();
}

const RegisterSchedule kRow({
    .name = kName,
    .summary = "two chunks a rank in a V, no bubble at the memory of 1F1B",
    .source = "Zero Bubble Pipeline Parallelism, arXiv 2401.10241, section 6; "
              "tie-breaks of the authors' released planner",
    .torch_name = "ZBVZeroBubble",
    .torch_params = {{"variant", kHandcrafted}},
    .default_vpp = 2,
    .params = {{"variant", "by costs", "handcrafted|automatic",
                "automatic: planned for the costs within the limit (pp unless "
                "given). By default the better of both where costs or a limit "
                "are given, else handcrafted"}},
    .build = Build,
    .placement = WavePlacement,
    .claims =
        {
            {.metric = Claim::Metric::kBubblePerRank,
             .formula = "0",
             .source = "arXiv 2401.10241, section 6; F = B = W, c = 0, "
                       "m >= 2p-1",
             .domain =
                 [](const ScheduleParams& params) {
                   return IsEqual(params) &&
                          params.microbatches >= 2 * params.pp - 1;
                 },
             .value = [](const ScheduleParams&, int) { return 0.0; }},
            {.metric = Claim::Metric::kPeakActivations,
             .formula = "p M on every rank",
             .source = "arXiv 2401.10241, section 6; handcrafted, m >= 2p",
             .domain =
                 [](const ScheduleParams& params) {
                   return !IsAutomatic(params) &&
                          params.microbatches >= 2 * params.pp;
                 },
             .value = [](const ScheduleParams& params,
                         int) { return 1.0 * params.pp; }},
            {.metric = Claim::Metric::kPeakActivations,
             .sense = Claim::Sense::kUpperBound,
             .formula = "the limit",
             .source = "arXiv 2401.10241, section 6; automatic",
             .domain = IsAutomatic,
             .value =
                 [](const ScheduleParams& params, int) {
                   return params.max_activations.value_or(params.pp);
                 }},
        },
});

}  // namespace
}  // namespace pipewright::zb_v
