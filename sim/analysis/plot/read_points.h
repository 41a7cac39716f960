// The points of a figure from reports: files of `simulate --json` (one object,
// a list of them, or one a line), configurations, which are simulated, and the
// stores of `sweep`.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/analysis/plot/figure.h"
#include "sim/config/run_context.h"

namespace pipewright {

class Json;

struct PointPaths {
  std::string x;
  std::string y;
  // "" for one series a file where there are several, else by schedule.
  std::string series;
  bool columns = false;  // fills FigurePoint::numbers and ::words
  // Rows of a sweep's file that started from this configuration, from 1; 0 for
  // all, each a series of its own unless `series` says otherwise.
  int64_t base = 0;
};

struct ReadPoints {
  std::vector<FigurePoint> points;
  std::string series_path;  // what tells them apart; "" for nothing
  int64_t misfits = 0;      // runs that do not fit, which are no points
  int64_t without = 0;    // reports that lack x or y (a memory without a model)
  bool in_units = false;  // times are units of a pass
  std::vector<std::string> warnings;
};

// Error: kInvalidArgument with file, line and field where a file does not
// parse, holds no report, or none of them has such a value (with the nearest).
absl::StatusOr<ReadPoints> ReadPointsOf(const std::vector<std::string>& files,
                                        const PointPaths& paths,
                                        RunContext* context);

// `pipewright simulate` of a configuration as ToString(RunConfig) has it, with
// these fields in place of its own.
std::string SimulateCommand(
    absl::string_view config,
    const std::vector<std::pair<std::string, std::string>>& fields);

// A value of a report by its path: "iteration_s", "bubble_fraction.per_rank",
// "peak_memory_bytes.max", "ranks.0.idle_s". Of a list of numbers .max, .min,
// .mean and .sum; a number is an index.
// Null where the report has no such value, or null there. Error:
// kInvalidArgument where `path` leads to something that is no number or text.
absl::StatusOr<Json> ValueAt(const Json& report, absl::string_view path);

// Every path that leads to a number or a text, for the nearest name.
std::vector<std::string> PathsOf(const Json& report);

}  // namespace pipewright
