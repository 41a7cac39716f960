// Places and sizes of the tensors of single kernels in an arena. For
// kernel_bench.cc.
#pragma once

#include <cstddef>
#include <cstdint>

#include "calibrate/device.h"
#include "calibrate/grid.h"

namespace pipewright {

// One device's sizes, in elements.
struct KernelSizes {
  int64_t tokens, hidden, qkv, queries, keys, vocabulary;
  int64_t rows, up, ffn;   // for the activation; rows of experts
  int64_t most_x, most_y;  // in a matrix product
  PwAttention attention;
};
// `layer`: PW_LAYER or PW_EXPERT_LAYER.
KernelSizes SizesOf(const Shape& shape, PwPart layer);

// Where the kernels' tensors lie; offsets in bytes.
struct KernelPlaces {
  size_t gemm_x, gemm_y, gemm_out;
  size_t qkv, out, d_out, d_qkv, lse, attention_scratch;
  size_t x, y, dx, statistics, norm_scratch;
  size_t wide, active, d_active, d_wide;
  size_t logits, losses, logits_lse;
  size_t bytes = 0;
};
KernelPlaces PlacesOf(MeasuredDevice* device, const Shape& shape, PwPart layer);

}  // namespace pipewright
