#include "tests/support/tiny_profile.h"

#include "sim/cost/profile_shape.h"
#include "sim/model/model.h"

namespace pipewright::testing {

Distribution Around(double micros) {
  const double median = micros / 1e6;
  return {.count = 20,
          .median_s = median,
          .p10_s = 0.99 * median,
          .p90_s = 1.02 * median,
          .mean_s = median,
          .min_s = 0.98 * median,
          .max_s = 1.1 * median,
          .confidence_low_s = 0.995 * median,
          .confidence_high_s = 1.005 * median,
          .prediction_low_s = 0.99 * median,
          .prediction_high_s = 1.01 * median};
}

Profile TinyProfile() {
  Profile profile;
  profile.sources = {{.kind = "calibrate",
                      .version = "0.1.0",
                      .date = "2026-01-02T03:04:05Z",
                      .backend = "cpu",
                      .device = "toy",
                      .memory_bytes = int64_t{1} << 34}};
  const auto add = [&](ProfilePart part, ProfilePass pass, double micros) {
    profile.passes.push_back({.model = *ProfileModelOf(*FindModel("gpt-tiny")),
                              .part = part,
                              .pass = pass,
                              .type = "bf16",
                              .microbatch_size = 1,
                              .sequence = 128,
                              .time = Around(micros)});
  };
  add(ProfilePart::kLayer, ProfilePass::kForward, 1000);
  add(ProfilePart::kLayer, ProfilePass::kBackwardInput, 1200);
  add(ProfilePart::kLayer, ProfilePass::kBackwardWeight, 900);
  add(ProfilePart::kLayer, ProfilePass::kBackwardFull, 2000);
  add(ProfilePart::kLayer, ProfilePass::kRecompute, 1000);
  add(ProfilePart::kEmbedding, ProfilePass::kForward, 100);
  add(ProfilePart::kEmbedding, ProfilePass::kBackwardWeight, 100);
  add(ProfilePart::kHead, ProfilePass::kForward, 200);
  add(ProfilePart::kHead, ProfilePass::kBackwardInput, 200);
  add(ProfilePart::kHead, ProfilePass::kBackwardWeight, 200);
  profile.optimizers = {
      {.where = "device", .parameters = 1000000, .time = Around(500)}};
  profile.transfers = {{.operation = "send_recv",
                        .transport = "threads",
                        .ranks = 2,
                        .bytes = 65536,
                        .time = Around(20)}};
  return profile;
}

}  // namespace pipewright::testing
