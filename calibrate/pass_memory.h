// The memory that the passes of a grid need, and how many layers take turns in
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "absl/status/statusor.h"
#include "calibrate/device.h"
#include "calibrate/grid.h"

namespace pipewright {

// Shapes with the same key can share weights. The key of experts depends on ep.
using WeightsKey = std::tuple<PwPart, int64_t, int64_t>;
WeightsKey WeightsKeyOf(PwPart part, const Shape& shape);

struct BenchMemory {
  // Copies of weights that take turns, so that none stays in a cache.
  std::map<WeightsKey, int> copies;
  int64_t layer_parameters = 0;  // in one, at most
  int64_t bytes = 0;
  size_t arena_bytes = 0;
  size_t fp8_bytes = 0;  // part of the arena, beside them
};

// Up to four copies, but no more than make weights eight times the device's
// cache, and fewer where the memory does not hold them. What is free counts
// once the device's libraries have loaded. Error: kResourceExhausted when one
// layer does not fit into 90 % of it, with the largest shape's name.
// `side_bytes` are those of the other subjects, which stay allocated meanwhile;
// the optimizer's are added here.
absl::StatusOr<BenchMemory> EstimatePassMemory(MeasuredDevice* device,
                                               const Grid& grid,
                                               int64_t side_bytes);

// "b2 s4096 tp1".
std::string ShapeText(const Shape& shape);

}  // namespace pipewright
