// Do the kernels of a pass repeat, layer by layer?
#pragma once

#include <cstdint>
#include <vector>

namespace pipewright {

// How often the longest run of repetitions in `names` repeats its block, where
// it is nearly all of them and the block has different kernels; 0: they do not
// repeat, or are too many to search.
int64_t RepeatsOf(const std::vector<int32_t>& names);

}  // namespace pipewright
