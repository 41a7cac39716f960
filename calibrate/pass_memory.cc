#include "calibrate/pass_memory.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "calibrate/kernel_bench.h"
#include "calibrate/part_bench.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr int kLayers = 4;
// A parameter's gradient, master weight and moments, fp32; and the weight.
int64_t AdamBytes(PwType type) {
  return 16 + (type == PW_FP32 ? 0 : static_cast<int64_t>(BytesOf(type)));
}
// Of free memory: the libraries' own workspaces need the rest.
constexpr double kUsable = 0.9;

absl::StatusOr<PwPartSize> SizeOf(MeasuredDevice* device, const Shape& shape,
                                  PwPart part) {
  PwPartSize size = {};
  PW_RETURN_IF_ERROR(
      device->Check(pw_part_size(device->kernels(), device->handle(),
                                 &shape.model, &shape.work, part, &size),
                    "size of a part"));
  return size;
}

absl::StatusOr<BenchMemory> MemoryWith(MeasuredDevice* device, const Grid& grid,
                                       int layers, int ends) {
  BenchMemory memory;
  memory.layers = layers;
  memory.ends = ends;
  std::map<WeightsKey, int64_t> weights;
  size_t passes = 0;
  size_t gemms = 0;
  size_t kernels = 0;
  for (const Shape& shape : grid.AllShapes()) {
    for (const PwPart part : grid.parts) {
      PW_ASSIGN_OR_RETURN(const PwPartSize size, SizeOf(device, shape, part));
      const int count = CopiesOf(part, memory);
      passes = std::max(passes, PartBench::PassBytes(size, shape, count));
      gemms = std::max(gemms, PartBench::GemmBytes(shape, part));
      memory.fp8_bytes =
          std::max(memory.fp8_bytes, PartBench::Fp8Bytes(shape, part));
      if (IsLayer(part)) {
        kernels = std::max(kernels, KernelBench::Bytes(device, shape, part));
        memory.layer_parameters =
            std::max(memory.layer_parameters, size.parameters);
      }
      weights[WeightsKeyOf(part, shape)] =
          WeightBytes(size, shape.model.type, count);
    }
  }
  memory.arena_bytes = std::max(passes + gemms, kernels);
  memory.bytes = static_cast<int64_t>(memory.arena_bytes + memory.fp8_bytes);
  for (const auto& [key, bytes] : weights) memory.bytes += bytes;
  return memory;
}

}  // namespace

int CopiesOf(PwPart part, const BenchMemory& memory) {
  return IsLayer(part) ? memory.layers : memory.ends;
}

WeightsKey WeightsKeyOf(PwPart part, const Shape& shape) {
  return {part, shape.tp(), part == PW_EXPERT_LAYER ? shape.ep() : 0};
}

std::string ShapeText(const Shape& shape) {
  return absl::StrCat(
      "b", shape.work.batch, " s", shape.work.sequence, " tp", shape.tp(),
      shape.slices() > 1 ? absl::StrCat(" 1/", shape.slices(), " slice") : "");
}

absl::StatusOr<BenchMemory> EstimatePassMemory(MeasuredDevice* device,
                                               const Grid& grid,
                                               int64_t side_bytes) {
  const double room = kUsable * static_cast<double>(device->info().free_bytes);
  int64_t least = 0;
  for (int layers = kLayers; layers >= 1; --layers) {
    for (int ends = layers; ends >= 1; --ends) {
      PW_ASSIGN_OR_RETURN(BenchMemory memory,
                          MemoryWith(device, grid, layers, ends));
      memory.bytes +=
          side_bytes + AdamBytes(grid.type) * memory.layer_parameters;
      if (static_cast<double>(memory.bytes) <= room) return memory;
      least = memory.bytes;
    }
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "one layer, embedding and head of this grid (largest shape ",
      ShapeText(grid.shapes.back()), ") need ",
      FormatBytes(static_cast<double>(least)), "; usable on ",
      device->info().name, ": ", FormatBytes(room),
      "; allowed: smaller --microbatch-sizes or --sequences, larger --tp",
      grid.shapes.back().model.experts > 0 ? " or --ep" : ""));
}

}  // namespace pipewright
