// 1F1B that is never flushed: the common part of pipedream-2bw and pipeoptim,
// which differ in when a rank steps.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/schedule/registry.h"

namespace pipewright {

// The order of 1F1B with a step of every rank after `update_every`
// microbatches. Error: kInvalidArgument, also with fewer microbatches than
// ranks, for `reason`.
absl::StatusOr<Schedule> BuildUnflushed(absl::string_view name,
                                        const ScheduleParams& params,
                                        int update_every,
                                        absl::string_view reason);

// p-d microbatches on rank d.
Claim UnflushedPeak(std::string source);

}  // namespace pipewright
