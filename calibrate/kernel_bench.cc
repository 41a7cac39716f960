#include "calibrate/kernel_bench.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "calibrate/device.h"
#include "calibrate/grid.h"
#include "sim/base/check.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// Places and sizes of the tensors of single kernels in an arena.

// One device's sizes, in elements.
struct KernelSizes {
  int64_t tokens, hidden, qkv, queries, keys, vocabulary;
  int64_t rows, up, ffn;   // for the activation; rows of experts
  int64_t most_x, most_y;  // in a matrix product
  PwAttention attention;
};

// Where the kernels' tensors lie; offsets in bytes.
struct KernelPlaces {
  size_t gemm_x, gemm_y, gemm_out;
  size_t qkv, out, d_out, d_qkv, lse, attention_scratch;
  size_t x, y, dx, statistics, norm_scratch;
  size_t wide, active, d_active, d_wide;
  size_t logits, losses, logits_lse;
  size_t bytes = 0;
};

constexpr size_t kAlignment = 256;

// `layer`: PW_LAYER or PW_EXPERT_LAYER.
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

constexpr float kScale = 1;

std::string GemmName(PwGemmPass pass, int32_t groups) {
  return absl::StrCat(groups > 1 ? "grouped_gemm." : "gemm.",
                      pass == PW_GEMM_FORWARD          ? "forward"
                      : pass == PW_GEMM_BACKWARD_INPUT ? "backward_input"
                                                       : "backward_weight");
}

}  // namespace

KernelBench::KernelBench(MeasuredDevice* device,
                         std::shared_ptr<PartBench> layer,
                         std::shared_ptr<PartBench> head)
    : device_(device), layer_(std::move(layer)), head_(std::move(head)) {
  PW_CHECK(layer_->is_layer() && head_->part() == PW_HEAD);
  PW_CHECK(Bytes(device_, shape(), layer_->part()) <= layer_->arena().bytes());
}

size_t KernelBench::Bytes(MeasuredDevice* device, const Shape& shape,
                          PwPart layer) {
  return PlacesOf(device, shape, layer).bytes;
}

absl::Status KernelBench::Renew(uint64_t seed) {
  return device_->Randomize(shape().model.type, At(0),
                            Bytes(device_, shape(), layer_->part()), seed,
                            kScale);
}

char* KernelBench::At(size_t offset) const {
  return layer_->arena().data() + offset;
}

// `elements`: read and written, of the model's type.
KernelEntry KernelBench::Entry(absl::string_view name,
                               std::vector<int64_t> dimensions, double flops,
                               double elements) const {
  KernelEntry entry;
  entry.name = std::string(name);
  entry.shape = std::move(dimensions);
  entry.type = std::string(TypeName(shape().model.type));
  entry.flops = flops;
  entry.bytes = elements * static_cast<double>(BytesOf(shape().model.type));
  return entry;
}

std::vector<SingleKernel> KernelBench::Kernels() {
  std::vector<SingleKernel> kernels;
  AddGemms(*layer_, &kernels);
  AddGemms(*head_, &kernels);
  AddAttention(&kernels);
  AddNorm(&kernels);
  AddActivation(&kernels);
  AddCrossEntropy(&kernels);
  if (shape().model.fp8_linear != 0) AddQuantize(&kernels);
  return kernels;
}

