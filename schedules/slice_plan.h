// How a sequence is cut into slices. sim/schedule/params.h says what a
// slice costs. No orders here.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/schedule/params.h"

namespace pipewright {

// Whole tokens, as equal as they get, longer ones first. 1 <= slices <=
// tokens.
std::vector<int64_t> EqualSlices(int64_t tokens, int slices);

// Lengths of equal work, found from the last slice to the first, each rounded
// down to a whole token, at least one; the first slice takes what is left.
// Source: Seq1F1B (arXiv 2406.03488) and its implementation.
std::vector<int64_t> BalancedSlices(const SequenceShape& sequence, int slices);

// Time of one slice of `length` units of the sequence that follows `context`
// units.
using SliceTime = std::function<double(int length, int context)>;

// The lengths whose pipeline ends first: m * sum of times + (p-1) * longest
// time. Dynamic programming over the end of a slice, once for every bound on
// the longest time. There are `slices` of them, or the best number where it is
// 0. Of equal results it takes the one with the fewest slices, then the
// smallest bound. Source: TeraPipe, arXiv 2102.07988, section 3.3.
std::vector<int> PlanSlices(int units, int slices, int ranks, int microbatches,
                            const SliceTime& time);

// Factors of params.slices slices by own parameter "balance": "uniform" (none,
// the default), "tokens" (EqualSlices) or "flops" (BalancedSlices) of the
// sequence that own parameters "tokens" and "attention" or else `params` tell.
// Error: kInvalidArgument where one is wrong or the sequence is not known.
absl::StatusOr<std::vector<double>> BalanceFactors(
    const ScheduleParams& params);

}  // namespace pipewright
