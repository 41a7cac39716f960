// A Comparison as a table for people, as JSON and as a page.
#pragma once

#include <string>

#include "sim/compare/comparison.h"

namespace pipewright {

std::string ComparisonToText(const Comparison& comparison);

// One object; the keys are in README.md.
std::string ComparisonToJson(const Comparison& comparison);

// One static page with the overlaid timeline; no network, no script.
std::string ComparisonHtml(const Comparison& comparison, const PairedRun& run);

// Rows of "cause", "seconds", "share of the simulated step", for both.
std::string CauseLabel(const Difference& difference);

}  // namespace pipewright
