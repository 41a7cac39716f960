// Degrees of parallelism that are rarely used together: experts split less than
// the rest, an odd number of chunks, parts of a context without replicas, two
// layers that predict.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/base/file.h"
#include "sim/base/status.h"
#include "sim/config/prepare.h"
#include "sim/profile/profile.h"
#include "tests/support/prepare.h"
#include "tests/support/run_binary.h"
#include "tests/support/tiny_profile.h"

namespace pipewright::degrees_test {
namespace {

using testing::Prepared;
using testing::PrepareText;
using testing::TemporaryFolder;
using testing::Warns;

std::string RunText(const std::string& schedule, const std::string& model,
                    const std::string& strategy, const std::string& more = "") {
  return absl::StrCat(
      "schedule: {name: ", schedule, "}\n",
      model.empty() ? "" : absl::StrCat("model: {", model, "}\n"),
      "strategy: {microbatches: 8, ", strategy, "}\n", more);
}

std::string MessageOf(const std::string& text) {
  return std::string(PrepareText(text).status().message());
}

// Experts of mixtral, all of their weights.
constexpr double kExperts = 32.0 * 8 * 3 * 4096 * 14336;

TEST_CASE("degrees: experts that are split less than the rest", "[config]") {
  const auto gradients = [](const std::string& etp) {
    return Prepared(RunText("1f1b", "preset: mixtral-8x7b",
                            "pp: 1, dp: 4, tp: 2, ep: 2, sequence_parallel: "
                            "true, etp: " +
                                etp))
        .lower.gradient_bytes[0];
  };
  // Whole experts: half of them, over the four devices that have the same.
  // Halves: a quarter of them, over two devices: half a buffer's ring against
  // 3/4 of one.
  CHECK(gradients("1") - gradients("2") ==
        Approx(4 * kExperts * (0.5 - 0.25 * 0.5 / 0.75)).epsilon(1e-9));
}

TEST_CASE("degrees: experts that devices of a rank share are told",
          "[config]") {
  const auto told = [](const std::string& strategy) {
    return Warns(
        Prepared(RunText("1f1b", "preset: moe-tiny",
                         "pp: 2, sequence_parallel: true, " + strategy)),
        "devices of a rank hold the same experts");
  };
  CHECK(told("tp: 4, ep: 2, etp: 1"));
  // Each device has its own.
  CHECK_FALSE(told("tp: 4, ep: 4, etp: 1"));
  CHECK_FALSE(told("tp: 2, ep: 2, etp: 1"));
  // With replicas it takes time.
  CHECK_FALSE(told("tp: 4, dp: 2, ep: 2, etp: 1"));
}

TEST_CASE("degrees: layers that predict are on the last stage, each of them",
          "[config]") {
  const auto run = [](int layers, const std::string& more) {
    return Prepared(
        RunText("1f1b", absl::StrCat("preset: gpt-tiny, mtp_layers: ", layers),
                absl::StrCat("pp: 2, dp: 2", more)));
  };
  const auto gradients = [&](int layers) {
    return run(layers, "").lower.gradient_bytes;
  };
  // Megatron's table of words on the stage that predicts.
  const double table = 4 * 512 * 256;
  const std::vector<double> none = gradients(0);
  const std::vector<double> one = gradients(1);
  const std::vector<double> two = gradients(2);
  CHECK(one[0] == none[0]);
  CHECK(two[0] == none[0]);
  CHECK(one[1] > 1.05 * none[1]);
  CHECK(two[1] - none[1] - table == Approx(2 * (one[1] - none[1] - table)));
  CHECK(run(0, "").lower.tied_bytes == 0);
  CHECK(run(1, "").lower.tied_bytes == table);
  CHECK(run(1, ", framework: megatron").lower.tied_bytes == table);
  CHECK(run(1, ", framework: torchtitan").lower.tied_bytes == 0);
}

TEST_CASE("degrees: three chunks have a third of what a rank has", "[config]") {
  const std::string times =
      "costs: {uniform: {forward: 3s, backward: 6s}, gradient_bytes: 3GiB}\n";
  const PreparedRun run =
      Prepared(RunText("interleaved-1f1b", "", "pp: 2, vpp: 3, dp: 2", times));
  CHECK(run.lower.gradient_bytes == std::vector<double>(6, double{1 << 30}));
  for (const StageCosts& stage : run.costs.passes.stages) {
    CHECK(stage.forward_s == Approx(1));
  }
  const std::string model = "preset: gpt-tiny, layers: 12";
  CHECK(Prepared(RunText("interleaved-1f1b", model,
                         "pp: 2, vpp: 3, recompute: full, "
                         "recompute_chunks: [2]"))
            .prepared_model->training.recompute_chunks ==
        std::vector<bool>{false, false, true});
  CHECK_THAT(MessageOf(RunText("interleaved-1f1b", model,
                               "pp: 2, vpp: 3, recompute: full, "
                               "recompute_chunks: [3]")),
             Catch::Contains("strategy.recompute_chunks") &&
                 Catch::Contains("0 to 2"));
}

TEST_CASE("degrees: parts of a context without replicas need their devices",
          "[config]") {
  const auto devices = [](const std::string& strategy) {
    const auto run = PrepareText(RunText("1f1b", "preset: gpt-tiny", strategy,
                                         "system: {preset: dgx-h100}\n"));
    INFO(run.status());
    REQUIRE(run.ok());
    return run->network.links.cluster->num_devices();
  };
  CHECK(devices("pp: 2, cp: 4") == 8);
  CHECK(devices("pp: 2, cp: 4, mapping: [0, 4]") == 8);
  CHECK(devices("pp: 2, cp: 4, mapping: [2, 6]") == 16);
  CHECK(devices("pp: 2, tp: 2, cp: 2, mapping: [2, 6]") == 16);
}

TEST_CASE("degrees: replicas on one node need no buffers of others",
          "[config]") {
  const auto devices_of_node = [](const std::string& degrees) {
    return Prepared(RunText("1f1b", "preset: gpt-tiny",
                            "pp: 1, data_parallel: odc, " + degrees))
        .prepared_model->training.sharded.devices_of_node;
  };
  CHECK(devices_of_node("dp: 8") == 0);
  CHECK(devices_of_node("dp: 4, tp: 2") == 0);
  CHECK(devices_of_node("dp: 16") == 8);
  CHECK(devices_of_node("dp: 8, tp: 2") == 8);
}

TEST_CASE("degrees: tokens of a batch in thousands of all kinds", "[config]") {
  const auto samples = [](const std::string& batch) {
    return Prepared(absl::StrCat(
                        "schedule: {name: 1f1b}\nmodel: {preset: gpt-tiny}\n",
                        "strategy: {pp: 2, dp: 1, global_batch: ", batch, "}\n",
                        testing::kTimes))
        .config.strategy.microbatches;
  };
  // A sample of gpt-tiny has 128 tokens.
  CHECK(samples("256Ktokens") == 2000);
  CHECK(samples("0.256Mtokens") == 2000);
  CHECK(samples("0.000256Gtokens") == 2000);
  CHECK(samples("256Kitokens") == 2048);
  CHECK(samples("1Mitokens") == 8192);
  CHECK(samples("0.0009765625Gitokens") == 8192);
}

TEST_CASE("degrees: a spread table is summed in its parts", "[config]") {
  const auto tied = [](const std::string& vocabulary) {
    return Prepared(RunText("1f1b", "preset: gpt-tiny, tied_embeddings: true",
                            "pp: 4, dp: 2, vocabulary: " + vocabulary))
        .lower.tied_bytes;
  };
  CHECK(tied("ends") == 4.0 * 512 * 256);
  CHECK(tied("spread") == Approx(tied("ends")));
}

// A profile whose collectives were measured over two, and passes with `tp`.
std::string MeasuredOverTwo(const TemporaryFolder& folder, int tp) {
  Profile profile = testing::TinyProfile();
  for (PassEntry& entry : profile.passes) entry.tp = tp;
  profile.transfers.clear();
  for (const char* operation : {"all_reduce", "all_gather", "reduce_scatter"}) {
    for (const int64_t bytes : {int64_t{1000}, int64_t{1000000000000}}) {
      profile.transfers.push_back(
          {.operation = operation,
           .transport = "threads",
           .ranks = 2,
           .bytes = bytes,
           .time = testing::Around(3e-3 * static_cast<double>(bytes)),
           .nodes = 1});
    }
  }
  return folder.Write("profile.txtpb", WriteProfile(profile));
}

PreparedRun ProfiledRun(const std::string& schedule,
                        const std::string& strategy, int tp) {
  const TemporaryFolder folder;
  return Prepared(RunText(
      schedule, "preset: gpt-tiny", strategy,
      absl::StrCat("costs: {profile: '", MeasuredOverTwo(folder, tp), "'}\n")));
}

TEST_CASE("degrees: both copies of a mirrored stage were measured together",
          "[config]") {
  CHECK(ProfiledRun("chimera", "pp: 4", 1).costs.measured_collectives ==
        "all_reduce over 2");
}

TEST_CASE("degrees: a ring a tensor part is not the one that was measured",
          "[config]") {
  CHECK(ProfiledRun("1f1b", "pp: 1, dp: 2", 1).costs.measured_collectives ==
        "all_reduce over 2");
  const PreparedRun rings = ProfiledRun("1f1b", "pp: 1, dp: 2, tp: 2", 2);
  CHECK(rings.costs.measured_collectives.empty());
  CHECK(Warns(rings, "with tp or cp several rings run at once"));
}

}  // namespace
}  // namespace pipewright::degrees_test
