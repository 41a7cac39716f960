#include "calibrate/kernel_places.h"

#include <algorithm>
#include <cmath>

#include "sim/base/check.h"

namespace pipewright {
namespace {

constexpr size_t kAlignment = 256;

}  // namespace

KernelSizes SizesOf(const Shape& shape, PwPart layer) {
  const PwModel& model = shape.model;
  KernelSizes sizes = {};
  PwGemm gemms[8];
  const auto take = [&](PwPart part) {
    const int32_t count =
        pw_pass_gemms(&model, &shape.work, part, PW_PASS_F, gemms);
    for (int32_t index = 0; index < count; ++index) {
      const PwGemm& gemm = gemms[index];
      sizes.most_x = std::max(sizes.most_x, gemm.tokens * gemm.inputs);
      sizes.most_y = std::max(sizes.most_y, gemm.tokens * gemm.outputs);
    }
    return count;
  };
  PW_CHECK(take(PW_HEAD) == 1);
  sizes.vocabulary = gemms[0].outputs;
  PW_CHECK(take(layer) >= 4);
  sizes.tokens = gemms[0].tokens;
  sizes.hidden = gemms[0].inputs;
  sizes.qkv = gemms[0].outputs;
  sizes.queries = gemms[1].inputs;
  sizes.keys = (sizes.qkv - sizes.queries) / 2;
  // These come after attention's and, with experts, after the router's.
  const PwGemm* block = gemms + (layer == PW_EXPERT_LAYER ? 3 : 2);
  sizes.rows = block[0].tokens;
  sizes.up = block[0].outputs;
  sizes.ffn = block[1].inputs;
  sizes.attention = {
      .type = model.type,
      .causal = model.causal,
      .batch = shape.work.batch,
      .queries = shape.work.sequence,
      .keys = shape.work.sequence,
      .heads = sizes.queries / model.head_dim,
      .kv_heads = sizes.keys / model.head_dim,
      .head_dim = model.head_dim,
      .q_stride = sizes.qkv,
      .k_stride = sizes.qkv,
      .o_stride = sizes.queries,
      .scale = 1 / std::sqrt(static_cast<float>(model.head_dim))};
  return sizes;
}

KernelPlaces PlacesOf(MeasuredDevice* device, const Shape& shape,
                      PwPart layer) {
  const KernelSizes sizes = SizesOf(shape, layer);
  const auto element = BytesOf(shape.model.type);
  KernelPlaces places = {};
  const auto take = [&places](int64_t count, size_t size) {
    const size_t start = places.bytes;
    places.bytes += (static_cast<size_t>(count) * size + kAlignment - 1) /
                    kAlignment * kAlignment;
    return start;
  };
  const int64_t tokens = sizes.tokens;
  places.gemm_x = take(sizes.most_x, element);
  places.gemm_y = take(sizes.most_y, element);
  places.gemm_out = take(std::max(sizes.most_x, sizes.most_y), element);
  const PwKernels* kernels = device->kernels();
  places.qkv = take(tokens * sizes.qkv, element);
  places.out = take(tokens * sizes.queries, element);
  places.d_out = take(tokens * sizes.queries, element);
  places.d_qkv = take(tokens * sizes.qkv, element);
  places.lse = take(tokens * sizes.attention.heads, sizeof(float));
  const size_t scratch = std::max(
      kernels->attention_workspace(device->handle(), &sizes.attention, 0),
      kernels->attention_workspace(device->handle(), &sizes.attention, 1));
  places.attention_scratch = take(static_cast<int64_t>(scratch), 1);
  places.x = take(tokens * sizes.hidden, element);
  places.y = take(tokens * sizes.hidden, element);
  places.dx = take(tokens * sizes.hidden, element);
  places.statistics = take(2 * tokens, sizeof(float));
  places.norm_scratch = take(static_cast<int64_t>(kernels->norm_workspace(
                                 device->handle(), tokens, sizes.hidden)),
                             1);
  places.wide = take(sizes.rows * sizes.up, element);
  places.active = take(sizes.rows * sizes.ffn, element);
  places.d_active = take(sizes.rows * sizes.ffn, element);
  places.d_wide = take(sizes.rows * sizes.up, element);
  places.logits = take(tokens * sizes.vocabulary, element);
  places.losses = take(tokens, sizeof(float));
  places.logits_lse = take(tokens, sizeof(float));
  return places;
}

}  // namespace pipewright
