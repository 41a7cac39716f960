// Breadth-first pipeline: all microbatches through chunk 0, then chunk 1, ...;
// the backward in exactly the reverse order, as PyTorch's LoopedBFS runs it.
#include <utility>

#include "sim/base/status.h"
#include "sim/schedule/builder.h"
#include "sim/schedule/registry.h"

namespace pipewright::looped_bfs {
namespace {

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  PW_RETURN_IF_ERROR(
      RequireOnly("looped-bfs", "strategy.slices", params.slices, 1));
  ScheduleBuilder builder("looped-bfs", Placement::Loop(params.pp, params.vpp),
                          params.microbatches);
  for (int rank = 0; rank < params.pp; ++rank) {
    builder.Reserve(rank, int64_t{2} * params.vpp * params.microbatches);
    for (int chunk = 0; chunk < params.vpp; ++chunk) {
      for (int microbatch = 0; microbatch < params.microbatches; ++microbatch) {
        builder.Add(rank, PassKind::kForward, microbatch, chunk);
      }
    }
    for (int chunk = params.vpp - 1; chunk >= 0; --chunk) {
      for (int microbatch = params.microbatches - 1; microbatch >= 0;
           --microbatch) {
        builder.Add(rank, PassKind::kBackwardFull, microbatch, chunk);
      }
    }
  }
  // Breadth first, a chunk's parameters are gathered and its gradients
  // scattered once a batch (arXiv 2211.05953).
  Schedule schedule = std::move(builder).Finish();
  schedule.unit = params.microbatches;
  return schedule;
}

// With fewer microbatches than ranks, every wrap-around waits.
bool FullWithoutHop(const ScheduleParams& params) {
  return params.costs.hop == 0 && params.microbatches >= params.pp;
}

double Bubble(const ScheduleParams& params, int) {
  return (params.pp - 1) * params.costs.work() / params.vpp;
}

constexpr char kSource[] = "arXiv 2211.05953, section 4; m >= p, no hops";

const RegisterSchedule kRow({
    .name = "looped-bfs",
    .summary = "breadth first: all microbatches a chunk, chunk after chunk",
    .source = "Breadth-First Pipeline Parallelism, arXiv 2211.05953; order of "
              "PyTorch's ScheduleLoopedBFS",
    .torch_name = "LoopedBFS",
    .torch_params = {},
    .default_vpp = 2,
    .params = {},
    .build = Build,
    .claims = BubbleClaims(
        {.metric = Claim::Metric::kBubblePerRank,
         .formula = "(p-1)(F+B+W)/v",
         .source = kSource,
         .domain = FullWithoutHop,
         .value = Bubble},
        {{.metric = Claim::Metric::kPeakActivations,
          .formula = "m",
          .source = "arXiv 2211.05953, section 4",
          .domain = [](const ScheduleParams&) { return true; },
          .value = [](const ScheduleParams& params, int) -> double {
            return params.microbatches;
          }}}),
});

}  // namespace
}  // namespace pipewright::looped_bfs
