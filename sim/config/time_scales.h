// "What if": factors on the times of a run, put on where the times are made, so
// that planners, copies and both engines see them as if they had been given.
#pragma once

#include <array>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/config/prepare.h"
#include "sim/config/run_config.h"
#include "sim/config/run_context.h"
#include "sim/schedule/pass.h"

namespace pipewright {

struct TimeScales {
  // Scales of F, B, W, BW, R, O, L; [PassKind].
  std::array<double, kNumPassKinds> pass = {1, 1, 1, 1, 1, 1, 1, 1, 1};
  double p2p = 1;        // of a hop that is a pure delay
  double network = 1;    // of all links of a system: latency and time a byte
  double optimizer = 1;  // of the step
  std::map<int, double> stages;  // of all passes of a stage

  bool any() const;
};

// "W*0.8,p2p*2,stage3*0.9". `name`: of the flag, for errors. Errors:
// kInvalidArgument for an unknown name, a factor that is no number of 0 or
// more, a name that comes twice.
absl::StatusOr<TimeScales> ParseTimeScales(absl::string_view name,
                                           absl::string_view text);
// "W*0.8, p2p*2"; "" where all are 1.
std::string ToString(const TimeScales& scales);

// As Prepare (prepare.h), of the run with these times. Given times are scaled
// as they were given: the result is that of a configuration with the products
// in their place, bit for bit. Estimated and measured ones are scaled stage by
// stage. Error: also a factor that this run has no time for (p2p with a system,
// a stage that is not there, O without costs.uniform.offload).
absl::StatusOr<PreparedRun> PrepareScaled(const RunConfig& config,
                                          const TimeScales& scales,
                                          RunContext* context);

// The steps of it; for sim/config only. Those of the configuration: given times
// in their places, stages made lists of their own. Error: as PrepareScaled.
absl::Status ScaleGivenTimes(const TimeScales& scales, int pp, int vpp,
                             RunContext* context, RunConfig* config);
// And of what was estimated, measured, or follows from others.
void ScaleOtherTimes(const RunConfig& config, const TimeScales& scales,
                     PassCosts* costs);

}  // namespace pipewright
