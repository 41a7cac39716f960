// Figures and pages of points as files of plot, sweep and plan.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/analysis/plot/figure.h"
#include "sim/analysis/search/plan.h"
#include "sim/cli/output_files.h"

namespace pipewright {

inline constexpr char kFigureEndings[] = ".svg, .pdf, .png, .csv or .html";

// By the ending. Error: kInvalidArgument naming the flag.
absl::StatusOr<FileFormat> FigureFormat(absl::string_view flag,
                                        const std::string& path);

absl::StatusOr<std::string> DrawFigure(const Figure& figure, FileFormat format);

// Bubble, or throughput for a page, against memory of the rows of a sweep's
// file. Warns, by the name of the flag, of what it leaves out.
absl::StatusOr<Figure> FigureOfSweep(const std::string& database,
                                     const std::string& flag,
                                     FileFormat format);

// Throughput against memory of what a search has simulated.
Figure FigureOfPlan(const PlanOutcome& outcome);

}  // namespace pipewright
