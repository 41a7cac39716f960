#include "calibrate/kineto_notes.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "calibrate/statistics.h"
#include "sim/base/quantity.h"

namespace pipewright {
namespace {

constexpr double kRanksDiffer = 0.02;

}  // namespace

std::optional<ProfilePass> PassOf(Region region) {
  switch (region) {
    case Region::kForward:
      return ProfilePass::kForward;
    case Region::kBackwardInput:
      return ProfilePass::kBackwardInput;
    case Region::kBackwardWeight:
      return ProfilePass::kBackwardWeight;
    case Region::kBackwardFull:
      return ProfilePass::kBackwardFull;
    case Region::kRecompute:
    case Region::kOptimizer:
      break;
  }
  return std::nullopt;
}

void NoteTraces(const std::vector<KinetoRank>& ranks,
                const KinetoLayout& layout, const KinetoFindings& found,
                std::vector<std::string>* notes) {
  const auto add = [notes](std::string text) {
    notes->push_back(std::move(text));
  };
  int64_t orphans = 0;
  int64_t instant = 0;
  int64_t graphs = 0;
  bool kernels = true;
  for (const KinetoRank& rank : ranks) {
    orphans += rank.num_orphans;
    instant += rank.num_instant;
    kernels &= rank.has_kernels;
    for (const TraceRegion& region : rank.regions) {
      for (size_t at = 1; at < region.kernels.size(); ++at) {
        graphs +=
            region.kernels[at].launch_us == region.kernels[at - 1].launch_us
                ? 1
                : 0;
      }
    }
  }
  if (!kernels) {
    add("the trace has no GPU kernels: times are those of the host");
  }
  if (orphans > 0) {
    add(absl::StrCat(orphans,
                     " kernels are left out: no launch of theirs is in the "
                     "trace"));
  }
  if (instant > 0) {
    add(absl::StrCat(instant, " kernels have no duration"));
  }
  if (graphs > 0) {
    add(absl::StrCat(
        graphs,
        " kernels are of CUDA graphs: inside of a graph only names tell the "
        "embedding and the head from the layers"));
  }
  for (const auto& [region, left] : found.left_out) {
    const auto note = [&add, pass = ProfilePassName(*PassOf(region)),
                       whole_us = left.whole_us](double us, const char* what) {
      if (us <= 0) return;
      add(absl::StrFormat("%s: %.1f %% of the time is %s, and is left out",
                          pass, 100 * us / whole_us, what));
    };
    note(left.other_us, "of no layer, embedding or head");
    note(left.communication_us,
         "communication beside which nothing computes (a simulation adds its "
         "own)");
  }
  const auto at_end = [&](int64_t end) {
    return std::any_of(layout.pipeline.begin(), layout.pipeline.end(),
                       [&](int64_t rank) { return rank < 0 || rank == end; });
  };
  const auto has = [&](ProfilePart part) {
    return std::any_of(
        found.samples.begin(), found.samples.end(),
        [&](const RankSamples& samples) {
          return samples.count({part, ProfilePass::kForward}) > 0;
        });
  };
  for (const auto& [part, end] :
       {std::make_pair(ProfilePart::kEmbedding, int64_t{0}),
        std::make_pair(ProfilePart::kHead, layout.pp - 1)}) {
    if (has(part) || !at_end(end)) continue;
    add(absl::StrCat("no ", ProfilePartName(part),
                     " is recognised: it gets no entry, and if a region holds "
                     "one its time is in that of the layers"));
  }
}

void NoteSpread(const std::vector<KinetoRank>& ranks,
                const KinetoFindings& found, PassKey key,
                std::vector<std::string>* notes) {
  const KinetoRank* ends[2] = {};
  double seconds[2] = {};
  for (size_t index = 0; index < ranks.size(); ++index) {
    const auto own = found.samples[index].find(key);
    if (own == found.samples[index].end()) continue;
    const double median = Summarize({own->second}, kTraceResolution).median_s;
    for (const int high : {0, 1}) {
      if (ends[high] != nullptr &&
          (high == 1 ? median <= seconds[1] : median >= seconds[0])) {
        continue;
      }
      ends[high] = &ranks[index];
      seconds[high] = median;
    }
  }
  if (ends[0] == nullptr || seconds[1] <= (1 + kRanksDiffer) * seconds[0]) {
    return;
  }
  notes->push_back(
      absl::StrCat(ProfilePartName(key.first), " ", ProfilePassName(key.second),
                   " differs between ranks: ", FormatSeconds(seconds[0]), " (",
                   ends[0]->source, ") to ", FormatSeconds(seconds[1]), " (",
                   ends[1]->source, ")"));
}

}  // namespace pipewright