void KernelBench::AddGemms(const PartBench& bench,
                           std::vector<SingleKernel>* kernels) {
  const KernelPlaces places = PlacesOf(device_, shape(), layer_->part());
  for (const PwPassKind pass : {PW_PASS_F, PW_PASS_B, PW_PASS_W}) {
    int32_t groups[8];
    pw_pass_groups(&shape().model, &shape().work, bench.part(), pass, groups);
    const std::vector<PwGemm> gemms = bench.Gemms(pass);
    for (size_t index = 0; index < gemms.size(); ++index) {
      const PwGemm& gemm = gemms[index];
      const int32_t experts = groups[index];
      const auto tokens = static_cast<double>(gemm.tokens);
      const auto inputs = static_cast<double>(gemm.inputs);
      const auto outputs = static_cast<double>(gemm.outputs);
      const double weights = experts * inputs * outputs;
      SingleKernel kernel;
      KernelEntry& entry = kernel.entry;
      entry = Entry(GemmName(gemm.pass, experts),
                    {gemm.tokens, gemm.inputs, gemm.outputs},
                    2 * tokens * inputs * outputs, 0);
      if (experts > 1) entry.shape.push_back(experts);
      entry.type = std::string(TypeName(gemm.type));
      const auto operand = static_cast<double>(BytesOf(gemm.type));
      const auto result = static_cast<double>(ResultBytes(gemm));
      switch (gemm.pass) {
        case PW_GEMM_FORWARD:
          entry.bytes =
              operand * (tokens * inputs + weights) + result * tokens * outputs;
          break;
        case PW_GEMM_BACKWARD_INPUT:
          entry.bytes =
              operand * (tokens * outputs + weights) + result * tokens * inputs;
          break;
        case PW_GEMM_BACKWARD_WEIGHT:
          // The gradient in fp32, read and written.
          entry.bytes = operand * tokens * (inputs + outputs) + 8 * weights;
          break;
      }
      kernel.names_implementation = true;
      kernel.run = [this, gemm, pass, index, places, &bench](int layer) {
        const bool fp8 = gemm.type == PW_FP8;
        const char* x = fp8 ? bench.arena().fp8() : At(places.gemm_x);
        const char* y = fp8 ? x + gemm.tokens * gemm.inputs : At(places.gemm_y);
        // There may be fewer heads than layers.
        return bench.RunGemm(pass, index, layer % bench.layers(), x, y,
                             At(places.gemm_out));
      };
      kernels->push_back(std::move(kernel));
    }
  }
}

void KernelBench::AddAttention(std::vector<SingleKernel>* kernels) {
  const KernelPlaces places = PlacesOf(device_, shape(), layer_->part());
  const KernelSizes sizes = SizesOf(shape(), layer_->part());
  const PwAttention& attention = sizes.attention;
  const std::vector<int64_t> dimensions = {attention.batch, attention.queries,
                                           attention.heads, attention.kv_heads,
                                           attention.head_dim};
  const std::string name =
      attention.causal != 0 ? "attention.causal" : "attention";
  const auto tokens = static_cast<double>(sizes.tokens);
  const auto queries = static_cast<double>(sizes.queries);
  const auto both = static_cast<double>(sizes.qkv);
  const auto flops = [this](PwPassKind pass) {
    double linear = 0;
    double core = 0;
    pw_pass_flops(&shape().model, &shape().work, layer_->part(), pass, &linear,
                  &core);
    return core;
  };
  const size_t element = BytesOf(shape().model.type);
  const size_t keys = static_cast<size_t>(sizes.queries) * element;
  const size_t values = keys + static_cast<size_t>(sizes.keys) * element;
  SingleKernel forward;
  forward.entry = Entry(absl::StrCat(name, ".forward"), dimensions,
                        flops(PW_PASS_F), tokens * (both + queries));
  forward.names_implementation = true;
  forward.run = [this, places, attention, keys, values](int) {
    return device_->Check(
        device_->kernels()->attention_forward(
            device_->handle(), nullptr, &attention, At(places.qkv),
            At(places.qkv + keys), At(places.qkv + values), At(places.out),
            reinterpret_cast<float*>(At(places.lse)),
            At(places.attention_scratch)),
        "run attention");
  };
  kernels->push_back(std::move(forward));
  SingleKernel backward;
  backward.entry = Entry(absl::StrCat(name, ".backward"), dimensions,
                         flops(PW_PASS_B), tokens * 2 * (both + queries));
  backward.names_implementation = true;
  backward.run = [this, places, attention, keys, values](int) {
    return device_->Check(
        device_->kernels()->attention_backward(
            device_->handle(), nullptr, &attention, At(places.qkv),
            At(places.qkv + keys), At(places.qkv + values), At(places.out),
            reinterpret_cast<const float*>(At(places.lse)), At(places.d_out),
            At(places.d_qkv), At(places.d_qkv + keys),
            At(places.d_qkv + values), At(places.attention_scratch)),
        "run attention's backward");
  };
  kernels->push_back(std::move(backward));
}

