#include "sim/analysis/reproduce/paper.h"

#include <cmath>
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

Comparison CompareNumbers(std::string setting, std::string schedule,
                          double published, double simulated, int digits,
                          Comparison::Rule rule, double tolerance,
                          bool in_paper) {
  return {std::move(setting),
          std::move(schedule),
          absl::StrFormat("%.*f", digits, published),
          simulated,
          absl::StrFormat("%.*f", digits, simulated),
          rule,
          tolerance,
          in_paper};
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

}  // namespace pipewright
