// The grid of a deadlock message: the orders of all ranks around the position
// of each, its blocked entry marked ">F3<". Text for people.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sim/schedule/schedule.h"

namespace pipewright {

// One list a rank, whatever its entries are.
struct GridSource {
  int ranks = 0;
  std::function<int64_t(int rank)> size;
  std::function<std::string(int rank, int64_t index)> text;
  // Entry `index` and the next one are one block, shown as "(X&Y)".
  std::function<bool(int rank, int64_t index)> opens;
};

// `positions`: index of the blocked entry of each rank, its size where it has
// ended.
std::string MarkedGrid(const GridSource& source,
                       const std::vector<int64_t>& positions);

// The orders of a schedule.
std::string BlockedGrid(const Schedule& schedule,
                        const std::vector<int64_t>& positions);

}  // namespace pipewright
