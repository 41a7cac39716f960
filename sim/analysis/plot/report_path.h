// A value of a report by its path: "iteration_s", "bubble_fraction.per_rank",
// "peak_memory_bytes.max", "ranks.0.idle_s". Of a list of numbers .max, .min,
// .mean and .sum; a number is an index.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pipewright {

class Json;

// Null where the report has no such value, or null there. Error:
// kInvalidArgument where `path` leads to something that is no number or text.
absl::StatusOr<Json> ValueAt(const Json& report, absl::string_view path);

// Every path that leads to a number or a text, for the nearest name.
std::vector<std::string> PathsOf(const Json& report);

}  // namespace pipewright
