// The file of a sweep, YAML or JSON: base (a configuration, or the path of
// one), axes, linked, filters, seeds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/analysis/sweep/grid.h"

namespace pipewright {

struct SweepFile {
  // The base: a text that reads as a configuration and has its fields on the
  // lines of the file, or the path of another one.
  std::string base_text;
  std::optional<std::string> base_path;  // relative to the file, resolved
  SweepGrid grid;
  std::optional<int64_t> seeds;
};

// Nothing for a configuration of a run, which has no key of a sweep. Error:
// kInvalidArgument with file, line, axis, value and what is allowed.
absl::StatusOr<std::optional<SweepFile>> ReadSweepFile(
    absl::string_view text, const std::string& source);

// An axis costs.seed with `count` values from `first` on.
SweepAxis SeedAxis(int64_t count, int64_t first, const std::string& place);

inline constexpr int64_t kMostSeeds = 1'000'000;

}  // namespace pipewright
