// SlimPipe: 1F1B over uniform slices, several chunks a rank: a microbatch goes
// slice by slice through the first chunk, then through the next, and one
// microbatch's activations are all that a rank holds. SlimPipe moves attention
// work between the ranks so that its slices cost the same, as they do here.
//
// A reconstruction: the paper's text was not available. That a microbatch runs
// through all chunks before the next one, and the warm-up, are from memory.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/base/status.h"
#include "sim/schedule/builder.h"
#include "sim/schedule/registry.h"

namespace pipewright::slimpipe {
namespace {

constexpr char kName[] = "slimpipe";

// One slice is no SlimPipe: as many as ranks unless a number is given, which
// is what holds the memory at one microbatch.
int Slices(const ScheduleParams& params) {
  return params.slices == 1 ? params.pp : params.slices;
}

int64_t PassesOfMicrobatch(const ScheduleParams& params) {
  return int64_t{params.vpp} * Slices(params);
}

int64_t WarmUp(const ScheduleParams& params, int rank) {
  return std::min(PassesOfMicrobatch(params) - 1 + 2 * (params.pp - 1 - rank),
                  PassesOfMicrobatch(params) * params.microbatches);
}

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  // Else a slice is wanted for its next chunk before it is back.
  const int slices = Slices(params);
  if (params.vpp > 1 && slices % params.pp != 0) {
    const int below = slices / params.pp * params.pp;
    return BadValue(
        "strategy.slices", absl::StrCat(slices),
        absl::StrCat(below > 0 ? absl::StrCat(below, " or ") : "",
                     below + params.pp, ", the nearest (schedule ", kName,
                     " with several chunks: a multiple of pp)"));
  }
  ScheduleBuilder builder(kName,
                          params.vpp == 1
                              ? Placement::Plain(params.pp)
                              : Placement::Loop(params.pp, params.vpp),
                          params.microbatches, slices);
  const int64_t each = PassesOfMicrobatch(params);
  const int64_t units = each * params.microbatches;
  // Backwards are the mirror image of forwards inside a microbatch.
  const auto add = [&](int rank, PassKind kind, int64_t unit) {
    const int64_t inside = unit % each;
    const int64_t place =
        kind == PassKind::kForward ? inside : each - 1 - inside;
    builder.Add(rank, kind, static_cast<int>(unit / each),
                static_cast<int>(place / slices),
                static_cast<int>(place % slices));
  };
  for (int rank = 0; rank < params.pp; ++rank) {
    builder.Reserve(rank, 2 * units);
    const int64_t warm_up = WarmUp(params, rank);
    for (int64_t step = 0; step < units + warm_up; ++step) {
      if (step < units) add(rank, PassKind::kForward, step);
      if (step >= warm_up) add(rank, PassKind::kBackwardFull, step - warm_up);
    }
  }
  return std::move(builder).Finish();
}

// All alike; says how many there are.
absl::StatusOr<std::vector<double>> Factors(const ScheduleParams& params) {
  return std::vector<double>(Slices(params), 1.0);
}

bool WithoutHop(const ScheduleParams& params) {
  const std::vector<double>& factors = params.costs.slice_factor;
  return params.costs.hop == 0 &&
         std::all_of(factors.begin(), factors.end(),
                     [](double factor) { return factor == 1; });
}

double Bubble(const ScheduleParams& params, int) {
  return (params.pp - 1) * params.costs.work() /
         static_cast<double>(PassesOfMicrobatch(params));
}

double Peak(const ScheduleParams& params, int rank) {
  const int64_t most =
      std::min(WarmUp(params, rank) + 1,
               PassesOfMicrobatch(params) * params.microbatches);
  return static_cast<double>(most) /
         static_cast<double>(PassesOfMicrobatch(params));
}

constexpr char kBubble[] = "(p-1)(F+B+W)/(nv)";
constexpr char kSource[] = "derived from the order, n slices; no hops";

const RegisterSchedule kRow({
    .name = kName,
    .summary = "1F1B over slices that cost the same (pp of them unless given), "
               "below three microbatches of activations (reconstruction)",
    .source = "SlimPipe, arXiv 2504.14519, abstract; reconstruction, not the "
              "paper's own order",
    .torch_name = "",
    .torch_params = {},
    .default_vpp = 1,
    .params = {},
    .build = Build,
    .claims = BubbleClaims(
        {.metric = Claim::Metric::kBubblePerRank,
         .formula = kBubble,
         .source = kSource,
         .domain = WithoutHop,
         .value = Bubble},
        {{.metric = Claim::Metric::kPeakActivations,
          .formula = "min(1 + 2(p-1-d)/(nv), m) on rank d",
          .source = "arXiv 2504.14519, from memory; equals the order",
          .domain = [](const ScheduleParams&) { return true; },
          .value = Peak}}),
    .slice_factor = Factors,
});

}  // namespace
}  // namespace pipewright::slimpipe
