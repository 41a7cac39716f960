// The automatic zero-bubble schedule: ZB-1p, ZB-2p, and any other memory
// limit. More memory does not always give the planner a smaller bubble, so it
// tries lower limits too.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "schedules/zb_auto_plan.h"
#include "sim/base/status.h"
#include "sim/schedule/builder.h"
#include "sim/schedule/registry.h"

namespace pipewright {
namespace {

constexpr char kName[] = "zb-auto";
constexpr char kBelow[] = "below";
constexpr char kLimit[] = "limit";
// Lower limits are eighths of pp and, up to here, whole microbatches: few
// enough that a plan of any size stays a matter of seconds.
constexpr int kWholeUpTo = 16;

double LimitOf(const ScheduleParams& params) {
  return params.max_activations.value_or(2.0 * params.pp);
}

// Tried from the top, and only while a smaller bubble is possible. A limit
// above the peak of the plan at hand would allow a higher peak.
ZbPlan SearchBelow(const ZbPlan& plan, int pp, ZbAutoPlanner* planner) {
  ZbPlan best = plan;
  const auto top = static_cast<int64_t>(8 * std::min(plan.peak, plan.limit));
  for (int64_t eighths = top; eighths >= 8; --eighths) {
    const double limit = eighths / 8.0;
    if (best.bubble <= planner->LeastBubble(limit)) break;
    const bool whole = pp <= kWholeUpTo && eighths % 8 == 0;
    if (!whole && eighths % pp != 0) continue;
    if (limit < plan.limit) best = planner->Improve(limit, best);
  }
  return best;
}

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  PW_RETURN_IF_ERROR(RequireOnly(kName, "strategy.vpp", params.vpp, 1));
  PW_RETURN_IF_ERROR(RequireOnly(kName, "strategy.slices", params.slices, 1));
  PW_ASSIGN_OR_RETURN(const std::string search,
                      ChoiceParam(params, "search", kBelow, {kBelow, kLimit}));
  const double limit = LimitOf(params);
  if (!(limit >= 1)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "strategy.max_activations: ", limit,
        " cannot be met; the smallest limit that works with schedule ", kName,
        " is 1"));
  }
  ZbAutoPlanner planner(params);
  ZbPlan plan = planner.Improve(limit, ZbPlan());
  if (search == kBelow) plan = SearchBelow(plan, params.pp, &planner);
  ScheduleBuilder builder(kName, Placement::Plain(params.pp),
                          params.microbatches);
  planner.Record(plan, &builder);
  return std::move(builder).Finish();
}

const RegisterSchedule kRow({
    .name = kName,
    .summary = "planned split backward within a memory limit (ZB-1p, ZB-2p); "
               "limit 2*pp unless given",
    .source = "Zero Bubble Pipeline Parallelism, arXiv 2401.10241, section "
              "3.1; tie-breaks of the authors' released planner",
    .torch_name = "",
    .torch_params = {},
    .default_vpp = 1,
    .params = {{"search", kBelow, "below|limit",
                "below: also plan at lower limits (eighths of pp; up to 16 "
                "ranks whole numbers too) where a smaller bubble is possible; "
                "limit: at the given one only"}},
    .build = Build,
    .claims = {},
});

}  // namespace
}  // namespace pipewright