void KernelBench::AddNorm(std::vector<SingleKernel>* kernels) {
  const KernelPlaces places = PlacesOf(device_, shape(), layer_->part());
  const int64_t rows = SizesOf(shape(), layer_->part()).tokens;
  const PwModel& model = shape().model;
  const int64_t columns = model.hidden;
  const bool rms = model.style == PW_LLAMA;
  const PwNorm norm = rms ? PW_RMS_NORM : PW_LAYER_NORM;
  const std::string name = rms ? "rms_norm" : "layer_norm";
  const double elements =
      static_cast<double>(rows) * static_cast<double>(columns);
  // Any weights of a layer do as gain and offset.
  const auto offset = static_cast<size_t>(columns);
  const size_t element = BytesOf(model.type);
  SingleKernel forward;
  forward.entry =
      Entry(absl::StrCat(name, ".forward"), {rows, columns}, 0, 2 * elements);
  forward.run = [=, this](int layer) {
    const char* gamma =
        static_cast<const char*>(layer_->weights().weights(layer));
    return device_->Check(
        device_->kernels()->norm_forward(
            device_->handle(), nullptr, norm, shape().model.type, rows, columns,
            shape().model.epsilon, At(places.x), gamma,
            rms ? nullptr : gamma + offset * element, At(places.y),
            reinterpret_cast<float*>(At(places.statistics))),
        "run a norm");
  };
  kernels->push_back(std::move(forward));
  SingleKernel backward;
  backward.entry =
      Entry(absl::StrCat(name, ".backward"), {rows, columns}, 0, 3 * elements);
  backward.run = [=, this](int layer) {
    float* gradients = layer_->weights().gradients(layer);
    return device_->Check(
        device_->kernels()->norm_backward(
            device_->handle(), nullptr, norm, shape().model.type, rows, columns,
            At(places.y), At(places.x), layer_->weights().weights(layer),
            reinterpret_cast<const float*>(At(places.statistics)), nullptr,
            At(places.dx), gradients, rms ? nullptr : gradients + offset,
            At(places.norm_scratch)),
        "run a norm's backward");
  };
  kernels->push_back(std::move(backward));
}

void KernelBench::AddActivation(std::vector<SingleKernel>* kernels) {
  const KernelPlaces places = PlacesOf(device_, shape(), layer_->part());
  const KernelSizes sizes = SizesOf(shape(), layer_->part());
  const bool gelu = shape().model.style == PW_GPT;
  const PwActivation activation = gelu ? PW_GELU : PW_SWIGLU;
  const std::string name = gelu ? "gelu" : "swiglu";
  const int64_t rows = sizes.rows;
  const int64_t columns = sizes.ffn;
  const auto tokens = static_cast<double>(rows);
  const auto narrow = static_cast<double>(columns);
  const auto wide = static_cast<double>(sizes.up);
  SingleKernel forward;
  forward.entry = Entry(absl::StrCat(name, ".forward"), {rows, columns}, 0,
                        tokens * (wide + narrow));
  forward.run = [=, this](int) {
    return device_->Check(
        device_->kernels()->activation_forward(
            device_->handle(), nullptr, activation, shape().model.type, rows,
            columns, At(places.wide), At(places.active)),
        "run an activation");
  };
  kernels->push_back(std::move(forward));
  SingleKernel backward;
  backward.entry = Entry(absl::StrCat(name, ".backward"), {rows, columns}, 0,
                         tokens * (2 * wide + narrow));
  backward.run = [=, this](int) {
    return device_->Check(
        device_->kernels()->activation_backward(
            device_->handle(), nullptr, activation, shape().model.type, rows,
            columns, At(places.wide), At(places.d_active), At(places.d_wide)),
        "run an activation's backward");
  };
  kernels->push_back(std::move(backward));
}

