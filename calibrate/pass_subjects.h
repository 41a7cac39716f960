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
#include "calibrate/pass_memory.h"

namespace pipewright {

struct PassSet {
  std::vector<Subject> subjects;  // one a shape and part
  // A layer (of experts where the model has them) in the largest shape of the
  // smallest tp and ep; other subjects run it.
  std::shared_ptr<PartBench> example;
  std::shared_ptr<PartBench> small;  // the same of the smallest microbatch
  // For single kernels, in the grid's order. A shape has one or two layers and
  // one head; shapes that differ in ep alone share a head.
  std::vector<std::shared_ptr<PartBench>> layers;
  std::vector<std::shared_ptr<PartBench>> heads;
};

// The device outlives them. While *brief is true, null: never, a visit goes
// over two layers and, with products alone, over one.
absl::StatusOr<PassSet> PassSubjects(
    MeasuredDevice* device, const Grid& grid, const BenchMemory& memory,
    std::shared_ptr<const bool> brief = nullptr);

}  // namespace pipewright
