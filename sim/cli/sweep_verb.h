// The verb `sweep`: what was given, and its steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sim/analysis/sweep/export.h"
#include "sim/analysis/sweep/points.h"
#include "sim/analysis/sweep/pool.h"
#include "sim/analysis/sweep/reader.h"
#include "sim/analysis/sweep/store.h"
#include "sim/analysis/sweep/sweep.h"
#include "sim/cli/common.h"

namespace pipewright {

struct SweepVerb {
  ConfigOptions config;
  OutputFiles files;
  std::vector<std::string> axes;
  std::vector<std::string> filters;
  int64_t seeds = 0;  // 0: not given
  std::string database = "runs.sqlite";
  int workers = 1;
  double timeout_s = 0;
  int retries = 2;
  bool dry_run = false;
  bool again = false;
  bool json = false;
  std::string csv;
  std::string jsonl;
  std::vector<std::string> columns;
  bool all_versions = false;
  std::vector<PointHash> walked;  // points of this call

  absl::Status Run();
  absl::StatusOr<SweepPoints> ReadPoints(RunContext* context);
  // sweep_checks.cc
  absl::Status CheckOptions() const;
  absl::Status CheckFiles(const SweepBase& base, const SweepGrid& grid);
  absl::Status CheckColumns(const SweepPoints& points) const;
  // Warnings of the base as a run of its own, or if it is none, of the first
  // point; and of seeds that change nothing.
  static std::vector<std::string> WarningsOf(const SweepPoints& points);
  bool exports_only() const { return !csv.empty() || !jsonl.empty(); }
  // Is every point one of the engines that threads may run?
  static bool NeedsNoSimgrid(const SweepPoints& points);
  absl::Status RunWith(const SweepPoints& points, Evaluator* evaluator);
  absl::Status DryRun(const SweepPoints& points);
  absl::StatusOr<SweepCounts> RunPoints(const SweepPoints& points,
                                        SweepStore* store,
                                        Evaluator* evaluator);
  // sweep_output.cc
  absl::Status Export() const;
  // Prints, as JSON, what was exported and not run.
  absl::Status PrintStatuses() const;
  absl::Status PrintCounts(const SweepCounts& counts) const;
  // The best of this call's points; other rows of the file may be of another
  // base.
  absl::Status AddBest(const SweepReader& reader, std::string* text) const;
};

}  // namespace pipewright
