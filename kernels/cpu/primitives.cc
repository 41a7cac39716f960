// Checks of the arguments in front of the loops.
#include <math.h>
#include <string.h>

#include "kernels/cpu/bf16_gemm.h"
#include "kernels/cpu/device.h"
#include "kernels/cpu/fp8.h"
#include "kernels/cpu/loops.h"
#include "kernels/random.h"

namespace pipewright {
namespace {

// Sets `loops` for `type`; returns PW_INVALID for fp8 or a size below 1.
PwStatus Prepare(const char* operation, PwDevice* device, PwType type,
                 std::initializer_list<std::pair<const char*, int64_t>> sizes,
                 const TypedLoops** loops) {
  *loops = LoopsFor(operation, device, type);
  if (*loops == nullptr) return PW_INVALID;
  return CheckSizes(operation, sizes);
}

PwStatus BiasBackward(PwDevice* device, PwStream*, PwType type, int64_t rows,
                      int64_t columns, const void* dy, float* dbias) {
  const TypedLoops* loops;
  const PwStatus status =
      Prepare("bias_backward", device, type,
              {{"rows", rows}, {"columns", columns}}, &loops);
  if (status == PW_OK) loops->bias_backward(rows, columns, dy, dbias);
  return status;
}

PwStatus NormForward(PwDevice* device, PwStream*, PwNorm norm, PwType type,
                     int64_t rows, int64_t columns, float epsilon,
                     const void* x, const void* gamma, const void* beta,
                     void* y, float* statistics) {
  const TypedLoops* loops;
  const PwStatus status =
      Prepare("norm_forward", device, type,
              {{"rows", rows}, {"columns", columns}}, &loops);
  if (status != PW_OK) return status;
  loops->norm_forward(norm, rows, columns, epsilon, x, gamma, beta, y,
                      statistics);
  return PW_OK;
}

PwStatus NormBackward(PwDevice* device, PwStream*, PwNorm norm, PwType type,
                      int64_t rows, int64_t columns, const void* dy,
                      const void* x, const void* gamma, const float* statistics,
                      const void* residual, void* dx, float* dgamma,
                      float* dbeta, void* workspace) {
  const TypedLoops* loops;
  const PwStatus status =
      Prepare("norm_backward", device, type,
              {{"rows", rows}, {"columns", columns}}, &loops);
  if (status != PW_OK) return status;
  loops->norm_backward(norm, rows, columns, dy, x, gamma, statistics, residual,
                       dx, dgamma, dbeta, static_cast<float*>(workspace));
  return PW_OK;
}

size_t NormWorkspace(PwDevice*, int64_t, int64_t columns) {
  return 2 * columns * sizeof(float);
}

PwStatus Add(PwDevice* device, PwStream*, PwType type, int64_t count,
             const void* a, const void* b, void* y) {
  const TypedLoops* loops;
  const PwStatus status =
      Prepare("add", device, type, {{"count", count}}, &loops);
  if (status == PW_OK) loops->add(count, a, b, y);
  return status;
}

PwStatus Accumulate(PwDevice* device, PwStream*, int64_t count, const float* x,
                    float* y) {
  const PwStatus status = CheckSizes("accumulate", {{"count", count}});
  if (status == PW_OK) device->loops.accumulate(count, x, y);
  return status;
}

PwStatus CopyRows(PwDevice*, PwStream*, PwType type, int64_t rows,
                  int64_t columns, const void* from, int64_t from_stride,
                  void* to, int64_t to_stride) {
  const PwStatus status =
      CheckSizes("copy_rows", {{"rows", rows}, {"columns", columns}});
  if (status != PW_OK) return status;
  if (from_stride < columns || to_stride < columns) {
    return Fail(PW_INVALID, "copy_rows: a stride is shorter than its row");
  }
  const size_t bytes = TypeBytes(type);
  if (from_stride == columns && to_stride == columns) {
    memcpy(to, from, rows * columns * bytes);
    return PW_OK;
  }
  for (int64_t row = 0; row < rows; ++row) {
    memcpy(static_cast<char*>(to) + row * to_stride * bytes,
           static_cast<const char*>(from) + row * from_stride * bytes,
           columns * bytes);
  }
  return PW_OK;
}

// Rotates by position * base^(-2 index / head_dim): Su et al., arXiv
// 2104.09864, equation 15.
void Extend(RotaryTable* table, int64_t head_dim, float base,
            int64_t positions) {
  if (table->base != base || table->head_dim != head_dim) {
    *table = RotaryTable{base, head_dim, 0, {}, {}};
  }
  const int64_t half = head_dim / 2;
  for (int64_t position = table->positions; position < positions; ++position) {
    for (int64_t index = 0; index < half; ++index) {
      const double angle =
          position * pow(base, -2.0 * index / static_cast<double>(head_dim));
      table->cosines.push_back(cos(angle));
      table->sines.push_back(sin(angle));
    }
  }
  if (positions > table->positions) table->positions = positions;
}

PwStatus Rotary(PwDevice* device, PwStream*, PwType type, int64_t batch,
                int64_t tokens, int64_t heads, int64_t head_dim, int64_t stride,
                int64_t first, float base, int32_t inverse, void* x) {
  const TypedLoops* loops;
  const PwStatus status = Prepare("rotary", device, type,
                                  {{"batch", batch},
                                   {"tokens", tokens},
                                   {"heads", heads},
                                   {"head_dim", head_dim}},
                                  &loops);
  if (status != PW_OK) return status;
  if (head_dim % 2 != 0) {
    return Fail(PW_INVALID, "rotary: head_dim %lld is odd",
                static_cast<long long>(head_dim));
  }
  if (first < 0 || stride < heads * head_dim || !(base > 0)) {
    return Fail(PW_INVALID, "rotary: first, stride or base out of range");
  }
  Extend(&device->rotary, head_dim, base, first + tokens);
  const int64_t skip = first * (head_dim / 2);
  for (int64_t sequence = 0; sequence < batch; ++sequence) {
    loops->rotary(
        tokens, heads, head_dim, stride, device->rotary.cosines.data() + skip,
        device->rotary.sines.data() + skip, inverse != 0,
        static_cast<char*>(x) + sequence * tokens * stride * TypeBytes(type));
  }
  return PW_OK;
}

PwStatus ActivationForward(PwDevice* device, PwStream*, PwActivation activation,
                           PwType type, int64_t rows, int64_t columns,
                           const void* x, void* y) {
  const TypedLoops* loops;
  const PwStatus status =
      Prepare("activation_forward", device, type,
              {{"rows", rows}, {"columns", columns}}, &loops);
  if (status != PW_OK) return status;
  loops->activation_forward(activation, rows, columns, x, y);
  return PW_OK;
}

PwStatus ActivationBackward(PwDevice* device, PwStream*,
                            PwActivation activation, PwType type, int64_t rows,
                            int64_t columns, const void* x, const void* dy,
                            void* dx) {
  const TypedLoops* loops;
  const PwStatus status =
      Prepare("activation_backward", device, type,
              {{"rows", rows}, {"columns", columns}}, &loops);
  if (status != PW_OK) return status;
  loops->activation_backward(activation, rows, columns, x, dy, dx);
  return PW_OK;
}

PwStatus PrepareEmbedding(const char* operation, PwDevice* device, PwType type,
                          int64_t tokens, int64_t hidden, int64_t sequence,
                          int64_t first, const TypedLoops** loops) {
  const PwStatus status = Prepare(
      operation, device, type,
      {{"tokens", tokens}, {"hidden", hidden}, {"sequence", sequence}}, loops);
  if (status != PW_OK) return status;
  if (first < 0 || tokens % sequence != 0) {
    return Fail(PW_INVALID,
                "%s: first below 0, or tokens not of whole sequences",
                operation);
  }
  return PW_OK;
}

PwStatus EmbeddingForward(PwDevice* device, PwStream*, PwType type,
                          int64_t tokens, int64_t hidden, int64_t sequence,
                          int64_t first, const int32_t* ids, const void* table,
                          const void* positions, void* y) {
  const TypedLoops* loops;
  const PwStatus status =
      PrepareEmbedding("embedding_forward", device, type, tokens, hidden,
                       sequence, first, &loops);
  if (status != PW_OK) return status;
  loops->embedding_forward(tokens, hidden, sequence, first, ids, table,
                           positions, y);
  return PW_OK;
}

PwStatus EmbeddingBackward(PwDevice* device, PwStream*, PwType type,
                           int64_t tokens, int64_t hidden, int64_t sequence,
                           int64_t first, const int32_t* ids, const void* dy,
                           float* dtable, float* dpositions) {
  const TypedLoops* loops;
  const PwStatus status =
      PrepareEmbedding("embedding_backward", device, type, tokens, hidden,
                       sequence, first, &loops);
  if (status != PW_OK) return status;
  loops->embedding_backward(tokens, hidden, sequence, first, ids, dy, dtable,
                            dpositions);
  return PW_OK;
}

PwStatus CrossEntropyForward(PwDevice* device, PwStream*, PwType type,
                             int64_t tokens, int64_t vocabulary,
                             const void* logits, const int32_t* targets,
                             float* losses, float* lse) {
  const TypedLoops* loops;
  const PwStatus status =
      Prepare("cross_entropy_forward", device, type,
              {{"tokens", tokens}, {"vocabulary", vocabulary}}, &loops);
  if (status != PW_OK) return status;
  loops->cross_entropy_forward(tokens, vocabulary, logits, targets, losses,
                               lse);
  return PW_OK;
}

PwStatus CrossEntropyBackward(PwDevice* device, PwStream*, PwType type,
                              int64_t tokens, int64_t vocabulary, void* logits,
                              const int32_t* targets, const float* lse,
                              float scale) {
  const TypedLoops* loops;
  const PwStatus status =
      Prepare("cross_entropy_backward", device, type,
              {{"tokens", tokens}, {"vocabulary", vocabulary}}, &loops);
  if (status != PW_OK) return status;
  loops->cross_entropy_backward(tokens, vocabulary, logits, targets, lse,
                                scale);
  return PW_OK;
}

PwStatus RunAdam(const Loops& loops, const PwAdam& adam, PwType type,
                 int64_t count, const float* gradients, float* master,
                 float* moment1, float* moment2, void* weights) {
  const PwStatus status =
      CheckSizes("adam", {{"count", count}, {"step", adam.step}});
  if (status != PW_OK) return status;
  if (type != PW_FP32 && type != PW_BF16) {
    return Fail(PW_INVALID, "adam: type must be fp32 or bf16");
  }
  (type == PW_FP32 ? loops.fp32 : loops.bf16)
      .adam(&adam, count, gradients, master, moment1, moment2, weights);
  return PW_OK;
}

PwStatus Adam(PwDevice* device, PwStream*, const PwAdam* adam, PwType type,
              int64_t count, const float* gradients, float* master,
              float* moment1, float* moment2, void* weights) {
  return RunAdam(device->loops, *adam, type, count, gradients, master, moment1,
                 moment2, weights);
}

PwStatus Predict(PwDevice* device, PwStream*, const PwAdam* adam, int64_t steps,
                 PwType type, int64_t count, const float* master,
                 const float* moment1, const float* moment2, void* predicted) {
  const PwStatus status = CheckSizes("predict", {{"count", count}});
  if (status != PW_OK) return status;
  if (adam->step < 0 || steps < 0) {
    return Fail(PW_INVALID, "predict: steps count from 0");
  }
  if (type != PW_FP32 && type != PW_BF16) {
    return Fail(PW_INVALID, "predict: type must be fp32 or bf16");
  }
  (type == PW_FP32 ? device->loops.fp32 : device->loops.bf16)
      .predict(adam, steps, count, master, moment1, moment2, predicted);
  return PW_OK;
}

PwStatus AdamHost(const PwAdam* adam, PwType type, int64_t count,
                  const float* gradients, float* master, float* moment1,
                  float* moment2, void* weights) {
  return RunAdam(*ChooseCpu().loops, *adam, type, count, gradients, master,
                 moment1, moment2, weights);
}

PwStatus SquareSum(PwDevice* device, PwStream*, int64_t count,
                   const float* values, double* result) {
  const PwStatus status = CheckSizes("square_sum", {{"count", count}});
  if (status == PW_OK) device->loops.square_sum(count, values, result);
  return status;
}

PwStatus Random(PwDevice* device, PwStream*, PwType type, void* values,
                int64_t count, uint64_t seed, float scale) {
  const PwStatus status = CheckSizes("random", {{"count", count}});
  if (status != PW_OK) return status;
  if (type == PW_FP8) {
    for (int64_t index = 0; index < count; ++index) {
      static_cast<uint8_t*>(values)[index] =
          ToFp8(pw_random_value(seed, index, scale));
    }
    return PW_OK;
  }
  LoopsFor("random", device, type)->random(count, seed, scale, values);
  return PW_OK;
}

PwStatus RandomIds(PwDevice*, PwStream*, int32_t* ids, int64_t count,
                   uint64_t seed, int32_t limit) {
  const PwStatus status =
      CheckSizes("random_ids", {{"count", count}, {"limit", limit}});
  if (status != PW_OK) return status;
  for (int64_t index = 0; index < count; ++index) {
    ids[index] = pw_random_id(seed, index, limit);
  }
  return PW_OK;
}

PwStatus Convert(PwDevice* device, PwStream*, PwType to_type, void* to,
                 PwType from_type, const void* from, int64_t count) {
  const PwStatus status = CheckSizes("convert", {{"count", count}});
  if (status != PW_OK) return status;
  // By way of fp32, which holds the other two.
  constexpr int64_t kAtOnce = 1024;
  float values[kAtOnce];
  for (int64_t first = 0; first < count; first += kAtOnce) {
    const int64_t here = count - first < kAtOnce ? count - first : kAtOnce;
    const char* source =
        static_cast<const char*>(from) + first * TypeBytes(from_type);
    char* target = static_cast<char*>(to) + first * TypeBytes(to_type);
    if (from_type == PW_FP8) {
      for (int64_t index = 0; index < here; ++index) {
        values[index] = FromFp8(static_cast<uint8_t>(source[index]));
      }
    } else {
      LoopsFor("convert", device, from_type)
          ->to_float(1, here, source, here, values, here);
    }
    if (to_type == PW_FP8) {
      for (int64_t index = 0; index < here; ++index) {
        target[index] = static_cast<char>(ToFp8(values[index]));
      }
    } else {
      LoopsFor("convert", device, to_type)
          ->from_float(1, here, values, here, target, here);
    }
  }
  return PW_OK;
}

}  // namespace

void AddLoops(PwKernels* kernels) {
  kernels->bias_backward = BiasBackward;
  kernels->norm_forward = NormForward;
  kernels->norm_backward = NormBackward;
  kernels->norm_workspace = NormWorkspace;
  kernels->add = Add;
  kernels->accumulate = Accumulate;
  kernels->copy_rows = CopyRows;
  kernels->rotary = Rotary;
  kernels->activation_forward = ActivationForward;
  kernels->activation_backward = ActivationBackward;
  kernels->embedding_forward = EmbeddingForward;
  kernels->embedding_backward = EmbeddingBackward;
  kernels->cross_entropy_forward = CrossEntropyForward;
  kernels->cross_entropy_backward = CrossEntropyBackward;
  kernels->adam = Adam;
  kernels->adam_host = AdamHost;
  kernels->square_sum = SquareSum;
  kernels->predict = Predict;
  kernels->random = Random;
  kernels->random_ids = RandomIds;
  kernels->convert = Convert;
}

}  // namespace pipewright
