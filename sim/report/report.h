// A run's numbers (docs/json-and-exit-codes.md), computed once for every form.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "sim/engine/engine.h"
#include "sim/engine/step_interval.h"
#include "sim/report/class_report.h"
#include "sim/report/collective_report.h"
#include "sim/report/cost_report.h"
#include "sim/report/memory_report.h"
#include "sim/report/offload_report.h"
#include "sim/report/profile_report.h"
#include "sim/report/reliability_report.h"
#include "sim/report/sequence_report.h"
#include "sim/report/slow_report.h"
#include "sim/report/throughput.h"
#include "sim/schedule/schedule.h"

namespace pipewright {

class Json;
struct Program;

struct GlobalAndPerRank {
  double global = 0;
  double per_rank = 0;
};

struct RankReport {
  int rank = 0;
  double busy_s = 0;
  double span_s = 0;
  double idle_s = 0;  // span - busy
  double first_start_s = 0;
  double last_end_s = 0;
  double late_load_s = 0;  // RankTimes
  double late_free_s = 0;
  double peak_activations = 0;
  // Devices of this rank, by data-parallel replica; empty without a system.
  std::vector<int> devices;
};

// Iteration times if durations are drawn anew each time: a mean with its
// interval instead of a steady-state period.
struct JitterReport {
  std::string kind;  // as configured: "profile", "3%"
  uint64_t seed = 0;
  // Last end of an iteration minus that of the one before; with a single
  // iteration its last end.
  std::vector<double> periods_s;
  double mean_s = 0;
  // 95 % interval of the mean of the periods, by Student's t as if they were
  // independent; none with a single period.
  std::optional<StepInterval> interval;
};

JitterReport ReportJitter(const RunSummary& run, uint64_t seed);

// A step that failed its check: what it added to the next iteration.
struct RollbackReport {
  int iteration = 0;  // whose step
  double cost_s = 0;
};

// Times of the slowest data-parallel replica.
struct Report {
  // Compiled once, not by everyone who has one: they are long.
  Report();
  Report(const Report&);
  Report(Report&&) noexcept;
  Report& operator=(const Report&);
  Report& operator=(Report&&) noexcept;
  ~Report();

  std::string schedule;
  std::string engine;
  // Activities of SimGrid that have run; absent with another engine.
  struct Activities {
    int64_t execs = 0;  // passes and what else a device does by itself
    int64_t comms = 0;  // transfers, copies, collectives, work of hosts
  };
  std::optional<Activities> activities;
  std::string network;  // "hop 0.601 ms", "dgx-h100 (simgrid)", "free"
  int pp = 1;
  int vpp = 1;
  int microbatches = 1;
  int slices = 1;
  int tp = 1;
  int cp = 1;
  int dp = 1;                                 // data-parallel degree
  std::string data_parallel = "none";         // as configured
  std::string gradient_sync = "none";         // what of it the program does
  std::map<std::string, std::string> params;  // the schedule's own
  std::optional<FoundOrder> found_order;      // by a search
  std::string model;                          // "" without one
  std::string system;                         // "" without one
  std::string optimizer = "none";
  std::string optimizer_placement;  // "": the states are on the device
  int optimizer_stride = 0;         // 0: none
  std::string waiting = "buffered";
  GlobalAndPerRank span_s;
  double busy_s = 0;  // busiest rank
  GlobalAndPerRank bubble_fraction;
  GlobalAndPerRank bubble_overhead;
  double iteration_s = 0;  // with jitter the mean of the periods
  // 90 % prediction interval of a step; nothing for given times and for
  // measured runs.
  std::optional<StepInterval> interval;
  int iterations = 1;
  bool steady = false;
  bool measured = false;                 // by a clock (RunSummary)
  bool in_units = false;                 // what is called seconds is units
  std::optional<Throughput> throughput;  // where the tokens are known
  std::optional<CostReport> costs;       // for estimated pass times
  std::optional<ProfileReport> profile;  // for measured ones
  std::optional<JitterReport> jitter;    // where durations are drawn
  std::optional<bool> fits;              // only where a limit is given
  std::vector<RollbackReport> rollbacks;
  // Steps behind, and versions of weights, in pipelines that are never flushed,
  // one a rank (WeightVersionsOf).
  std::vector<int> staleness;
  std::vector<int> weight_versions;
  std::optional<double> microbatches_per_s;  // all replicas together
  std::vector<double> peak_activations;
  // What they were counted with, where they were counted.
  std::optional<double> held_until_weight;
  std::optional<MemoryReport> memory;       // only with a model
  std::optional<OffloadReport> offload;     // where activations are copied
  std::optional<SequenceReport> sequences;  // where lengths are given
  std::optional<SlowReport> slow;           // where devices or links are slow
  std::optional<ReliabilityReport> reliability;  // where devices fail
  // Filled if the configuration leaves rings.
  std::vector<CollectiveReport> collectives;
  std::vector<RankReport> ranks;
  // Set if not all data-parallel replicas run the same.
  std::optional<ClassesReport> dp_classes;
  int64_t ops = 0;
  double bytes_sent = 0;
  std::string mapping;  // ranks on devices, for people; empty without a system
  std::vector<std::string> warnings;  // also on standard error
  // What these times leave out, as words: "kernel launch gaps".
  std::vector<std::string> not_modelled;
};

// Times of one replica: first start on any rank to last end on any rank, of
// ranks that work, and the work of the busiest.
struct RowTimes {
  double span_s = 0;
  double busy_s = 0;
};
RowTimes TimesOfRow(const std::vector<RankTimes>& row);

// `peak_activations`: one a rank. What the program does not know (engine,
// network, model, ...) is the caller's to fill in.
Report Summarize(const Program& program, const RunSummary& run,
                 std::vector<double> peak_activations);

// The value of the key "time_unit".
const char* TimeUnitName(bool in_units);

// Does the path of a number of a report lead to a time, as "iteration_s" or
// "span_s.global" do?
bool IsTimePath(absl::string_view path);
// The name of such a number of a run in units: "iteration_units",
// "span_units.global". `unit`: what stands in place of "s".
std::string PathInUnits(absl::string_view path,
                        absl::string_view unit = "_units");

// What iteration_s is: "steady-state period, ...".
std::string PeriodNote(const Report& report);

// "1.2 s to 1.3 s, -4.0 to +5.1 %": the percentages are of `iteration_s`.
std::string IntervalText(const StepInterval& interval, double iteration_s);
// The value of the key "iteration_interval_s": [low, high], or null.
Json FoundOrderToJson(const FoundOrder& found);
Json IntervalToJson(const std::optional<StepInterval>& interval);

// One JSON object (docs/json-and-exit-codes.md). Numbers read back exactly.
std::string ReportToJson(const Report& report);

// For people: both bubble definitions named, a table by rank.
std::string ReportToText(const Report& report);

// The peak of a run's memory: the one meaning of the key peak_memory_bytes
// (docs/json-and-exit-codes.md), by rank and as the one number of a run.

// [rank] the allocator's peak on one device, the most over all data-parallel
// classes, without context and fragmentation; empty without a model.
std::vector<double> PeakMemoryOf(const Report& report);

// The rank that has most; 0 without a model.
double MostPeakMemoryOf(const Report& report);

// The report as a tree of JSON, for those that do not want its text: its keys
// are those of docs/json-and-exit-codes.md.
Json ReportTree(const Report& report);

// Every key that a report may have, whatever is below it.
std::vector<std::string> ReportKeys();

}  // namespace pipewright
