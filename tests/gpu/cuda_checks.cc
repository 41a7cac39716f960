#include "tests/gpu/cuda_checks.h"

#include <chrono>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cpu/fp8.h"
#include "kernels/cuda/arithmetic.h"
#include "kernels/layer.h"

namespace pipewright {
namespace {

// A tensor in fp8 on the device, and what was stored, times `scale`.
const void* PutFp8(KernelRig* rig, Values* values, bool e5m2 = false,
                   double scale = 1) {
  std::vector<uint8_t> codes;
  for (double& value : *values) {
    const float wanted = static_cast<float>(value / scale);
    codes.push_back(e5m2 ? ToE5m2(wanted) : cuda::Fp8OfFloat(wanted));
    value = scale *
            (e5m2 ? FromE5m2(codes.back()) : cuda::FloatOfFp8(codes.back()));
  }
  void* memory = rig->Space(codes.size());
  rig->Ok(rig->kernels()->copy(rig->device(), nullptr, PW_HOST_TO_DEVICE,
                               memory, codes.data(), codes.size()),
          "copy");
  rig->Ok(rig->kernels()->synchronize(rig->device(), nullptr), "synchronize");
  return memory;
}

// With `scaled`, gradients in e5m2 and a scale of each tensor.
KernelResult Fp8Product(const PwKernels* kernels, PwDevice* device,
                        bool scaled) {
  // Sums of 96 to 128 products; tensor cores keep less than fp32 of partial
  // sums in fp8, and y and dx are rounded to bf16.
  constexpr double kTolerance = 1e-2;
  constexpr int64_t kTokens = 128;
  constexpr int64_t kInputs = 96;
  constexpr int64_t kOutputs = 112;
  KernelRig rig(kernels, device);
  KernelCompare compare(&rig, kTolerance);
  Values x = RandomValues(kTokens * kInputs, 1, 4);
  Values w = RandomValues(kOutputs * kInputs, 2, 2);
  Values dy = RandomValues(kTokens * kOutputs, 3, 2);
  Values start = RandomValues(kOutputs * kInputs, 4, 2);
  // No two the same, so that none can stand for another.
  Values scales = {1, 0.25, 8};
  if (!scaled) scales = {1, 1, 1};
  const void* x_there = PutFp8(&rig, &x, false, scales[0]);
  const void* w_there = PutFp8(&rig, &w, false, scales[1]);
  const void* dy_there = PutFp8(&rig, &dy, scaled, scales[2]);
  constexpr int64_t kStride = PW_SCALE_ALIGNMENT / sizeof(float);
  Values spaced(3 * kStride, NAN);
  for (int index = 0; index < 3; ++index) {
    spaced[index * kStride] = scales[index];
  }
  const float* scales_there = static_cast<float*>(rig.Put(&spaced, PW_FP32));
  const auto scale_of = [&](const void* tensor) -> const float* {
    if (!scaled || tensor == x_there) return nullptr;
    return scales_there + (tensor == w_there ? 1 : 2) * kStride;
  };
  void* y = rig.Space(kTokens * kOutputs, PW_BF16);
  void* dx = rig.Space(kTokens * kInputs, PW_BF16);
  void* dw = rig.Put(&start, PW_FP32);
  const auto run = [&](PwGemmPass pass, const void* a, const void* b, void* c) {
    PwGemm gemm = {pass, PW_FP8, kTokens, kInputs, kOutputs};
    gemm.dy_e5m2 = scaled && pass != PW_GEMM_FORWARD ? 1 : 0;
    gemm.a_scale = scale_of(a);
    gemm.b_scale = scale_of(b);
    rig.Ok(kernels->gemm(device, nullptr, &gemm, a, b, nullptr, c), "fp8 gemm");
  };
  run(PW_GEMM_FORWARD, x_there, w_there, y);
  run(PW_GEMM_BACKWARD_INPUT, dy_there, w_there, dx);
  run(PW_GEMM_BACKWARD_WEIGHT, x_there, dy_there, dw);
  compare.Device("y", y, PW_BF16,
                 RefLinear(x, w, {}, kTokens, kInputs, kOutputs));
  compare.Device("dx", dx, PW_BF16,
                 RefLinearInput(dy, w, kTokens, kInputs, kOutputs));
  Values want = RefLinearWeight(x, dy, kTokens, kInputs, kOutputs);
  for (size_t index = 0; index < want.size(); ++index) {
    want[index] += start[index];
  }
  compare.Device("dw", dw, PW_FP32, want);
  KernelResult result = compare.Result();
  // Beside the places that cuBLASLt takes: said, and not left to the library.
  PwGemm gemm = {PW_GEMM_FORWARD, PW_FP8, kTokens, kInputs, kOutputs};
  gemm.b_scale = scales_there + 1;
  if (kernels->gemm(device, nullptr, &gemm, x_there, w_there, nullptr, y) !=
          PW_INVALID &&
      result.problem.empty()) {
    result.problem = "a scale at a multiple of 4 bytes is taken";
  }
  return result;
}

KernelResult Fp8Gemm(const PwKernels* kernels, PwDevice* device, PwType) {
  return Fp8Product(kernels, device, false);
}

KernelResult Fp8ScaledGemm(const PwKernels* kernels, PwDevice* device, PwType) {
  return Fp8Product(kernels, device, true);
}

// A graph of a grouped weight gradient (several streams inside) and a sum,
// launched three times, does what three calls do.
KernelResult Graph(const PwKernels* kernels, PwDevice* device, PwType) {
  constexpr int64_t kTokens = 96;
  constexpr int64_t kInputs = 64;
  constexpr int64_t kOutputs = 80;
  constexpr int kLaunches = 3;
  const int64_t tokens_of[] = {32, 0, 40, 8, 16};
  constexpr int32_t kGroups = 5;
  KernelRig rig(kernels, device);
  KernelCompare compare(&rig, 1e-5);
  Values x = RandomValues(kTokens * kInputs, 1, 1);
  Values dy = RandomValues(kTokens * kOutputs, 2, 1);
  Values zeros(kGroups * kOutputs * kInputs);
  Values ones(zeros.size(), 1);
  const void* x_there = rig.Put(&x, PW_BF16);
  const void* dy_there = rig.Put(&dy, PW_BF16);
  const float* ones_there = static_cast<const float*>(rig.Put(&ones, PW_FP32));
  float* dw = static_cast<float*>(rig.Put(&zeros, PW_FP32));
  const PwGemm gemm = {PW_GEMM_BACKWARD_WEIGHT, PW_BF16, kTokens, kInputs,
                       kOutputs};
  PwStream* stream = nullptr;
  PwGraph* graph = nullptr;
  rig.Ok(kernels->create_stream(device, 0, &stream), "create_stream");
  rig.Ok(kernels->begin_graph(device, stream), "begin_graph");
  rig.Ok(kernels->grouped_gemm(device, stream, &gemm, kGroups, tokens_of,
                               x_there, dy_there, dw),
         "grouped_gemm");
  rig.Ok(kernels->accumulate(device, stream, static_cast<int64_t>(zeros.size()),
                             ones_there, dw),
         "accumulate");
  rig.Ok(kernels->end_graph(device, stream, &graph), "end_graph");
  for (int launch = 0; graph != nullptr && launch < kLaunches; ++launch) {
    rig.Ok(kernels->launch_graph(device, stream, graph), "launch_graph");
  }
  rig.Ok(kernels->synchronize(device, stream), "synchronize");
  Values want(zeros.size(), kLaunches);
  int64_t first = 0;
  for (int32_t group = 0; group < kGroups; ++group) {
    const int64_t end = first + tokens_of[group];
    const Values part = RefLinearWeight(
        Values(x.begin() + first * kInputs, x.begin() + end * kInputs),
        Values(dy.begin() + first * kOutputs, dy.begin() + end * kOutputs),
        tokens_of[group], kInputs, kOutputs);
    for (size_t index = 0; index < part.size(); ++index) {
      want[static_cast<size_t>(group) * part.size() + index] +=
          kLaunches * part[index];
    }
    first = end;
  }
  compare.Device("dw", dw, PW_FP32, want);
  kernels->destroy_graph(device, graph);
  kernels->destroy_stream(device, stream);
  return compare.Result();
}

// F of a layer of experts, captured and launched, writes what a call writes: a
// balanced layer waits for nothing.
KernelResult ExpertGraph(const PwKernels* kernels, PwDevice* device,
                         PwType type) {
  KernelRig rig(kernels, device);
  KernelCompare compare(&rig, 2e-2);
  PwModel model{};
  model.style = PW_LLAMA;
  model.type = type;
  model.hidden = 64;
  model.heads = model.kv_heads = 4;
  model.head_dim = 16;
  model.vocabulary = 64;
  model.sequence = 64;
  model.causal = 1;
  model.tp = 1;
  model.epsilon = 1e-5f;
  model.rotary_base = 10000;
  model.experts = 8;
  model.experts_per_token = 2;
  model.expert_ffn = 96;
  model.ep = 1;
  model.balanced = 1;
  const PwWork work = {2, 64, 0, 64};
  PwPartSize size{};
  rig.Ok(pw_part_size(kernels, device, &model, &work, PW_EXPERT_LAYER, &size),
         "pw_part_size");
  Values weights = RandomValues(size.parameters, 1, 0.2);
  Values input = RandomValues(2 * 64 * model.hidden, 2, 1);
  PwPartMemory memory{};
  memory.weights = rig.Put(&weights, type);
  memory.input = rig.Put(&input, type);
  memory.output = rig.Space(size.boundary);
  memory.saved = rig.Space(size.saved);
  memory.inputs = rig.Space(size.inputs);
  memory.grads = rig.Space(size.grads);
  memory.workspace = rig.Space(size.workspace);
  PwStream* stream = nullptr;
  PwGraph* graph = nullptr;
  rig.Ok(kernels->create_stream(device, 0, &stream), "create_stream");
  const auto forward = [&] {
    rig.Ok(pw_forward(kernels, device, stream, &model, &work, PW_EXPERT_LAYER,
                      &memory),
           "pw_forward");
  };
  forward();
  rig.Ok(kernels->synchronize(device, stream), "synchronize");
  const Values want = rig.Get(memory.output, 2 * 64 * model.hidden, type);
  rig.Fill(memory.output, size.boundary, 0xff);
  rig.Ok(kernels->begin_graph(device, stream), "begin_graph");
  forward();
  rig.Ok(kernels->end_graph(device, stream, &graph), "end_graph");
  if (graph != nullptr) {
    rig.Ok(kernels->launch_graph(device, stream, graph), "launch_graph");
  }
  rig.Ok(kernels->synchronize(device, stream), "synchronize");
  compare.Device("output", memory.output, type, want);
  kernels->destroy_graph(device, graph);
  kernels->destroy_stream(device, stream);
  return compare.Result();
}

// Two streams take turns at a sum, each waiting for the other's event; the
// host reads it behind the last one.
KernelResult Streams(const PwKernels* kernels, PwDevice* device, PwType) {
  constexpr int kTurns = 16;
  constexpr int64_t kCount = 1000;
  KernelRig rig(kernels, device);
  KernelCompare compare(&rig, 0);
  Values ones(kCount, 1);
  Values zeros(kCount);
  const float* ones_there = static_cast<const float*>(rig.Put(&ones, PW_FP32));
  float* sum = static_cast<float*>(rig.Put(&zeros, PW_FP32));
  PwStream* streams[2] = {};
  PwEvent* events[2] = {};
  for (int index = 0; index < 2; ++index) {
    rig.Ok(kernels->create_stream(device, 0, &streams[index]), "create_stream");
    rig.Ok(kernels->create_event(device, &events[index]), "create_event");
  }
  // y = x + y, then y = y + y: another order gives another number.
  double want = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    const int own = turn % 2;
    if (turn > 0) {
      rig.Ok(kernels->wait(device, streams[own], events[1 - own]), "wait");
    }
    const float* from = own == 0 ? ones_there : sum;
    rig.Ok(kernels->accumulate(device, streams[own], kCount, from, sum),
           "accumulate");
    rig.Ok(kernels->record(device, streams[own], events[own]), "record");
    want += own == 0 ? 1 : want;
  }
  std::vector<float> got(kCount);
  void* pinned = nullptr;
  const size_t bytes = kCount * sizeof(float);
  rig.Ok(kernels->allocate_host(device, bytes, &pinned), "allocate_host");
  rig.Ok(
      kernels->copy(device, streams[1], PW_DEVICE_TO_HOST, pinned, sum, bytes),
      "copy");
  rig.Ok(kernels->synchronize(device, streams[1]), "synchronize");
  memcpy(got.data(), pinned, bytes);
  compare.Tensor("sum", Values(got.begin(), got.end()), Values(kCount, want));
  kernels->release_host(device, pinned);
  for (int index = 0; index < 2; ++index) {
    kernels->destroy_event(device, events[index]);
    kernels->destroy_stream(device, streams[index]);
  }
  return compare.Result();
}

// What is behind a hold starts at the release and not before; events say how
// long it took.
KernelResult Hold(const PwKernels* kernels, PwDevice* device, PwType) {
  KernelRig rig(kernels, device);
  KernelCompare compare(&rig, 0);
  Values before = RandomValues(1024, 1, 1);
  void* memory = rig.Put(&before, PW_FP32);
  PwStream* stream = nullptr;
  PwEvent* events[2] = {};
  rig.Ok(kernels->create_stream(device, 1, &stream), "create_stream");
  for (PwEvent*& event : events) {
    rig.Ok(kernels->create_event(device, &event), "create_event");
  }
  rig.Ok(kernels->flush_cache(device, stream), "flush_cache");
  rig.Ok(kernels->synchronize(device, stream), "synchronize");
  rig.Ok(kernels->hold_stream(device, stream), "hold_stream");
  rig.Ok(kernels->record(device, stream, events[0]), "record");
  rig.Ok(kernels->flush_cache(device, stream), "flush_cache");
  rig.Ok(kernels->zero(device, stream, memory, 1024 * sizeof(float)), "zero");
  rig.Ok(kernels->record(device, stream, events[1]), "record");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  int32_t done = 1;
  rig.Ok(kernels->query(device, events[0], &done), "query");
  Values seen = {static_cast<double>(done)};
  rig.Ok(kernels->release_streams(device), "release_streams");
  rig.Ok(kernels->synchronize(device, stream), "synchronize");
  rig.Ok(kernels->query(device, events[1], &done), "query");
  seen.push_back(done);
  double seconds = -1;
  rig.Ok(kernels->elapsed(device, events[0], events[1], &seconds), "elapsed");
  // Overwriting a cache takes microseconds; the hold is not in it.
  seen.push_back(seconds > 1e-6 && seconds < 0.04 ? 1 : 0);
  compare.Tensor("not started, ended, time", seen, {0, 1, 1});
  compare.Tensor("zeroed", rig.Get(memory, 1024, PW_FP32), Values(1024, 0.0));
  for (PwEvent* event : events) kernels->destroy_event(device, event);
  kernels->destroy_stream(device, stream);
  return compare.Result();
}

// fp32 -> fp8 -> fp32 gives what the host's arithmetic gives, bit for bit.
KernelResult Fp8Convert(const PwKernels* kernels, PwDevice* device, PwType) {
  constexpr int64_t kCount = 4099;
  KernelRig rig(kernels, device);
  KernelCompare compare(&rig, 0);
  Values values = RandomValues(kCount, 1, 600);
  for (int64_t index = 0; index < kCount; index += 2) {
    values[static_cast<size_t>(index)] *= 1e-5;
  }
  const void* from = rig.Put(&values, PW_FP32);
  void* narrow = rig.Space(static_cast<size_t>(kCount));
  void* back = rig.Space(kCount, PW_FP32);
  rig.Ok(
      kernels->convert(device, nullptr, PW_FP8, narrow, PW_FP32, from, kCount),
      "convert");
  rig.Ok(
      kernels->convert(device, nullptr, PW_FP32, back, PW_FP8, narrow, kCount),
      "convert");
  Values want;
  for (const double value : values) {
    want.push_back(
        cuda::FloatOfFp8(cuda::Fp8OfFloat(static_cast<float>(value))));
  }
  compare.Device("values", back, PW_FP32, want);
  return compare.Result();
}

}  // namespace

std::vector<KernelCheck> CudaChecks() {
  return {
      {"fp8 conversion", false, false, Fp8Convert},
      // Devices before compute capability 8.9 refuse it.
      {"fp8 gemm", false, true, Fp8Gemm},
      {"fp8 gemm, e5m2 gradients and scales", false, true, Fp8ScaledGemm},
      {"graph of a grouped gemm", false, false, Graph},
      {"graph of a layer of experts", false, false, ExpertGraph},
      {"streams in turns", false, false, Streams},
      {"held stream", false, false, Hold},
  };
}

}  // namespace pipewright
