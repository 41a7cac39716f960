// A Comparison as a table for people, as JSON and as a page.
#pragma once

#include <string>

#include "sim/compare/comparison.h"

namespace pipewright {

std::string ComparisonToText(const TraceComparison& comparison);

// One object; the keys are in README.md.
std::string ComparisonToJson(const TraceComparison& comparison);

// One static page with the overlaid timeline; no network, no script.
std::string ComparisonHtml(const TraceComparison& comparison,
                           const PairedRun& run);

// Rows of "cause", "seconds", "share of the simulated step", for both.
std::string CauseLabel(const Difference& difference);

}  // namespace pipewright
