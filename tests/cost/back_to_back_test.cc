#include "sim/cost/profile_costs.h"

#include <catch2/catch.hpp>
#include <utility>

namespace pipewright::back_to_back_test {
namespace {

PassEntry Entry(ProfilePass pass, double seconds, int64_t microbatch_size) {
  return {.pass = pass,
          .type = "fp32",
          .microbatch_size = microbatch_size,
          .sequence = 128,
          .time = {.median_s = seconds}};
}

SplitEntry Chains(double split_s, double fused_s, int64_t microbatch_size,
                  bool recompute) {
  return {.type = "fp32",
          .microbatch_size = microbatch_size,
          .sequence = 128,
          .recompute = recompute,
          .chain = {.median_s = split_s},
          .fused = {.median_s = fused_s}};
}

// F 1, B 1.5, W 0.5, BW 1.8, R 1 of one sequence, twice that of two.
Profile Made() {
  Profile profile;
  for (const int64_t size : {1, 2}) {
    const auto factor = static_cast<double>(size);
    for (const auto& [pass, seconds] :
         {std::pair(ProfilePass::kForward, 1.0),
          std::pair(ProfilePass::kBackwardInput, 1.5),
          std::pair(ProfilePass::kBackwardWeight, 0.5),
          std::pair(ProfilePass::kBackwardFull, 1.8),
          std::pair(ProfilePass::kRecompute, 1.0)}) {
      profile.passes.push_back(Entry(pass, factor * seconds, size));
    }
  }
  profile.splits = {Chains(6.3, 5.6, 2, false), Chains(8.4, 7.6, 2, true)};
  return profile;
}

TEST_CASE("cost: chains are held against their passes", "[cost]") {
  const Profile profile = Made();
  for (const int64_t size : {1, 2}) {
    // Chains of the larger shape alone were measured; the smaller takes them.
    const PassEntry entry = Entry(ProfilePass::kForward, 1, size);
    CHECK(BackToBackOf(profile, entry, false).split == Approx(6.3 / 6));
    CHECK(BackToBackOf(profile, entry, false).fused == Approx(5.6 / 5.6));
    CHECK(BackToBackOf(profile, entry, true).split == Approx(8.4 / 8));
    CHECK(BackToBackOf(profile, entry, true).fused == Approx(7.6 / 7.6));
  }
  // The nearer one of two.
  Profile both = profile;
  both.splits.push_back(Chains(3.3, 3, 1, false));
  CHECK(BackToBackOf(both, Entry(ProfilePass::kForward, 1, 1), false).split ==
        Approx(3.3 / 3));
  CHECK(BackToBackOf(both, Entry(ProfilePass::kForward, 1, 2), false).split ==
        Approx(6.3 / 6));
  // Takes, of two as near, the one of the same tensor parallelism.
  Profile cut = profile;
  for (const PassEntry& pass : profile.passes) {
    cut.passes.push_back(pass);
    cut.passes.back().tp = 2;
  }
  cut.splits.insert(cut.splits.begin(), Chains(12, 10, 2, false));
  cut.splits.front().tp = 2;
  PassEntry half = Entry(ProfilePass::kForward, 1, 2);
  CHECK(BackToBackOf(cut, half, false).split == Approx(6.3 / 6));
  half.tp = 2;
  CHECK(BackToBackOf(cut, half, false).split == Approx(12.0 / 6));
  // Nothing is known of another type, or with a pass that is not there.
  PassEntry other = Entry(ProfilePass::kForward, 1, 2);
  other.type = "bf16";
  CHECK(BackToBackOf(profile, other, false).split == 1);
  Profile less = profile;
  less.passes.erase(less.passes.begin() + 6);  // B of two
  CHECK(BackToBackOf(less, Entry(ProfilePass::kForward, 1, 2), false).split ==
        1);
  CHECK(BackToBackOf(less, Entry(ProfilePass::kForward, 1, 2), false).fused ==
        Approx(1));
  CHECK(BackToBackOf({}, other, false).fused == 1);
}

}  // namespace
}  // namespace pipewright::back_to_back_test
