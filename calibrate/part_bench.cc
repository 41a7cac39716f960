#include "calibrate/part_bench.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/check.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr size_t kPartAlignment = 256;
// The arena's start moves by up to so much from round to round.
constexpr size_t kShifts = 16;
// Activations around 1, as behind a norm.
constexpr float kPartScale = 1;
// In e4m3, and with bytes that are numbers in e5m2 too.
constexpr float kFp8Scale = 256;

size_t Aligned(size_t bytes) {
  return (bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
}

// Where a bench's blocks lie in the arena; offsets.
struct Layout {
  size_t input = 0;
  size_t output = 0;
  size_t output_gradient = 0;
  size_t input_gradient = 0;
  size_t losses = 0;
  size_t workspace = 0;
  size_t layers = 0;  // saved, inputs, grads, cache of each
  size_t layer_bytes = 0;
  size_t bytes = 0;
};

Layout LayoutOf(const PwPartSize& size, const Shape& shape, int layers) {
  Layout layout;
  size_t at = 0;
  const auto take = [&at](size_t bytes) {
    const size_t start = at;
    at += Aligned(bytes);
    return start;
  };
  layout.input = take(size.boundary);
  layout.output = take(size.boundary);
  layout.output_gradient = take(size.boundary);
  layout.input_gradient = take(size.boundary);
  layout.losses = take(static_cast<size_t>(shape.tokens()) * sizeof(float));
  layout.workspace = take(size.workspace);
  layout.layers = at;
  layout.layer_bytes = Aligned(size.saved) + Aligned(size.inputs) +
                       Aligned(size.grads) + Aligned(size.cache);
  layout.bytes = at + static_cast<size_t>(layers) * layout.layer_bytes;
  return layout;
}

// Bytes of the input and the output of a linear layer, or of their gradients,
// as operands, and room for either of them as a result.
struct Matrices {
  size_t x, y, out;
};
Matrices BytesOfGemm(const PwGemm& gemm) {
  const auto element = BytesOf(gemm.type);
  const auto tokens = static_cast<size_t>(gemm.tokens);
  const size_t x = tokens * static_cast<size_t>(gemm.inputs);
  const size_t y = tokens * static_cast<size_t>(gemm.outputs);
  return {x * element, y * element, std::max(x, y) * ResultBytes(gemm)};
}

// The most over the products of all passes.
template <class Bytes>
size_t MostOf(const Shape& shape, PwPart part, Bytes bytes) {
  size_t most = 0;
  for (const PwPassKind pass : {PW_PASS_F, PW_PASS_B, PW_PASS_W}) {
    PwGemm gemms[8];
    const int32_t count =
        pw_pass_gemms(&shape.model, &shape.work, part, pass, gemms);
    for (int32_t index = 0; index < count; ++index) {
      most = std::max(most, bytes(gemms[index], BytesOfGemm(gemms[index])));
    }
  }
  return most;
}

}  // namespace

size_t ResultBytes(const PwGemm& gemm) {
  if (gemm.type != PW_FP8) return BytesOf(gemm.type);
  return BytesOf(gemm.fp32_output != 0 ? PW_FP32 : PW_BF16);
}

size_t PartBench::GemmBytes(const Shape& shape, PwPart part) {
  return MostOf(shape, part, [](const PwGemm& gemm, const Matrices& bytes) {
    const bool apart = gemm.type == PW_FP8;
    return Aligned(bytes.out) +
           (apart ? 0 : Aligned(bytes.x) + Aligned(bytes.y));
  });
}

size_t PartBench::Fp8Bytes(const Shape& shape, PwPart part) {
  return MostOf(shape, part, [](const PwGemm& gemm, const Matrices& bytes) {
    return gemm.type == PW_FP8 ? Aligned(bytes.x) + Aligned(bytes.y) : 0;
  });
}

int64_t WeightBytes(const PwPartSize& size, PwType type, int layers) {
  const auto element = static_cast<int64_t>(BytesOf(type));
  return layers * (size.parameters * (element + 4) +
                   static_cast<int64_t>(size.quantized));
}

