#include "calibrate/kernel_places.h"

#include <algorithm>
#include <cmath>

#include "sim/base/check.h"

namespace pipewright {
namespace {

constexpr size_t kAlignment = 256;

}  // namespace

KernelSizes SizesOf(const Shape& shape) {
  const PwModel& model = shape.model;
  KernelSizes sizes = {};
  PwGemm gemms[8];
  PW_CHECK(pw_pass_gemms(&model, &shape.work, PW_LAYER, PW_PASS_F, gemms) == 4);
  sizes.tokens = gemms[0].tokens;
  sizes.hidden = gemms[0].inputs;
  sizes.qkv = gemms[0].outputs;
  sizes.queries = gemms[1].inputs;
  sizes.keys = (sizes.qkv - sizes.queries) / 2;
  sizes.up = gemms[2].outputs;
  sizes.ffn = gemms[3].inputs;
  PW_CHECK(pw_pass_gemms(&model, &shape.work, PW_HEAD, PW_PASS_F, gemms) == 1);
  sizes.vocabulary = gemms[0].outputs;
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

KernelPlaces PlacesOf(MeasuredDevice* device, const Shape& shape) {
  const KernelSizes sizes = SizesOf(shape);
  const auto element = BytesOf(shape.model.type);
  KernelPlaces places = {};
  const auto take = [&places](int64_t count, size_t size) {
    const size_t start = places.bytes;
    places.bytes += (static_cast<size_t>(count) * size + kAlignment - 1) /
                    kAlignment * kAlignment;
    return start;
  };
  const int64_t tokens = sizes.tokens;
  const int64_t widest = std::max(
      {sizes.hidden, sizes.qkv, sizes.up, sizes.ffn, sizes.vocabulary});
  places.gemm_x = take(tokens * std::max(sizes.hidden, sizes.ffn), element);
  places.gemm_y = take(tokens * widest, element);
  places.gemm_out = take(tokens * widest, element);
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
  places.wide = take(tokens * sizes.up, element);
  places.active = take(tokens * sizes.ffn, element);
  places.d_active = take(tokens * sizes.ffn, element);
  places.d_wide = take(tokens * sizes.up, element);
  places.logits = take(tokens * sizes.vocabulary, element);
  places.losses = take(tokens, sizeof(float));
  places.logits_lse = take(tokens, sizeof(float));
  return places;
}

}  // namespace pipewright
