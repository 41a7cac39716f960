// The rows of a sweep's file, for those that plot or export them. It streams
// and holds no rows.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sim/analysis/sweep/cell.h"
#include "sim/analysis/sweep/database.h"
#include "sim/analysis/sweep/points.h"
#include "sim/analysis/sweep/result.h"
#include "sim/base/json.h"
#include "sim/config/run_context.h"

namespace pipewright {

struct SweepRow {
  std::string hash;      // 32 hexadecimal digits
  bool current = false;  // made by this kModelVersion
  int model_version = 0;
  std::string status;  // NameOf(PointStatus)
  int exit = 0;
  std::string reason;
  std::string engine;
  std::string time_unit;  // "s", "unit", "" without a report
  int base = -1;          // SweepReader::bases()
  std::vector<std::pair<std::string, SweepCell>> axes;
  std::vector<SweepCell> cells;  // one a column asked for
  // The report of `simulate --json`, null without one; computed again if it is
  // not stored. Only while visited, when an error is that of the visit.
  std::function<Json()> report;
};

// What of a row of this version is found without a look at its report.
struct SweepHeadline {
  int64_t id = 0;
  PointHash hash;
  int64_t sweep = 0;   // the call that has run it
  std::string status;  // "ok", as SweepRow
  int exit = 0;
  std::string reason;
  std::string time_unit;  // "" without a report
  // In units of a pass where time_unit says so.
  std::optional<double> iteration_s;
  std::optional<double> tokens_per_s;
};

class SweepReader {
 public:
  // Is there something to open? A file of no bytes is one that a first sweep
  // will fill.
  static bool HasFile(const std::string& path);
  // Error: kNotFound or kInvalidArgument naming the file.
  static absl::StatusOr<std::unique_ptr<SweepReader>> Open(
      const std::string& path);

  // "hash", "status" and the like: of every row, with or without a report.
  static std::vector<std::string> RowColumns();

  // Paths of reports that every row stores.
  static std::vector<std::string> HeadlineColumns();

  // Every column that a row has: the axes, the headlines, then paths of the
  // stored reports (leaves.h).
  absl::StatusOr<std::vector<std::string>> Columns() const;

  // Rows in the order of their first storing; of other model versions only with
  // `all_versions`. A column is an axis, a path of the report, or "hash",
  // "status", "exit", "reason", "engine", "seed", "model_version",
  // "time_unit". Reports that are not stored are computed again for what only
  // they have. Error: a column that no row has, with the nearest; what `visit`
  // and EvaluateAgain return.
  absl::Status Visit(
      const std::vector<std::string>& columns, bool all_versions,
      const std::function<absl::Status(const SweepRow&)>& visit) const;

  // What the times of rows with a report are in.
  absl::StatusOr<std::set<std::string>> TimeUnits(bool all_versions) const;
  // A row takes a microsecond or two; in any order.
  absl::Status VisitHeadlines(
      const std::function<void(const SweepHeadline&)>& visit) const;
  // The last call that wrote into the file.
  absl::StatusOr<int64_t> LastSweep() const;
  // Axes of the row with this id.
  absl::StatusOr<std::vector<std::pair<std::string, SweepCell>>> AxesOf(
      int64_t id) const;

  // How many rows are of another model version; of this one.
  absl::StatusOr<int64_t> other_versions() const;
  absl::StatusOr<int64_t> rows() const;
  // How many rows of this version there are of each status.
  absl::StatusOr<std::map<std::string, int64_t>> Statuses() const;
  // Names of axes in their order, those of this version first.
  absl::StatusOr<std::vector<std::string>> Axes() const;
  // The configurations that the sweeps of this file started from, each once, in
  // the order of their first sweep; as text, a field a line. A row is of the
  // one whose sweep has stored it.
  const std::vector<std::string>& bases() const { return bases_; }
  // Those that have rows of this version, by their index.
  absl::StatusOr<std::set<int>> BasesInUse() const;

 private:
  explicit SweepReader(std::unique_ptr<Database> database)
      : database_(std::move(database)) {}
  absl::Status ReadShapes();
  absl::Status ReadBases();

  absl::StatusOr<PointResult> Again(const SweepRow& row) const;
  // What the column `axes` of a row of this sweep says.
  std::vector<std::pair<std::string, SweepCell>> AxesOfText(
      absl::string_view text, int64_t sweep) const;

  std::unique_ptr<Database> database_;
  std::unique_ptr<RunContext> context_ = std::make_unique<RunContext>();
  std::map<int64_t, Json> shapes_;
  std::vector<std::string> bases_;
  std::map<int64_t, int> base_of_sweep_;
  std::map<int64_t, std::shared_ptr<const Json>> axes_of_sweep_;
};

}  // namespace pipewright
