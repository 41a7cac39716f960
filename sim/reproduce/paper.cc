#include "sim/reproduce/paper.h"

#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "sim/base/check.h"

namespace pipewright {
namespace {

constexpr std::pair<Comparison::Rule, const char*> kRules[] = {
    {Comparison::Rule::kDigits, "digits"},
    {Comparison::Rule::kWithin, "within"},
    {Comparison::Rule::kShown, "shown"},
    {Comparison::Rule::kAtMost, "at most"}};

// Sorted by name; filled before main.
std::map<std::string, Paper>& Rows() {
  static auto* rows = new std::map<std::string, Paper>;
  return *rows;
}

}  // namespace

bool Comparison::matches() const {
  if (rule == Rule::kDigits) return published == rounded;
  const double value = NumberOf(published);
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

const char* RuleName(Comparison::Rule rule) {
  for (const auto& [each, name] : kRules) {
    if (each == rule) return name;
  }
  PW_CHECK(false);
}

Comparison::Rule RuleOf(absl::string_view name) {
  for (const auto& [rule, each] : kRules) {
    if (each == name) return rule;
  }
  PW_CHECK(false);
}

double NumberOf(const std::string& text) {
  double value = 0;
  PW_CHECK(absl::SimpleAtod(text, &value));
  return value;
}

RegisterPapers::RegisterPapers(std::vector<Paper> papers) {
  for (Paper& paper : papers) {
    std::string name = paper.name;
    PW_CHECK(Rows().emplace(std::move(name), std::move(paper)).second);
  }
}

std::vector<const Paper*> AllPapers() {
  std::vector<const Paper*> papers;
  for (const auto& [name, paper] : Rows()) papers.push_back(&paper);
  return papers;
}

}  // namespace pipewright
