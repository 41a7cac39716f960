// Subjects that time the passes of a model's parts: F, B, W, BW and R of
// layers, embedding and head, each by itself and back to back, and the matrix
// products in them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "calibrate/device.h"
#include "calibrate/grid.h"
#include "calibrate/measure.h"
#include "calibrate/part_bench.h"

namespace pipewright {

// What the passes of a grid need of a device's memory.
struct BenchMemory {
  int layers = 4;                // that take turns; fewer where four do not fit
  int ends = 4;                  // the same of embeddings and heads
  int64_t layer_parameters = 0;  // of one, at most
  int64_t bytes = 0;
  size_t arena_bytes = 0;
  size_t fp8_bytes = 0;  // of the arena, beside them
};

// Error: kResourceExhausted when one layer does not fit into 90 % of what is
// free, with the largest shape's name. `side_bytes`: of the other subjects,
// which stay allocated meanwhile; the optimizer's is added here.
absl::StatusOr<BenchMemory> EstimatePassMemory(MeasuredDevice* device,
                                               const Grid& grid,
                                               int64_t side_bytes);

struct PassSet {
  std::vector<Subject> subjects;  // one a shape and part
  // Of a layer, of experts where the model has such, in the largest shape of
  // the smallest tp and ep; for others to run.
  std::shared_ptr<PartBench> example;
  // In the grid's order; for single kernels. One or two layers of a shape, one
  // head of each but those that differ in ep alone.
  std::vector<std::shared_ptr<PartBench>> layers;
  std::vector<std::shared_ptr<PartBench>> heads;
};

// The device outlives them.
absl::StatusOr<PassSet> PassSubjects(MeasuredDevice* device, const Grid& grid,
                                     const BenchMemory& memory);

// "b2 s4096 tp1".
std::string ShapeText(const Shape& shape);

}  // namespace pipewright
