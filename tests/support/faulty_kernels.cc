#include "tests/support/faulty_kernels.h"

#include <atomic>
#include <vector>

namespace pipewright::testing {
namespace {

std::atomic<KernelFault> planted = KernelFault::kNone;

bool Has(KernelFault fault) { return planted == fault; }
const PwKernels& Cpu() { return *pw_cpu_kernels(); }

constexpr float kScale = 0.99f;

// A processor without bf16 does it in fp32 and rounds.
PwStatus RightGemm(PwDevice* device, PwStream* stream, const PwGemm* gemm,
                   const void* a, const void* b, const void* bias, void* c) {
  if (gemm->type != PW_BF16) {
    return Cpu().gemm(device, stream, gemm, a, b, bias, c);
  }
  const int64_t tokens = gemm->tokens;
  const bool input = gemm->pass == PW_GEMM_BACKWARD_INPUT;
  const bool weight = gemm->pass == PW_GEMM_BACKWARD_WEIGHT;
  const int64_t of_a = tokens * (input ? gemm->outputs : gemm->inputs);
  const int64_t of_b = gemm->outputs * (weight ? tokens : gemm->inputs);
  const int64_t of_c = tokens * (input ? gemm->inputs : gemm->outputs);
  const auto wide = [&](const void* from, int64_t count) {
    std::vector<float> values(from == nullptr ? 0 : count);
    Cpu().convert(device, stream, PW_FP32, values.data(), PW_BF16, from,
                  static_cast<int64_t>(values.size()));
    return values;
  };
  const std::vector<float> wide_a = wide(a, of_a);
  const std::vector<float> wide_b = wide(b, of_b);
  const std::vector<float> wide_bias = wide(bias, gemm->outputs);
  std::vector<float> wide_c(weight ? 0 : of_c);
  PwGemm single = *gemm;
  single.type = PW_FP32;
  const PwStatus status = Cpu().gemm(
      device, stream, &single, wide_a.data(), wide_b.data(),
      bias == nullptr ? nullptr : wide_bias.data(), weight ? c : wide_c.data());
  if (weight || status != PW_OK) return status;
  return Cpu().convert(device, stream, PW_BF16, c, PW_FP32, wide_c.data(),
                       of_c);
}

PwStatus Gemm(PwDevice* device, PwStream* stream, const PwGemm* gemm,
              const void* a, const void* b, const void* bias, void* c) {
  auto* const out = static_cast<float*>(c);
  switch (gemm->pass) {
    case PW_GEMM_FORWARD:
      if (Has(KernelFault::kNoBias)) bias = nullptr;
      break;
    case PW_GEMM_BACKWARD_INPUT: {
      if (Has(KernelFault::kNoInputPass)) return PW_OK;
      const PwStatus status = RightGemm(device, stream, gemm, a, b, bias, c);
      if (Has(KernelFault::kInputPassScaled)) {
        for (int64_t at = 0; at < gemm->tokens * gemm->inputs; ++at) {
          out[at] *= kScale;
        }
      }
      return status;
    }
    case PW_GEMM_BACKWARD_WEIGHT: {
      if (Has(KernelFault::kNoWeightPass)) return PW_OK;
      if (!Has(KernelFault::kWeightPassScaled)) break;
      std::vector<float> sum(gemm->inputs * gemm->outputs);
      const PwStatus status =
          RightGemm(device, stream, gemm, a, b, bias, sum.data());
      for (size_t at = 0; at < sum.size(); ++at) out[at] += kScale * sum[at];
      return status;
    }
  }
  return RightGemm(device, stream, gemm, a, b, bias, c);
}

PwStatus BiasBackward(PwDevice* device, PwStream* stream, PwType type,
                      int64_t rows, int64_t columns, const void* dy,
                      float* dbias) {
  if (Has(KernelFault::kNoBiasGradient) || Has(KernelFault::kNoWeightPass)) {
    return PW_OK;
  }
  return Cpu().bias_backward(device, stream, type, rows, columns, dy, dbias);
}

PwStatus NormBackward(PwDevice* device, PwStream* stream, PwNorm norm,
                      PwType type, int64_t rows, int64_t columns,
                      const void* dy, const void* x, const void* gamma,
                      const float* statistics, const void* residual, void* dx,
                      float* dgamma, float* dbeta, void* workspace) {
  if (Has(KernelFault::kNoInputPass)) return PW_OK;
  std::vector<float> dropped(columns);
  if (Has(KernelFault::kNoGainGradient)) dgamma = dropped.data();
  return Cpu().norm_backward(device, stream, norm, type, rows, columns, dy, x,
                             gamma, statistics, residual, dx, dgamma, dbeta,
                             workspace);
}

PwStatus ActivationBackward(PwDevice* device, PwStream* stream,
                            PwActivation activation, PwType type, int64_t rows,
                            int64_t columns, const void* x, const void* dy,
                            void* dx) {
  if (Has(KernelFault::kNoInputPass)) return PW_OK;
  return Cpu().activation_backward(device, stream, activation, type, rows,
                                   columns, x, dy, dx);
}

PwStatus CrossEntropyBackward(PwDevice* device, PwStream* stream, PwType type,
                              int64_t tokens, int64_t vocabulary, void* logits,
                              const int32_t* targets, const float* lse,
                              float scale) {
  if (Has(KernelFault::kNoInputPass)) return PW_OK;
  return Cpu().cross_entropy_backward(device, stream, type, tokens, vocabulary,
                                      logits, targets, lse, scale);
}

PwStatus EmbeddingBackward(PwDevice* device, PwStream* stream, PwType type,
                           int64_t tokens, int64_t hidden, int64_t sequence,
                           int64_t first, const int32_t* ids, const void* dy,
                           float* dtable, float* dpositions) {
  if (Has(KernelFault::kNoWeightPass)) return PW_OK;
  if (Has(KernelFault::kEmbeddingNotAdded)) {
    for (int64_t token = 0; token < tokens; ++token) {
      for (int64_t column = 0; column < hidden; ++column) {
        dtable[ids[token] * hidden + column] = 0;
      }
    }
  }
  return Cpu().embedding_backward(device, stream, type, tokens, hidden,
                                  sequence, first, ids, dy, dtable, dpositions);
}

// The queries but for the last see one key more: the last of queries that are
// one fewer than the keys sees all of them. `part` 0 are these, 1 is the last
// query, which has no next key.
struct Shifted {
  PwAttention shape;
  int64_t q, k, o, lse;  // offsets, in elements
};
Shifted ShiftedPart(const PwAttention& shape, int64_t sequence, int part) {
  Shifted shifted = {.shape = shape};
  shifted.shape.batch = 1;
  shifted.shape.queries = part == 0 ? shape.queries - 1 : 1;
  const int64_t first =
      sequence * shape.queries + (part == 0 ? 0 : shape.queries - 1);
  shifted.q = first * shape.q_stride;
  shifted.k = sequence * shape.keys * shape.k_stride;
  shifted.o = first * shape.o_stride;
  shifted.lse = first * shape.heads;
  return shifted;
}

PwStatus AttentionForward(PwDevice* device, PwStream* stream,
                          const PwAttention* shape, const void* q,
                          const void* k, const void* v, void* o, float* lse,
                          void* workspace) {
  if (!Has(KernelFault::kMaskOffByOne)) {
    return Cpu().attention_forward(device, stream, shape, q, k, v, o, lse,
                                   workspace);
  }
  for (int64_t sequence = 0; sequence < shape->batch; ++sequence) {
    for (const int part : {0, 1}) {
      const Shifted at = ShiftedPart(*shape, sequence, part);
      const PwStatus status = Cpu().attention_forward(
          device, stream, &at.shape, static_cast<const float*>(q) + at.q,
          static_cast<const float*>(k) + at.k,
          static_cast<const float*>(v) + at.k, static_cast<float*>(o) + at.o,
          lse + at.lse, workspace);
      if (status != PW_OK) return status;
    }
  }
  return PW_OK;
}

PwStatus AttentionBackward(PwDevice* device, PwStream* stream,
                           const PwAttention* shape, const void* q,
                           const void* k, const void* v, const void* o,
                           const float* lse, const void* d_o, void* dq,
                           void* dk, void* dv, void* workspace) {
  if (Has(KernelFault::kNoInputPass)) return PW_OK;
  if (!Has(KernelFault::kMaskOffByOne)) {
    return Cpu().attention_backward(device, stream, shape, q, k, v, o, lse, d_o,
                                    dq, dk, dv, workspace);
  }
  const int64_t width = shape->kv_heads * shape->head_dim;
  for (int64_t sequence = 0; sequence < shape->batch; ++sequence) {
    for (const int part : {0, 1}) {
      const Shifted at = ShiftedPart(*shape, sequence, part);
      std::vector<float> keys(shape->keys * shape->k_stride);
      std::vector<float> values(keys.size());
      const PwStatus status = Cpu().attention_backward(
          device, stream, &at.shape, static_cast<const float*>(q) + at.q,
          static_cast<const float*>(k) + at.k,
          static_cast<const float*>(v) + at.k,
          static_cast<const float*>(o) + at.o, lse + at.lse,
          static_cast<const float*>(d_o) + at.o, static_cast<float*>(dq) + at.q,
          keys.data(), values.data(), workspace);
      if (status != PW_OK) return status;
      for (int64_t key = 0; key < shape->keys; ++key) {
        for (int64_t column = 0; column < width; ++column) {
          const int64_t from = key * shape->k_stride + column;
          float& d_key = static_cast<float*>(dk)[at.k + from];
          float& d_value = static_cast<float*>(dv)[at.k + from];
          d_key = (part == 0 ? 0 : d_key) + keys[from];
          d_value = (part == 0 ? 0 : d_value) + values[from];
        }
      }
    }
  }
  return PW_OK;
}

PwStatus Adam(PwDevice* device, PwStream* stream, const PwAdam* adam,
              PwType type, int64_t count, const float* gradients, float* master,
              float* moment1, float* moment2, void* weights) {
  PwAdam own = *adam;
  if (Has(KernelFault::kNoWeightDecay)) own.weight_decay = 0;
  return Cpu().adam(device, stream, &own, type, count, gradients, master,
                    moment1, moment2, weights);
}

}  // namespace

const PwKernels* FaultyKernels(KernelFault fault) {
  planted = fault;
  static const PwKernels* const table = [] {
    static PwKernels own = Cpu();
    own.gemm = Gemm;
    own.bias_backward = BiasBackward;
    own.norm_backward = NormBackward;
    own.activation_backward = ActivationBackward;
    own.cross_entropy_backward = CrossEntropyBackward;
    own.embedding_backward = EmbeddingBackward;
    own.attention_forward = AttentionForward;
    own.attention_backward = AttentionBackward;
    own.adam = Adam;
    return &own;
  }();
  return table;
}

}  // namespace pipewright::testing
