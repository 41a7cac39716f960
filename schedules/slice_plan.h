// How a sequence is cut into slices, and what a slice costs relative to the
// others: with causal attention a later token attends to more, so that slices
// of equal length get dearer. Says nothing about orders.
//
// Work is that of a forward, or of a full backward, of one microbatch through
// any stage; 1 is the whole sequence. A split B or W does not follow it
// (attention has no W): slices go with full backwards.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/schedule/params.h"

namespace pipewright {

// Part of the work of the whole sequence that tokens [begin, end) make up.
double SliceWork(const SequenceShape& sequence, int64_t begin, int64_t end);

// SliceWork of each of `lengths` times their number: factors around 1.
std::vector<double> SliceFactors(const SequenceShape& sequence,
                                 const std::vector<int64_t>& lengths);

// Whole tokens, as equal as they get, longer ones first. 1 <= slices <=
// tokens.
std::vector<int64_t> EqualSlices(int64_t tokens, int slices);

// Lengths of equal work, found from the last slice to the first, each rounded
// down to a whole token, at least one; the first slice takes what is left.
// Source: Seq1F1B (arXiv 2406.03488) and its implementation.
std::vector<int64_t> BalancedSlices(const SequenceShape& sequence, int slices);

// Time of one slice of `length` units of the sequence behind `context` units.
using SliceTime = std::function<double(int length, int context)>;

// The lengths whose pipeline ends first: m * sum of times + (p-1) * longest
// time. Dynamic programming over the end of a slice, once for every bound on
// the longest time. `slices` of them, or as many as are best where it is 0.
// Of equal results the fewest slices, for the smallest bound.
// Source: TeraPipe, arXiv 2102.07988, section 3.3.
std::vector<int> PlanSlices(int units, int slices, int ranks, int microbatches,
                            const SliceTime& time);

// Factors of params.slices slices by own parameter "balance": "uniform" (none,
// the default), "tokens" (EqualSlices) or "flops" (BalancedSlices) of the
// sequence that own parameters "tokens" and "attention" or else `params` tell.
// Error: kInvalidArgument where one is wrong or the sequence is not known.
absl::StatusOr<std::vector<double>> BalanceFactors(
    const ScheduleParams& params);

}  // namespace pipewright
