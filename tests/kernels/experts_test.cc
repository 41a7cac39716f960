// What layer.h says of a layer of experts without running it.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "kernels/layer.h"

namespace pipewright::experts_test {
namespace {

// Jiang et al., arXiv 2401.04088, table 1.
PwModel Mixtral() {
  PwModel model{};
  model.style = PW_LLAMA;
  model.type = PW_BF16;
  model.hidden = 4096;
  model.heads = 32;
  model.kv_heads = 8;
  model.head_dim = 128;
  model.vocabulary = 32000;
  model.sequence = 4096;
  model.causal = 1;
  model.tp = 1;
  model.epsilon = 1e-5f;
  model.rotary_base = 1000000;
  model.experts = 8;
  model.experts_per_token = 2;
  model.expert_ffn = 14336;
  model.ep = 1;
  model.balanced = 1;
  return model;
}

constexpr PwWork kWork = {1, 4096, 0, 4096};

std::string Reason(const PwModel& model) {
  char reason[256] = "";
  CHECK(pw_check_model(&model, &kWork, reason, sizeof(reason)) == PW_INVALID);
  return reason;
}

int64_t Parameters(const PwModel& model, PwPart part) {
  PwTensor tensors[PW_MAX_TENSORS];
  const int32_t count = pw_part_tensors(&model, part, tensors);
  REQUIRE(count <= PW_MAX_TENSORS);
  int64_t sum = 0;
  for (int32_t index = 0; index < count; ++index) {
    sum += tensors[index].rows * tensors[index].columns;
  }
  return sum;
}

TEST_CASE("kernels experts: what cannot be is refused with a reason",
          "[kernels]") {
  PwModel model = Mixtral();
  char reason[256] = "";
  CHECK(pw_check_model(&model, &kWork, reason, sizeof(reason)) == PW_OK);
  model.experts_per_token = 9;
  CHECK(Reason(model) == "experts_per_token is 9, must be 1 to 8");
  model = Mixtral();
  model.experts = 0;
  model.ffn = 1;
  CHECK(Reason(model) == "experts is 0, but not all else of expert layers");
  model = Mixtral();
  model.ep = 3;
  CHECK(Reason(model) == "ep 3 does not divide experts 8");
  model = Mixtral();
  model.expert_ffn = 0;
  CHECK(Reason(model) ==
        "expert_ffn is 0, must be a multiple of tp 1, at least 1");
  model = Mixtral();
  model.tp = 8;
  model.shared_ffn = 4;
  CHECK(Reason(model) == "shared_ffn is 4, must be 0 or a multiple of tp 8");
  model = Mixtral();
  model.sequence_parallel = 1;
  CHECK(Reason(model).find("sequence_parallel with experts") == 0);
}

TEST_CASE("kernels experts: a part that a model has not is refused",
          "[kernels]") {
  const PwKernels* kernels = pw_cpu_kernels();
  PwPartSize size{};
  const PwPartMemory memory{};
  PwModel model = Mixtral();
  // No dense layer: its ffn is 0.
  CHECK(pw_part_size(kernels, nullptr, &model, &kWork, PW_LAYER, &size) ==
        PW_INVALID);
  CHECK(pw_forward(kernels, nullptr, nullptr, &model, &kWork, PW_LAYER,
                   &memory) == PW_INVALID);
  model = Mixtral();
  model.ffn = 64;
  model.experts = model.experts_per_token = model.ep = model.balanced = 0;
  model.expert_ffn = 0;
  CHECK(pw_part_size(kernels, nullptr, &model, &kWork, PW_EXPERT_LAYER,
                     &size) == PW_INVALID);
  CHECK(pw_backward_full(kernels, nullptr, nullptr, &model, &kWork,
                         PW_EXPERT_LAYER, &memory) == PW_INVALID);
}

// 46.7 B parameters, as its model card says.
TEST_CASE("kernels experts: parameters of Mixtral", "[kernels]") {
  PwModel model = Mixtral();
  CHECK(32 * Parameters(model, PW_EXPERT_LAYER) +
            Parameters(model, PW_EMBEDDING) + Parameters(model, PW_HEAD) ==
        46702792704);
  // The experts are divided by ep, the rest is on every device.
  const int64_t experts = int64_t{8} * 3 * 4096 * 14336;
  const int64_t all = Parameters(model, PW_EXPERT_LAYER);
  model.ep = 4;
  CHECK(Parameters(model, PW_EXPERT_LAYER) == all - experts * 3 / 4);
  model.ep = 1;
  model.shared_ffn = 1024;
  CHECK(Parameters(model, PW_EXPERT_LAYER) == all + 3 * 4096 * 1024);
  model.shared_ffn = 0;
  model.tp = 2;
  // Not the router, not the norms.
  CHECK(Parameters(model, PW_EXPERT_LAYER) == (all + 8 * 4096 + 2 * 4096) / 2);
}

TEST_CASE("kernels experts: work of a pass", "[kernels]") {
  PwModel model = Mixtral();
  model.shared_ffn = 512;
  double linear = 0;
  double attention = 0;
  const double tokens = 4096;
  const double want = 2 * tokens *
                      (4096.0 * 6144 + 4096.0 * 4096 + 4096.0 * 8 +
                       2 * 3 * 4096.0 * 14336 + 3 * 4096.0 * 512);
  for (const PwPassKind pass : {PW_PASS_F, PW_PASS_B, PW_PASS_W}) {
    pw_pass_flops(&model, &kWork, PW_EXPERT_LAYER, pass, &linear, &attention);
    CHECK(linear == want);
    CHECK((attention > 0) == (pass != PW_PASS_W));
    PwGemm gemms[8];
    int32_t groups[8];
    const int32_t count =
        pw_pass_gemms(&model, &kWork, PW_EXPERT_LAYER, pass, gemms);
    REQUIRE(count == 7);
    REQUIRE(pw_pass_groups(&model, &kWork, PW_EXPERT_LAYER, pass, groups) == 7);
    for (int32_t index = 0; index < count; ++index) {
      INFO("pass " << pass << " product " << index);
      const bool grouped = gemms[index].tokens == 2 * 4096;
      CHECK(groups[index] == (grouped ? 8 : 1));
      CHECK((gemms[index].inputs == 14336 ||
             gemms[index].outputs == 2 * 14336) == grouped);
    }
  }
  // ep makes the groups fewer, not the rows.
  model.ep = 4;
  int32_t groups[8];
  pw_pass_groups(&model, &kWork, PW_EXPERT_LAYER, PW_PASS_F, groups);
  CHECK(groups[3] == 2);
  double other = 0;
  pw_pass_flops(&model, &kWork, PW_EXPERT_LAYER, PW_PASS_F, &other, &attention);
  CHECK(other == want);
  // No product of a dense layer is grouped.
  model.ffn = 64;
  REQUIRE(pw_pass_groups(&model, &kWork, PW_LAYER, PW_PASS_W, groups) == 4);
  for (int32_t index = 0; index < 4; ++index) CHECK(groups[index] == 1);
}

TEST_CASE("kernels experts: balanced rows differ by one at most", "[kernels]") {
  std::vector<int64_t> rows(7);
  pw_balanced_rows(24, 7, rows.data());
  CHECK(rows == std::vector<int64_t>{4, 4, 4, 3, 3, 3, 3});
  pw_balanced_rows(3, 7, rows.data());
  CHECK(rows == std::vector<int64_t>{1, 1, 1, 0, 0, 0, 0});
}

TEST_CASE("kernels experts: the grouped products are those of the rows",
          "[kernels]") {
  const PwKernels* kernels = pw_cpu_kernels();
  PwDevice* device = nullptr;
  REQUIRE(kernels->open(0, &device) == PW_OK);
  PwModel model = Mixtral();
  PwPartSize size{};
  REQUIRE(pw_part_size(kernels, device, &model, &kWork, PW_EXPERT_LAYER,
                       &size) == PW_OK);
  const size_t tokens = 4096;
  const size_t rows = 2 * tokens;
  // As a dense layer's, with two rows a token in the block, the rows that come
  // back, and ids, weights and places.
  CHECK(size.saved == tokens * (2 * 2 * 4096 + 2 * 2 * 4 + 2 * 6144 + 4 * 32) +
                          rows * (2 * 2 * 14336 + 2 * 4096 + 3 * 4));
  CHECK(size.inputs == tokens * 2 * 3 * 4096 + rows * 2 * (4096 + 14336) + 256);
  CHECK(size.grads ==
        tokens * 2 * (6144 + 4096 + 8) + rows * 2 * (2 * 14336 + 4096));
  // Counts that are not those of the rows are refused by the product.
  const PwGemm gemm = {PW_GEMM_FORWARD, PW_FP32, 4, 8, 8};
  const int64_t tokens_of[] = {1, 2};
  std::vector<float> numbers(256, 1);
  CHECK(kernels->grouped_gemm(device, nullptr, &gemm, 2, tokens_of,
                              numbers.data(), numbers.data(),
                              numbers.data()) == PW_INVALID);
  const PwRoute route = {PW_FP32, 4, 8, 2, 3, 0};
  std::vector<int32_t> ids(64);
  CHECK(kernels->route_forward(device, nullptr, &route, numbers.data(),
                               ids.data(), numbers.data(), ids.data(),
                               ids.data()) == PW_INVALID);
  CHECK(std::string(kernels->error()) ==
        "route_forward: own experts 3 do not divide 8");
  kernels->close(device);
}

}  // namespace
}  // namespace pipewright::experts_test
