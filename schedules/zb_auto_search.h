// What zb-auto tries: the paper's search at the given limit and below, since
// more memory does not always mean a smaller bubble, and greedy lists, which no
// plan is to be slower than. They are faster below a limit of pp and where
// stages differ.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/schedule/params.h"
#include "sim/schedule/schedule.h"

namespace pipewright {

// `limit` is 1 or more. Not `below`: the paper's search at that limit alone.
absl::StatusOr<Schedule> PlanZbAuto(absl::string_view name,
                                    const ScheduleParams& params, double limit,
                                    bool below);

}  // namespace pipewright
