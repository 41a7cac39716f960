// A job whose devices fail, for every form of the report: the goodput of drawn
// stretches of time beside the closed form, and the intervals of checkpoints
// that others recommend (sim/cost/goodput.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "sim/cost/goodput.h"

namespace pipewright {

class Json;

struct ReliabilityReport {
  FailingJob job;
  double horizon_s = 0;
  int seeds = 0;  // stretches that were drawn
  uint64_t seed = 0;
  bool interval_given = true;  // or Daly's
  TimeParts mean;              // mean of the stretches
  double error = 0;            // standard error of mean.kept; 0 of one stretch
  double p5 = 0;               // quantiles of what is kept
  double p50 = 0;
  double p95 = 0;
  double failures = 0;  // mean of a stretch
  TimeParts formula;    // for a long run
  // What is left of a horizon by the mean: whole steps are not counted.
  std::optional<double> steps;
  std::optional<double> tokens;
};

// Draws `seeds` stretches. Steps and tokens are the caller's.
ReliabilityReport ReportReliability(const FailingJob& job, double horizon_s,
                                    int seeds, uint64_t seed);

// Lines "goodput ...", ended.
std::string ReliabilityToText(const ReliabilityReport& report);
// The value of the key "reliability".
Json ReliabilityToJson(const ReliabilityReport& report);
// A section of a page.
std::string ReliabilityToHtml(const ReliabilityReport& report);

}  // namespace pipewright
