// Many draws of the lengths and of the noise of a run: how its iteration time
// spreads, and which of several strategies is faster.
//
// Draw i of every strategy has the seeds costs.seed + i and sequences.seed + i,
// so strategies meet the same data and the same luck. A draw is simulated with
// nothing but its seeds, so results do not depend on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/config/prepare.h"
#include "sim/config/run_config.h"
#include "sim/config/run_context.h"
#include "sim/engine/engine.h"

namespace pipewright {

// Is one strategy faster than another, or is it chance? Both are simulated with
// the same draws, and the differences draw by draw are tested.
//
// Statistic: Student's paired t, mean difference over its standard error
// (Student, "The probable error of a mean", Biometrika 6, 1908), two-sided,
// count - 1 degrees of freedom. Several pairs: Holm's step-down rule keeps the
// chance of one false claim at kPairedLevel (Holm, "A simple sequentially
// rejective multiple test procedure", Scandinavian Journal of Statistics 6,
// 1979).
inline constexpr double kPairedLevel = 0.05;

struct PairedTest {
  size_t first = 0;  // index of a strategy
  size_t second = 0;
  double difference = 0;  // mean of second - first, in the samples' unit
  double half = 0;        // half of its 95 % interval
  double t = 0;           // 0 where all differences are the same
  double p = 1;           // two-sided; 0: all differences are the same
  bool significant = false;
};

// One a pair of strategies, [strategy][draw] -> time; equally many draws each,
// at least two.
std::vector<PairedTest> TestPairs(
    const std::vector<std::vector<double>>& samples);

class Json;

struct SeedSample {
  std::string name;                  // name of the strategy
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
  int64_t seed = 0;       // seed of the first draw
  bool in_units = false;  // times are units of a pass
  std::vector<SeedSample> strategies;
  std::vector<PairedTest> tests;  // between several strategies
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
