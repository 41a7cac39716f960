// How the members of a collective of a Program pass their bytes on.
#pragma once

#include <cstdint>

namespace pipewright {

enum class CollectiveAlgorithm : uint8_t {
  kRing,
  // All-reduce: two binary trees over the nodes, chains inside of them.
  kTree,
  // Rings inside the nodes, then rings over them with a part of the buffer
  // each, then inside again.
  kHierarchical,
  kFastest,  // best of these for each size, alone on the network
};

}  // namespace pipewright
