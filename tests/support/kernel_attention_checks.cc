// Attention, AdamW and the rest of the checks of primitives.
#include <math.h>

#include <algorithm>

#include "kernels/random.h"
#include "tests/support/kernel_checks.h"

namespace pipewright {

namespace {

// [rows, columns] dense into rows `stride` apart; what lies between is NaN.
Values Spread(const Values& dense, int64_t columns, int64_t stride) {
  const int64_t rows = dense.size() / columns;
  Values wide(rows * stride, NAN);
  for (int64_t row = 0; row < rows; ++row) {
    std::copy_n(dense.begin() + row * columns, columns,
                wide.begin() + row * stride);
  }
  return wide;
}

Values Gather(const Values& wide, int64_t columns, int64_t stride) {
  Values dense;
  for (size_t start = 0; start < wide.size(); start += stride) {
    dense.insert(dense.end(), wide.begin() + start,
                 wide.begin() + start + columns);
  }
  return dense;
}

void RunAttention(KernelRig* rig, KernelCompare* compare, PwAttention shape) {
  const PwKernels& kernels = *rig->kernels();
  PwDevice* device = rig->device();
  const PwType type = shape.type;
  const int64_t q_columns = shape.heads * shape.head_dim;
  const int64_t k_columns = shape.kv_heads * shape.head_dim;
  shape.q_stride = q_columns + 16;
  shape.k_stride = k_columns + 8;
  shape.o_stride = q_columns + 24;
  shape.scale = 1.0f / sqrtf(shape.head_dim);
  const int64_t q_rows = shape.batch * shape.queries;
  const int64_t k_rows = shape.batch * shape.keys;
  const auto draw = [&](int64_t count, uint64_t seed) {
    Values values = RandomValues(count, seed, 2);
    for (double& value : values) value = Rounded(value, type);
    return values;
  };
  const Values q = draw(q_rows * q_columns, 1);
  const Values k = draw(k_rows * k_columns, 2);
  const Values v = draw(k_rows * k_columns, 3);
  const Values d_o = draw(q_rows * q_columns, 4);
  const auto put = [&](const Values& dense, int64_t columns, int64_t stride) {
    Values wide = Spread(dense, columns, stride);
    return rig->Put(&wide, type);
  };
  void* q_there = put(q, q_columns, shape.q_stride);
  void* k_there = put(k, k_columns, shape.k_stride);
  void* v_there = put(v, k_columns, shape.k_stride);
  void* d_o_there = put(d_o, q_columns, shape.o_stride);
  void* o_there = rig->Space(q_rows * shape.o_stride, type);
  void* lse = rig->Space(q_rows * shape.heads, PW_FP32);
  void* dq = rig->Space(q_rows * shape.q_stride, type);
  void* dk = rig->Space(k_rows * shape.k_stride, type);
  void* dv = rig->Space(k_rows * shape.k_stride, type);
  void* forward_space =
      rig->Space(kernels.attention_workspace(device, &shape, 0));
  void* backward_space =
      rig->Space(kernels.attention_workspace(device, &shape, 1));
  rig->Ok(kernels.attention_forward(device, nullptr, &shape, q_there, k_there,
                                    v_there, o_there, static_cast<float*>(lse),
                                    forward_space),
          "attention_forward");
  rig->Ok(kernels.attention_backward(device, nullptr, &shape, q_there, k_there,
                                     v_there, o_there,
                                     static_cast<const float*>(lse), d_o_there,
                                     dq, dk, dv, backward_space),
          "attention_backward");
  if (rig->refused()) return;
  const auto get = [&](const void* there, int64_t rows, int64_t columns,
                       int64_t stride) {
    return Gather(rig->Get(there, rows * stride, type), columns, stride);
  };
  const RefAttention forward = RefAttentionForward(shape, q, k, v);
  const RefAttentionGradients backward =
      RefAttentionBackward(shape, q, k, v, d_o);
  compare->Tensor("o", get(o_there, q_rows, q_columns, shape.o_stride),
                  forward.o);
  compare->Device("lse", lse, PW_FP32, forward.lse);
  compare->Tensor("dq", get(dq, q_rows, q_columns, shape.q_stride), backward.q);
  compare->Tensor("dk", get(dk, k_rows, k_columns, shape.k_stride), backward.k);
  compare->Tensor("dv", get(dv, k_rows, k_columns, shape.k_stride), backward.v);
}

struct AttentionCase {
  int64_t batch, queries, keys, heads, kv_heads, head_dim;
};

KernelCheck MakeAttention(const AttentionCase& one, bool causal) {
  const std::string name = (causal ? "causal attention" : "attention") +
                           ShapeText({one.batch, one.queries, one.keys,
                                      one.heads, one.kv_heads, one.head_dim});
  return MakeKernelCheck(
      name, false, one.head_dim % 8 != 0,
      [one, causal](KernelRig* rig, KernelCompare* compare, PwType type) {
        PwAttention shape{};
        shape.type = type;
        shape.causal = causal;
        shape.batch = one.batch;
        shape.queries = one.queries;
        shape.keys = one.keys;
        shape.heads = one.heads;
        shape.kv_heads = one.kv_heads;
        shape.head_dim = one.head_dim;
        RunAttention(rig, compare, shape);
      },
      // Two GEMMs one behind the other; a GPU rounds the probabilities to bf16.
      2.5);
}

void RunAdam(KernelRig* rig, KernelCompare* compare, PwType type, bool host) {
  constexpr int64_t kCount = 1003;
  const PwKernels& kernels = *rig->kernels();
  Values gradients = RandomValues(kCount, 1, 1);
  Values master = RandomValues(kCount, 2, 1);
  Values first(kCount);
  Values second(kCount);
  PwAdam adam = {0.01f, 0.9f, 0.95f, 1e-8f, 0.1f, 0, 0.5f};
  // On the host the same arrays, floats for the pointers.
  std::vector<float> arrays[4];
  std::vector<uint16_t> halves(2 * kCount);
  void* there[5];
  int32_t which = 0;
  for (Values* values : {&gradients, &master, &first, &second}) {
    there[which] = rig->Put(values, PW_FP32);
    arrays[which].assign(values->begin(), values->end());
    if (host) there[which] = arrays[which].data();
    ++which;
  }
  there[4] = rig->Space(kCount, type);
  if (host) there[4] = halves.data();
  const auto floats = [&](int32_t index) {
    return static_cast<float*>(there[index]);
  };
  for (adam.step = 1; adam.step <= 3; ++adam.step) {
    rig->Ok(host ? kernels.adam_host(&adam, type, kCount, floats(0), floats(1),
                                     floats(2), floats(3), there[4])
                 : kernels.adam(rig->device(), nullptr, &adam, type, kCount,
                                floats(0), floats(1), floats(2), floats(3),
                                there[4]),
            "adam");
    for (int64_t index = 0; index < kCount; ++index) {
      const double gradient = gradients[index] * 0.5;
      const double beta1 = 0.9f;
      const double beta2 = 0.95f;
      const double rate = 0.01f;
      first[index] = beta1 * first[index] + (1 - beta1) * gradient;
      second[index] = beta2 * second[index] + (1 - beta2) * gradient * gradient;
      const double update =
          first[index] / (1 - pow(beta1, adam.step)) /
          (sqrt(second[index] / (1 - pow(beta2, adam.step))) + 1e-8);
      master[index] -= rate * (update + double{0.1f} * master[index]);
    }
  }
  if (host) {
    for (int32_t index = 0; index < 4; ++index) {
      Values values(arrays[index].begin(), arrays[index].end());
      there[index] = rig->Put(&values, PW_FP32);
    }
    void* copied = rig->Space(kCount, type);
    rig->Ok(kernels.copy(rig->device(), nullptr, PW_HOST_TO_DEVICE, copied,
                         there[4], kCount * (type == PW_FP32 ? 4 : 2)),
            "copy");
    there[4] = copied;
  }
  compare->Device("master", there[1], PW_FP32, master);
  compare->Device("moment1", there[2], PW_FP32, first);
  compare->Device("moment2", there[3], PW_FP32, second);
  compare->Device("weights", there[4], type, master);
}

void RunPredict(KernelRig* rig, KernelCompare* compare, PwType type) {
  constexpr int64_t kCount = 1003;
  Values master = RandomValues(kCount, 1, 1);
  Values first = RandomValues(kCount, 2, 0.1f);
  Values second = RandomValues(kCount, 3, 0.1f);
  for (double& value : second) value *= value;
  void* weights = rig->Put(&master, PW_FP32);
  void* moment1 = rig->Put(&first, PW_FP32);
  void* moment2 = rig->Put(&second, PW_FP32);
  PwAdam adam = {0.01f, 0.9f, 0.95f, 1e-8f, 0.1f, 0, 0.5f};
  for (const int64_t taken : {0, 1, 7}) {
    for (const int64_t steps : {0, 1, 3}) {
      adam.step = taken;
      void* predicted = rig->Space(kCount, type);
      rig->Ok(rig->kernels()->predict(
                  rig->device(), nullptr, &adam, steps, type, kCount,
                  static_cast<float*>(weights), static_cast<float*>(moment1),
                  static_cast<float*>(moment2), predicted),
              "predict");
      Values want = master;
      for (int64_t index = 0; taken > 0 && index < kCount; ++index) {
        const double mean = first[index] / (1 - pow(double{0.9f}, taken));
        const double variance = second[index] / (1 - pow(double{0.95f}, taken));
        want[index] -=
            steps * double{0.01f} *
            (mean / (sqrt(variance) + 1e-8) + double{0.1f} * master[index]);
      }
      compare->Device("predicted", predicted, type, want);
    }
  }
}

void RunSquareSum(KernelRig* rig, KernelCompare* compare, PwType) {
  constexpr int64_t kCount = 9001;
  Values values = RandomValues(kCount, 1, 3);
  double want = 0;
  void* there = rig->Put(&values, PW_FP32);
  for (const double value : values) want += value * value;
  values[17] = NAN;
  values[8000] = INFINITY;
  void* bad = rig->Put(&values, PW_FP32);
  const double start[2] = {5, 7};
  for (void* array : {there, bad}) {
    void* result = rig->Space(sizeof(start));
    rig->Ok(rig->kernels()->copy(rig->device(), nullptr, PW_HOST_TO_DEVICE,
                                 result, start, sizeof(start)),
            "copy");
    rig->Ok(rig->kernels()->square_sum(rig->device(), nullptr, kCount,
                                       static_cast<const float*>(array),
                                       static_cast<double*>(result)),
            "square_sum");
    const std::vector<uint8_t> bytes = rig->Bytes(result, sizeof(start));
    double got[2];
    std::copy_n(bytes.data(), sizeof(got), reinterpret_cast<uint8_t*>(got));
    if (array == there) compare->Tensor("sum", {got[0]}, {want + 5});
    compare->Tensor("not finite", {got[1]}, {array == there ? 7.0 : 9.0});
  }
}

void RunRandom(KernelRig* rig, KernelCompare* compare, PwType type) {
  constexpr int64_t kCount = 1001;
  void* there = rig->Space(kCount, type);
  rig->Ok(rig->kernels()->random(rig->device(), nullptr, type, there, kCount,
                                 42, 0.3f),
          "random");
  Values want = RandomValues(kCount, 42, 0.3f);
  compare->Device("random", there, type, want);
  void* ids = rig->Space(kCount, PW_FP32);
  rig->Ok(
      rig->kernels()->random_ids(rig->device(), nullptr,
                                 static_cast<int32_t*>(ids), kCount, 43, 1000),
      "random_ids");
  const std::vector<uint8_t> bytes = rig->Bytes(ids, 4 * kCount);
  Values got(kCount);
  for (int64_t index = 0; index < kCount; ++index) {
    int32_t id;
    std::copy_n(&bytes[4 * index], 4, reinterpret_cast<uint8_t*>(&id));
    got[index] = id;
    want[index] = pw_random_id(43, index, 1000);
  }
  compare->Tensor("random ids", got, want);
}

// fp32 to `type` and, through fp8, back: every fp8 number and what lies between
// (1 + 2^-3 steps, arXiv 2209.05433 table 1).
void RunConvert(KernelRig* rig, KernelCompare* compare, PwType type) {
  Values values = {0,    1,     -1,      448,  -448,  500,     -1e9,
                   1.06, 1.07,  0.0625,  17,   19,    0x1p-9,  0x1p-10,
                   3e-3, 0.014, -0.0155, 1.19, 27.01, 0x3p-10, 464};
  const Values want = {0,      1,           -1,        448,  -448, 448,    -448,
                       1,      1.125,       0.0625,    16,   20,   0x1p-9, 0,
                       0x1p-8, 0.013671875, -0.015625, 1.25, 28,   0x1p-8, 448};
  void* from = rig->Put(&values, PW_FP32);
  const int64_t count = values.size();
  void* middle = rig->Space(count, type);
  void* eight = rig->Space(static_cast<size_t>(count));
  void* back = rig->Space(count, PW_FP32);
  const auto convert = [&](PwType to_type, void* to, PwType from_type,
                           const void* source) {
    rig->Ok(rig->kernels()->convert(rig->device(), nullptr, to_type, to,
                                    from_type, source, count),
            "convert");
  };
  convert(type, middle, PW_FP32, from);
  Values rounded = values;
  for (double& value : rounded) value = Rounded(value, type);
  compare->Device("converted", middle, type, rounded);
  convert(PW_FP8, eight, PW_FP32, from);
  convert(PW_FP32, back, PW_FP8, eight);
  compare->Device("through fp8", back, PW_FP32, want);
  convert(type, middle, PW_FP8, eight);
  compare->Device("fp8 widened", middle, type, want);
}

}  // namespace

std::vector<KernelCheck> AttentionChecks() {
  std::vector<KernelCheck> checks;
  const AttentionCase cases[] = {
      {2, 64, 64, 4, 4, 64},   {1, 130, 130, 4, 2, 64}, {1, 1, 1, 1, 1, 8},
      {2, 33, 33, 6, 3, 10},   {1, 40, 100, 4, 1, 16},  {1, 1, 77, 2, 2, 32},
      {1, 200, 333, 2, 1, 128}};
  for (const AttentionCase& one : cases) {
    for (const bool causal : {true, false}) {
      checks.push_back(MakeAttention(one, causal));
    }
  }
  return checks;
}

std::vector<KernelCheck> OptimizerChecks() {
  const auto adam = [](bool host) {
    return [host](KernelRig* rig, KernelCompare* compare, PwType type) {
      RunAdam(rig, compare, type, host);
    };
  };
  return {MakeKernelCheck("adam", false, false, adam(false)),
          MakeKernelCheck("adam on the host", false, false, adam(true)),
          MakeKernelCheck("predict", false, false, RunPredict),
          MakeKernelCheck("square sum", false, false, RunSquareSum),
          MakeKernelCheck("random", false, false, RunRandom),
          MakeKernelCheck("convert", false, false, RunConvert)};
}

}  // namespace pipewright
