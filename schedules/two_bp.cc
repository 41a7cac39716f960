// 2BP: the order of GPipe or 1F1B with every backward split, and all W at the
// very end. The paper delays its second backward pass over the microbatches;
// that none runs earlier is our reading of it.
#include <algorithm>
#include <utility>

#include "sim/base/status.h"
#include "sim/schedule/builder.h"
#include "sim/schedule/registry.h"

namespace pipewright::two_bp {
namespace {

constexpr char kName[] = "2bp";
constexpr char k1f1b[] = "1f1b";
constexpr char kGpipe[] = "gpipe";

// Forwards of a rank before its first backward, less the one that alternates.
int WarmUp(const ScheduleParams& params, const std::string& base, int rank) {
  return base == kGpipe ? params.microbatches - 1
                        : std::min(params.pp - 1 - rank, params.microbatches);
}

absl::StatusOr<std::string> Base(const ScheduleParams& params) {
  return ChoiceParam(params, "base", k1f1b, {k1f1b, kGpipe});
}

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  PW_RETURN_IF_ERROR(RequireOnly(kName, "strategy.vpp", params.vpp, 1));
  PW_RETURN_IF_ERROR(RequireOnly(kName, "strategy.slices", params.slices, 1));
  PW_ASSIGN_OR_RETURN(const std::string base, Base(params));
  ScheduleBuilder builder(kName, Placement::Plain(params.pp),
                          params.microbatches);
  for (int rank = 0; rank < params.pp; ++rank) {
    builder.Reserve(rank, int64_t{3} * params.microbatches);
    const int warm_up = WarmUp(params, base, rank);
    int backward = 0;
    for (int forward = 0; forward < params.microbatches; ++forward) {
      builder.Add(rank, PassKind::kForward, forward);
      if (forward >= warm_up) {
        builder.Add(rank, PassKind::kBackwardInput, backward++);
      }
    }
    while (backward < params.microbatches) {
      builder.Add(rank, PassKind::kBackwardInput, backward++);
    }
    for (int weight = 0; weight < params.microbatches; ++weight) {
      builder.Add(rank, PassKind::kBackwardWeight, weight);
    }
  }
  return std::move(builder).Finish();
}

bool WithoutHop(const ScheduleParams& params) { return params.costs.hop == 0; }

double Bubble(const ScheduleParams& params, int) {
  return (params.pp - 1) * (params.costs.forward + params.costs.backward_input);
}

// A microbatch counts whole from F to B, and from B to W as much as W needs.
double Peak(const ScheduleParams& params, int rank) {
  const double whole =
      std::min(WarmUp(params, *Base(params), rank) + 1, params.microbatches);
  return whole + (params.microbatches - whole) * params.costs.held_until_weight;
}

constexpr char kBubble[] = "(p-1)(F+B)";
constexpr char kSource[] =
    "derived from the order; arXiv 2405.18047 has it for F = B = W; no hops";

const RegisterSchedule kRow({
    .name = kName,
    .summary = "1F1B or GPipe, W of all microbatches at the end "
               "(reconstruction)",
    .source = "2BP: 2-Stage Backpropagation, arXiv 2405.18047; reconstruction, "
              "not the paper's own order",
    .torch_name = "",
    .torch_params = {},
    .default_vpp = 1,
    .params = {{"base", k1f1b, "1f1b|gpipe",
                "the order whose backwards are split"}},
    .build = Build,
    .claims = BubbleClaims(
        {.metric = Claim::Metric::kBubblePerRank,
         .formula = kBubble,
         .source = kSource,
         .domain = WithoutHop,
         .value = Bubble},
        {{.metric = Claim::Metric::kPeakActivations,
          .formula = "n + (m-n) M_W/M, n = min(p-d, m) on rank d (gpipe: m)",
          .source = "derived from the order",
          .domain = [](const ScheduleParams&) { return true; },
          .value = Peak}}),
});

}  // namespace
}  // namespace pipewright::two_bp
