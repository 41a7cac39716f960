// What the tables and figures of "Zero Bubble Pipeline Parallelism" (arXiv
// 2401.10241) have in common: a row of times, run through the same path as
// `simulate`, gives a bubble rate: (longest span of a rank - its work) / span.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/reproduce/paper.h"
#include "sim/reproduce/table.h"

namespace pipewright {

// The metric, for Paper::metric.
inline constexpr char kZeroBubbleRate[] =
    "bubble rate: (longest span of a rank - its work) / span";

struct ZeroBubbleRun {
  std::string schedule;
  int vpp = 1;
  std::optional<double> limit;  // of activations, in pp microbatches
};

struct ZeroBubbleResult {
  double span_s = 0;  // the longest of a rank
  double work_s = 0;  // m(F+B+W)

  // `off_s`: taken off the span before the rate is formed.
  double Rate(double off_s = 0) const {
    return (span_s - off_s - work_s) / (span_s - off_s);
  }
};

// Columns of `times`: pp, microbatches, hidden, heads; forward_ms,
// backward_input_ms, backward_weight_ms, p2p_ms of a microbatch through a
// rank. hidden and heads say what a split backward holds until its W.
absl::StatusOr<ZeroBubbleResult> RunZeroBubble(const TableRow& times,
                                               const ZeroBubbleRun& run,
                                               const std::string& engine);

// "1.5B, pp 8, microbatches 24".
std::string ZeroBubbleSetting(const TableRow& times);

// Both describe the same setting; a bug of ours aborts.
void CheckSameSetting(const TableRow& times, const TableRow& published);

// A fixed rule: the same digits.
Comparison CompareRate(const TableRow& times, absl::string_view schedule,
                       const std::string& published, double rate);

// A planner: at most what is published, to half of its last digit.
Comparison ComparePlannedRate(const TableRow& times, absl::string_view schedule,
                              const std::string& published, double rate);

// Table 5 and table 8 count interleaved-1f1b without the hops around the ring:
// the published value with p * T_comm taken off, and the plain span in column
// interleaved_plain, which has no counterpart in the paper.
absl::Status CompareInterleaved(const TableRow& times,
                                const TableRow& published,
                                const std::string& engine,
                                std::vector<Comparison>* comparisons);

}  // namespace pipewright
