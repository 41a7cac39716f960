// The CPU backend: every primitive in every instruction set that this machine
// has, its memory and clocks, and what it refuses.
#include <math.h>
#include <string.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cpu/bf16_gemm.h"
#include "kernels/cpu/choice.h"
#include "kernels/cpu/device.h"
#include "kernels/cpu/fp8.h"
#include "kernels/cpu/loops.h"
#include "kernels/cuda/grouped_layout.h"
#include "kernels/kernels.h"
#include "sim/base/worst.h"
#include "tests/support/kernel_checks.h"

namespace pipewright::cpu_test {
namespace {

void RunAll(const std::vector<KernelCheck>& checks, const PwKernels* kernels,
            PwDevice* device, PwType type, bool gemm) {
  for (const KernelCheck& check : checks) {
    if (check.gemm && !gemm) continue;
    const KernelResult result = check.run(kernels, device, type);
    INFO(check.name << ": " << result.tensor << " error " << result.error
                    << " of " << result.tolerance << " " << result.problem);
    CHECK(result.ok());
  }
}

TEST_CASE("kernels: every primitive is that of the reference", "[kernels]") {
  for (const Loops* loops : AllLoops()) {
    INFO(loops->name);
    PwDevice device(*loops);
    RunAll(PrimitiveChecks(), pw_cpu_kernels(), &device, PW_FP32, true);
    RunAll(PrimitiveChecks(), pw_cpu_kernels(), &device, PW_BF16, false);
  }
}

Bf16Gemm* AnyBf16Gemm() {
  static const std::unique_ptr<Bf16Gemm> gemm =
      Bf16Gemm::Create(Bf16Products::kOn);
  return gemm.get();
}

PwStatus GemmOfAnySpeed(PwDevice*, PwStream*, const PwGemm* gemm, const void* a,
                        const void* b, const void* bias, void* c) {
  return AnyBf16Gemm()->Run(*gemm, a, b, bias, c);
}

// Each expert by itself.
PwStatus GroupedOfAnySpeed(PwDevice*, PwStream*, const PwGemm* gemm,
                           int32_t groups, const int64_t* tokens_of,
                           const void* a, const void* b, void* c) {
  const cuda::GroupSteps steps = cuda::StepsOf(*gemm);
  int64_t before = 0;
  for (int32_t group = 0; group < groups; ++group) {
    PwGemm one = *gemm;
    one.tokens = tokens_of[group];
    if (one.tokens == 0) continue;
    const PwStatus status = AnyBf16Gemm()->Run(
        one, static_cast<const char*>(a) + steps.a.Bytes(before, group),
        static_cast<const char*>(b) + steps.b.Bytes(before, group), nullptr,
        static_cast<char*>(c) + steps.c.Bytes(before, group));
    if (status != PW_OK) return status;
    before += one.tokens;
  }
  return PW_OK;
}

// Without AMX oneDNN's bf16 is too slow to offer, but the same code.
TEST_CASE("kernels: bf16 by oneDNN, passes included", "[kernels]") {
  if (AnyBf16Gemm() == nullptr) {
    WARN("skipped: no oneDNN 2, or no bf16 in it on this processor");
    return;
  }
  PwKernels kernels = *pw_cpu_kernels();
  kernels.gemm = GemmOfAnySpeed;
  kernels.grouped_gemm = GroupedOfAnySpeed;
  PwDevice device(*AllLoops().back());
  std::vector<KernelCheck> checks;
  for (const KernelCheck& check : PrimitiveChecks()) {
    if (check.name.find("gemm ") == 0) checks.push_back(check);
  }
  CHECK(checks.size() > 3);
  RunAll(checks, &kernels, &device, PW_BF16, true);
  RunAll(PassChecks(), &kernels, &device, PW_BF16, true);
}

TEST_CASE("kernels: the built-in GEMM is that of the reference", "[kernels]") {
  const int64_t sizes[][3] = {
      {1, 1, 1}, {14, 32, 7}, {15, 33, 400}, {200, 70, 5}, {3, 2100, 391}};
  for (const Loops* loops : AllLoops()) {
    for (const auto& [rows, columns, depth] : sizes) {
      for (int kind = 0; kind < 8; ++kind) {
        const bool transpose_a = kind & 1;
        const bool transpose_b = kind & 2;
        const float beta = kind & 4 ? 0.5f : 0.0f;
        INFO(loops->name << " " << rows << "x" << columns << "x" << depth
                         << " kind " << kind);
        const int64_t a_stride = (transpose_a ? rows : depth) + 3;
        const int64_t b_stride = (transpose_b ? depth : columns) + 5;
        const int64_t c_stride = columns + 1;
        const Values a =
            RandomValues(a_stride * (transpose_a ? depth : rows), 1, 1);
        const Values b =
            RandomValues(b_stride * (transpose_b ? columns : depth), 2, 1);
        const Values c = RandomValues(c_stride * rows, 3, 1);
        const std::vector<float> a_single(a.begin(), a.end());
        const std::vector<float> b_single(b.begin(), b.end());
        std::vector<float> got(c.begin(), c.end());
        if (beta == 0) got[0] = NAN;  // must not be read
        std::vector<float> packing(kSgemmPacking);
        loops->sgemm({transpose_a, transpose_b, rows, columns, depth, 2.0f,
                      a_stride, b_stride, beta, c_stride},
                     a_single.data(), b_single.data(), got.data(),
                     packing.data());
        double error = 0;
        for (int64_t row = 0; row < rows; ++row) {
          for (int64_t column = 0; column < columns; ++column) {
            double want = beta * c[row * c_stride + column];
            for (int64_t step = 0; step < depth; ++step) {
              want += 2 *
                      a[transpose_a ? step * a_stride + row
                                    : row * a_stride + step] *
                      b[transpose_b ? column * b_stride + step
                                    : step * b_stride + column];
            }
            error = WorseOf(error, fabs(got[row * c_stride + column] - want));
          }
          if (row == 0) continue;
          // Nothing between the rows is touched.
          error += got[row * c_stride - 1] !=
                   static_cast<float>(c[row * c_stride - 1]);
        }
        CHECK(error < 1e-5 * (1 + sqrt(depth)));
      }
    }
  }
}

TEST_CASE("kernels: exp is within two units in the last place", "[kernels]") {
  constexpr int64_t kCount = 200000;
  for (const Loops* loops : AllLoops()) {
    INFO(loops->name);
    std::vector<float> scores(kCount);
    std::vector<float> want(kCount);
    for (int64_t index = 1; index < kCount; ++index) {
      scores[index] = -87.0 * index / kCount;
    }
    const std::vector<float> inputs = scores;
    float sum;
    float lse;
    // The first score, 0, is the maximum.
    loops->softmax_strip(1, kCount, kCount, false, 1.0f, kCount, scores.data(),
                         &sum, &lse);
    double largest = 0;
    for (int64_t index = 0; index < kCount; ++index) {
      const double exact = exp(static_cast<double>(inputs[index]));
      const double unit = ldexp(1.0, ilogb(exact) - 23);
      largest = WorseOf(largest, fabs(scores[index] - exact) / unit);
    }
    CHECK(largest < 2);
    CHECK(largest > 0);
  }
}

TEST_CASE("kernels: fp8 is to nearest over all its numbers", "[kernels]") {
  for (int bits = 0; bits < 256; ++bits) {
    const float value = FromFp8(bits);
    if (isnan(value)) {
      CHECK((bits & 0x7f) == 0x7f);
      continue;
    }
    CHECK(ToFp8(value) == bits);
    if ((bits & 0x7f) >= 0x7e) continue;
    const float next = FromFp8(bits + 1);
    const float middle = (value + next) / 2;
    CHECK(ToFp8(middle) == bits + (bits & 1));
    CHECK(ToFp8(nextafterf(middle, value)) == bits);
    CHECK(ToFp8(nextafterf(middle, next)) == bits + 1);
  }
}

TEST_CASE("kernels: equal inputs give equal bits at any address", "[kernels]") {
  const PwKernels* kernels = pw_cpu_kernels();
  PwDevice* device = nullptr;
  REQUIRE(kernels->open(0, &device) == PW_OK);
  constexpr int64_t kTokens = 65;
  constexpr int64_t kInputs = 51;
  constexpr int64_t kOutputs = 47;
  std::vector<float> first;
  for (int64_t shift = 0; shift < 16; ++shift) {
    std::vector<float> x(kTokens * kInputs + shift);
    std::vector<float> w(kOutputs * kInputs + shift);
    std::vector<float> y(kTokens * kOutputs + shift);
    std::vector<float> statistics(2 * kTokens);
    kernels->random(device, nullptr, PW_FP32, x.data() + shift,
                    kTokens * kInputs, 1, 1);
    kernels->random(device, nullptr, PW_FP32, w.data() + shift,
                    kOutputs * kInputs, 2, 1);
    const PwGemm gemm = {PW_GEMM_FORWARD, PW_FP32, kTokens, kInputs, kOutputs};
    REQUIRE(kernels->gemm(device, nullptr, &gemm, x.data() + shift,
                          w.data() + shift, nullptr,
                          y.data() + shift) == PW_OK);
    REQUIRE(kernels->norm_forward(device, nullptr, PW_RMS_NORM, PW_FP32,
                                  kTokens, kOutputs, 1e-5f, y.data() + shift,
                                  w.data() + shift, nullptr, y.data() + shift,
                                  statistics.data()) == PW_OK);
    std::vector<float> here(y.begin() + shift, y.end());
    here.insert(here.end(), statistics.begin(), statistics.end());
    if (shift == 0) first = here;
    CHECK(memcmp(first.data(), here.data(), 4 * here.size()) == 0);
  }
  kernels->close(device);
}

TEST_CASE("kernels: the CPU's memory, clock and description", "[kernels]") {
  const PwKernels* kernels = pw_cpu_kernels();
  CHECK(kernels->abi == PW_KERNELS_ABI);
  CHECK(std::string(kernels->name) == "cpu");
  REQUIRE(kernels->device_count() == 1);
  PwDevice* device = nullptr;
  CHECK(kernels->open(1, &device) == PW_NO_DEVICE);
  CHECK(std::string(kernels->error()).find("device 0 only") !=
        std::string::npos);
  REQUIRE(kernels->open(0, &device) == PW_OK);
  PwDeviceInfo info;
  REQUIRE(kernels->info(device, &info) == PW_OK);
  CHECK(std::string(info.name) != "");
  CHECK((info.types & 1 << PW_FP32) != 0);
  CHECK(info.fp8_gemm == 2);
  CHECK(info.cores == static_cast<int>(std::thread::hardware_concurrency()));
  CHECK(info.deterministic == 1);
  CHECK(info.free_bytes > 0);
  CHECK(info.free_bytes <= info.memory_bytes);
  CHECK(std::string(kernels->implementation(device)) != "");
  PwDeviceState state;
  REQUIRE(kernels->state(device, &state) == PW_OK);
  CHECK(state.power_w < 0);

  void* memory = nullptr;
  CHECK(kernels->allocate(device, size_t{1} << 50, &memory) == PW_NO_MEMORY);
  CHECK(std::string(kernels->error()).find("1125899906842624 bytes") == 0);
  CHECK(memory == nullptr);
  for (const size_t bytes : {size_t{1}, size_t{100}, size_t{9} << 20}) {
    REQUIRE(kernels->allocate(device, bytes, &memory) == PW_OK);
    CHECK(reinterpret_cast<uintptr_t>(memory) % 64 == 0);
    CHECK(kernels->zero(device, nullptr, memory, bytes) == PW_OK);
    CHECK(static_cast<char*>(memory)[bytes - 1] == 0);
    kernels->release(device, memory);
  }

  PwEvent* before = nullptr;
  PwEvent* after = nullptr;
  REQUIRE(kernels->create_event(device, &before) == PW_OK);
  REQUIRE(kernels->create_event(device, &after) == PW_OK);
  REQUIRE(kernels->record(device, nullptr, before) == PW_OK);
  REQUIRE(kernels->flush_cache(device, nullptr) == PW_OK);
  REQUIRE(kernels->record(device, nullptr, after) == PW_OK);
  int32_t done = 0;
  CHECK(kernels->query(device, after, &done) == PW_OK);
  CHECK(done == 1);
  double seconds = 0;
  CHECK(kernels->elapsed(device, before, after, &seconds) == PW_OK);
  CHECK(seconds > 0);
  CHECK(kernels->elapsed(device, after, before, &seconds) == PW_OK);
  CHECK(seconds < 0);
  kernels->destroy_event(device, before);
  kernels->destroy_event(device, after);
  PwGraph* graph = nullptr;
  CHECK(kernels->begin_graph(device, nullptr) == PW_INVALID);
  CHECK(kernels->end_graph(device, nullptr, &graph) == PW_INVALID);
  kernels->close(device);
}

TEST_CASE("kernels: what the CPU cannot do is refused with a reason",
          "[kernels]") {
  const PwKernels* kernels = pw_cpu_kernels();
  PwDevice* device = nullptr;
  REQUIRE(kernels->open(0, &device) == PW_OK);
  float x[64] = {};
  const auto refused = [&](PwStatus status, const std::string& reason) {
    INFO(kernels->error());
    CHECK(status == PW_INVALID);
    CHECK(std::string(kernels->error()).find(reason) != std::string::npos);
  };
  PwGemm gemm = {PW_GEMM_FORWARD, PW_FP32, 2, 2, 0};
  refused(kernels->gemm(device, nullptr, &gemm, x, x, nullptr, x),
          "outputs is 0");
  gemm = {PW_GEMM_BACKWARD_INPUT, PW_FP32, 2, 2, 2};
  refused(kernels->gemm(device, nullptr, &gemm, x, x, x, x), "bias");
  const int64_t tokens_of[2] = {1, 2};
  gemm = {PW_GEMM_FORWARD, PW_FP8, 3, 2, 2};
  refused(kernels->grouped_gemm(device, nullptr, &gemm, 2, tokens_of, x, x, x),
          "fp32");
  gemm.tokens = 0;
  refused(kernels->gemm(device, nullptr, &gemm, x, x, nullptr, x),
          "tokens is 0");
  refused(kernels->quantize(device, nullptr, PW_FP8, 1, 1, x, 0, x, x, x),
          "fp32 or bf16");
  refused(kernels->quantize(device, nullptr, PW_FP32, 0, 1, x, 0, x, x, x),
          "rows is 0");
  gemm = {PW_GEMM_FORWARD, PW_FP32, 2, 2, 2};
  refused(kernels->grouped_gemm(device, nullptr, &gemm, 2, tokens_of, x, x, x),
          "3 tokens of 2");
  refused(kernels->add(device, nullptr, PW_FP8, 4, x, x, x), "fp32 or bf16");
  refused(
      kernels->rotary(device, nullptr, PW_FP32, 1, 1, 1, 3, 3, 0, 1e4f, 0, x),
      "odd");
  PwAttention attention = {PW_FP32, 1, 1, 2, 1, 1, 1, 4, 4, 4, 4, 1.0f};
  refused(
      kernels->attention_forward(device, nullptr, &attention, x, x, x, x, x, x),
      "fewer keys");
  attention = {PW_FP32, 1, 1, 1, 1, 3, 2, 4, 12, 8, 12, 1.0f};
  refused(
      kernels->attention_forward(device, nullptr, &attention, x, x, x, x, x, x),
      "3 heads in 2 groups");
  attention = {PW_FP32, 1, 1, 1, 1, 2, 2, 4, 7, 8, 8, 1.0f};
  refused(kernels->attention_backward(device, nullptr, &attention, x, x, x, x,
                                      x, x, x, x, x, x),
          "stride");
  refused(kernels->copy_rows(device, nullptr, PW_FP32, 2, 4, x, 3, x, 4),
          "stride");
  const PwAdam adam = {0.1f, 0.9f, 0.9f, 1e-8f, 0, 0, 1};
  refused(
      kernels->adam(device, nullptr, &adam, PW_FP32, 4, x, x, x, x, nullptr),
      "step is 0");
  refused(kernels->predict(device, nullptr, &adam, -1, PW_FP32, 4, x, x, x, x),
          "steps count from 0");
  refused(kernels->predict(device, nullptr, &adam, 1, PW_FP8, 4, x, x, x, x),
          "fp32 or bf16");
  int32_t id = 0;
  refused(kernels->random_ids(device, nullptr, &id, 1, 1, 0), "limit is 0");
  kernels->close(device);
}

}  // namespace
}  // namespace pipewright::cpu_test
