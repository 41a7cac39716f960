// Sequences, microbatches and lists exactly at their limits, and one beyond.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/base/status.h"
#include "sim/config/prepare.h"
#include "sim/model/lengths.h"
#include "sim/model/packer.h"
#include "sim/model/pass_work.h"
#include "tests/support/prepare.h"
#include "tests/support/run_binary.h"

namespace pipewright::sequence_limits_test {
namespace {

using testing::Prepared;
using testing::PrepareText;
using testing::TemporaryFolder;
using testing::Warns;

std::string MessageOf(const absl::Status& status) {
  return std::string(status.message());
}

TEST_CASE("sequences: limits of a microbatch are taken", "[sequences]") {
  for (const PackerTraits& traits : kPackers) {
    INFO(traits.name);
    PackRequest request = {.lengths = {64, 10, 20, 34},
                           .max_token_len = 64,
                           .packer = traits.packer};
    const auto packing = Pack(request);
    INFO(packing.status());
    REQUIRE(packing.ok());
    // The first one, and the other three together.
    CHECK(packing->at(0).size() == (traits.packs ? 2 : 4));
    request.lengths[0] = 65;
    CHECK(Pack(request).ok() == !traits.packs);
    if (!traits.packs) continue;
    CHECK_THAT(MessageOf(Pack(request).status()),
               Catch::Contains("sample 0 has 65 tokens") &&
                   Catch::Contains("more than the 64"));
    request.lengths = {63, 10, 20, 35};
    CHECK(Pack(request)->at(0).size() > 2);
  }
  CHECK(FillBins({3, 2, 5}, 5, BinChoice::kFirst).size() == 2);
  CHECK(FillBins({3, 2, 5}, 5, BinChoice::kBest).size() == 2);
}

TEST_CASE("sequences: limits of the number of microbatches are taken",
          "[sequences]") {
  for (const PackerTraits& traits : kPackers) {
    INFO(traits.name);
    PackRequest request = {.lengths = {3, 4, 5},
                           .max_token_len = 5,
                           .packer = traits.packer,
                           .least_microbatches = 3};
    const auto packing = Pack(request);
    INFO(packing.status());
    REQUIRE(packing.ok());
    CHECK(packing->at(0).size() == 3);
    request.least_microbatches = 4;
    CHECK_THAT(MessageOf(Pack(request).status()),
               Catch::Contains("strategy.microbatches"));
  }
}

TEST_CASE("sequences: limits of laws and bins are drawn", "[sequences]") {
  const auto at = [](const char* law, double probability) {
    const auto parsed = ParseLengthLaw(law);
    INFO(law << ": " << parsed.status());
    REQUIRE(parsed.ok());
    return parsed->At(probability);
  };
  CHECK(at("uniform:3-4", 0) == 3);
  CHECK(at("uniform:3-4", 0.49) == 3);
  CHECK(at("uniform:3-4", 0.51) == 4);
  CHECK(at("uniform:3-4", 1) == 4);
  CHECK(at("uniform:1-10", 0.95) == 10);
  // Without spread all have the median, or the most.
  CHECK(at("lognormal:100,0,1,50", 0.5) == 50);
  CHECK(at("lognormal:100,0,1,500", 0.5) == 100);
  CHECK(at("lognormal:100,0,100,500", 0.5) == 100);
  CHECK_FALSE(ParseLengthLaw("lognormal:99,0,100,500").ok());
  CHECK(at(absl::StrCat("constant:", kMostLength).c_str(), 0.5) == kMostLength);
  CHECK_FALSE(ParseLengthLaw(absl::StrCat("constant:", kMostLength + 1)).ok());
  const auto longest = [](const std::vector<std::string>& bins) {
    return LengthSource::OfHistogram(*ParseHistogram(bins)).longest();
  };
  CHECK(longest({"100-199:1"}) == 199);
  CHECK(longest({"100-199:1", "7:3"}) == 199);
  CHECK(longest({"7:3", "100-199:1", "150:2"}) == 199);
}

ModelSpec MixedModel() {
  ModelSpec model;
  model.name = "mixed";
  model.layers = 3;
  model.hidden = 64;
  model.heads = model.kv_heads = 4;
  model.ffn_hidden = 128;
  model.gated = true;
  model.vocabulary = 100;
  model.sequence = 256;
  return model;
}

TEST_CASE("sequences: limits of layer kinds: two that predict, one dense",
          "[sequences]") {
  const auto linear = [](const ModelSpec& model) {
    return WorksOf(model, TrainingSpec(), 0).forward.linear;
  };
  std::vector<double> predicting;
  for (const int64_t layers : {0, 1, 2}) {
    ModelSpec model = MixedModel();
    model.mtp_layers = layers;
    predicting.push_back(linear(model));
  }
  CHECK(predicting[1] > 1.1 * predicting[0]);
  CHECK(predicting[2] - predicting[0] ==
        Approx(2 * (predicting[1] - predicting[0])));
  std::vector<double> dense;
  for (const int64_t first : {0, 1, 2, 3}) {
    ModelSpec model = MixedModel();
    model.experts = 8;
    model.experts_per_token = 4;
    model.expert_ffn_hidden = 128;
    model.first_dense_layers = first;
    dense.push_back(linear(model));
  }
  CHECK(dense[0] > 1.1 * dense[3]);
  CHECK(dense[0] - dense[1] == Approx((dense[0] - dense[3]) / 3));
  CHECK(dense[0] - dense[2] == Approx(2 * (dense[0] - dense[3]) / 3));
}

// Passes of 1 s.
std::string RunText(const std::string& schedule, const std::string& strategy,
                    const std::string& sequences,
                    const std::string& more = "") {
  return absl::StrCat(
      "schedule: {name: ", schedule, "}\n",
      "costs: {uniform: {forward: 1s, backward_input: 1s, backward_weight: "
      "1s}, p2p: 0s, gradient_bytes: 1GiB}\nengine: fast\nstrategy: {",
      strategy, "}\nsequences: {", sequences, "}\n", more);
}

TEST_CASE("sequences: limits of a file: all of its lengths, and no more",
          "[sequences]") {
  const TemporaryFolder folder;
  const std::string file = folder.Write("lengths.csv", "8\n16\n24\n32\n");
  const auto run = [&](int minibatch) {
    return PrepareText(
        RunText("gpipe", "pp: 1, dp: 2, data_parallel: ddp",
                absl::StrCat("lengths: '", file, "', minibatch: ", minibatch)));
  };
  const auto all = run(2);
  INFO(all.status());
  REQUIRE(all.ok());
  CHECK(all->sequences->samples == 4);
  CHECK(all->sequences->tokens == 80);
  CHECK_THAT(
      MessageOf(run(3).status()),
      Catch::Contains("sequences.minibatch") && Catch::Contains("at most 2"));
}

TEST_CASE("sequences: limits of the base: it divides by tp and cp",
          "[sequences]") {
  const auto base = [](const std::string& degrees) {
    return Prepared(RunText("gpipe", "pp: 1, " + degrees,
                            "lengths: 'constant:1100', minibatch: 2"))
        .sequences->base_sequence;
  };
  CHECK(base("tp: 1") == 18 * 64);
  CHECK(base("cp: 4") == 5 * 64 * 4);
  CHECK(base("tp: 2, cp: 4") == 3 * 64 * 8);
  const PreparedRun two =
      Prepared(RunText("gpipe", "pp: 1, microbatch_size: 2, sequence: 1100",
                       "lengths: 'constant:1100', minibatch: 2, packer: none"));
  // Times are those of two samples, a microbatch has one.
  CHECK(two.sequences->base_samples == 2);
  CHECK(two.sequences->classes[0].forward == std::vector<double>{0.5, 0.5});
}

TEST_CASE("sequences: limits of memory: more tokens than the base are told",
          "[sequences]") {
  const auto warns = [](int sequence) {
    return Warns(
        Prepared(RunText("gpipe", absl::StrCat("pp: 1, sequence: ", sequence),
                         "lengths: 'constant:128', minibatch: 2, packer: none",
                         "model: {preset: gpt-tiny}\n")),
        "tokens, and the longest has 128");
  };
  CHECK_FALSE(warns(128));
  CHECK(warns(64));
}

TEST_CASE("sequences: limits of recomputation: one chunk of three",
          "[sequences]") {
  const auto backward = [](const std::string& more) {
    return Prepared(
               RunText("interleaved-1f1b",
                       "pp: 2, vpp: 3, sequence: 128" + more,
                       "lengths: 'constant:128', minibatch: 4, packer: none",
                       "model: {preset: gpt-tiny, layers: 12}\n"))
        .sequences->works.backward_input.linear;
  };
  const double none = backward("");
  const double all = backward(", recompute: full");
  const double one = backward(", recompute: full, recompute_chunks: [1]");
  const double two = backward(", recompute: full, recompute_chunks: [0, 1]");
  CHECK(all > 1.2 * none);
  CHECK(one - none == Approx((all - none) / 3));
  CHECK(two - none == Approx((all - none) * 2 / 3));
}

}  // namespace
}  // namespace pipewright::sequence_limits_test