absl::StatusOr<std::shared_ptr<BenchWeights>> BenchWeights::Create(
    MeasuredDevice* device, const Shape& shape, PwPart part, int layers) {
  const PwKernels* kernels = device->kernels();
  PwPartSize size = {};
  PW_RETURN_IF_ERROR(
      device->Check(pw_part_size(kernels, device->handle(), &shape.model,
                                 &shape.work, part, &size),
                    "size of a part"));
  auto out = std::make_shared<BenchWeights>();
  out->parameters_ = size.parameters;
  const auto count = static_cast<size_t>(size.parameters);
  for (int layer = 0; layer < layers; ++layer) {
    PW_ASSIGN_OR_RETURN(Buffer weights,
                        device->Allocate(count * BytesOf(shape.model.type)));
    PW_ASSIGN_OR_RETURN(Buffer gradients,
                        device->Allocate(count * sizeof(float)));
    // With fp32 the master weights are the weights; else they are drawn where
    // the gradients will be.
    const bool master = shape.model.type == PW_FP32;
    PW_RETURN_IF_ERROR(device->Check(
        pw_initialize(kernels, device->handle(), nullptr, &shape.model, part,
                      static_cast<uint64_t>(layer) + 1,
                      master ? weights.as<float>() : gradients.as<float>(),
                      master ? nullptr : weights.data()),
        "initialize weights"));
    PW_RETURN_IF_ERROR(device->Randomize(PW_FP32, gradients.data(),
                                         gradients.bytes(), 77, kPartScale));
    if (size.quantized > 0) {
      PW_ASSIGN_OR_RETURN(Buffer quantized, device->Allocate(size.quantized));
      PW_RETURN_IF_ERROR(device->Check(
          pw_quantize_weights(kernels, device->handle(), nullptr, &shape.model,
                              part, weights.data(), quantized.data()),
          "quantise weights"));
      out->quantized_.push_back(std::move(quantized));
    }
    out->weights_.push_back(std::move(weights));
    out->gradients_.push_back(std::move(gradients));
  }
  return out;
}

const void* BenchWeights::weights(int layer) const {
  PW_CHECK(layer < layers());
  return weights_[static_cast<size_t>(layer)].data();
}

float* BenchWeights::gradients(int layer) const {
  return gradients_[static_cast<size_t>(layer)].as<float>();
}

void* BenchWeights::quantized(int layer) const {
  return quantized_.empty() ? nullptr
                            : quantized_[static_cast<size_t>(layer)].data();
}

absl::Status Arena::Renew(uint64_t seed) {
  const size_t room = bytes_ + kShifts * kPartAlignment;
  buffer_ = Buffer();
  PW_ASSIGN_OR_RETURN(buffer_, device_->Allocate(room));
  shift_ = seed % kShifts * kPartAlignment;
  if (fp8_bytes_ > 0) {
    fp8_ = Buffer();
    PW_ASSIGN_OR_RETURN(fp8_, device_->Allocate(fp8_bytes_));
    PW_RETURN_IF_ERROR(device_->Randomize(PW_FP8, fp8_.data(), fp8_bytes_,
                                          seed + 1, kFp8Scale));
  }
  return device_->Randomize(type_, buffer_.data(), room, seed, kPartScale);
}

size_t PartBench::PassBytes(const PwPartSize& size, const Shape& shape,
                            int layers) {
  return LayoutOf(size, shape, layers).bytes;
}

absl::StatusOr<std::unique_ptr<PartBench>> PartBench::Create(
    MeasuredDevice* device, const Shape& shape, PwPart part,
    std::shared_ptr<BenchWeights> weights, std::shared_ptr<Arena> arena) {
  auto bench = std::unique_ptr<PartBench>(new PartBench());
  bench->device_ = device;
  bench->shape_ = shape;
  bench->part_ = part;
  PW_RETURN_IF_ERROR(device->Check(
      pw_part_size(device->kernels(), device->handle(), &shape.model,
                   &shape.work, part, &bench->size_),
      "size of a part"));
  PW_CHECK(PassBytes(bench->size_, shape, weights->layers()) +
               GemmBytes(shape, part) <=
           arena->bytes());
  PW_CHECK(Fp8Bytes(shape, part) <= arena->fp8_bytes());
  bench->weights_ = std::move(weights);
  bench->arena_ = std::move(arena);
  const int64_t tokens = shape.tokens();
  PW_ASSIGN_OR_RETURN(
      bench->ids_,
      device->Allocate(static_cast<size_t>(tokens) * sizeof(int32_t)));
  // A shard of the table has so many rows.
  PW_RETURN_IF_ERROR(device->Check(
      device->kernels()->random_ids(
          device->handle(), nullptr, bench->ids_.as<int32_t>(), tokens, 5,
          static_cast<int32_t>(shape.model.vocabulary / shape.model.tp)),
      "draw token ids"));
  if (bench->arena_->fp8_bytes() > 0) {
    PW_ASSIGN_OR_RETURN(bench->scales_,
                        device->Allocate(2 * PW_SCALE_ALIGNMENT));
    PW_RETURN_IF_ERROR(device->Randomize(PW_FP32, bench->scales_.data(),
                                         bench->scales_.bytes(), 6, 1));
  }
  return bench;
}

