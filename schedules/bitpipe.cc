// BitPipe: two opposite directions, each a V of two chunks a rank, in units of
// p microbatches. A pair of ranks holds its stages twice; their gradients are
// reduced where the released code does it.
#include <algorithm>
#include <string>
#include <utility>

#include "sim/base/status.h"
#include "sim/schedule/bidirectional_units.h"
#include "sim/schedule/builder.h"
#include "sim/schedule/registry.h"

namespace pipewright::bitpipe {
namespace {

constexpr char kName[] = "bitpipe";
constexpr char kReleased[] = "released";
constexpr char kFigure[] = "figure";

void AddRank(const ScheduleParams& params, int rank, bool figure, bool eager,
             ScheduleBuilder& builder) {
  const int half = params.pp / 2;
  const int own = rank < half ? 0 : 1;
  const int ahead = rank < half ? half - rank : rank - half + 1;
  const int units = params.microbatches / params.pp;
  RankOrder forwards, backwards;
  for (int unit = 0; unit < units; ++unit) {
    AddVUnit(PassKind::kForward, own, ahead, half, unit, &forwards);
    AddVUnit(PassKind::kBackwardFull, own, ahead, half, unit, &backwards);
  }
  auto forward = forwards.begin();
  auto backward = backwards.begin();
  const auto add_forwards = [&](int count) {
    while (count-- > 0) builder.Add(rank, *forward++);
  };
  const auto add_backwards = [&](int count) {
    while (count-- > 0) builder.Add(rank, *backward++);
  };
  const auto add_pairs = [&](int count) {
    while (count-- > 0) {
      add_forwards(1);
      add_backwards(1);
    }
  };
  // The ranks of a pair hold a stage in exchanged directions, so both begin
  // with the same stage.
  const auto add_sync = [&](int chunk) {
    for (const int direction : {own, 1 - own}) {
      builder.Add(rank, PassKind::kSync, 0, chunk, 0, direction);
    }
  };
  const int warm_up = 2 * params.pp - ahead;
  // A middle rank ends a unit with backwards alone and has nothing to move.
  const int early = figure && ahead > 1 ? 1 : 0;
  add_forwards(warm_up);
  for (int unit = 0; unit + 1 < units; ++unit) {
    add_pairs(ahead);
    add_backwards(warm_up - ahead + 1);
    add_forwards(early);
    add_pairs(ahead - 1);
    add_forwards(warm_up - ahead + 1 - early);
  }
  add_pairs(ahead);
  const int behind_sync = eager && ahead > 1 ? 1 : 0;
  add_backwards(2 * params.pp - ahead - behind_sync);
  add_sync(1);
  add_backwards(behind_sync);
  add_sync(0);
}

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  PW_RETURN_IF_ERROR(CheckBidirectionalUnits(kName, params, 2));
  PW_ASSIGN_OR_RETURN(
      const std::string concatenation,
      ChoiceParam(params, "concatenation", kReleased, {kReleased, kFigure}));
  PW_ASSIGN_OR_RETURN(const std::string sync,
                      ChoiceParam(params, "sync", "eager", {"eager", "end"}));
  ScheduleBuilder builder(kName, Placement::V(params.pp), params.microbatches,
                          1, 2);
  for (int rank = 0; rank < params.pp; ++rank) {
    builder.Reserve(rank, int64_t{4} * params.microbatches + 4);
    AddRank(params, rank, concatenation == kFigure, sync == "eager", builder);
  }
  return std::move(builder).Finish();
}

bool WithoutHop(const ScheduleParams& params) { return params.costs.hop == 0; }

double Bubble(const ScheduleParams& params, int) {
  const auto given = params.own.find("concatenation");
  const bool figure =
      params.pp > 2 && given != params.own.end() && given->second == kFigure;
  const double forward = params.costs.forward;
  const double excess = params.costs.work() - 2 * forward;
  const double gain = figure ? std::clamp(excess, 0.0, forward) : 0;
  const double joints = params.microbatches / params.pp - 1;
  return (UnitsBubble(params) - joints * gain) / 2;
}

constexpr char kBubble[] =
    "(p-2)/2 [max(F,B+W) + (m/p-1)|B+W-F|]; concatenation figure, p > 2: "
    "(m/p-1) min(F, max(0,B+W-F))/2 less";
constexpr char kSource[] =
    "arXiv 2410.19367 for m = p, B+W = 2F; else fitted to replays; no hops";

const RegisterSchedule kRow({
    .name = kName,
    .summary = "two directions, each a V of two chunks; weights twice",
    .source = "BitPipe, arXiv 2410.19367; order of the authors' code, "
              "wuhouming/BitPipe 6fb0e22f. concatenation=figure is theirs for "
              "pp 4; for more ranks it is a reconstruction",
    .torch_name = "",
    .torch_params = {},
    .default_vpp = 2,
    .params =
        {
            {"concatenation", kReleased, "released|figure",
             "how units of pp microbatches follow each other; figure: one "
             "more forward before the last backwards (pp > 4: reconstructed)"},
            {"sync", "eager", "eager|end",
             "the second chunks' gradients are reduced before the last "
             "backward, or behind it"},
        },
    .build = Build,
    .placement = WavePlacement,
    .claims = BubbleClaims(
        {.metric = Claim::Metric::kBubblePerRank,
         .formula = kBubble,
         .source = kSource,
         .domain = WithoutHop,
         .value = Bubble},
        {{.metric = Claim::Metric::kPeakActivations,
          .formula = "(3p/2 + 1 + min(d, p-1-d))/2 on rank d",
          .source = "counted in the authors' orders",
          .domain = [](const ScheduleParams&) { return true; },
          .value = [](const ScheduleParams& params, int rank) -> double {
            return (1.5 * params.pp + 1 +
                    std::min(rank, params.pp - 1 - rank)) /
                   2;
          }}}),
});

}  // namespace
}  // namespace pipewright::bitpipe
