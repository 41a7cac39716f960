// Rows of a sweep's file for other programs: CSV and JSON Lines, written row
// by row.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "sim/analysis/sweep/reader.h"

namespace pipewright {

struct SweepExport {
  std::string path;
  // Empty: hash, status, exit, reason, the axes and the headline columns.
  std::vector<std::string> columns;
  bool all_versions = false;
  // Asked at every row; true ends the export, kCancelled, and leaves no file.
  // May be null.
  std::function<bool()> stops = nullptr;
};

// A header and a line a row (RFC 4180). A number is what reads back exactly; a
// text in which a spreadsheet would see a formula is quoted only. Times in
// units of a pass stand in columns that end in "_units" in place of "_s".
absl::Status ExportCsv(const SweepReader& reader, const SweepExport& out);

// An object a row: hash, current, model_version, status, exit, reason, engine,
// time_unit, axes, report (that of `simulate --json`, or null).
absl::Status ExportJsonLines(const SweepReader& reader, const SweepExport& out);

}  // namespace pipewright
