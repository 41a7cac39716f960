// Plans for a V placement with real durations at a memory limit: microbatches
// are launched in a pattern of slots in which no two passes meet, and W fill
// what the durations leave idle. No plan without costs: that is v_greedy.h.
//
// Why not a block that repeats every microbatch (v_blocks.h, v_greedy.h): on
// their way F.0 and F.1, and B.1 and B.0, of different microbatches pass each
// other on every n-th rank and take turns there. That is a dependency cycle,
// and the period of a block with these slots is at least n max(F, B) +
// 2(n - 1) hops for a whole n, while it holds about 2pp/n chunks: V-Min has
// n = 3, V-Half n = 2. Launches that mix two gaps have an n between, so the
// period falls as far as the limit lets it: V-Min's down to the work of a rank
// at 5 ranks, less far with more ranks, and hardly where pp mod 3 is 1 (a table
// is in v_min.cc; what remains there is the memory's, see
// experiments/v_min_optimum).
//
// Source: our own; the slots of one microbatch are those of V-Min in Pipeline
// Parallelism with Controllable Memory, arXiv 2405.15362, section 4.
#pragma once

#include <cstdint>
#include <optional>

#include "schedules/v_plan.h"
#include "sim/schedule/params.h"

namespace pipewright {

// Both hold on every rank.
struct VLimit {
  int chunks;          // activations from F to the end of W
  double activations;  // in units of peak_activations, at held_until_weight
};

// The fastest of some dozen patterns, the first of equals; nothing when none
// keeps the limit. Beyond `max_passes` passes over all patterns fewer choices
// of W are tried. A pass takes about 10 ns.
std::optional<VPlan> PlanVLaunches(int pp, int microbatches,
                                   const VLimit& limit, const PlanCosts& costs,
                                   int64_t max_passes);

// No schedule with at most `chunks` on a rank has a shorter span a microbatch,
// in the unit of the costs: it has the work of a rank, and all the time that a
// rank holds chunks shares `chunks` places. A microbatch holds both of its
// chunks of a rank at least while what lies between their F and their W runs,
// together 2pp + 1 F and B of a chunk, 2 W and 4(pp - 1) hops on every rank.
double LeastVPeriod(int pp, int chunks, const PlanCosts& costs);

}  // namespace pipewright
