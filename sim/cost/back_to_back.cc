#include "sim/cost/back_to_back.h"

#include <array>
#include <cmath>
#include <limits>

namespace pipewright {

BackToBack BackToBackOf(const Profile& profile, const PassEntry& entry,
                        bool recompute) {
  const auto tokens = [](const auto& of) {
    return static_cast<double>(of.microbatch_size * of.sequence);
  };
  const SplitEntry* nearest = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const SplitEntry& split : profile.splits) {
    const int64_t ep =
        entry.part == ProfilePart::kExpertLayer ? entry.ep : int64_t{0};
    if (split.recompute != recompute || split.model != entry.model ||
        split.type != entry.type || split.ep != ep) {
      continue;
    }
    const double distance = std::abs(std::log(tokens(split) / tokens(entry))) +
                            (split.tp == entry.tp ? 0 : 1);
    if (distance >= least) continue;
    least = distance;
    nearest = &split;
  }
  BackToBack out;
  if (nearest == nullptr) return out;
  std::array<double, kNumProfilePasses> seconds = {};
  for (const PassEntry& pass : profile.passes) {
    if (!IsSplitOf(*nearest, pass)) continue;
    seconds[static_cast<int>(pass.pass)] = pass.time.median_s;
  }
  const auto of = [&](ProfilePass pass) {
    return seconds[static_cast<int>(pass)];
  };
  if (of(ProfilePass::kForward) <= 0) return out;
  double front_s = of(ProfilePass::kForward);
  if (recompute) {
    if (of(ProfilePass::kRecompute) <= 0) return out;
    front_s += of(ProfilePass::kRecompute);
  }
  const double input_s = of(ProfilePass::kBackwardInput);
  const double weight_s = of(ProfilePass::kBackwardWeight);
  if (input_s > 0 && weight_s > 0 && nearest->chain.median_s > 0) {
    out.split = nearest->chain.median_s / (front_s + input_s + weight_s);
  }
  const double full_s = of(ProfilePass::kBackwardFull);
  if (full_s > 0 && nearest->fused.median_s > 0) {
    out.fused = nearest->fused.median_s / (front_s + full_s);
  }
  return out;
}

}  // namespace pipewright