PwPartMemory PartBench::Memory(int layer) const {
  const Layout layout = LayoutOf(size_, shape_, weights_->layers());
  char* base = arena_->data();
  char* block =
      base + layout.layers + static_cast<size_t>(layer) * layout.layer_bytes;
  char* const grads = block + Aligned(size_.saved) + Aligned(size_.inputs);
  return {.weights = weights_->weights(layer),
          .gradients = weights_->gradients(layer),
          .input = base + layout.input,
          .output = base + layout.output,
          .output_gradient = base + layout.output_gradient,
          .input_gradient = base + layout.input_gradient,
          .ids = ids_.as<int32_t>(),
          .losses = reinterpret_cast<float*>(base + layout.losses),
          .loss_scale = 1.0f / static_cast<float>(shape_.tokens()),
          .saved = block,
          .inputs = block + Aligned(size_.saved),
          .grads = grads,
          .cache = size_.cache > 0 ? grads + Aligned(size_.grads) : nullptr,
          .workspace = base + layout.workspace,
          .quantized = weights_->quantized(layer)};
}

absl::Status PartBench::Run(ProfilePass pass, int layer) {
  const PwPartMemory memory = Memory(layer);
  const auto run = [&](decltype(&pw_forward) function) {
    return device_->Check(
        function(device_->kernels(), device_->handle(), nullptr, &shape_.model,
                 &shape_.work, part_, &memory),
        absl::StrCat("run ", ProfilePassName(pass)));
  };
  switch (pass) {
    case ProfilePass::kForward:
    case ProfilePass::kRecompute:
      return run(pw_forward);
    case ProfilePass::kBackwardInput:
      return run(pw_backward_input);
    case ProfilePass::kBackwardWeight:
      return run(pw_backward_weight);
    case ProfilePass::kBackwardFull:
      return run(pw_backward_full);
  }
  PW_CHECK(false);
}

std::vector<PwGemm> PartBench::Gemms(PwPassKind pass) const {
  std::vector<PwGemm> gemms(8);
  const int32_t count =
      pw_pass_gemms(&shape_.model, &shape_.work, part_, pass, gemms.data());
  gemms.resize(static_cast<size_t>(count));
  return gemms;
}

absl::Status PartBench::RunGemms(PwPassKind pass, int layer) {
  // They lie at the arena's end, where no pass writes, so the inputs stay
  // random numbers.
  char* const tail =
      arena_->data() + arena_->bytes() - GemmBytes(shape_, part_);
  const std::vector<PwGemm> gemms = Gemms(pass);
  for (size_t index = 0; index < gemms.size(); ++index) {
    const Matrices bytes = BytesOfGemm(gemms[index]);
    const bool fp8 = gemms[index].type == PW_FP8;
    char* x = fp8 ? arena_->fp8() : tail;
    char* y = x + Aligned(bytes.x);
    char* out = fp8 ? tail : y + Aligned(bytes.y);
    PW_RETURN_IF_ERROR(RunGemm(pass, index, layer, x, y, out));
  }
  return absl::OkStatus();
}

// True in GPT's style, for all four linear layers; for attention's two in
// layers of experts.
bool PartBench::HasBias(PwPassKind pass, size_t index) const {
  return pass == PW_PASS_F && shape_.model.style == PW_GPT &&
         (part_ == PW_LAYER || (part_ == PW_EXPERT_LAYER && index < 2));
}

absl::Status PartBench::RunGemm(PwPassKind pass, size_t index, int layer,
                                const void* x, const void* y, void* out) const {
  PwGemm gemm = Gemms(pass)[index];
  int32_t all_groups[8];
  pw_pass_groups(&shape_.model, &shape_.work, part_, pass, all_groups);
  const int32_t groups = all_groups[index];
  const void* w = weights_->weights(layer);
  // Any weights do.
  const void* bias = HasBias(pass, index) ? w : nullptr;
  if (gemm.type == PW_FP8) {
    w = weights_->quantized(layer);
    gemm.a_scale = scales_.as<float>();
    gemm.b_scale = gemm.a_scale + PW_SCALE_ALIGNMENT / sizeof(float);
  }
  const auto run = [&](const void* a, const void* b, void* c) {
    const PwKernels* kernels = device_->kernels();
    PwDevice* device = device_->handle();
    if (groups == 1) {
      return device_->Check(
          kernels->gemm(device, nullptr, &gemm, a, b, bias, c),
          "run a matrix product");
    }
    std::vector<int64_t> rows_of(static_cast<size_t>(groups));
    pw_balanced_rows(gemm.tokens, groups, rows_of.data());
    return device_->Check(kernels->grouped_gemm(device, nullptr, &gemm, groups,
                                                rows_of.data(), a, b, c),
                          "run grouped matrix products");
  };
  switch (gemm.pass) {
    case PW_GEMM_FORWARD:
      return run(x, w, out);
    case PW_GEMM_BACKWARD_INPUT:
      return run(y, w, out);
    case PW_GEMM_BACKWARD_WEIGHT:
      return run(x, y, weights_->gradients(layer));
  }
  PW_CHECK(false);
}

double PartBench::Flops(PwPassKind pass) const {
  double linear = 0;
  double attention = 0;
  pw_pass_flops(&shape_.model, &shape_.work, part_, pass, &linear, &attention);
  return linear + attention;
}

}  // namespace pipewright
