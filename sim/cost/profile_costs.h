// The measured cost model: pass times of every stage from a calibration
// profile. Exact shapes are looked up; others lie between measured ones
// (profile_interpolation.h) and carry an error estimate. It knows no schedule
// and no configuration, and makes up no number that the profile does not
// support: what is missing is an error that says how to measure it.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/cost/analytic.h"
#include "sim/cost/jitter.h"
#include "sim/cost/pass_costs.h"
#include "sim/cost/profile_shape.h"
#include "sim/cost/time_source.h"
#include "sim/model/stages.h"
#include "sim/profile/profile.h"

namespace pipewright {

struct ProfileCostOptions {
  std::string name;  // name of the profile, for messages
  // Times of another layer shape may be carried over by their work.
  bool scale_shapes = false;
  // Links for exchanges that the profile did not measure; null: none.
  const AnalyticOptions* network = nullptr;
};

// One pass of one part as the run needs it: a row of the report.
struct ProfiledTime {
  ProfilePart part = ProfilePart::kLayer;
  ProfilePass pass = ProfilePass::kForward;
  enum class How { kMeasured, kInterpolated, kExtrapolated, kScaled };
  How how = How::kMeasured;
  double seconds = 0;  // for one microbatch through one of them
  // Half of the 90 % prediction interval of a fresh calibration's median over
  // the median; of interpolated ones the nearest entry's.
  double noise = 0;
  // Expected relative error of the interpolation; 0 where measured, below 0
  // where it is unknown.
  double error = 0;
  int points = 0;                      // measured shapes behind it
  const PassEntry* nearest = nullptr;  // in the profile
};
const char* HowName(ProfiledTime::How how);  // "measured"

struct ProfileCosts {
  PassCosts costs;   // the optimizer of a schedule with one direction
  std::string type;  // "bf16"
  std::vector<ProfiledTime> times;
  // False where only whole backwards were measured: B and W are then halves
  // and mean nothing by themselves.
  bool splits_backward = true;
  // B + W over BW of one layer; 0 where not all were measured.
  double split_price = 0;
  Jitter jitter;  // by the entries' quantiles, seed 0
  // Which parts of the times come from which entry, one source for each row of
  // `times`, and the optimizer. The collectives inside passes are left out.
  std::vector<TimeSource> sources;
  // Why the error of the times is not known; "" where it is.
  std::string error_unknown;
  std::vector<std::string> warnings;
};

// Recomputation is part of backward_input_s and backward_full_s, as in
// AnalyticCosts without R passes. Errors: kInvalidArgument for shapes that
// were not measured (with the command that does) and for what no profile
// knows (context parallelism).
absl::StatusOr<ProfileCosts> CostsOfProfile(
    const Profile& profile, const ModelSpec& model,
    const TrainingSpec& training, const StageLayout& layout,
    const std::vector<int>& rank_of_stage, const ProfileCostOptions& options);

// The optimizer step of `parameters` on the device, on a straight line through
// what was measured; where no step was, its bytes at the measured bandwidth of
// the device; nothing without either.
std::optional<double> ProfileOptimizerSeconds(const Profile& profile,
                                              double parameters);

// The same for predicting `parameters` some steps on.
std::optional<double> ProfilePredictionSeconds(const Profile& profile,
                                               double parameters);

// Seconds that the rank with the most layers takes, once a step, to make the
// fp8 copies of their weights; 0 without fp8, or where it was not measured
// (kernel quantize.weights). Shards do not divide it.
double ProfileQuantizeSeconds(const Profile& profile, const ModelSpec& model,
                              const TrainingSpec& training,
                              const StageLayout& layout,
                              const std::vector<int>& rank_of_stage,
                              int directions);

// Where the entries are from, in a line: "Xeon, fp32 cpu, 2026-11-21".
std::string DescribeProfile(const Profile& profile);

// Times of passes that follow passes of other kinds. A calibration times each
// kind of pass among its own, and chains of different ones; a step runs them
// mixed, as chains do, with other code and other data between two of a kind.

// Time of a chain over the sum of its passes timed each among its own kind; 1
// where no chain was measured.
struct BackToBack {
  double split = 1;  // F, B, W
  double fused = 1;  // F, BW
};

// Takes the chains (with R in front of the backward if `recompute`) of the
// layer and shape of `entry`, or of its shape that is nearest in tokens.
BackToBack BackToBackOf(const Profile& profile, const PassEntry& entry,
                        bool recompute);

}  // namespace pipewright
