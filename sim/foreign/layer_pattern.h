// Which layers of a model are of one kind, as Megatron writes it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"

namespace pipewright {

// "3" (every third layer from the first on), "1,0,1", or a sum of lists with
// factors as Python has it: "([0]*3+[1]*58)", "[1,0]*4". Nothing for another
// text, and for more than 2^20 layers.
std::optional<std::vector<int64_t>> ReadLayerPattern(absl::string_view text,
                                                     int64_t layers);

}  // namespace pipewright
