// Interleaving in groups of microbatches with an even spacing between the
// chunks, backward split, W right after its B: the order that GIS, GIS-H and
// the PipeOffload schedules share. They differ in the size of a group. Source:
// PipeOffload, arXiv 2503.01328, section 3, and its implementation.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/schedule/params.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/schedule.h"

namespace pipewright {

// Where each pass stands on a grid of slots, one slot a pass of one chunk.
class GroupGrid {
 public:
  // `group`: 1..pp microbatches.
  GroupGrid(const ScheduleParams& params, int group);

  // Slots after which a rank repeats itself with the next group.
  int64_t period() const { return 3 * group_ * vpp_; }
  int64_t Forward(int chunk, int member, int rank) const;
  // W stands one slot later.
  int64_t Backward(int chunk, int member, int rank) const;

  // Chunk activations alive at once on `rank`, no more than this (until W):
  // for each chunk, as many repetitions as its lifespan meets.
  int64_t MostAlive(int rank) const;

 private:
  int64_t Offset(int chunk) const;

  int64_t pp_, vpp_, group_;
  int64_t spacing_;  // between the chunks, in groups
  int64_t wrap_;     // chunks after which one group's room is left free
};

// Error: kInvalidArgument where there are slices.
absl::StatusOr<Schedule> BuildGroupInterleaved(absl::string_view name,
                                               const ScheduleParams& params,
                                               int group);

// The peak of groups of one microbatch, by the lifespans of the chunks.
Claim UniformPeak();

}  // namespace pipewright
