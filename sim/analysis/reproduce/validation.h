// What `reproduce` has computed, as pages: every published number beside ours,
// steps of whole runs by kind with their goals, and what has changed against an
// earlier run. It prints nothing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/analysis/reproduce/paper.h"
#include "sim/analysis/reproduce/steps.h"

namespace pipewright {

class Json;

struct PaperResult {
  const Paper* paper = nullptr;
  std::vector<Comparison> rows;
};

// One object a paper, as `reproduce --json` has them.
Json PaperToJson(const PaperResult& result);
Json StepSummaryToJson(const StepSummary& summary);

// By kind, order and intervals, lines ended; "" without measured steps.
std::string StepSummaryToText(const StepSummary& summary);

// docs/dev/validation.md, and the same as a page for a browser.
std::string ValidationMarkdown(const std::vector<PaperResult>& results,
                               absl::string_view engine);
std::string ValidationHtml(const std::vector<PaperResult>& results,
                           absl::string_view engine);

// A number that is another one than in an earlier `reproduce --json`.
struct ChangedRow {
  std::string paper;
  std::string setting;
  std::string schedule;
  double published = 0;
  // Nothing: the row was not there, or had no estimate.
  std::optional<double> before;
  std::optional<double> after;
};

struct ValidationDiff {
  int compared = 0;
  std::vector<ChangedRow> changed;
  // Counted steps of both, by kind: mean size of the error.
  struct Kind {
    std::string kind;
    int rows = 0;
    double before = 0;
    double after = 0;
  };
  std::vector<Kind> kinds;
};

// `old_json`: the text of an earlier `reproduce --json`. Only papers of
// `results` are looked at. Error: kInvalidArgument if it is none.
absl::StatusOr<ValidationDiff> DiffValidation(
    absl::string_view old_json, const std::vector<PaperResult>& results);

std::string DiffToText(const ValidationDiff& diff);
Json DiffToJson(const ValidationDiff& diff);

}  // namespace pipewright