void KernelBench::AddCrossEntropy(std::vector<SingleKernel>* kernels) {
  const KernelPlaces places = PlacesOf(device_, shape(), layer_->part());
  const KernelSizes sizes = SizesOf(shape(), layer_->part());
  const int64_t tokens = sizes.tokens;
  const int64_t vocabulary = sizes.vocabulary;
  const double elements =
      static_cast<double>(tokens) * static_cast<double>(vocabulary);
  SingleKernel forward;
  forward.entry =
      Entry("cross_entropy.forward", {tokens, vocabulary}, 0, elements);
  // The backward has left gradients in their place.
  forward.prepare = [=, this] {
    return device_->Randomize(
        shape().model.type, At(places.logits),
        static_cast<size_t>(tokens * vocabulary) * BytesOf(shape().model.type),
        13, kScale);
  };
  forward.run = [=, this](int) {
    return device_->Check(
        device_->kernels()->cross_entropy_forward(
            device_->handle(), nullptr, shape().model.type, tokens, vocabulary,
            At(places.logits), head_->ids(),
            reinterpret_cast<float*>(At(places.losses)),
            reinterpret_cast<float*>(At(places.logits_lse))),
        "run cross-entropy");
  };
  kernels->push_back(std::move(forward));
  SingleKernel backward;
  backward.entry =
      Entry("cross_entropy.backward", {tokens, vocabulary}, 0, 2 * elements);
  backward.run = [=, this](int) {
    return device_->Check(
        device_->kernels()->cross_entropy_backward(
            device_->handle(), nullptr, shape().model.type, tokens, vocabulary,
            At(places.logits), head_->ids(),
            reinterpret_cast<const float*>(At(places.logits_lse)),
            1 / static_cast<float>(tokens)),
        "run cross-entropy's backward");
  };
  kernels->push_back(std::move(backward));
}

void KernelBench::AddQuantize(std::vector<SingleKernel>* kernels) {
  const KernelPlaces places = PlacesOf(device_, shape(), layer_->part());
  const KernelSizes sizes = SizesOf(shape(), layer_->part());
  const auto elements = [](int64_t rows, int64_t columns) {
    return static_cast<double>(rows) * static_cast<double>(columns);
  };
  // The kernel writes two copies. It reads twice, first for the largest
  // magnitude; the second read may come from a cache and does not count.
  const double each = static_cast<double>(BytesOf(shape().model.type)) + 2;
  SingleKernel activation;
  activation.entry = Entry("quantize", {sizes.tokens, sizes.hidden}, 0, 0);
  activation.entry.bytes = each * elements(sizes.tokens, sizes.hidden);
  activation.run = [=, this](int) {
    return device_->Check(
        device_->kernels()->quantize(
            device_->handle(), nullptr, shape().model.type, sizes.tokens,
            sizes.hidden, At(places.x), 0, At(places.y), At(places.dx),
            reinterpret_cast<float*>(At(places.statistics))),
        "quantise a tensor");
  };
  kernels->push_back(std::move(activation));
  double weights = 0;
  for (const PwGemm& gemm : layer_->Gemms(PW_PASS_F)) {
    weights += elements(gemm.inputs, gemm.outputs);
  }
  SingleKernel step;
  step.entry = Entry("quantize.weights", {static_cast<int64_t>(weights)}, 0, 0);
  step.entry.bytes = each * weights;
  step.run = [this](int layer) {
    const BenchWeights& of = layer_->weights();
    return device_->Check(
        pw_quantize_weights(device_->kernels(), device_->handle(), nullptr,
                            &shape().model, PW_LAYER, of.weights(layer),
                            of.quantized(layer)),
        "quantise weights");
  };
  kernels->push_back(std::move(step));
}

}  // namespace pipewright
