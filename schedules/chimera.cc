// Chimera: the pipeline in two opposite directions, in units of p
// microbatches. A clock of slots decides the order; forward and backward take
// one slot each, and no two meet on a rank.
#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "sim/base/status.h"
#include "sim/schedule/bidirectional_units.h"
#include "sim/schedule/builder.h"
#include "sim/schedule/registry.h"

namespace pipewright::chimera {
namespace {

constexpr char kName[] = "chimera";

void AddRank(const ScheduleParams& params, int rank, ScheduleBuilder& builder) {
  const int pp = params.pp;
  const int half = pp / 2;
  const int count = params.microbatches / 2;
  // The forwards and the backwards of either direction, in their own order.
  struct Line {
    PassKind kind;
    int direction;
    int first_slot;
    int microbatch = 0;
  };
  std::array<Line, 4> lines;
  for (const int direction : {0, 1}) {
    const int stage = direction == 0 ? rank : pp - 1 - rank;
    lines[2 * direction] = {PassKind::kForward, direction, stage};
    lines[2 * direction + 1] = {PassKind::kBackwardFull, direction,
                                2 * pp - 1 - stage};
  }
  const auto slot = [&](const Line& line) {
    return line.first_slot + int64_t{2} * pp * (line.microbatch / half) +
           2 * (line.microbatch % half);
  };
  for (int pass = 0; pass < 4 * count; ++pass) {
    Line* next = nullptr;
    for (Line& line : lines) {
      if (line.microbatch == count) continue;
      if (next == nullptr || slot(line) < slot(*next)) next = &line;
    }
    builder.Add(rank, next->kind, next->microbatch++, 0, 0, next->direction);
  }
}

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  PW_RETURN_IF_ERROR(CheckBidirectionalUnits(kName, params, 1));
  ScheduleBuilder builder(kName, Placement::Plain(params.pp),
                          params.microbatches, 1, 2);
  for (int rank = 0; rank < params.pp; ++rank) {
    builder.Reserve(rank, int64_t{2} * params.microbatches);
    AddRank(params, rank, builder);
  }
  return std::move(builder).Finish();
}

bool WithoutHop(const ScheduleParams& params) { return params.costs.hop == 0; }

double Bubble(const ScheduleParams& params, int) { return UnitsBubble(params); }

constexpr char kBubble[] = "(p-2) [max(F,B+W) + (m/p-1)|B+W-F|]";
constexpr char kSource[] =
    "arXiv 2107.06925 for B+W = F and for m = p; the rest fitted to replays; "
    "no hops";

const RegisterSchedule kRow({
    .name = kName,
    .summary = "two directions; weights twice",
    .source = "Chimera, arXiv 2107.06925, two pipelines concatenated in units "
              "of pp; closed form of the authors' order, without the "
              "microbatches that their generator loses",
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
          .formula = "p/2 + 1 + min(d, p-1-d) on rank d",
          .source = "arXiv 2107.06925: p/2+1 on the outer ranks, p in the "
                    "middle; the others counted in the order",
          .domain = [](const ScheduleParams&) { return true; },
          .value = [](const ScheduleParams& params, int rank) -> double {
            return params.pp / 2 + 1 + std::min(rank, params.pp - 1 - rank);
          }}}),
});

}  // namespace
}  // namespace pipewright::chimera
