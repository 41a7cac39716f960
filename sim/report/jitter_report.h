// Iteration times where durations are drawn anew each time: a mean with its
// interval instead of a steady-state period.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/json.h"
#include "sim/engine/engine.h"

namespace pipewright {

struct JitterReport {
  std::string kind;  // as configured: "profile", "3%"
  uint64_t seed = 0;
  // Last end of an iteration minus that of the one before; with a single
  // iteration its last end.
  std::vector<double> periods_s;
  double mean_s = 0;
  // 95 % interval of the mean of the periods, by Student's t as if they were
  // independent; none with a single period.
  struct Interval {
    double low_s = 0;
    double high_s = 0;
  };
  std::optional<Interval> interval;
};

JitterReport ReportJitter(const RunSummary& run, uint64_t seed);

// "mean of 7 periods, 95 % interval 1.2 s to 1.3 s (jitter profile, seed 0)".
std::string JitterNote(const JitterReport& report);
// The value of the key "jitter".
Json JitterToJson(const JitterReport& report);

}  // namespace pipewright
