// What a slice of a sequence costs relative to the others: with causal
// attention a later token attends to more, so that slices of equal length get
// dearer. schedules/slice_plan.h says how a sequence is best cut.
//
// Work is that of a forward, or of a full backward, of one microbatch through
// any stage; 1 is the whole sequence. A split B or W does not follow it
// (attention has no W): slices go with full backwards.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/schedule/params.h"

namespace pipewright {

// The work of the first `part` (0..1) of a sequence; `attention` as of
// SequenceShape.
constexpr double PrefixWork(double attention, double part) {
  return part * (1 - attention + attention * part);
}

// Part of the work of the whole sequence that tokens [begin, end) make up.
double SliceWork(const SequenceShape& sequence, int64_t begin, int64_t end);

// Time of each slice over that of slices which cost the same: work times the
// number of slices, around 1. Of `lengths` tokens each, which add up to the
// sequence's.
std::vector<double> SliceFactors(const SequenceShape& sequence,
                                 const std::vector<int64_t>& lengths);
// The same of slice number `slice` of `slices` of equal length.
double EqualSliceFactor(double attention, int slice, int slices);

}  // namespace pipewright
