#include "calibrate/pass_memory.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "calibrate/kernel_bench.h"
#include "calibrate/part_bench.h"
#include "sim/base/memory_claim.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr int kMostCopies = 4;
// With one layer alone B would find what F has just written in the cache.
constexpr int kLeastLayers = 2;
// So little of the weights is in the cache when they are read again.
constexpr int64_t kCaches = 8;
// A parameter's gradient, master weight and moments, fp32; and the weight.
int64_t AdamBytes(PwType type) {
  return 16 + (type == PW_FP32 ? 0 : static_cast<int64_t>(BytesOf(type)));
}

absl::StatusOr<PwPartSize> SizeOf(MeasuredDevice* device, const Shape& shape,
                                  PwPart part) {
  PwPartSize size = {};
  PW_RETURN_IF_ERROR(
      device->Check(pw_part_size(device->kernels(), device->handle(),
                                 &shape.model, &shape.work, part, &size),
                    "size of a part"));
  return size;
}

// Copies that a cache of `cache_bytes` asks for; 0: not known.
int WantedCopies(const PwPartSize& size, const Shape& shape, PwPart part,
                 int64_t cache_bytes) {
  const int64_t bytes =
      size.parameters * static_cast<int64_t>(BytesOf(shape.model.type));
  if (cache_bytes <= 0 || bytes <= 0) return kMostCopies;
  const int64_t copies = (kCaches * cache_bytes + bytes - 1) / bytes;
  return static_cast<int>(std::clamp<int64_t>(
      copies, IsLayer(part) ? kLeastLayers : 1, kMostCopies));
}

// At most so many layers and so many embeddings and heads.
absl::StatusOr<BenchMemory> MemoryWith(MeasuredDevice* device, const Grid& grid,
                                       int layers, int ends) {
  BenchMemory memory;
  std::map<WeightsKey, int64_t> weights;
  size_t passes = 0;
  size_t gemms = 0;
  size_t kernels = 0;
  for (const Shape& shape : grid.AllShapes()) {
    for (const PwPart part : grid.parts) {
      PW_ASSIGN_OR_RETURN(const PwPartSize size, SizeOf(device, shape, part));
      const int count =
          std::min(IsLayer(part) ? layers : ends,
                   WantedCopies(size, shape, part, device->info().cache_bytes));
      const WeightsKey key = WeightsKeyOf(part, shape);
      memory.copies[key] = count;
      passes = std::max(passes, PartBench::PassBytes(size, shape, count));
      gemms = std::max(gemms, PartBench::GemmBytes(shape, part));
      memory.fp8_bytes =
          std::max(memory.fp8_bytes, PartBench::Fp8Bytes(shape, part));
      if (IsLayer(part)) {
        kernels = std::max(kernels, KernelBench::Bytes(device, shape, part));
        memory.layer_parameters =
            std::max(memory.layer_parameters, size.parameters);
      }
      weights[key] = WeightBytes(size, shape.model.type, count);
    }
  }
  memory.arena_bytes = std::max(passes + gemms, kernels);
  memory.bytes = static_cast<int64_t>(memory.arena_bytes + memory.fp8_bytes);
  for (const auto& [key, bytes] : weights) memory.bytes += bytes;
  return memory;
}

// Libraries load their kernels and take workspaces at their first product and
// their first attention: after that what is free is free.
absl::StatusOr<int64_t> FreeBytes(MeasuredDevice* device, const Grid& grid) {
  if (device->is_cpu()) return device->info().free_bytes;
  constexpr int64_t kSide = 128;
  const PwModel& model = grid.shapes.front().model;
  const PwKernels* kernels = device->kernels();
  const PwAttention attention = {
      .type = grid.type,
      .causal = model.causal,
      .batch = 1,
      .queries = kSide,
      .keys = kSide,
      .heads = 1,
      .kv_heads = 1,
      .head_dim = model.head_dim,
      .q_stride = model.head_dim,
      .k_stride = model.head_dim,
      .o_stride = model.head_dim,
      .scale = 1,
  };
  {
    const size_t bytes =
        static_cast<size_t>(kSide * std::max<int64_t>(kSide, model.head_dim)) *
        sizeof(float);
    PW_ASSIGN_OR_RETURN(Buffer operand, device->Allocate(bytes));
    PW_ASSIGN_OR_RETURN(Buffer result, device->Allocate(bytes));
    PW_ASSIGN_OR_RETURN(Buffer sums, device->Allocate(bytes));
    PW_ASSIGN_OR_RETURN(Buffer workspace,
                        device->Allocate(kernels->attention_workspace(
                            device->handle(), &attention, 0)));
    PW_RETURN_IF_ERROR(
        device->Randomize(grid.type, operand.data(), bytes, 1, 1));
    const PwGemm gemm = {PW_GEMM_FORWARD, grid.type, kSide, kSide, kSide};
    PW_RETURN_IF_ERROR(device->Check(
        kernels->gemm(device->handle(), nullptr, &gemm, operand.data(),
                      operand.data(), nullptr, result.data()),
        "run a matrix product"));
    PW_RETURN_IF_ERROR(device->Check(
        kernels->attention_forward(device->handle(), nullptr, &attention,
                                   operand.data(), operand.data(),
                                   operand.data(), result.data(),
                                   sums.as<float>(), workspace.data()),
        "run attention"));
    PW_RETURN_IF_ERROR(device->Wait(nullptr));
  }
  PwDeviceInfo info = {};
  PW_RETURN_IF_ERROR(device->Check(kernels->info(device->handle(), &info),
                                   "ask the device for its properties"));
  return info.free_bytes;
}

}  // namespace

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
  PW_ASSIGN_OR_RETURN(const int64_t free_bytes, FreeBytes(device, grid));
  absl::Status fits;
  for (int layers = kMostCopies; layers >= 1; --layers) {
    for (int ends = layers; ends >= 1; --ends) {
      PW_ASSIGN_OR_RETURN(BenchMemory memory,
                          MemoryWith(device, grid, layers, ends));
      memory.bytes +=
          side_bytes + AdamBytes(grid.type) * memory.layer_parameters;
      fits = CheckMemory(
          absl::StrCat("one layer, embedding and head of this grid (largest "
                       "shape ",
                       ShapeText(grid.shapes.back()), ")"),
          static_cast<double>(memory.bytes), static_cast<double>(free_bytes),
          device->info().name,
          absl::StrCat("smaller --microbatch-sizes or --sequences, larger --tp",
                       grid.shapes.back().model.experts > 0 ? " or --ep" : ""));
      if (fits.ok()) return memory;
    }
  }
  return fits;
}

}  // namespace pipewright
