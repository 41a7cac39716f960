// A whole calibration on kernels whose clock is written down: what is
// measured, what is saved, what a resumed run still does.
#include "calibrate/session.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "calibrate/device.h"
#include "calibrate/memory_subjects.h"
#include "calibrate/thread_group.h"
#include "tests/support/fake_kernels.h"
#include "tests/support/tiny_calibration.h"

namespace pipewright::session_test {
namespace {

using testing::FakeKernels;
using testing::TinyCalibration;

struct Saves {
  int count = 0;
  int stop_after = -1;  // asks
  int asks = 0;
  Profile last;
  CalibrateHooks Hooks() {
    return {.stop = [this] { return stop_after >= 0 && ++asks > stop_after; },
            .progress = nullptr,
            .save =
                [this](const Profile& partial) {
                  ++count;
                  last = partial;
                  return absl::OkStatus();
                }};
  }
};

TEST_CASE("calibrate: a budget with room for it goes over all layers",
          "[calibrate]") {
  Saves saves;
  CalibrateOptions options = TinyCalibration();
  options.budget_s = 1e6;
  const Profile profile =
      Calibrate(FakeKernels({}), options, saves.Hooks()).value().profile;
  for (const PassEntry& entry : profile.passes) {
    CHECK(entry.time.median_s == Approx(1e-3 / 4));
    CHECK(entry.time.count > 6);
  }
  // And one that has no room for anything, with what was spent before.
  options.budget_s = 100;
  options.spent_s = 111;
  options.refuses = true;
  Saves none;
  const auto refused = Calibrate(FakeKernels({}), options, none.Hooks());
  CHECK(refused.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK(none.count == 0);
}

TEST_CASE("calibrate: a session measures each pass of each part",
          "[calibrate]") {
  Saves saves;
  const CalibrateResult result =
      Calibrate(FakeKernels({}), TinyCalibration(), saves.Hooks()).value();
  const Profile& profile = result.profile;
  CHECK(profile.complete);
  CHECK(!result.interrupted);
  CHECK(result.missing == 0);
  CHECK(saves.count == 3);
  CHECK(!saves.last.complete);
  REQUIRE(profile.sources.size() == 1);
  CHECK(profile.sources[0].kind == "calibrate");
  CHECK(profile.sources[0].backend == "cpu");
  CHECK(!profile.sources[0].libraries.empty());
  std::set<std::string> keys;
  for (const PassEntry& entry : profile.passes) {
    keys.insert(KeyOf(entry));
    CHECK(entry.type == "fp32");
    // Without a budget two of the four copies of each part take turns in one
    // timing, and one where products are timed alone.
    CHECK(entry.time.median_s == Approx(1e-3 / 2));
    CHECK(entry.time.count == 6);
    // Implementation of the pass itself: B ends with a product, F of the head
    // too, and no embedding has one; attention is in the middle.
    CHECK(entry.implementation.empty() ==
          (entry.part == ProfilePart::kEmbedding));
    CHECK_FALSE(absl::StrContains(entry.implementation, "strips"));
    if (entry.part != ProfilePart::kEmbedding &&
        entry.pass != ProfilePass::kRecompute &&
        entry.pass != ProfilePass::kBackwardFull) {
      CHECK(entry.gemm_s == Approx(1e-3));
      CHECK(entry.flops > 0);
    }
  }
  CHECK(keys.size() == 13);
  CHECK(keys.count("layer R gpt h32 a2 d16 f64 fp32 b1 s16 tp1") == 1);
  CHECK(keys.count("embedding W gpt h32 v32 fp32 b1 s16 tp1") == 1);
  CHECK(keys.count("head BW gpt h32 v32 fp32 b1 s16 tp1") == 1);
  CHECK(profile.splits.size() == 2);
  CHECK(profile.copies.size() == 10);
  CHECK(profile.transfers.size() >= 8);
  CHECK(profile.optimizers.size() == 3);
  CHECK(std::count_if(
            profile.optimizers.begin(), profile.optimizers.end(),
            [](const OptimizerEntry& entry) { return entry.prediction; }) == 1);
  // It is a profile.
  CHECK(ReadProfile(WriteProfile(profile), "p").ok());
}

TEST_CASE("calibrate: a slice in the middle of layers is measured",
          "[calibrate]") {
  CalibrateOptions options = TinyCalibration();
  options.grid.sliced = {{2, 4}};
  Saves saves;
  const Profile profile =
      Calibrate(FakeKernels({}), options, saves.Hooks()).value().profile;
  const auto flops = [&](const std::string& key) {
    const auto found = std::find_if(
        profile.passes.begin(), profile.passes.end(),
        [&](const PassEntry& entry) { return KeyOf(entry) == key; });
    INFO(key);
    REQUIRE(found != profile.passes.end());
    return found->flops;
  };
  std::set<ProfilePass> passes;
  for (const PassEntry& entry : profile.passes) {
    if (entry.slices == 0) continue;
    CHECK(entry.slices == 4);
    CHECK(entry.microbatch_size == 2);
    CHECK(entry.part == ProfilePart::kLayer);
    CHECK(entry.gemm_s == 0);
    CHECK(entry.time.median_s > 0);
    passes.insert(entry.pass);
  }
  CHECK(passes.size() == 5);
  // Work on 8 tokens instead of 16; W has no attention.
  const double whole = flops("layer W gpt h32 a2 d16 f64 fp32 b1 s16 tp1");
  CHECK(flops("layer W gpt h32 a2 d16 f64 fp32 b2 s16 tp1 1/4 slice") ==
        Approx(whole / 2));
  CHECK(profile.splits.size() == 2);
  const absl::StatusOr<Profile> read = ReadProfile(WriteProfile(profile), "p");
  REQUIRE(read.ok());
  CHECK(std::count_if(
            read->passes.begin(), read->passes.end(),
            [](const PassEntry& entry) { return entry.slices == 4; }) == 5);
}

TEST_CASE("calibrate: single kernels of a layer and head are measured",
          "[calibrate]") {
  Saves saves;
  const Profile profile =
      Calibrate(FakeKernels({}), TinyCalibration(), saves.Hooks())
          .value()
          .profile;
  std::set<std::string> keys;
  for (const KernelEntry& entry : profile.kernels) {
    INFO(KeyOf(entry));
    keys.insert(KeyOf(entry));
    CHECK(entry.time.median_s == Approx(1e-3));
    CHECK(entry.time.count == 6);
    CHECK(entry.bytes > 0);
    const bool products = absl::StartsWith(entry.name, "gemm") ||
                          absl::StartsWith(entry.name, "attention");
    CHECK((entry.flops > 0) == products);
    CHECK(entry.implementation.empty() == !products);
  }
  CHECK(keys.size() == profile.kernels.size());
  // Query, key and value; output; two of the feed-forward block; the head's.
  CHECK(keys.count("gemm.forward 16x32x96 fp32") == 1);
  CHECK(keys.count("gemm.backward_input 16x32x32 fp32") == 1);
  CHECK(keys.count("gemm.backward_weight 16x64x32 fp32") == 1);
  CHECK(keys.count("attention.causal.forward 1x16x2x2x16 fp32") == 1);
  CHECK(keys.count("attention.causal.backward 1x16x2x2x16 fp32") == 1);
  CHECK(keys.count("layer_norm.backward 16x32 fp32") == 1);
  CHECK(keys.count("gelu.forward 16x64 fp32") == 1);
  CHECK(keys.count("cross_entropy.backward 16x32 fp32") == 1);
  // Five products, one of them twice: head and output are of one shape.
  CHECK(keys.size() == 3 * 4 + 8);
  const KernelEntry* product = nullptr;
  const KernelEntry* weight = nullptr;
  for (const KernelEntry& entry : profile.kernels) {
    if (KeyOf(entry) == "gemm.forward 16x32x96 fp32") product = &entry;
    if (KeyOf(entry) == "gemm.backward_weight 16x32x96 fp32") weight = &entry;
  }
  REQUIRE(product != nullptr);
  REQUIRE(weight != nullptr);
  CHECK(product->flops == 2.0 * 16 * 32 * 96);
  CHECK(product->bytes == 4.0 * (16 * 32 + 32 * 96 + 16 * 96));
  CHECK(weight->bytes == 4.0 * (16 * 32 + 2 * 32 * 96 + 16 * 96));
}

// The same numbers that a profile keeps: nobody hands the flags a rate.
TEST_CASE("calibrate: impossible rates of single kernels are flagged",
          "[calibrate]") {
  Saves saves;
  CalibrateOptions options = TinyCalibration();
  options.heat_s = 0;
  const CalibrateResult result =
      Calibrate(FakeKernels({.seconds = 1e-12, .name = "cuda"}), options,
                saves.Hooks())
          .value();
  const auto flagged = [&](absl::string_view start) {
    const auto& warnings = result.profile.sources.at(0).warnings;
    return std::any_of(warnings.begin(), warnings.end(),
                       [&](const std::string& warning) {
                         return absl::StartsWith(warning, start);
                       });
  };
  CHECK(flagged(
      "gemm.forward 16x32x96 fp32: 98304 TFLOP/s, more than the 10000"));
  CHECK(flagged("attention.causal.forward 1x16x2x2x16 fp32: "));
  CHECK(flagged("gelu.forward 16x64 fp32: "));
}

// Launches take longer than what they launch.
TEST_CASE("calibrate: a GPU's small passes are timed as graphs too",
          "[calibrate]") {
  Saves saves;
  CalibrateOptions options = TinyCalibration();
  options.heat_s = 0;
  options.type = "fp32";
  const Profile profile =
      Calibrate(FakeKernels({.name = "cuda", .capability = 90}), options,
                saves.Hooks())
          .value()
          .profile;
  int graphs = 0;
  for (const PassEntry& entry : profile.passes) {
    if (entry.part != ProfilePart::kLayer) {
      CHECK(entry.graph == Distribution());
      continue;
    }
    ++graphs;
    CHECK(entry.graph.median_s == Approx(1e-3 / 4));
    CHECK(entry.graph.count == entry.time.count);
  }
  CHECK(graphs == 5);
  const testing::FakeGraphs made = testing::GraphsOfFake();
  // F, R, B, W, F again, BW; anew when the arena is renewed, each launched
  // once before it is timed.
  CHECK(made.captured >= 6);
  CHECK(made.captured % 6 == 0);
  CHECK(made.destroyed == made.captured);
  CHECK(made.launched > 2 * made.captured);
  // A file keeps them, where there are any.
  const Profile read = ReadProfile(WriteProfile(profile), "p").value();
  REQUIRE(read.passes.size() == profile.passes.size());
  for (size_t index = 0; index < read.passes.size(); ++index) {
    const Distribution& graph = read.passes[index].graph;
    CHECK(graph.count == profile.passes[index].graph.count);
    CHECK(graph.median_s == Approx(profile.passes[index].graph.median_s));
  }
  // A backend without graphs has none.
  const Profile plain =
      Calibrate(FakeKernels({}), options, saves.Hooks()).value().profile;
  for (const PassEntry& entry : plain.passes) {
    CHECK(entry.graph == Distribution());
  }
}

TEST_CASE("calibrate: a GPU's clock is read once a round", "[calibrate]") {
  Saves saves;
  CalibrateOptions options = TinyCalibration();
  options.heat_s = 0;
  const CalibrateResult result =
      Calibrate(FakeKernels({.name = "cuda", .clock_step_mhz = 200}), options,
                saves.Hooks())
          .value();
  REQUIRE(result.profile.sources.size() == 1);
  const ProfileSource& source = result.profile.sources[0];
  // Once as the device is opened, once warm, then three rounds.
  CHECK(source.before.clock_mhz == 1200);
  CHECK(source.after.clock_mhz == 1800);
  CHECK(std::any_of(source.warnings.begin(), source.warnings.end(),
                    [](const std::string& warning) {
                      return absl::StrContains(warning,
                                               "between 1200 and 1800 MHz");
                    }));
}

TEST_CASE("calibrate: a resumed session does what is missing", "[calibrate]") {
  Saves first;
  first.stop_after = 30;
  CalibrateOptions options = TinyCalibration();
  const CalibrateResult broken =
      Calibrate(FakeKernels({}), options, first.Hooks()).value();
  CHECK(broken.interrupted);
  CHECK(!broken.profile.complete);
  CHECK(broken.missing > 0);
  CHECK(ReadProfile(WriteProfile(broken.profile), "p").ok());
  Saves second;
  options.done = broken.profile;
  const CalibrateResult whole =
      Calibrate(FakeKernels({}), options, second.Hooks()).value();
  CHECK(whole.profile.complete);
  CHECK(whole.missing == 0);
  CHECK(whole.profile.sources.size() == 2);
  // Nothing is left to do.
  Saves third;
  options.done = whole.profile;
  const CalibrateResult same =
      Calibrate(FakeKernels({}), options, third.Hooks()).value();
  CHECK(third.count == 0);
  CHECK(same.profile == whole.profile);
}

TEST_CASE("calibrate: runs of two devices do not become one", "[calibrate]") {
  Saves saves;
  const Profile mine =
      Calibrate(FakeKernels({}), TinyCalibration(), saves.Hooks())
          .value()
          .profile;
  const int saved = saves.count;
  const auto refused = [&](const CalibrateOptions& options) {
    const absl::Status status =
        Calibrate(FakeKernels({}), options, saves.Hooks()).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  CalibrateOptions options = TinyCalibration();
  options.done = mine;
  options.done.sources[0].device = "another";
  CHECK(absl::StrContains(refused(options),
                          "--resume: device of the interrupted run is "
                          "'another'"));
  options.done = mine;
  options.done.sources[0].backend = "cuda";
  CHECK(absl::StrContains(refused(options), "--resume: backend"));
  options.done = mine;
  options.done.sources[0].libraries = "old";
  CHECK(absl::StrContains(refused(options), "--resume: libraries"));
  options.done = mine;
  options.done.passes[0].type = "bf16";
  CHECK(absl::StrContains(refused(options), "--resume: type"));
  options.done = mine;
  options.done.passes[0].model.heads = 4;
  CHECK(absl::StrContains(refused(options),
                          "--resume: the interrupted run was of another "
                          "model"));
  options = TinyCalibration();
  options.older = mine;
  options.older.sources[0].device = "another";
  CHECK(absl::StrContains(refused(options), "--merge: profiles of different"));
  CHECK(saves.count == saved);
}

TEST_CASE("calibrate: what cannot be measured is refused before",
          "[calibrate]") {
  Saves saves;
  const auto none =
      Calibrate(FakeKernels({.devices = 0}), TinyCalibration(), saves.Hooks());
  CHECK(none.status().code() == absl::StatusCode::kUnavailable);
  const auto small = Calibrate(FakeKernels({.free_bytes = 10000}),
                               TinyCalibration(), saves.Hooks());
  CHECK(small.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK(
      absl::StrContains(small.status().message(), "largest shape b1 s16 tp1"));
  CalibrateOptions options = TinyCalibration();
  options.type = "fp64";
  CHECK(Calibrate(FakeKernels({}), options, saves.Hooks()).status().code() ==
        absl::StatusCode::kInvalidArgument);
  options = TinyCalibration();
  options.grid.tps = {3};
  CHECK(absl::StrContains(
      Calibrate(FakeKernels({}), options, saves.Hooks()).status().message(),
      "--tp: 3 is not allowed"));
  options = TinyCalibration();
  options.model = FindModel("deepseek-v3").value();
  CHECK(absl::StrContains(
      Calibrate(FakeKernels({}), options, saves.Hooks()).status().message(),
      "deepseek-v3 has multi-head latent attention"));
  for (const int64_t slices : {1, 5}) {
    options = TinyCalibration();
    options.grid.sliced = {{2, slices}};
    CHECK(absl::StrContains(
        Calibrate(FakeKernels({}), options, saves.Hooks()).status().message(),
        absl::StrCat("--sliced: 2:", slices, " is not allowed")));
  }
  options = TinyCalibration();
  options.grid.eps = {2};
  CHECK(absl::StrContains(
      Calibrate(FakeKernels({}), options, saves.Hooks()).status().message(),
      "--ep: 2 is not allowed; allowed: 1 (tiny has no experts)"));
  CHECK(saves.count == 0);
}

TEST_CASE("calibrate: the optimizer writes the weights of a 16-bit model too",
          "[calibrate]") {
  using testing::AdamCalls;
  for (const PwType type : {PW_FP32, PW_BF16}) {
    const auto device = MeasuredDevice::Open(FakeKernels({}), 0).value();
    const std::vector<Subject> subjects =
        OptimizerSubjects(device.get(), type, 1000).value();
    // And the prediction of weights, which is no step.
    REQUIRE(subjects.size() == 3);
    for (const Subject& subject : subjects) {
      if (subject.begin_round != nullptr) {
        REQUIRE(subject.begin_round(0).ok());
      }
      std::vector<double> samples;
      REQUIRE(subject.visit(&samples).ok());
      CHECK(samples.size() == 1);
    }
    REQUIRE(AdamCalls().size() == 2);
    for (const bool host : {false, true}) {
      const testing::AdamCall& call = AdamCalls()[host ? 1 : 0];
      CHECK(call.host == host);
      CHECK(call.type == type);
      CHECK(call.weights == (type == PW_BF16));
    }
  }
}

TEST_CASE("calibrate: threads transfer what they are told", "[calibrate]") {
  for (const int ranks : {2, 3}) {
    ThreadGroup group(ranks, 1 << 16);
    for (const TransferKind kind : kTransferKinds) {
      // Sizes that ranks do not divide too.
      for (const int64_t bytes : {4, 4096, 65536}) {
        CHECK(group.Run(kind, bytes, 3) > 0);
      }
      group.Begin(kind, 4096);
      CHECK(!group.End().empty());
    }
  }
}

}  // namespace
}  // namespace pipewright::session_test
