// The memory that the passes of a grid need, and how many layers take turns in
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>

#include "absl/status/statusor.h"
#include "calibrate/device.h"
#include "calibrate/grid.h"

namespace pipewright {

struct BenchMemory {
  int layers = 4;                // that take turns; fewer where four do not fit
  int ends = 4;                  // the same for embeddings and heads
  int64_t layer_parameters = 0;  // of one, at most
  int64_t bytes = 0;
  size_t arena_bytes = 0;
  size_t fp8_bytes = 0;  // of the arena, beside them
};

// Error: kResourceExhausted when one layer does not fit into 90 % of what is
// free, with the largest shape's name. `side_bytes` are those of the other
// subjects, which stay allocated meanwhile; the optimizer's are added here.
absl::StatusOr<BenchMemory> EstimatePassMemory(MeasuredDevice* device,
                                               const Grid& grid,
                                               int64_t side_bytes);

// Layers, or embeddings and heads.
int CopiesOf(PwPart part, const BenchMemory& memory);

// Shapes with the same key can share weights. The key of experts depends on ep.
using WeightsKey = std::tuple<PwPart, int64_t, int64_t>;
WeightsKey WeightsKeyOf(PwPart part, const Shape& shape);

// "b2 s4096 tp1".
std::string ShapeText(const Shape& shape);

}  // namespace pipewright
