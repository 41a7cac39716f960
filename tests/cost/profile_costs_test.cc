#include "sim/cost/profile_costs.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "sim/cost/profile_shape.h"

namespace pipewright::profile_costs_test {
namespace {

constexpr double kMillisecond = 1e-3;

Distribution Exactly(double seconds) {
  return {.count = 10,
          .median_s = seconds,
          .p10_s = 0.98 * seconds,
          .p90_s = 1.04 * seconds,
          .prediction_low_s = 0.99 * seconds,
          .prediction_high_s = 1.01 * seconds};
}

ModelSpec Tiny() { return *FindModel("gpt-tiny"); }

ProfileModel TinyShape() { return *ProfileModelOf(Tiny()); }

PassEntry Entry(ProfilePart part, ProfilePass pass, double seconds,
                int64_t microbatch_size = 1, int64_t tp = 1) {
  return {.model = TinyShape(),
          .part = part,
          .pass = pass,
          .type = "bf16",
          .microbatch_size = microbatch_size,
          .sequence = 128,
          .tp = tp,
          .time = Exactly(seconds)};
}

// Layers 1, 1.2, 0.9, fused 2 ms; embedding 0.1 and 0.2; head 0.5, 0.6, 0.4.
Profile TinyProfile(int64_t tp = 1) {
  Profile profile;
  profile.sources = {{.kind = "calibrate",
                      .date = "2026-01-02",
                      .backend = "cpu",
                      .device = "toy",
                      .memory_bytes = int64_t{1} << 30}};
  const auto add = [&](ProfilePart part, ProfilePass pass, double millis) {
    profile.passes.push_back(Entry(part, pass, millis * kMillisecond, 1, tp));
  };
  add(ProfilePart::kLayer, ProfilePass::kForward, 1);
  add(ProfilePart::kLayer, ProfilePass::kBackwardInput, 1.2);
  add(ProfilePart::kLayer, ProfilePass::kBackwardWeight, 0.9);
  add(ProfilePart::kLayer, ProfilePass::kBackwardFull, 2);
  add(ProfilePart::kLayer, ProfilePass::kRecompute, 0.95);
  add(ProfilePart::kEmbedding, ProfilePass::kForward, 0.1);
  add(ProfilePart::kEmbedding, ProfilePass::kBackwardWeight, 0.2);
  add(ProfilePart::kHead, ProfilePass::kForward, 0.5);
  add(ProfilePart::kHead, ProfilePass::kBackwardInput, 0.6);
  add(ProfilePart::kHead, ProfilePass::kBackwardWeight, 0.4);
  profile.optimizers = {
      {.where = "device", .parameters = 1000000, .time = Exactly(1e-3)},
      {.where = "device", .parameters = 2000000, .time = Exactly(2e-3)}};
  return profile;
}

absl::StatusOr<ProfileCosts> CostsOf(const Profile& profile,
                                     TrainingSpec training = {},
                                     bool scale_shapes = false,
                                     const AnalyticOptions* network = nullptr) {
  const ModelSpec model = Tiny();
  training.sequence = model.sequence;
  const std::vector<int> ranks = {0, 1, 2, 3};
  const StageLayout layout = *EvenLayout(model, training, 4, 1);
  ProfileCostOptions options;
  options.name = "toy";
  options.scale_shapes = scale_shapes;
  options.network = network;
  return CostsOfProfile(profile, model, training, layout, ranks, options);
}

std::string ErrorOf(const absl::StatusOr<ProfileCosts>& costs) {
  return std::string(costs.status().message());
}

bool Mentions(const std::vector<std::string>& warnings,
              absl::string_view part) {
  for (const std::string& warning : warnings) {
    if (absl::StrContains(warning, part)) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("cost: a profile's passes add up to stages", "[cost]") {
  const absl::StatusOr<ProfileCosts> found = CostsOf(TinyProfile());
  REQUIRE(found.ok());
  const std::vector<StageCosts>& stages = found->costs.stages;
  REQUIRE(stages.size() == 4);
  // Four layers each; the embedding first, the head last.
  CHECK(stages[0].forward_s == Approx(4.1e-3));
  CHECK(stages[1].forward_s == Approx(4e-3));
  CHECK(stages[3].forward_s == Approx(4.5e-3));
  CHECK(stages[0].backward_input_s == Approx(4.8e-3));
  CHECK(stages[3].backward_input_s == Approx(5.4e-3));
  CHECK(stages[0].backward_weight_s == Approx(3.8e-3));
  CHECK(stages[1].backward_weight_s == Approx(3.6e-3));
  // Fused where it was measured, one behind the other where not.
  CHECK(stages[1].backward_full_s == Approx(8e-3));
  CHECK(stages[3].backward_full_s == Approx(9e-3));
  CHECK(stages[1].recompute_s == 0);
  CHECK(found->costs.Seconds(PassKind::kBackwardFull, 1, 2) == Approx(4e-3));
  CHECK(found->split_price == Approx(2.1 / 2));
  CHECK(found->splits_backward);
  CHECK(found->type == "bf16");
  CHECK(found->warnings.empty());
  CHECK(found->costs.held_until_weight > 0);
  CHECK(found->costs.held_until_weight < 1);
  for (const ProfiledTime& time : found->times) {
    CHECK(time.how == ProfiledTime::How::kMeasured);
    CHECK(time.error == 0);
    CHECK(time.noise == Approx(0.01));
  }
}

TEST_CASE("cost: recomputation takes the measured R", "[cost]") {
  TrainingSpec training;
  training.recompute = Recompute::kFull;
  const absl::StatusOr<ProfileCosts> found = CostsOf(TinyProfile(), training);
  REQUIRE(found.ok());
  const StageCosts& stage = found->costs.stages[1];
  CHECK(stage.recompute_s == Approx(3.8e-3));
  CHECK(stage.backward_input_s == Approx(4.8e-3 + 3.8e-3));
  CHECK(stage.backward_full_s == Approx(8e-3 + 3.8e-3));
}

TEST_CASE("cost: every measured second has a source", "[cost]") {
  for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
    TrainingSpec training;
    training.recompute = recompute;
    const ProfileCosts found = CostsOf(TinyProfile(), training).value();
    CHECK(found.error_unknown.empty());
    // A row each, and the optimizer.
    CHECK(found.sources.size() == found.times.size() + 1);
    CHECK(found.sources.back().optimizer);
    for (int stage = 0; stage < 4; ++stage) {
      for (const PassKind kind :
           {PassKind::kForward, PassKind::kBackwardInput,
            PassKind::kBackwardWeight, PassKind::kBackwardFull,
            PassKind::kRecompute}) {
        double sum = 0;
        for (const TimeSource& source : found.sources) {
          if (source.optimizer) continue;
          sum += source.seconds[stage][static_cast<int>(kind)];
        }
        INFO(PassKindName(kind) << " of stage " << stage);
        CHECK(sum == Approx(found.costs.Seconds(kind, stage, 1)));
      }
    }
    // No samples' error is in these, so the whole prediction is drift.
    for (const TimeSource& source : found.sources) {
      INFO(source.name);
      CHECK(source.error.drift == Approx(0.01));
      CHECK(source.error.own == 0);
    }
  }
  Profile few = TinyProfile();
  few.passes[1].time.prediction_low_s = few.passes[1].time.prediction_high_s =
      0;
  CHECK(CostsOf(few)->error_unknown == "layer B: no drift was measured");
  few = TinyProfile();
  few.optimizers[0].time.prediction_high_s = 0;
  few.optimizers[1].time.prediction_high_s = 0;
  CHECK(CostsOf(few)->error_unknown ==
        "the optimizer step: no drift was measured");
}

TEST_CASE("cost: what is interpolated is less sure by its error", "[cost]") {
  Profile profile = TinyProfile();
  for (const PassEntry& entry : TinyProfile().passes) {
    for (const int64_t size : {4, 8}) {
      PassEntry larger = entry;
      larger.microbatch_size = size;
      // Not on a line, so that something is missed where one is left out.
      larger.time = Exactly((size == 4 ? 3.6 : 8.4) * entry.time.median_s);
      profile.passes.push_back(larger);
    }
  }
  TrainingSpec training;
  training.microbatch_size = 2;
  const ProfileCosts found = CostsOf(profile, training).value();
  for (size_t row = 0; row < found.times.size(); ++row) {
    CHECK(found.times[row].how == ProfiledTime::How::kInterpolated);
    CHECK(found.times[row].error > 0);
    CHECK(found.sources[row].error.own ==
          Approx(1.6449 * found.times[row].error));
  }
  // A single shape tells nothing of what lies beside it.
  CHECK(absl::StrContains(CostsOf(TinyProfile(), training)->error_unknown,
                          "the error of its interpolation is unknown"));
}

TEST_CASE("cost: the optimizer is on the line through what was measured",
          "[cost]") {
  CHECK(*ProfileOptimizerSeconds(TinyProfile(), 1.5e6) == Approx(1.5e-3));
  CHECK(*ProfileOptimizerSeconds(TinyProfile(), 8e6) == Approx(8e-3));
  CHECK_FALSE(ProfileOptimizerSeconds(Profile(), 1e6).has_value());
  // A prediction has a line of its own.
  Profile profile = TinyProfile();
  CHECK_FALSE(ProfilePredictionSeconds(profile, 1e6).has_value());
  profile.optimizers.push_back({.where = "device",
                                .parameters = 1000000,
                                .time = Exactly(0.4e-3),
                                .prediction = true});
  CHECK(*ProfilePredictionSeconds(profile, 2e6) == Approx(0.8e-3));
  CHECK(*ProfileOptimizerSeconds(profile, 1.5e6) == Approx(1.5e-3));
  CHECK(CostsOf(profile, TrainingSpec())->costs.prediction_s > 0);
  CHECK(CostsOf(TinyProfile(), TrainingSpec())->costs.prediction_s == 0);
}

TEST_CASE("cost: a step in fp8 makes the copies of weights too", "[cost]") {
  Profile profile = TinyProfile();
  for (PassEntry& entry : profile.passes) entry.type = "fp8";
  TrainingSpec training;
  training.precision = Precision::kFp8;
  const double step_s = CostsOf(profile, training)->costs.optimizer_s;
  // 12 h^2 of a layer.
  profile.kernels = {{.name = "quantize.weights",
                      .shape = {12 * 256 * 256},
                      .type = "bf16",
                      .time = Exactly(0.1e-3)}};
  CHECK(CostsOf(profile, training)->costs.optimizer_s ==
        Approx(step_s + 4 * 0.1e-3));
  // Predicted weights are cast too, if predicting was measured.
  CHECK(CostsOf(profile, training)->costs.prediction_s == 0);
  profile.optimizers.push_back({.where = "device",
                                .parameters = 2000000,
                                .time = Exactly(1e-3),
                                .prediction = true});
  CHECK(CostsOf(profile, training)->costs.prediction_s > 4 * 0.1e-3);
  const ModelSpec model = Tiny();
  const StageLayout layout = *EvenLayout(model, training, 4, 1);
  const std::vector<int> ranks = {0, 1, 2, 3};
  // Casts the weights of both directions.
  CHECK(ProfileQuantizeSeconds(profile, model, training, layout, ranks, 2) ==
        Approx(8 * 0.1e-3));
  training.tp = 2;
  CHECK(ProfileQuantizeSeconds(profile, model, training, layout, ranks, 1) ==
        Approx(4 * 0.05e-3));
  training.precision = Precision::kBf16;
  CHECK(ProfileQuantizeSeconds(profile, model, training, layout, ranks, 1) ==
        0);
}

TEST_CASE("cost: a shape between two is interpolated and says so", "[cost]") {
  Profile profile = TinyProfile();
  const Profile once = profile;
  for (const PassEntry& entry : once.passes) {
    PassEntry more = entry;
    more.microbatch_size = 4;
    more.time = Exactly(4 * entry.time.median_s);
    profile.passes.push_back(more);
  }
  TrainingSpec training;
  training.microbatch_size = 2;
  const absl::StatusOr<ProfileCosts> found = CostsOf(profile, training);
  REQUIRE(found.ok());
  CHECK(found->costs.stages[1].forward_s == Approx(8e-3).epsilon(0.02));
  for (const ProfiledTime& time : found->times) {
    CHECK(time.how == ProfiledTime::How::kInterpolated);
    CHECK(time.points == 2);
    CHECK(time.error >= 0);
  }
  training.microbatch_size = 8;
  const absl::StatusOr<ProfileCosts> outside = CostsOf(profile, training);
  REQUIRE(outside.ok());
  CHECK(Mentions(outside->warnings, "layer F lies outside"));
}

TEST_CASE("cost: a slice takes what a microbatch of its tokens takes",
          "[cost]") {
  Profile profile = TinyProfile();
  const Profile once = profile;
  // Four sequences together take less than four alone: slices of one give that
  // away.
  for (const PassEntry& entry : once.passes) {
    PassEntry more = entry;
    more.microbatch_size = 4;
    more.time = Exactly(3 * entry.time.median_s);
    profile.passes.push_back(more);
  }
  TrainingSpec training;
  training.microbatch_size = 4;
  const absl::StatusOr<ProfileCosts> whole = CostsOf(profile, training);
  REQUIRE(whole.ok());
  training.slices = 4;
  const absl::StatusOr<ProfileCosts> sliced = CostsOf(profile, training);
  REQUIRE(sliced.ok());
  CHECK(whole->costs.stages[1].forward_s == Approx(12e-3));
  CHECK(sliced->costs.stages[1].forward_s == Approx(16e-3));
  CHECK(whole->times[0].how == ProfiledTime::How::kMeasured);
  CHECK(sliced->times[0].how == ProfiledTime::How::kInterpolated);
}

TEST_CASE("cost: slices that were measured are taken as they are", "[cost]") {
  Profile profile = TinyProfile();
  const Profile once = profile;
  for (const PassEntry& entry : once.passes) {
    if (entry.part != ProfilePart::kLayer) continue;
    PassEntry slice = entry;
    slice.microbatch_size = 4;
    slice.slices = 4;
    slice.time = Exactly(1.5 * entry.time.median_s);
    profile.passes.push_back(slice);
  }
  TrainingSpec training;
  training.microbatch_size = 4;
  training.slices = 4;
  const absl::StatusOr<ProfileCosts> sliced = CostsOf(profile, training);
  REQUIRE(sliced.ok());
  const absl::StatusOr<ProfileCosts> tokens = CostsOf(once, training);
  REQUIRE(tokens.ok());
  CHECK(sliced->costs.stages[1].forward_s == Approx(4 * 4 * 1.5e-3));
  CHECK(tokens->costs.stages[1].forward_s == Approx(4 * 4 * 1e-3));
  // The embedding is that of as many tokens.
  CHECK(sliced->costs.stages[0].forward_s - sliced->costs.stages[1].forward_s ==
        Approx(tokens->costs.stages[0].forward_s -
               tokens->costs.stages[1].forward_s));
  for (const ProfiledTime& time : sliced->times) {
    if (time.part != ProfilePart::kLayer) continue;
    CHECK(time.how == ProfiledTime::How::kMeasured);
    CHECK(time.nearest->slices == 4);
  }
  // Times of other numbers of slices stay.
  for (const int slices : {1, 2}) {
    training.slices = slices;
    const absl::StatusOr<ProfileCosts> with = CostsOf(profile, training);
    const absl::StatusOr<ProfileCosts> without = CostsOf(once, training);
    REQUIRE((with.ok() && without.ok()));
    CHECK(with->costs.stages[1].forward_s ==
          without->costs.stages[1].forward_s);
  }
  CHECK(LeaveOneOut(profile).size() == LeaveOneOut(once).size());
}

TEST_CASE("cost: a slice of one sequence is a shorter one with more keys",
          "[cost]") {
  Profile profile = TinyProfile();
  const Profile once = profile;
  for (const PassEntry& entry : once.passes) {
    PassEntry half = entry;
    half.sequence = 64;
    half.time = Exactly(0.6 * entry.time.median_s);
    profile.passes.push_back(half);
  }
  TrainingSpec training;
  training.slices = 2;
  const absl::StatusOr<ProfileCosts> sliced = CostsOf(profile, training);
  REQUIRE(sliced.ok());
  CHECK(sliced->warnings.empty());
  // W, the embedding and the head have no attention: what was measured. F has
  // half of the whole sequence's attention, more than two short ones have.
  CHECK(sliced->costs.stages[1].backward_weight_s == Approx(4 * 2 * 0.54e-3));
  CHECK(sliced->costs.stages[1].forward_s >= Approx(4 * 2 * 0.6e-3));
  CHECK(sliced->costs.stages[1].forward_s < 4 * 2 * 0.75e-3);
  CHECK(sliced->costs.stages[0].forward_s - sliced->costs.stages[1].forward_s ==
        Approx(2 * 0.06e-3));
}

TEST_CASE("cost: what was not measured is named with the command", "[cost]") {
  TrainingSpec training;
  training.tp = 2;
  const std::string missing = ErrorOf(CostsOf(TinyProfile(), training));
  CHECK(absl::StrContains(missing, "layer F, layer B, layer W"));
  CHECK(absl::StrContains(missing, "gpt h256 a4 d64 f1024"));
  CHECK(absl::StrContains(missing, "tp2"));
  CHECK(absl::StrContains(missing, "pipewright calibrate --device cpu"));
  CHECK(absl::StrContains(missing, "--tp 2"));
  Profile other = TinyProfile();
  for (PassEntry& entry : other.passes) entry.model.hidden = 512;
  CHECK(absl::StrContains(ErrorOf(CostsOf(other)), "h512"));
  const absl::StatusOr<ProfileCosts> scaled = CostsOf(other, {}, true);
  REQUIRE(scaled.ok());
  CHECK(Mentions(scaled->warnings, "carried over by its work (error unknown)"));
  CHECK(scaled->times[0].how == ProfiledTime::How::kScaled);
  CHECK(scaled->costs.stages[1].forward_s < 4e-3);
}

TEST_CASE("cost: no number is made up for what no profile knows", "[cost]") {
  TrainingSpec training;
  training.precision = Precision::kFp8;
  CHECK(absl::StrContains(ErrorOf(CostsOf(TinyProfile(), training)), "fp8"));
  Profile eight = TinyProfile();
  for (PassEntry& entry : eight.passes) entry.type = "fp8";
  const absl::StatusOr<ProfileCosts> costs = CostsOf(eight, training);
  REQUIRE(costs.ok());
  CHECK(costs->type == "fp8");
  training.microbatch_size = 999;
  training.tp = 2;
  CHECK(absl::StrContains(ErrorOf(CostsOf(eight, training)),
                          "--type fp8 --model MODEL"));
  training = {};
  training.cp = 2;
  CHECK(absl::StrContains(ErrorOf(CostsOf(TinyProfile(), training)),
                          "strategy.cp"));
  training = {};
  training.recompute = Recompute::kNormActivation;
  CHECK(absl::StrContains(ErrorOf(CostsOf(TinyProfile(), training)),
                          "strategy.recompute"));
  CHECK_FALSE(ProfileModelOf(*FindModel("deepseek-v3")).ok());
}

TEST_CASE("cost: exchanges of tp are measured, or of the system", "[cost]") {
  TrainingSpec training;
  training.tp = 2;
  Profile profile = TinyProfile(2);
  CHECK(absl::StrContains(ErrorOf(CostsOf(profile, training)),
                          "all_reduce over 2 devices"));
  // 128 tokens of 256 elements of two bytes.
  for (const int64_t bytes : {32768, 131072}) {
    profile.transfers.push_back({.operation = "all_reduce",
                                 .transport = "nccl",
                                 .ranks = 2,
                                 .bytes = bytes,
                                 .time = Exactly(1e-9 * bytes)});
  }
  const absl::StatusOr<ProfileCosts> found = CostsOf(profile, training);
  REQUIRE(found.ok());
  // Two a layer and direction.
  CHECK(found->costs.stages[1].forward_s == Approx(4 * (1e-3 + 2 * 65536e-9)));
  CHECK(found->costs.stages[1].backward_input_s ==
        Approx(4 * (1.2e-3 + 2 * 65536e-9)));
  CHECK(found->costs.stages[1].backward_weight_s == Approx(4 * 0.9e-3));
  AnalyticOptions network = {.device = *FindDevice("h100")};
  network.network = {.devices_per_node = 8,
                     .nvlink_bytes_per_s = 450e9,
                     .nic_bytes_per_s = 50e9};
  const absl::StatusOr<ProfileCosts> wired =
      CostsOf(TinyProfile(2), training, false, &network);
  REQUIRE(wired.ok());
  CHECK(wired->costs.stages[1].forward_s > 4e-3);
}

TEST_CASE("cost: every slice exchanges for itself", "[cost]") {
  TrainingSpec training;
  training.microbatch_size = 4;
  training.tp = 2;
  // Exchanges take one time whatever the size: what is left of a difference is
  // the count.
  const auto forward_s = [&](int slices, double exchange_s) {
    training.slices = slices;
    Profile profile = TinyProfile(2);
    for (const int64_t bytes : {1024, 1048576}) {
      profile.transfers.push_back({.operation = "all_reduce",
                                   .transport = "nccl",
                                   .ranks = 2,
                                   .bytes = bytes,
                                   .time = Exactly(exchange_s)});
    }
    const absl::StatusOr<ProfileCosts> found = CostsOf(profile, training);
    INFO(found.status());
    REQUIRE(found.ok());
    return found->costs.stages[1].forward_s;
  };
  // Two a layer of four layers.
  for (const int slices : {1, 2, 4}) {
    CHECK(forward_s(slices, 3e-3) - forward_s(slices, 1e-3) ==
          Approx(slices * 4 * 2 * 2e-3));
  }
}

TEST_CASE("cost: whole backwards alone are halved and say so", "[cost]") {
  Profile profile;
  profile.sources = {{.kind = "kineto", .device = "toy"}};
  profile.passes = {
      Entry(ProfilePart::kLayer, ProfilePass::kForward, 1e-3),
      Entry(ProfilePart::kLayer, ProfilePass::kBackwardFull, 2e-3)};
  const absl::StatusOr<ProfileCosts> found = CostsOf(profile);
  REQUIRE(found.ok());
  CHECK_FALSE(found->splits_backward);
  CHECK(found->costs.stages[0].backward_input_s == Approx(4e-3));
  CHECK(found->costs.stages[0].backward_full_s == Approx(8e-3));
  CHECK(Mentions(found->warnings, "has no embedding"));
  CHECK(Mentions(found->warnings, "no optimizer step"));
}

TEST_CASE("cost: fp32 stands in for bf16 with a warning", "[cost]") {
  Profile profile = TinyProfile();
  for (PassEntry& entry : profile.passes) entry.type = "fp32";
  const absl::StatusOr<ProfileCosts> found = CostsOf(profile);
  REQUIRE(found.ok());
  CHECK(found->type == "fp32");
  CHECK(Mentions(found->warnings, "holds no bf16"));
}

TEST_CASE("cost: the noise of a stage is that of its passes", "[cost]") {
  Profile profile = TinyProfile();
  for (PassEntry& entry : profile.passes) {
    const double median = entry.time.median_s;
    entry.time.quantiles_s = {0.9 * median, median, 1.5 * median};
  }
  const absl::StatusOr<ProfileCosts> found = CostsOf(profile);
  REQUIRE(found.ok());
  for (const PassKind kind :
       {PassKind::kForward, PassKind::kBackwardInput, PassKind::kBackwardWeight,
        PassKind::kBackwardFull}) {
    const std::vector<double>& factors =
        found->jitter.passes[3][static_cast<int>(kind)];
    CHECK(QuantileAt(factors, 0) == Approx(0.9));
    CHECK(QuantileAt(factors, 0.5) == Approx(1));
    CHECK(QuantileAt(factors, 0.75) == Approx(1.25));
    CHECK(QuantileAt(factors, 1) == Approx(1.5));
  }
  // From p10 and p90 where no quantiles are kept.
  const absl::StatusOr<ProfileCosts> coarse = CostsOf(TinyProfile());
  const std::vector<double>& forward = coarse->jitter.passes[0][0];
  CHECK(QuantileAt(forward, 0.1) == Approx(0.98));
  CHECK(QuantileAt(forward, 0.9) == Approx(1.04));
}

// Only R of a layer is noisy, up to 1.5 times its 0.95 ms. Four layers take 8.6
// ms for R and B, and 11.8 ms for R and a full backward.
TEST_CASE("cost: a backward that runs its forward again has the noise of both",
          "[cost]") {
  Profile profile = TinyProfile();
  for (PassEntry& entry : profile.passes) {
    const double median = entry.time.median_s;
    const bool noisy = entry.pass == ProfilePass::kRecompute;
    entry.time.quantiles_s = {median, median, (noisy ? 1.5 : 1) * median};
  }
  TrainingSpec training;
  training.recompute = Recompute::kFull;
  const absl::StatusOr<ProfileCosts> found = CostsOf(profile, training);
  REQUIRE(found.ok());
  const auto worst = [&](PassKind kind) {
    return QuantileAt(found->jitter.passes[1][static_cast<int>(kind)], 1);
  };
  CHECK(worst(PassKind::kForward) == Approx(1));
  CHECK(worst(PassKind::kRecompute) == Approx(1.5));
  CHECK(worst(PassKind::kBackwardInput) == Approx(1 + 1.9 / 8.6));
  CHECK(worst(PassKind::kBackwardFull) == Approx(1 + 1.9 / 11.8));
  CHECK(worst(PassKind::kBackwardWeight) == Approx(1));
}

}  // namespace pipewright::profile_costs_test
