// How many layers each region of a trace goes through: what the trace tells
// and what the user says, which must agree.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "calibrate/kineto_layout.h"
#include "calibrate/kineto_parts.h"

namespace pipewright {

struct LayersSaid {
  int64_t of_region = 0;  // --layers; 0: nothing
  int64_t of_model = 0;   // 0: not checked
};

// Sets `layers` of every region that is a pass. Where modules or marks tell
// nothing, a user's number is checked against repeated kernels. Errors,
// kInvalidArgument: the trace tells another number than the user, or forward
// and backward tell different ones; nobody tells.
absl::Status SetLayers(const KinetoRank& rank, const LayersSaid& said,
                       std::vector<RegionParts>* regions,
                       std::vector<std::string>* warnings);

// The layers of all traces against the model's. Error: kInvalidArgument with
// both numbers.
absl::Status CheckModelLayers(
    const std::vector<KinetoRank>& ranks, const KinetoLayout& layout,
    const std::vector<std::vector<RegionParts>>& regions, int64_t of_model);

// How often the longest run of repetitions in `names` repeats its block, where
// it is nearly all of them and the block has different kernels; 0: they do not
// repeat, or are too many to search.
int64_t RepeatsOf(const std::vector<int32_t>& names);

}  // namespace pipewright
