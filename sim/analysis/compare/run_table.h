// Executed runs with their predictions as a CSV file: what `execute --row`
// appends to and `compare --summary` reads. One line an execution, under a line
// of column names; the same run may have several. Knows no executor and no
// engine.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pipewright {

struct ExecutedRow {
  std::string schedule;
  int pp = 1;
  int vpp = 1;
  int microbatches = 1;
  int microbatch_size = 1;  // sequences
  int sequence = 1;         // tokens
  int slices = 1;
  std::string layers;  // layers of each stage: "2 2 2 2"
  int steps = 1;
  std::string clock;
  double shortest_pass_s = 0;  // as predicted
  double predicted_s = 0;      // a step
  double executed_s = 0;
  std::string gradients;  // "bits", "tolerance", "differ", "unchecked"
  // [rank], of the run, with "!=" and those of the schedule where they differ.
  std::string peak_activations;
  double wall_s = 0;
  std::string date;  // ISO 8601, UTC
  std::string device;
  std::string libraries;
  std::string version;
  std::string profile;  // where the pass times are from
  std::string options;  // a digest of all that is in no other column

  double error() const { return predicted_s / executed_s - 1; }
  bool peaks_agree() const;
  bool gradients_agree() const;
  // All stages have as many layers.
  bool even() const;
  // What makes it a run of its own: schedule, sizes, layers, clock, options.
  std::string Key() const;

  bool operator==(const ExecutedRow&) const = default;
};

// A file of no rows, and one more line for it; both with a newline.
std::string ExecutedTableHeader();
std::string ExecutedTableLine(const ExecutedRow& row);

// Errors: kInvalidArgument with `source`, line, column and what is allowed.
absl::StatusOr<std::vector<ExecutedRow>> ParseExecutedTable(
    absl::string_view content, absl::string_view source);

}  // namespace pipewright
