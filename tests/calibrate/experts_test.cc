// A calibration of a model with experts: both kinds of layers, ep, single
// kernels; and what it takes of them.
#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "calibrate/grid.h"
#include "calibrate/session.h"
#include "tests/support/fake_kernels.h"

namespace pipewright::experts_test {
namespace {

using testing::FakeKernels;

CalibrateOptions TinyExperts(int64_t first_dense) {
  CalibrateOptions options;
  options.model.name = "tiny";
  options.model.layers = 2;
  options.model.hidden = 32;
  options.model.heads = options.model.kv_heads = 2;
  options.model.ffn_hidden = first_dense > 0 ? 64 : 0;
  options.model.gated = true;
  options.model.vocabulary = 32;
  options.model.sequence = 16;
  options.model.experts = 4;
  options.model.experts_per_token = 2;
  options.model.expert_ffn_hidden = 24;
  options.model.shared_ffn_hidden = 8;
  options.model.first_dense_layers = first_dense;
  options.grid.quick = true;
  options.budget_s = 0;
  options.rounds = 3;
  return options;
}

Profile Measure(const CalibrateOptions& options, const PwKernels* kernels) {
  CalibrateHooks hooks;
  hooks.stop = [] { return false; };
  hooks.save = [](const Profile&) { return absl::OkStatus(); };
  const auto result = Calibrate(kernels, options, hooks);
  INFO(result.status());
  REQUIRE(result.ok());
  CHECK(result->missing == 0);
  return result->profile;
}

std::set<std::string> PassKeys(const Profile& profile) {
  std::set<std::string> keys;
  for (const PassEntry& entry : profile.passes) keys.insert(KeyOf(entry));
  return keys;
}

TEST_CASE("calibrate: dense layers and those of experts are apart",
          "[calibrate]") {
  CalibrateOptions options = TinyExperts(1);
  options.grid.eps = {1, 2};
  const Profile profile = Measure(options, FakeKernels({}));
  const std::set<std::string> keys = PassKeys(profile);
  // Embedding F B W BW; head the same; five of a dense layer; five of experts
  // for each ep.
  CHECK(keys.size() == 4 + 4 + 5 + 10);
  CHECK(keys.count("layer BW llama h32 a2 d16 f64 fp32 b1 s16 tp1") == 1);
  CHECK(keys.count("expert-layer R llama h32 a2 d16 e4/2 f24 shared f8 fp32 b1 "
                   "s16 tp1") == 1);
  CHECK(keys.count("expert-layer W llama h32 a2 d16 e4/2 f24 shared f8 fp32 b1 "
                   "s16 tp1 ep2") == 1);
  for (const PassEntry& entry : profile.passes) {
    INFO(KeyOf(entry));
    const bool experts = entry.part == ProfilePart::kExpertLayer;
    CHECK((entry.ep > 0) == experts);
    if (experts && entry.pass == ProfilePass::kForward) {
      // 2 T (h (a + 2 g) d + a d h + h E + 3 h (2 f + s)), and attention.
      CHECK(entry.flops ==
            2.0 * 16 * (32 * 96 + 32 * 32 + 32 * 4 + 3 * 32 * (48 + 8)) +
                2.0 * 16 * 16 * 32);
      CHECK(entry.gemm_s > 0);
    }
  }
  // A chain of each kind of layer and ep, with and without R.
  std::set<std::string> splits;
  for (const SplitEntry& entry : profile.splits) {
    splits.insert(KeyOf(entry));
    CHECK(std::count_if(profile.passes.begin(), profile.passes.end(),
                        [&](const PassEntry& pass) {
                          return IsSplitOf(entry, pass);
                        }) == 5);
  }
  CHECK(splits.size() == 6);
  CHECK(splits.count("split F+B+W llama h32 a2 d16 e4/2 f24 shared f8 fp32 b1 "
                     "s16 tp1 ep2") == 1);
  const auto read = ReadProfile(WriteProfile(profile), "p");
  REQUIRE(read.ok());
  CHECK(PassKeys(*read) == keys);
  CHECK(read->passes == profile.passes);
  CHECK(absl::StrContains(profile.sources[0].warnings[0],
                          "every expert gets equally many rows"));
}

TEST_CASE("calibrate: a model of experts alone has no dense layer",
          "[calibrate]") {
  const Profile profile = Measure(TinyExperts(0), FakeKernels({}));
  CHECK(PassKeys(profile).size() == 4 + 4 + 5);
  CHECK(profile.splits.size() == 2);
  std::set<std::string> kernels;
  for (const KernelEntry& entry : profile.kernels) {
    kernels.insert(KeyOf(entry));
    if (entry.name != "grouped_gemm.backward_weight") continue;
    CHECK(entry.flops == 2.0 * 32 * 24 * 32 * (entry.shape[1] == 24 ? 1 : 2));
  }
  // Two rows a token: up and down, and the router and shared ones as plain.
  CHECK(kernels.count("grouped_gemm.forward 32x32x48x4 fp32") == 1);
  CHECK(kernels.count("grouped_gemm.backward_weight 32x24x32x4 fp32") == 1);
  CHECK(kernels.count("gemm.forward 16x32x4 fp32") == 1);
  CHECK(kernels.count("gemm.backward_input 16x8x32 fp32") == 1);
  CHECK(kernels.count("swiglu.forward 32x24 fp32") == 1);
}

TEST_CASE("calibrate: passes of experts are not timed as graphs",
          "[calibrate]") {
  // A capture cannot take the one call for all experts that `execute` makes.
  const Profile profile =
      Measure(TinyExperts(0), FakeKernels({.name = "cuda", .capability = 90}));
  for (const PassEntry& entry : profile.passes) {
    INFO(KeyOf(entry));
    CHECK(entry.graph.count == 0);
  }
  const Grid grid = MakeGrid(TinyExperts(0).model, PW_FP32, {}).value();
  for (const Shape& shape : grid.shapes) CHECK(shape.model.balanced == 1);
}

TEST_CASE("calibrate: shapes of experts that cannot be are refused",
          "[calibrate]") {
  const ModelSpec model = TinyExperts(1).model;
  const auto error = [&](const ShapeOptions& options) {
    return std::string(MakeGrid(model, PW_FP32, options).status().message());
  };
  CHECK(absl::StrContains(error({.eps = {3}}),
                          "--ep: 3 is not allowed; allowed: divisors of the 4 "
                          "experts of tiny"));
  CHECK(absl::StrContains(error({.tps = {16}}), "of experts 24 and 8"));
  CHECK(MakeGrid(*FindModel("mixtral-8x7b"), PW_BF16, {}).ok());
  CHECK(MakeGrid(*FindModel("qwen3-30b-a3b"), PW_BF16, {}).ok());
  const Grid grid = MakeGrid(model, PW_FP32, {.eps = {4, 2}}).value();
  CHECK(grid.parts ==
        std::vector<PwPart>{PW_EMBEDDING, PW_LAYER, PW_EXPERT_LAYER, PW_HEAD});
  CHECK(grid.shapes.front().ep() == 2);
  CHECK(grid.shapes.back().ep() == 4);
}

}  // namespace
}  // namespace pipewright::experts_test
