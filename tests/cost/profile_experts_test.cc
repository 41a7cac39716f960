// Times of layers of experts in a profile: found by kind of layer and ep.
#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "sim/cost/profile_costs.h"
#include "sim/report/calibration_report.h"

namespace pipewright::profile_experts_test {
namespace {

ModelSpec Tiny() { return *FindModel("moe-tiny"); }

Distribution Exactly(double seconds) {
  return {.count = 10, .median_s = seconds};
}

// Dense layers take 1, 1.2, 0.9 and 2 ms, layers of experts three times that.
Profile TinyProfile(int64_t ep, const ModelSpec& model) {
  Profile profile;
  profile.sources = {{.kind = "calibrate", .backend = "cpu", .device = "toy"}};
  const auto add = [&](ProfilePart part, ProfilePass pass, double millis) {
    profile.passes.push_back({.model = *ProfileModelOf(model),
                              .part = part,
                              .pass = pass,
                              .type = "bf16",
                              .microbatch_size = 1,
                              .sequence = 128,
                              .ep = part == ProfilePart::kExpertLayer ? ep : 0,
                              .time = Exactly(millis * 1e-3)});
  };
  for (const ProfilePart part :
       {ProfilePart::kLayer, ProfilePart::kExpertLayer}) {
    const double times = part == ProfilePart::kLayer ? 1 : 3;
    add(part, ProfilePass::kForward, times);
    add(part, ProfilePass::kBackwardInput, 1.2 * times);
    add(part, ProfilePass::kBackwardWeight, 0.9 * times);
    add(part, ProfilePass::kBackwardFull, 2 * times);
  }
  for (const ProfilePart part : {ProfilePart::kEmbedding, ProfilePart::kHead}) {
    add(part, ProfilePass::kForward, 0.1);
    add(part, ProfilePass::kBackwardInput, 0.1);
    add(part, ProfilePass::kBackwardWeight, 0.1);
  }
  return profile;
}

absl::StatusOr<ProfileCosts> CostsOf(const Profile& profile,
                                     TrainingSpec training = {},
                                     const ModelSpec& model = Tiny(),
                                     const AnalyticOptions* network = nullptr) {
  training.sequence = model.sequence;
  const StageLayout layout = *EvenLayout(model, training, 4, 1);
  ProfileCostOptions options;
  options.name = "toy";
  options.network = network;
  return CostsOfProfile(profile, model, training, layout, {0, 1, 2, 3},
                        options);
}

std::string ErrorOf(const absl::StatusOr<ProfileCosts>& costs) {
  return std::string(costs.status().message());
}

TEST_CASE("cost: layers of experts have times of their own", "[cost]") {
  const auto found = CostsOf(TinyProfile(1, Tiny()));
  INFO(found.status());
  REQUIRE(found.ok());
  // One dense layer and three of experts; then four of experts.
  CHECK(found->costs.stages[0].forward_s == Approx(0.1e-3 + 1e-3 + 9e-3));
  CHECK(found->costs.stages[1].forward_s == Approx(12e-3));
  CHECK(found->costs.stages[1].backward_full_s == Approx(24e-3));
  CHECK(found->split_price == Approx(2.1 / 2));
}

TEST_CASE("cost: experts of another ep are not those", "[cost]") {
  TrainingSpec training;
  training.dp = training.ep = 2;
  const Profile alone = TinyProfile(1, Tiny());
  const std::string missing = ErrorOf(CostsOf(alone, training));
  CHECK(absl::StrContains(missing, "expert-layer F, expert-layer B"));
  CHECK_FALSE(absl::StrContains(missing, " layer F"));
  CHECK(absl::StrContains(missing,
                          "f512 and llama h128 a4/2 d32 e8/2 f128 "
                          "shared f128 v512 b1 s128 tp1 ep2"));
  CHECK(absl::StrContains(missing, "--tp 1 --ep 2 -o PROFILE"));
  // The rows that devices exchange are of the system.
  const Profile shared = TinyProfile(2, Tiny());
  CHECK(absl::StrContains(ErrorOf(CostsOf(shared, training)),
                          "all_to_all over 2 devices, and no system is given"));
  AnalyticOptions network = {.device = *FindDevice("h100")};
  network.network = {.devices_per_node = 8,
                     .nvlink_bytes_per_s = 450e9,
                     .nic_bytes_per_s = 50e9};
  const auto found = CostsOf(shared, training, Tiny(), &network);
  INFO(found.status());
  REQUIRE(found.ok());
  CHECK(found->costs.stages[1].forward_s > 12e-3);
  CHECK(found->costs.stages[1].forward_s < 13e-3);
  CHECK(found->costs.stages[1].backward_weight_s == Approx(4 * 2.7e-3));
}

TEST_CASE("cost: other experts are another shape", "[cost]") {
  ModelSpec other = Tiny();
  other.shared_ffn_hidden = 0;
  const std::string missing =
      ErrorOf(CostsOf(TinyProfile(1, Tiny()), {}, other));
  CHECK(absl::StrContains(missing, "expert-layer F"));
  CHECK(absl::StrContains(missing, "e8/2 f128 v512"));
  CHECK(absl::StrContains(
      missing, "expert-layer llama h128 a4/2 d32 e8/2 f128 shared f128 bf16"));
  // Its dense layers are the same.
  CHECK_FALSE(absl::StrContains(missing, "times of layer"));
}

TEST_CASE("cost: work of experts is that of those a token meets", "[cost]") {
  const ProfileModel tiny = *ProfileModelOf(Tiny());
  const GridPoint point = PointOf(ProfilePart::kExpertLayer,
                                  ProfilePass::kForward, tiny, 1, 128, 1);
  const double attention = 128.0 * (2 * 4 + 2 * 2) * 32;
  const double experts = 128.0 * (3 * (2 * 128 + 128) + 8);
  CHECK(point.work[0] == 2 * 128 * (attention + experts));
  CHECK(
      LayerPartsOf(Tiny()) ==
      std::vector<ProfilePart>{ProfilePart::kLayer, ProfilePart::kExpertLayer});
  CHECK(LayerPartsOf(*FindModel("mixtral-8x7b")) ==
        std::vector<ProfilePart>{ProfilePart::kExpertLayer});
  CHECK(LayerPartsOf(*FindModel("gpt-tiny")) ==
        std::vector<ProfilePart>{ProfilePart::kLayer});
}

TEST_CASE("cost: what of experts is missing is shown", "[cost]") {
  Profile profile = TinyProfile(2, Tiny());
  const std::string all = *CalibrationReport(profile, Tiny(), false);
  CHECK(
      absl::StrContains(all, "model moe-tiny: measured b1 s128 tp1 ep2 bf16"));
  CHECK(absl::StrContains(all, "layer R, expert-layer R"));
  std::erase_if(profile.passes, [](const PassEntry& entry) {
    return entry.part == ProfilePart::kExpertLayer;
  });
  const std::string none = *CalibrationReport(profile, Tiny(), false);
  CHECK(absl::StrContains(none, "no shape of its layer is measured"));
  CHECK(absl::StrContains(none, "expert-layer F, expert-layer B"));
}

TEST_CASE("profile: one from before there were experts reads", "[cost]") {
  const auto old = ReadProfile(
      "passes { model { style: \"llama\" hidden: 64 heads: 2 kv_heads: 2 "
      "head_dim: 32 ffn: 128 vocabulary: 8 causal: true } part: \"layer\" "
      "pass: \"F\" type: \"bf16\" microbatch_size: 1 sequence: 16 tp: 1 "
      "time { count: 1 median_us: 5 } }",
      "old");
  INFO(old.status());
  REQUIRE(old.ok());
  CHECK(old->passes[0].ep == 0);
  CHECK(old->passes[0].model.experts == 0);
  CHECK(KeyOf(old->passes[0]) ==
        "layer F llama h64 a2 d32 f128 bf16 b1 s16 tp1");
  // Written again it says nothing of them.
  CHECK_FALSE(absl::StrContains(WriteProfile(*old), "expert"));
  CHECK_FALSE(absl::StrContains(WriteProfile(*old), "ep:"));
}

}  // namespace
}  // namespace pipewright::profile_experts_test
