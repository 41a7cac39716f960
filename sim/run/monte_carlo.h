// Many draws of the lengths and of the noise of a run: how its iteration time
// spreads, and which of several strategies is faster.
//
// Draw i of every strategy has the seeds costs.seed + i and sequences.seed + i,
// so strategies meet the same data and the same luck. A draw is simulated with
// nothing but its seeds, so results do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/config/prepare.h"
#include "sim/config/run_config.h"
#include "sim/config/run_context.h"
#include "sim/engine/engine.h"
#include "sim/run/paired_test.h"

namespace pipewright {

class Json;

struct SeedSample {
  std::string name;                  // of the strategy
  std::vector<double> iterations_s;  // [draw]
  double mean_s = 0;
  double error_s = 0;  // standard error of the mean
  double p5_s = 0;     // quantiles, straight between draws
  double p50_s = 0;
  double p95_s = 0;
};
// From the draws alone; at least one.
SeedSample SummarizeDraws(std::string name, std::vector<double> iterations_s);

struct MonteCarlo {
  int draws = 0;
  int64_t seed = 0;  // of the first draw
  std::vector<SeedSample> strategies;
  std::vector<PairedTest> tests;  // of several strategies
  std::vector<std::string> warnings;
};

struct NamedConfig {
  std::string name;
  RunConfig config;
};

// False where no seed changes a step: neither noise, lengths nor slow devices
// and links are drawn.
bool DrawsAnything(const PreparedRun& run);
inline constexpr char kNothingDrawn[] =
    "all draws are alike: neither lengths (--lengths), noise (--jitter) nor "
    "slow devices and links (--slow-law, --slow-links-law) are drawn";

// Engine `fast` where none is given; with another one draw follows the other
// (simulated_run.h). With noise and no iterations given, a draw is the period
// after the first iteration. Errors: those of Prepare, Lower and the engine, of
// the first draw that has one. `progress` hears of draws, one call at a time.
absl::StatusOr<MonteCarlo> RunMonteCarlo(std::vector<NamedConfig> strategies,
                                         int draws, int threads,
                                         RunContext* context,
                                         Progress* progress = nullptr);

std::string MonteCarloToText(const MonteCarlo& result);
Json MonteCarloToJson(const MonteCarlo& result);

}  // namespace pipewright
