// Interleaved 1F1B (virtual pipeline): 1F1B over several chunks a rank, in
// groups of microbatches that run through all chunks before the next group.
#include <algorithm>
#include <utility>

#include "sim/base/status.h"
#include "sim/schedule/builder.h"
#include "sim/schedule/microbatch_groups.h"
#include "sim/schedule/registry.h"

namespace pipewright::interleaved_1f1b {
namespace {

constexpr char kName[] = "interleaved-1f1b";
constexpr char kMegatron[] = "megatron";
constexpr char kMegatron2308[] = "megatron-23.08";
constexpr char kTorch[] = "torch";

// Group size and rule, checked.
struct Layout {
  std::string rule;
  int group;
};

absl::StatusOr<Layout> MakeLayout(const ScheduleParams& params) {
  const int microbatches = params.microbatches;
  Layout layout;
  PW_ASSIGN_OR_RETURN(layout.rule,
                      ChoiceParam(params, "rule", kMegatron,
                                  {kMegatron, kMegatron2308, kTorch}));
  if (layout.rule == kTorch) {
    PW_ASSIGN_OR_RETURN(layout.group, TorchGroupSize(kName, params));
    PW_ASSIGN_OR_RETURN(
        layout.group, IntParam(params, "group-size", layout.group, layout.group,
                               layout.group));
    return layout;
  }
  // One chunk is plain 1F1B, one microbatch has one order: neither has groups.
  const bool grouped = params.vpp > 1 && microbatches > 1;
  const bool own_size = layout.rule == kMegatron && microbatches > params.pp;
  PW_ASSIGN_OR_RETURN(layout.group,
                      IntParam(params, "group-size", params.pp, params.pp,
                               own_size ? microbatches : params.pp));
  if (grouped) {
    PW_RETURN_IF_ERROR(CheckGroupSize(kName, params, layout.group));
  }
  return layout;
}

int64_t WarmUp(const ScheduleParams& params, const Layout& layout, int rank) {
  const int64_t units = int64_t{params.vpp} * params.microbatches;
  if (layout.rule != kTorch && params.vpp == 1) {
    return std::min<int64_t>(params.pp - 1 - rank, units);
  }
  if (layout.rule == kMegatron2308 && params.microbatches == params.pp) {
    return units;
  }
  return std::min<int64_t>(
      2 * (params.pp - 1 - rank) + int64_t{params.vpp - 1} * layout.group,
      units);
}

// PyTorch's empty time steps (torch/distributed/pipelining/schedules.py,
// _get_1f1b_rank_ops, pytorch/pytorch 1fd7abc2f521): so many that all ranks run
// forwards in one step and backwards in the next.
void AddGaps(const ScheduleParams& params, int64_t warm_up, int rank,
             ScheduleBuilder& builder) {
  const int64_t units = int64_t{params.vpp} * params.microbatches;
  const int64_t behind = params.pp - 1 - rank;
  int64_t at_turn = 0;
  if (warm_up > 0) {
    at_turn = std::max<int64_t>(
        int64_t{params.vpp} * params.pp + 2 * behind - (warm_up + rank), 0);
  }
  const int64_t cool_down = 2 * units - warm_up;
  builder.AddGap(rank, 0, rank);
  builder.AddGap(rank, warm_up, at_turn + (warm_up == units ? 1 : 0));
  for (int64_t action = cool_down; action < 2 * units; ++action) {
    if (action != warm_up) builder.AddGap(rank, action, 1);
  }
}

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  PW_RETURN_IF_ERROR(RequireOnly(kName, "strategy.slices", params.slices, 1));
  PW_ASSIGN_OR_RETURN(const Layout layout, MakeLayout(params));
  const int64_t units = int64_t{params.vpp} * params.microbatches;
  ScheduleBuilder builder(kName, Placement::Loop(params.pp, params.vpp),
                          params.microbatches);
  // One chunk with Megatron's warm-up is plain 1F1B.
  const bool gaps = layout.rule == kTorch || params.vpp > 1;
  for (int rank = 0; rank < params.pp; ++rank) {
    const int64_t warm_up = WarmUp(params, layout, rank);
    builder.Reserve(rank, 2 * units);
    AddInterleavedRank(
        rank, warm_up,
        UnitCursor(params.microbatches, params.vpp, layout.group), builder);
    if (gaps) AddGaps(params, warm_up, rank, builder);
  }
  return std::move(builder).Finish();
}

// Groups of p microbatches over several chunks: what was published.
bool IsClassic(const ScheduleParams& params) {
  const auto layout = MakeLayout(params);
  return layout.ok() && layout->rule == kMegatron &&
         layout->group == params.pp && params.vpp >= 2 && params.pp >= 2 &&
         params.microbatches % params.pp == 0;
}

// In steady state a hop hides behind the other pass of the rank.
bool HidesHop(const ScheduleParams& params) {
  const PlanCosts& costs = params.costs;
  return IsClassic(params) &&
         costs.hop * params.vpp <=
             std::min(costs.forward,
                      costs.backward_input + costs.backward_weight);
}

double Bubble(const ScheduleParams& params, int) {
  return (params.pp - 1) * params.costs.work() / params.vpp +
         2.0 * (params.pp * params.vpp - 1) * params.costs.hop;
}

double Peak(const ScheduleParams& params, int rank) {
  const double chunks = (params.vpp + 1.0) * params.pp - 1 - 2.0 * rank;
  return std::min(chunks / params.vpp, 1.0 * params.microbatches);
}

constexpr char kBubble[] = "(p-1)(F+B+W)/v + 2(pv-1)c";
constexpr char kBubbleSource[] =
    "arXiv 2104.04473, section 2.2.2; arXiv 2503.01328, table 1 (hops); "
    "c <= min(F, B+W)/v";

const RegisterSchedule kRow({
    .name = kName,
    .summary = "1F1B over several chunks a rank",
    .source = "arXiv 2104.04473, section 2.2.2; order of Megatron-LM",
    .torch_name = "Interleaved1F1B",
    .torch_params = {{"rule", kTorch}},
    .default_vpp = 2,
    .params =
        {
            {"group-size", "pp", "pp..microbatches",
             "microbatches that run through all chunks together"},
            {"rule", kMegatron, "megatron|megatron-23.08|torch",
             "whose warm-up; megatron-23.08 runs all forwards first where "
             "microbatches = pp"},
        },
    .build = Build,
    .claims = BubbleClaims(
        {.metric = Claim::Metric::kBubblePerRank,
         .formula = kBubble,
         .source = kBubbleSource,
         .domain = HidesHop,
         .value = Bubble},
        {{.metric = Claim::Metric::kPeakActivations,
          .formula = "min((pv+p-1-2d)/v, m) on rank d",
          .source = "arXiv 2205.05198, section 4.2.3 for rank 0; the "
                    "others derived from the warm-up",
          .domain = IsClassic,
          .value = Peak}}),
});

}  // namespace
}  // namespace pipewright::interleaved_1f1b
