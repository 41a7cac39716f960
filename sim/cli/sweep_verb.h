// The verb `sweep`: what was given, and its steps.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sim/analysis/sweep/export.h"
#include "sim/analysis/sweep/points.h"
#include "sim/analysis/sweep/pool.h"
#include "sim/analysis/sweep/reader.h"
#include "sim/analysis/sweep/store.h"
#include "sim/analysis/sweep/sweep.h"
#include "sim/base/json.h"
#include "sim/cli/common.h"

namespace pipewright {

// The best of what it is offered, best first.
class BestList {
 public:
  explicit BestList(bool more_is_better) : more_(more_is_better) {}
  // Would it be one of them?
  bool Wants(std::optional<double> value) const;
  void Offer(std::optional<double> value, const std::string& text);
  bool empty() const { return rows_.empty(); }
  // Nothing if it is empty.
  void AddTo(const char* name, std::string* out) const;

 private:
  static constexpr size_t kMostShown = 5;

  double Order(double value) const { return more_ ? -value : value; }

  const bool more_;
  std::vector<std::pair<double, std::string>> rows_;
};

// What points say, each text once; those that differ by their numbers alone are
// one. Numbers of names count.
class CountedTexts {
 public:
  void Add(const std::string& text, int64_t points = 1);
  int64_t points() const {
    int64_t points = 0;
    for (const Row& row : rows_) points += row.points;
    return points;
  }
  // "all 6 points: ...", "2 of 6 points (1 of them with other numbers): ...";
  // of more than `most` those that most points say.
  std::vector<std::string> Lines(int64_t all, size_t most) const;
  // [{"text", "points", "with_other_numbers"}].
  Json ToJson() const;

 private:
  struct Row {
    std::string text;    // the first of them
    int64_t points = 0;  // that say so
    int64_t others = 0;  // of them, with other numbers
  };
  std::map<std::string, size_t> place_;  // in `rows_`
  std::vector<Row> rows_;
};

// Which points say a text.
struct SaidBy {
  int64_t place = std::numeric_limits<int64_t>::max();  // of the first of them
  int64_t points = 0;
};

// What the rows of this call's points say together; other rows of the file may
// be of another base.
struct OwnRows {
  int64_t rows = 0;
  int64_t run_now = 0;                        // of them, which alone say notes
  std::map<std::string, int64_t> reports_in;  // by their unit of time
  CountedTexts notes;
  CountedTexts refusals;
  bool only_orders_refused = true;  // exit code 4 of all
  // The best that fit.
  BestList by_time{/*more_is_better=*/false};
  BestList by_units{/*more_is_better=*/false};
  BestList by_tokens{/*more_is_better=*/true};

  // The key "time_unit": null without a report, "mixed" with both.
  Json TimeUnit() const;
  // Error: no point can run. kFailedPrecondition if all orders are refused,
  // else kInvalidArgument.
  absl::Status Verdict() const;
};

// "3/64", or what starts processes: "slurm" (an array), "slurm/64" (its task is
// the shard), "mpi" (mpirun, srun).
// Error: kInvalidArgument for --shard.
absl::StatusOr<SweepShard> ShardOfText(const std::string& text);

// `sweep merge`.
void AddSweepMerge(CLI::App* sweep, Action* action);

struct SweepVerb {
  ConfigOptions config;
  OutputFiles files;
  std::vector<std::string> axes;
  std::vector<std::string> filters;
  int64_t seeds = 0;       // 0: not given
  std::string database;    // "": given by CheckOptions
  std::string shard_text;  // --shard; "" for none
  SweepShard shard;
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
  std::function<bool()> stops;             // asked by exports; may be null
  std::vector<PointHash> walked;           // points of this call
  std::map<std::string, SaidBy> warnings;  // of those that it has run

  absl::Status Run();
  absl::StatusOr<SweepPoints> ReadPoints(RunContext* context);
  // sweep_checks.cc
  absl::Status CheckOptions();
  absl::Status TakeShard();
  absl::Status CheckFiles(const RunConfig& base, const SweepGrid& grid);
  absl::Status CheckColumns(const SweepPoints& points) const;
  // Warnings of seeds that change nothing.
  static std::vector<std::string> WarningsOf(const SweepPoints& points);
  // Error: nothing says what passes take in any point, with the ways to say it.
  static absl::Status CheckTimes(const SweepPoints& points,
                                 RunContext* context);
  bool exports_only() const {
    return !csv.empty() || !jsonl.empty() || draws();
  }
  // Are they stored, as this call reads more of them than the headlines?
  bool keeps_reports() const {
    return !jsonl.empty() || !columns.empty() || draws();
  }
  bool draws() const {
    return files.wanted("--html") || files.wanted("--figure");
  }
  // Is every point one of the engines that threads may run?
  static bool NeedsNoSimgrid(const SweepPoints& points);
  absl::Status RunWith(const SweepPoints& points, Evaluator* evaluator);
  absl::Status DryRun(const SweepPoints& points);
  absl::StatusOr<SweepCounts> RunPoints(const SweepPoints& points, int64_t all,
                                        SweepStore* store,
                                        Evaluator* evaluator);
  // sweep_output.cc
  absl::Status Export();
  absl::Status ExportRows() const;
  // Prints, as JSON, what was exported and not run.
  absl::Status PrintStatuses() const;
  absl::StatusOr<OwnRows> ReadOwnRows(const SweepReader& reader) const;
  // Counts, notes and the best. Error: OwnRows::Verdict.
  absl::Status PrintResults(const SweepCounts& counts) const;
};

}  // namespace pipewright
