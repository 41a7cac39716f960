#include <math.h>
#include <string.h>

#include <algorithm>

#include "kernels/random.h"
#include "tests/support/kernel_checks.h"

namespace pipewright {
namespace {

float* Floats(void* memory) { return static_cast<float*>(memory); }

void RunBias(KernelRig* rig, KernelCompare* compare, PwType type, int64_t rows,
             int64_t columns) {
  Values dy = RandomValues(rows * columns, 1, 1);
  Values dbias = RandomValues(columns, 2, 1);
  void* dy_there = rig->Put(&dy, type);
  void* dbias_there = rig->Put(&dbias, PW_FP32);
  rig->Ok(rig->kernels()->bias_backward(rig->device(), nullptr, type, rows,
                                        columns, dy_there, Floats(dbias_there)),
          "bias_backward");
  Values want = RefColumnSums(dy, rows, columns);
  for (int64_t index = 0; index < columns; ++index) want[index] += dbias[index];
  compare->Device("dbias", dbias_there, PW_FP32, want);
}

void RunNorm(KernelRig* rig, KernelCompare* compare, PwType type, PwNorm norm,
             int64_t rows, int64_t columns, bool with_residual) {
  constexpr float kEpsilon = 1e-5f;
  const PwKernels& kernels = *rig->kernels();
  PwDevice* device = rig->device();
  const bool layer = norm == PW_LAYER_NORM;
  Values x = RandomValues(rows * columns, 1, 2);
  for (double& value : x) value += 0.5;
  Values gamma = RandomValues(columns, 2, 1);
  Values beta = RandomValues(columns, 3, 1);
  Values dy = RandomValues(rows * columns, 4, 1);
  Values residual = RandomValues(rows * columns, 5, 1);
  Values dgamma = RandomValues(columns, 6, 1);
  Values dbeta = RandomValues(columns, 7, 1);
  void* x_there = rig->Put(&x, type);
  void* gamma_there = rig->Put(&gamma, type);
  void* beta_there = layer ? rig->Put(&beta, type) : nullptr;
  void* dy_there = rig->Put(&dy, type);
  void* residual_there = with_residual ? rig->Put(&residual, type) : nullptr;
  void* dgamma_there = rig->Put(&dgamma, PW_FP32);
  void* dbeta_there = layer ? rig->Put(&dbeta, PW_FP32) : nullptr;
  void* y = rig->Space(rows * columns, type);
  void* statistics = rig->Space(2 * rows, PW_FP32);
  rig->Ok(kernels.norm_forward(device, nullptr, norm, type, rows, columns,
                               kEpsilon, x_there, gamma_there, beta_there, y,
                               Floats(statistics)),
          "norm_forward");
  compare->Device("y", y, type,
                  RefNorm(norm, x, gamma, layer ? beta : Values(), kEpsilon));
  void* dx = rig->Space(rows * columns, type);
  void* workspace = rig->Space(kernels.norm_workspace(device, rows, columns));
  rig->Ok(kernels.norm_backward(
              device, nullptr, norm, type, rows, columns, dy_there, x_there,
              gamma_there, Floats(statistics), residual_there, dx,
              Floats(dgamma_there), Floats(dbeta_there), workspace),
          "norm_backward");
  RefNormGradients want = RefNormBackward(norm, dy, x, gamma, kEpsilon);
  for (size_t index = 0; with_residual && index < x.size(); ++index) {
    want.x[index] += residual[index];
  }
  for (int64_t index = 0; index < columns; ++index) {
    want.gamma[index] += dgamma[index];
    want.beta[index] += dbeta[index];
  }
  compare->Device("dx", dx, type, want.x);
  compare->Device("dgamma", dgamma_there, PW_FP32, want.gamma);
  if (layer) compare->Device("dbeta", dbeta_there, PW_FP32, want.beta);
}

void RunElements(KernelRig* rig, KernelCompare* compare, PwType type,
                 int64_t count) {
  const PwKernels& kernels = *rig->kernels();
  PwDevice* device = rig->device();
  Values a = RandomValues(count, 1, 1);
  Values b = RandomValues(count, 2, 1);
  void* a_there = rig->Put(&a, type);
  void* b_there = rig->Put(&b, type);
  rig->Ok(kernels.add(device, nullptr, type, count, a_there, b_there, a_there),
          "add");
  Values sum(count);
  for (int64_t index = 0; index < count; ++index)
    sum[index] = a[index] + b[index];
  compare->Device("a + b", a_there, type, sum);
  Values x = RandomValues(count, 3, 1);
  Values y = RandomValues(count, 4, 1);
  void* x_there = rig->Put(&x, PW_FP32);
  void* y_there = rig->Put(&y, PW_FP32);
  rig->Ok(kernels.accumulate(device, nullptr, count, Floats(x_there),
                             Floats(y_there)),
          "accumulate");
  for (int64_t index = 0; index < count; ++index) y[index] += x[index];
  compare->Device("y + x", y_there, PW_FP32, y);
  // 7 rows of `count` columns between strides.
  Values wide = RandomValues(7 * (count + 3), 5, 1);
  Values target = RandomValues(7 * (count + 5), 6, 1);
  void* wide_there = rig->Put(&wide, type);
  void* target_there = rig->Put(&target, type);
  rig->Ok(kernels.copy_rows(device, nullptr, type, 7, count, wide_there,
                            count + 3, target_there, count + 5),
          "copy_rows");
  for (int64_t row = 0; row < 7; ++row) {
    std::copy_n(wide.begin() + row * (count + 3), count,
                target.begin() + row * (count + 5));
  }
  compare->Device("copied rows", target_there, type, target);
}

void RunRotary(KernelRig* rig, KernelCompare* compare, PwType type,
               int64_t head_dim, int64_t first) {
  constexpr int64_t kStride = 200;
  Values x = RandomValues(2 * 11 * kStride, 1, 1);
  void* x_there = rig->Put(&x, type);
  for (const bool inverse : {false, true}) {
    rig->Ok(
        rig->kernels()->rotary(rig->device(), nullptr, type, 2, 11, 3, head_dim,
                               kStride, first, 10000, inverse, x_there),
        "rotary");
    x = RefRotary(x, 2, 11, 3, head_dim, kStride, first, 10000, inverse);
    compare->Device(inverse ? "turned back" : "turned", x_there, type, x);
  }
}

void RunActivation(KernelRig* rig, KernelCompare* compare, PwType type,
                   PwActivation activation, double scale, int64_t columns) {
  constexpr int64_t kRows = 9;
  const int64_t width = activation == PW_SWIGLU ? 2 * columns : columns;
  Values x = RandomValues(kRows * width, 1, scale);
  Values dy = RandomValues(kRows * columns, 2, 1);
  void* x_there = rig->Put(&x, type);
  void* dy_there = rig->Put(&dy, type);
  void* y = rig->Space(kRows * columns, type);
  void* dx = rig->Space(kRows * width, type);
  rig->Ok(rig->kernels()->activation_forward(rig->device(), nullptr, activation,
                                             type, kRows, columns, x_there, y),
          "activation_forward");
  rig->Ok(rig->kernels()->activation_backward(rig->device(), nullptr,
                                              activation, type, kRows, columns,
                                              x_there, dy_there, dx),
          "activation_backward");
  compare->Device("y", y, type, RefActivation(activation, x, kRows, columns));
  compare->Device("dx", dx, type,
                  RefActivationBackward(activation, x, dy, kRows, columns));
}

void RunEmbedding(KernelRig* rig, KernelCompare* compare, PwType type,
                  bool with_positions, int64_t hidden) {
  constexpr int64_t kTokens = 22;
  constexpr int64_t kSequence = 11;
  constexpr int64_t kFirst = 4;
  constexpr int64_t kWords = 9;
  std::vector<int32_t> ids;
  for (int64_t token = 0; token < kTokens; ++token) {
    ids.push_back(pw_random_id(8, token, kWords));
  }
  Values table = RandomValues(kWords * hidden, 1, 1);
  Values positions = RandomValues((kFirst + kSequence) * hidden, 2, 1);
  Values dy = RandomValues(kTokens * hidden, 3, 1);
  Values dtable = RandomValues(table.size(), 4, 1);
  Values dpositions = RandomValues(positions.size(), 5, 1);
  const int32_t* ids_there = static_cast<const int32_t*>(rig->PutIds(ids));
  void* table_there = rig->Put(&table, type);
  void* positions_there = with_positions ? rig->Put(&positions, type) : nullptr;
  void* dy_there = rig->Put(&dy, type);
  void* dtable_there = rig->Put(&dtable, PW_FP32);
  void* dpositions_there =
      with_positions ? rig->Put(&dpositions, PW_FP32) : nullptr;
  void* y = rig->Space(kTokens * hidden, type);
  const PwKernels& kernels = *rig->kernels();
  rig->Ok(kernels.embedding_forward(rig->device(), nullptr, type, kTokens,
                                    hidden, kSequence, kFirst, ids_there,
                                    table_there, positions_there, y),
          "embedding_forward");
  rig->Ok(kernels.embedding_backward(rig->device(), nullptr, type, kTokens,
                                     hidden, kSequence, kFirst, ids_there,
                                     dy_there, Floats(dtable_there),
                                     Floats(dpositions_there)),
          "embedding_backward");
  Values want(kTokens * hidden);
  for (int64_t index = 0; index < kTokens * hidden; ++index) {
    const int64_t token = index / hidden;
    const int64_t entry = ids[token] * hidden + index % hidden;
    const int64_t place =
        (kFirst + token % kSequence) * hidden + index % hidden;
    want[index] = table[entry] + (with_positions ? positions[place] : 0);
    dtable[entry] += dy[index];
    dpositions[place] += dy[index];
  }
  compare->Device("y", y, type, want);
  compare->Device("dtable", dtable_there, PW_FP32, dtable);
  if (with_positions) {
    compare->Device("dpositions", dpositions_there, PW_FP32, dpositions);
  }
}

void RunCrossEntropy(KernelRig* rig, KernelCompare* compare, PwType type,
                     int64_t vocabulary, double offset) {
  constexpr int64_t kTokens = 7;
  constexpr float kScale = 0.125f;
  Values logits = RandomValues(kTokens * vocabulary, 1, 4);
  for (double& logit : logits) logit += offset;
  std::vector<int32_t> targets;
  for (int64_t token = 0; token < kTokens; ++token) {
    targets.push_back(pw_random_id(2, token, vocabulary));
  }
  void* logits_there = rig->Put(&logits, type);
  const int32_t* targets_there =
      static_cast<const int32_t*>(rig->PutIds(targets));
  void* losses = rig->Space(kTokens, PW_FP32);
  void* lse = rig->Space(kTokens, PW_FP32);
  const PwKernels& kernels = *rig->kernels();
  rig->Ok(kernels.cross_entropy_forward(rig->device(), nullptr, type, kTokens,
                                        vocabulary, logits_there, targets_there,
                                        Floats(losses), Floats(lse)),
          "cross_entropy_forward");
  rig->Ok(kernels.cross_entropy_backward(rig->device(), nullptr, type, kTokens,
                                         vocabulary, logits_there,
                                         targets_there, Floats(lse), kScale),
          "cross_entropy_backward");
  Values lse_want;
  const Values want = RefCrossEntropy(logits, targets, &lse_want);
  compare->Device("losses", losses, PW_FP32, want);
  compare->Device("lse", lse, PW_FP32, lse_want);
  compare->Device("gradient", logits_there, type,
                  RefCrossEntropyBackward(logits, targets, kScale));
}

}  // namespace

std::vector<KernelCheck> PrimitiveChecks() {
  using Rig = KernelRig*;
  using Compare = KernelCompare*;
  std::vector<KernelCheck> checks = GemmChecks();
  for (const int64_t rows : {1, 70}) {
    for (const int64_t columns : {3, 37, 64, 300}) {
      checks.push_back(
          MakeKernelCheck("bias" + ShapeText({rows, columns}), false, false,
                          [=](Rig rig, Compare compare, PwType type) {
                            RunBias(rig, compare, type, rows, columns);
                          }));
      for (const PwNorm norm : {PW_RMS_NORM, PW_LAYER_NORM}) {
        checks.push_back(MakeKernelCheck(
            std::string(norm == PW_RMS_NORM ? "rms" : "layer") + " norm" +
                ShapeText({rows, columns}),
            false, false, [=](Rig rig, Compare compare, PwType type) {
              RunNorm(rig, compare, type, norm, rows, columns, rows > 1);
            }));
      }
    }
  }
  // Two, three and more vectors of a row for each thread; several rows for each
  // block.
  const int64_t shapes[][2] = {{3, 2056},  {3, 2312},  {3, 4104}, {3, 8200},
                               {3, 12296}, {3, 16392}, {600, 64}, {600, 1160}};
  for (const int64_t(&shape)[2] : shapes) {
    const int64_t rows = shape[0];
    const int64_t columns = shape[1];
    for (const PwNorm norm : {PW_RMS_NORM, PW_LAYER_NORM}) {
      checks.push_back(MakeKernelCheck(
          std::string(norm == PW_RMS_NORM ? "rms" : "layer") + " norm" +
              ShapeText({rows, columns}),
          false, false, [=](Rig rig, Compare compare, PwType type) {
            RunNorm(rig, compare, type, norm, rows, columns, true);
          }));
    }
  }
  for (const int64_t count : {1, 15, 1000}) {
    checks.push_back(
        MakeKernelCheck("elements" + ShapeText({count}), false, false,
                        [=](Rig rig, Compare compare, PwType type) {
                          RunElements(rig, compare, type, count);
                        }));
  }
  for (const int64_t head_dim : {2, 10, 64}) {
    checks.push_back(MakeKernelCheck(
        "rotary" + ShapeText({head_dim}), false, false,
        [=](Rig rig, Compare compare, PwType type) {
          RunRotary(rig, compare, type, head_dim, head_dim == 10 ? 70 : 0);
        }));
  }
  for (const PwActivation activation : {PW_GELU, PW_SWIGLU}) {
    const std::string name = activation == PW_GELU ? "gelu" : "swiglu";
    for (const int64_t scale : {1, 12, 60}) {
      checks.push_back(MakeKernelCheck(
          name + " up to" + ShapeText({scale}), false, false,
          [=](Rig rig, Compare compare, PwType type) {
            RunActivation(rig, compare, type, activation, scale, 51);
          }));
    }
    checks.push_back(
        MakeKernelCheck(name + " in vectors", false, false,
                        [=](Rig rig, Compare compare, PwType type) {
                          RunActivation(rig, compare, type, activation, 1, 304);
                        }));
  }
  for (const bool positions : {false, true}) {
    // 1160 columns: more than the block has threads, in vectors.
    for (const int64_t hidden : {37, 1160}) {
      checks.push_back(MakeKernelCheck(
          (positions ? "embedding with positions" : "embedding") +
              ShapeText({hidden}),
          false, false, [=](Rig rig, Compare compare, PwType type) {
            RunEmbedding(rig, compare, type, positions, hidden);
          }));
    }
  }
  for (const int64_t vocabulary : {2, 37, 1000}) {
    for (const int64_t offset : {0, 100}) {
      // At 100, fp32's spacing of the kept log-sum-exp is 8e-6.
      checks.push_back(MakeKernelCheck(
          "cross-entropy" + ShapeText({vocabulary, offset}), false, false,
          [=](Rig rig, Compare compare, PwType type) {
            RunCrossEntropy(rig, compare, type, vocabulary, offset);
          },
          offset == 0 ? 1 : 5));
    }
  }
  for (const auto& more :
       {AttentionChecks(), OptimizerChecks(), ExpertChecks()}) {
    checks.insert(checks.end(), more.begin(), more.end());
  }
  return checks;
}

}  // namespace pipewright
