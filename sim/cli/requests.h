// What verbs make of their options, and the reports of those whose work is in
// sim/cli/, for callers without a command line (python/). Nothing here prints.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sim/analysis/search/plan_space.h"
#include "sim/config/run_config.h"
#include "sim/program/comm_calls.h"

namespace pipewright {

class Json;
class ProgressBar;

// `fixed`: "AXIS=VALUE[,VALUE...]". `objective`: tokens_per_s, cost or energy.
// Error: kInvalidArgument for what a plan does not take.
absl::StatusOr<PlanRequest> PlanRequestOf(RunConfig base,
                                          const std::vector<std::string>& fixed,
                                          const std::string& objective);

// Seconds that `plan --time` allows; 0 for "", which is as long as it takes.
absl::StatusOr<double> PlanSeconds(const std::string& time);

// What `check` is asked.
struct ScheduleCheck {
  std::string file;
  std::string semantics = "buffered";
  DeviceRoom room;         // of semantics nccl
  std::string room_given;  // option that sets the room; "": none
};

struct CheckedSchedule {
  std::shared_ptr<const Json> report;  // that of --json, never null
  absl::Status verdict;                // also in the report, as `error`
  std::vector<std::string> warnings;
};

// `config`: limits, and the model whose memory is counted. Error: a file that
// does not parse, an option that is refused. A schedule that is not legal or
// does not fit is a result.
// `bar`: shows how far it is; null: nothing does.
absl::StatusOr<CheckedSchedule> CheckSchedule(const ScheduleCheck& asked,
                                              const RunConfig& config,
                                              ProgressBar* bar = nullptr);

}  // namespace pipewright
