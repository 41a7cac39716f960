// What an import found in its traces, and what it has to say about them: what
// they do not tell, what is left out, and how far ranks differ.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "calibrate/kineto_layout.h"
#include "calibrate/kineto_rank.h"
#include "sim/profile/profile.h"

namespace pipewright {

// Seconds: whole nanoseconds at best.
inline constexpr double kTraceResolution = 1e-9;

// Nothing for what is no pass.
std::optional<ProfilePass> PassOf(Region region);

// Seconds of one pass of one part.
using PassKey = std::pair<ProfilePart, ProfilePass>;
using RankSamples = std::map<PassKey, std::vector<double>>;

// Time of a pass on all ranks, and what of it the samples leave out.
struct KinetoLeftOut {
  double whole_us = 0;
  double other_us = 0;  // in no part
  double communication_us = 0;
};

struct KinetoFindings {
  std::vector<RankSamples> samples;  // by trace
  std::map<Region, KinetoLeftOut> left_out;
};

void NoteTraces(const std::vector<KinetoRank>& ranks,
                const KinetoLayout& layout, const KinetoFindings& found,
                std::vector<std::string>* notes);

// The ranks of the least and of the largest median.
void NoteSpread(const std::vector<KinetoRank>& ranks,
                const KinetoFindings& found, PassKey key,
                std::vector<std::string>* notes);

}  // namespace pipewright
