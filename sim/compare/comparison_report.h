// A Comparison as a table for people, as JSON and as a page.
#pragma once

#include <string>

#include "sim/compare/comparison.h"

namespace pipewright {

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

// Rows of "cause", "seconds", "share of the simulated step", for both.
std::string CauseLabel(const Difference& difference);

}  // namespace pipewright
