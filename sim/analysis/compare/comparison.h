// How a simulated and a measured run of one schedule differ: metrics side by
// side, the difference of the step time taken apart (replay_pair.h says how and
// within which limits), and the single causes that stand out (findings.h).
// Seconds and bytes.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/analysis/compare/findings.h"
#include "sim/analysis/compare/paired_run.h"
#include "sim/report/format.h"

namespace pipewright {

struct TwoValues {
  double simulated = 0;
  double measured = 0;

  double difference() const { return measured - simulated; }
  // The error relative to the measured value; 0 where that is 0.
  double error() const {
    return measured == 0 ? 0 : (simulated - measured) / measured;
  }
};

// The slowest data-parallel replica's.
struct RankComparison {
  TwoValues span_s;
  TwoValues busy_s;
  // Set if both traces have the counter.
  std::optional<TwoValues> peak_activations;
  // Set if both count the same; else see memory_bytes.
  std::optional<TwoValues> peak_memory_bytes;
  std::array<std::optional<double>, kNumSides> memory_bytes;
};

// What the step time gains when one class of times is taken from the
// measurement, in the order of the list.
struct Difference {
  std::string cause;  // "kernels", "transfers", "copies", ...
  std::string kind;   // for kernels: "F"
  // The measured run has these times from the program: it cannot tell.
  bool given = false;
  double seconds = 0;
  std::vector<double> seconds_of_rank;  // for kernels
};

struct TraceComparison {
  std::string simulated;  // files
  std::string measured;
  std::array<TraceOrigin, kNumSides> origin;
  std::string schedule;
  int pp = 0;
  int replicas = 0;
  int iteration = 0;  // the one compared
  int iterations = 0;
  std::vector<TwoValues> step_s_of;  // [iteration]
  TwoValues step_s;
  // Spans, work and bubbles of the iteration's passes.
  TwoValues span_global_s;
  TwoValues span_per_rank_s;
  TwoValues busy_s;
  TwoValues bubble_global;
  TwoValues bubble_per_rank;
  std::vector<RankComparison> ranks;
  std::vector<Difference> differences;  // they add up to step_s.difference()
  Findings findings;
  // What could not differ, and which things the two traces count.
  std::vector<std::string> conditions;
  std::vector<std::string> warnings;
};

// `iteration` -1: the last that both have. Error: kInvalidArgument where
// there is no such iteration.
absl::StatusOr<TraceComparison> Compare(const PairedRun& run,
                                        const ReadTrace& simulated,
                                        const ReadTrace& measured,
                                        int iteration);

// "what the executor has allocated": what the counter "memory" of a
// trace with this word (trace_origin.h) counts.
std::string MemoryInWords(absl::string_view memory);

// Fills in `conditions`; all else is there.
void AddConditions(TraceComparison* comparison);

std::string ComparisonToText(const TraceComparison& comparison);

// One object; the keys are in docs/compare.md.
std::string ComparisonToJson(const TraceComparison& comparison);

// One static page with the overlaid timeline; no network, no script.
std::string ComparisonHtml(const TraceComparison& comparison,
                           const PairedRun& run);

// What all findings come to: "together: +67 ms of +68 ms in iteration 2".
std::string TogetherText(const TraceComparison& comparison);

// There is memory that is not paired: a column for each of both.
bool MemoryApart(const TraceComparison& comparison);

// Unit of the times in tables: three decimals of it show a thousandth of a
// step.
TimeUnit TimeUnitOf(const TraceComparison& comparison);
// "12.345".
std::string InUnit(double seconds, const TimeUnit& unit);

// Rows of metric, simulated, measured, error.
std::vector<std::vector<std::string>> MetricRows(
    const TraceComparison& comparison);

// Rows of cause, change of the step, its share of the simulated step, note.
std::vector<std::vector<std::string>> DifferenceRows(
    const TraceComparison& comparison);

// Two timelines on one axis: for each rank a lane as simulated and below it a
// lane as measured, both from the iteration's first pass on.
struct OverlayOptions {
  int replica = 0;  // data-parallel
  int iteration = 0;
  double width_px = 1600;  // width of the time axis
  double lane_px = 16;
  std::string title;
};

// Operations of compute streams; numbers of microbatches where they fit.
std::string OverlaySvg(const PairedRun& run, const OverlayOptions& options);

}  // namespace pipewright
