// What layer.h says of a part without running it: checks, sizes, weights, work.
#include "kernels/layer.h"

#include <math.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace pipewright::layer_test {
namespace {

PwModel Llama() {
  PwModel model{};
  model.style = PW_LLAMA;
  model.hidden = 4096;
  model.heads = 32;
  model.kv_heads = 8;
  model.head_dim = 128;
  model.ffn = 14336;
  model.vocabulary = 128256;
  model.sequence = 8192;
  model.causal = 1;
  model.tp = 1;
  model.epsilon = 1e-5f;
  model.rotary_base = 500000;
  return model;
}

PwWork Work(int64_t sequence) { return {1, sequence, 0, sequence}; }

std::string Reason(const PwModel& model, const PwWork& work) {
  char reason[256] = "";
  CHECK(pw_check_model(&model, &work, reason, sizeof(reason)) == PW_INVALID);
  // Whatever cannot be does not run either.
  PwPartSize size{};
  const PwKernels* kernels = pw_cpu_kernels();
  CHECK(pw_part_size(kernels, nullptr, &model, &work, PW_LAYER, &size) ==
        PW_INVALID);
  const PwPartMemory memory{};
  for (const auto pass :
       {pw_forward, pw_backward_input, pw_backward_weight, pw_backward_full}) {
    CHECK(pass(kernels, nullptr, nullptr, &model, &work, PW_LAYER, &memory) ==
          PW_INVALID);
  }
  return reason;
}

TEST_CASE("kernels layer: what cannot be is refused with a reason",
          "[kernels]") {
  PwModel model = Llama();
  char reason[256] = "";
  PwWork work = Work(64);
  CHECK(pw_check_model(&model, &work, reason, sizeof(reason)) == PW_OK);
  model.ffn = 0;
  CHECK(Reason(model, Work(64)) == "ffn is 0, must be at least 1");
  model = Llama();
  model.tp = 3;
  CHECK(Reason(model, Work(64)) == "tp 3 does not divide heads 32");
  model = Llama();
  model.kv_heads = 6;
  model.tp = 4;
  CHECK(Reason(model, Work(64)) ==
        "kv_heads 6 and tp 4: neither divides the other");
  model.tp = 1;
  CHECK(Reason(model, Work(64)) == "kv_heads 6 does not divide heads 32");
  model = Llama();
  model.head_dim = 65;
  CHECK(Reason(model, Work(64)) == "head_dim 65 is odd: no rotary positions");
  model = Llama();
  model.rotary_base = 0;
  CHECK(Reason(model, Work(64)) == "rotary_base 0 must be above 0");
  model = Llama();
  model.epsilon = -1;
  CHECK(Reason(model, Work(64)) == "epsilon -1 must not be below 0");
  model = Llama();
  model.type = PW_FP8;
  CHECK(Reason(model, Work(64)) == "type must be fp32 or bf16");
  model = Llama();
  model.style = static_cast<PwStyle>(2);
  CHECK(Reason(model, Work(64)) == "style 2 is neither GPT nor Llama");
  model = Llama();
  CHECK(Reason(model, {1, 64, 48, 32}) ==
        "slice [48, 80) is not inside a sequence of 64 tokens");
  CHECK(Reason(model, {1, 64, -16, 32}) ==
        "slice [-16, 16) is not inside a sequence of 64 tokens");
  model.causal = 0;
  CHECK(Reason(model, {1, 64, 0, 32}) == "slices need causal attention");
  model = Llama();
  model.tp = 8;
  model.sequence_parallel = 1;
  CHECK(Reason(model, Work(60)) ==
        "sequence_parallel: tp 8 does not divide 60 tokens");
  model = Llama();
  model.style = PW_GPT;
  CHECK(Reason(model, Work(8193)) ==
        "sequence 8193 is longer than the model's 8192 positions");
  model = Llama();
  model.fp8_linear = 1;
  CHECK(pw_check_model(&model, &work, reason, sizeof(reason)) == PW_OK);
  CHECK(Reason(model, Work(40)) ==
        "fp8: tokens of one device, 40, must be a multiple of 16");
  model.tp = 2;
  model.ffn = 48;
  CHECK(Reason(model, work) ==
        "fp8: ffn of one device, 24, must be a multiple of 16");
  model.ffn = 64;
  model.sequence_parallel = 1;
  CHECK(Reason(model, work).find("fp8: no sequence_parallel") == 0);
}

PwStatus InfoWithoutFp8(PwDevice* device, PwDeviceInfo* info) {
  const PwStatus status = pw_cpu_kernels()->info(device, info);
  info->fp8_gemm = 0;
  return status;
}

TEST_CASE("kernels layer: fp8 is refused where the device has none",
          "[kernels]") {
  PwKernels kernels = *pw_cpu_kernels();
  PwDevice* device = nullptr;
  REQUIRE(kernels.open(0, &device) == PW_OK);
  PwModel model = Llama();
  model.fp8_linear = 1;
  const PwWork work = Work(64);
  PwPartSize size{};
  char reason[256] = "";
  CHECK(pw_check_device(&kernels, device, &model, reason, sizeof(reason)) ==
        PW_OK);
  CHECK(pw_part_size(&kernels, device, &model, &work, PW_LAYER, &size) ==
        PW_OK);
  kernels.info = InfoWithoutFp8;
  CHECK(pw_check_device(&kernels, device, &model, reason, sizeof(reason)) ==
        PW_INVALID);
  CHECK(std::string(reason).find(" has no fp8") != std::string::npos);
  CHECK(pw_part_size(&kernels, device, &model, &work, PW_LAYER, &size) ==
        PW_INVALID);
  model.fp8_linear = 0;
  CHECK(pw_part_size(&kernels, device, &model, &work, PW_LAYER, &size) ==
        PW_OK);
  kernels.close(device);
}

int64_t Parameters(const PwModel& model, PwPart part) {
  PwTensor tensors[PW_MAX_TENSORS];
  const int32_t count = pw_part_tensors(&model, part, tensors);
  int64_t sum = 0;
  for (int32_t index = 0; index < count; ++index) {
    CHECK(tensors[index].offset >= sum);
    CHECK(tensors[index].offset % 32 == 0);
    sum = tensors[index].offset + tensors[index].rows * tensors[index].columns;
  }
  return sum;
}

// Llama 3 8B has 8,030,261,248 parameters (Dubey et al., arXiv 2407.21783, and
// its model card's configuration); GPT-2's layer of hidden 768 has 12 h^2 +
// 13 h.
TEST_CASE("kernels layer: parameters of known models", "[kernels]") {
  const PwModel llama = Llama();
  CHECK(32 * Parameters(llama, PW_LAYER) + Parameters(llama, PW_EMBEDDING) +
            Parameters(llama, PW_HEAD) ==
        8030261248);
  PwModel gpt = Llama();
  gpt.style = PW_GPT;
  gpt.hidden = 768;
  gpt.heads = gpt.kv_heads = 12;
  gpt.head_dim = 64;
  gpt.ffn = 3072;
  CHECK(Parameters(gpt, PW_LAYER) == 12 * 768 * 768 + 13 * 768);
  gpt.tp = 2;
  // Halves of the matrices and of the biases of their columns; the rest whole.
  CHECK(Parameters(gpt, PW_LAYER) == 6 * 768 * 768 + 7 * 768 / 2 + 6 * 768);
}

TEST_CASE("kernels layer: sizes of the blocks", "[kernels]") {
  const PwKernels* kernels = pw_cpu_kernels();
  PwDevice* device = nullptr;
  REQUIRE(kernels->open(0, &device) == PW_OK);
  PwModel model = Llama();
  model.type = PW_BF16;
  PwPartSize size{};
  PwWork work = Work(4096);
  REQUIRE(pw_part_size(kernels, device, &model, &work, PW_LAYER, &size) ==
          PW_OK);
  const size_t tokens = 4096;
  // Input and middle, statistics, queries with keys and values, log-sum-exp,
  // gate and up.
  CHECK(size.saved == tokens * (2 * 2 * 4096 + 2 * 2 * 4 + 2 * 6144 + 4 * 32 +
                                2 * 2 * 14336));
  CHECK(size.inputs == tokens * 2 * (3 * 4096 + 14336));
  CHECK(size.grads == tokens * 2 * (6144 + 2 * 4096 + 2 * 14336));
  CHECK(size.cache == 0);
  CHECK(size.boundary == tokens * 2 * 4096);
  model.tp = 4;
  model.sequence_parallel = 1;
  REQUIRE(pw_part_size(kernels, device, &model, &work, PW_LAYER, &size) ==
          PW_OK);
  CHECK(size.boundary == tokens * 2 * 4096 / 4);
  CHECK(size.inputs == tokens * 2 * (2 * 4096 + (4096 + 14336) / 4));
  model.tp = 1;
  model.sequence_parallel = 0;
  work = {1, 4096, 1024, 1024};
  REQUIRE(pw_part_size(kernels, device, &model, &work, PW_LAYER, &size) ==
          PW_OK);
  // Keys, values and their gradients of the whole sequence.
  CHECK(size.cache == tokens * 2 * 2 * 2048);
  work = Work(4096);
  REQUIRE(pw_part_size(kernels, device, &model, &work, PW_LAYER, &size) ==
          PW_OK);
  CHECK(size.quantized == 0);
  const size_t saved = size.saved;
  model.fp8_linear = 1;
  REQUIRE(pw_part_size(kernels, device, &model, &work, PW_LAYER, &size) ==
          PW_OK);
  // A byte each, and four scales; B wants the output of attention as it is.
  CHECK(size.inputs == tokens * (3 * 4096 + 14336) + 256);
  CHECK(size.grads == tokens * (6144 + 2 * 4096 + 2 * 14336) + 256);
  CHECK(size.saved == saved + tokens * 2 * 4096);
  // Each matrix along its rows and its columns.
  CHECK(size.quantized == 2 * 4096 * (6144 + 4096 + 3 * 14336) + 256);
  REQUIRE(pw_part_size(kernels, device, &model, &work, PW_HEAD, &size) ==
          PW_OK);
  CHECK(size.quantized == 0);
  kernels->close(device);
}

TEST_CASE("kernels layer: equal seeds give equal weights", "[kernels]") {
  const PwKernels* kernels = pw_cpu_kernels();
  PwDevice* device = nullptr;
  REQUIRE(kernels->open(0, &device) == PW_OK);
  PwModel model = Llama();
  model.hidden = model.ffn = 40;
  model.vocabulary = 50;
  model.style = PW_GPT;
  const int64_t elements = Parameters(model, PW_LAYER);
  std::vector<float> first(elements + 32, 7);
  std::vector<float> second(elements + 32, 8);
  std::vector<float> other(elements + 32, 9);
  std::vector<float> copy(elements + 32, 9);
  const auto make = [&](uint64_t seed, std::vector<float>* master,
                        void* weights) {
    REQUIRE(pw_initialize(kernels, device, nullptr, &model, PW_LAYER, seed,
                          master->data(), weights) == PW_OK);
  };
  make(1, &first, nullptr);
  make(1, &second, copy.data());
  make(2, &other, nullptr);
  first.resize(elements);
  second.resize(elements);
  other.resize(elements);
  copy.resize(elements);
  CHECK(first == second);
  CHECK(first == copy);
  CHECK(first != other);
  PwTensor tensors[PW_MAX_TENSORS];
  const int32_t count = pw_part_tensors(&model, PW_LAYER, tensors);
  double before = 2;
  for (int32_t index = 0; index < count; ++index) {
    const PwTensor& tensor = tensors[index];
    INFO(tensor.name);
    const int64_t size = tensor.rows * tensor.columns;
    double sum = 0;
    double squares = 0;
    for (int64_t element = 0; element < size; ++element) {
      const double value = first[tensor.offset + element];
      sum += value / size;
      squares += pow(value - tensor.mean, 2) / size;
    }
    // Uniform from mean - init to mean + init: five standard deviations of the
    // estimates from so many numbers.
    const double spread = tensor.init / sqrt(3.0);
    const double samples = static_cast<double>(size);
    CHECK(sum == Approx(tensor.mean).margin(5 * spread / sqrt(samples) + 1e-6));
    CHECK(squares == Approx(spread * spread)
                         .margin(5 * spread * spread * sqrt(0.8 / samples)));
    if (tensor.init == 0) continue;
    // No matrix repeats the one before.
    CHECK(first[tensor.offset] != before);
    before = first[tensor.offset];
  }
  kernels->close(device);
}

TEST_CASE("kernels layer: floating-point operations", "[kernels]") {
  const PwModel model = Llama();
  PwWork work = Work(4096);
  double linear = 0;
  double attention = 0;
  // 2 T [h (a + 2 g) d + a d h + 3 h f]; causal attention 2 s^2 a d.
  pw_pass_flops(&model, &work, PW_LAYER, PW_PASS_F, &linear, &attention);
  CHECK(linear ==
        2.0 * 4096 * (4096.0 * 6144 + 4096.0 * 4096 + 3.0 * 4096 * 14336));
  CHECK(attention == 2.0 * 4096 * 4096 * 4096);
  const double forward = linear;
  pw_pass_flops(&model, &work, PW_LAYER, PW_PASS_B, &linear, &attention);
  CHECK(linear == forward);
  CHECK(attention == 5.0 * 4096 * 4096 * 4096);
  pw_pass_flops(&model, &work, PW_LAYER, PW_PASS_W, &linear, &attention);
  CHECK(linear == forward);
  CHECK(attention == 0);
  // Slices add up to the whole.
  double sum = 0;
  for (int64_t first = 0; first < 4096; first += 1024) {
    work = {1, 4096, first, 1024};
    pw_pass_flops(&model, &work, PW_LAYER, PW_PASS_F, &linear, &attention);
    sum += attention;
  }
  CHECK(sum == 2.0 * 4096 * 4096 * 4096);
  pw_pass_flops(&model, &work, PW_HEAD, PW_PASS_W, &linear, &attention);
  CHECK(linear == 2.0 * 1024 * 4096 * 128256);
  pw_pass_flops(&model, &work, PW_EMBEDDING, PW_PASS_F, &linear, &attention);
  CHECK(linear == 0);
  PwGemm gemms[8];
  REQUIRE(pw_pass_gemms(&model, &work, PW_LAYER, PW_PASS_B, gemms) == 4);
  CHECK(gemms[0].pass == PW_GEMM_BACKWARD_INPUT);
  CHECK(gemms[0].inputs == 14336);
  CHECK(gemms[0].outputs == 4096);
  CHECK(gemms[3].outputs == 6144);
  PwModel eight = model;
  eight.type = PW_BF16;
  eight.fp8_linear = 1;
  for (const PwPassKind pass : {PW_PASS_F, PW_PASS_B, PW_PASS_W}) {
    REQUIRE(pw_pass_gemms(&eight, &work, PW_LAYER, pass, gemms) == 4);
    for (int index = 0; index < 4; ++index) {
      CHECK(gemms[index].type == PW_FP8);
      CHECK(gemms[index].dy_e5m2 == (pass == PW_PASS_F ? 0 : 1));
      CHECK(gemms[index].transposed == 1);
      CHECK(gemms[index].fp32_output == 0);
    }
    REQUIRE(pw_pass_gemms(&eight, &work, PW_HEAD, pass, gemms) == 1);
    CHECK(gemms[0].type == PW_BF16);
  }
}

}  // namespace
}  // namespace pipewright::layer_test
