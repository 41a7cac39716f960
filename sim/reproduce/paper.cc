#include "sim/reproduce/paper.h"

#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/check.h"

namespace pipewright {
namespace {

// Sorted by name; filled before main.
std::map<std::string, Paper>& Rows() {
  static auto* rows = new std::map<std::string, Paper>;
  return *rows;
}

}  // namespace

bool Comparison::matches() const {
  if (rule == Rule::kDigits) return published == rounded;
  double value = 0;
  PW_CHECK(absl::SimpleAtod(published, &value));
  if (rule == Rule::kShown) return std::abs(simulated - value) <= tolerance;
  return rule == Rule::kAtMost
             ? simulated <= value + tolerance
             : std::abs(simulated - value) <= tolerance * std::abs(value);
}

std::string Comparison::RuleNote() const {
  switch (rule) {
    case Rule::kDigits:
      return "";
    case Rule::kWithin:
      return absl::StrFormat("within %g %%", 100 * tolerance);
    case Rule::kShown:
      return absl::StrFormat("%g apart would match; shown, not judged",
                             tolerance);
    case Rule::kAtMost:
      return "at most";
  }
  return "";
}

RegisterPaper::RegisterPaper(Paper paper) {
  std::string name = paper.name;
  PW_CHECK(Rows().emplace(std::move(name), std::move(paper)).second);
}

std::vector<const Paper*> AllPapers() {
  std::vector<const Paper*> papers;
  for (const auto& [name, paper] : Rows()) papers.push_back(&paper);
  return papers;
}

}  // namespace pipewright
