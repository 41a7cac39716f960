// Groups of microbatches that run through all chunks of a rank before the next
// group does: the layout that interleaved schedules share. Source: Megatron-LM
// (arXiv 2104.04473, section 2.2.2) and PyTorch's Interleaved1F1B.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/schedule/builder.h"
#include "sim/schedule/params.h"

namespace pipewright {

// Walks the units (microbatch, chunk) of a rank: groups of `group`
// microbatches, in a group all chunks, in a chunk all its microbatches. A
// short last group is laid out the same way.
class UnitCursor {
 public:
  UnitCursor(int microbatches, int vpp, int group)
      : microbatches_(microbatches),
        vpp_(vpp),
        group_(group),
        end_(std::min(group, microbatches)) {}

  int microbatch() const { return microbatch_; }
  int chunk() const { return chunk_; }
  int vpp() const { return vpp_; }
  int64_t count() const { return int64_t{vpp_} * microbatches_; }

  void Advance() {
    if (++microbatch_ < end_) return;
    if (++chunk_ < vpp_) {
      microbatch_ = begin_;
      return;
    }
    chunk_ = 0;
    begin_ = end_;
    end_ += std::min(group_, microbatches_ - end_);
  }

 private:
  int microbatches_, vpp_, group_;
  int begin_ = 0, end_;
  int microbatch_ = 0, chunk_ = 0;
};

// Appends `warm_up` forwards, then a forward and a full backward in turn, then
// the remaining backwards. `units` stands at the first unit; backwards walk
// the same units with the chunks in reverse.
void AddInterleavedRank(int rank, int64_t warm_up, UnitCursor units,
                        ScheduleBuilder& builder);

// PyTorch's size: rounds = max(1, m div p) of m/rounds microbatches. Error:
// kInvalidArgument with the nearest working microbatches where rounds does
// not divide m.
absl::StatusOr<int> TorchGroupSize(absl::string_view schedule,
                                   const ScheduleParams& params);

// Megatron-LM's condition: m >= group, and m mod group is 0 or at least p, so
// that the last group feeds every rank. Error: as above.
absl::Status CheckGroupSize(absl::string_view schedule,
                            const ScheduleParams& params, int group);

}  // namespace pipewright
