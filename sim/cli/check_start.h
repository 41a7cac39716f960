// Would a framework start with its own file? Its rules, the memory of the worst
// rank and the order of the calls on communicators, without a device.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "sim/base/json.h"
#include "sim/config/run_config.h"
#include "sim/program/comm_calls.h"

namespace pipewright {

struct CheckedStart {
  Json report;  // that of --json
  // OK; kInvalidArgument for what is refused, kResourceExhausted for what does
  // not fit, kFailedPrecondition for an order that does not end.
  absl::Status verdict;
  std::vector<std::string> warnings;
};

// `file`: that of --from-args, which `config` or the error comes from.
CheckedStart CheckStart(const std::string& file,
                        const absl::StatusOr<RunConfig>& config,
                        const DeviceRoom& room);

// A line a part, and the verdict.
std::string StartText(const Json& report);

}  // namespace pipewright
