#include "sim/config/idle_options.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "sim/config/idle_rules.h"
#include "sim/config/run_facts.h"

namespace pipewright {
namespace {

bool Covers(const IdleRule& rule, absl::string_view path) {
  return std::any_of(
      rule.fields.begin(), rule.fields.end(), [&](absl::string_view field) {
        return field == path ||
               (field.back() == '.' && absl::StartsWith(path, field));
      });
}

// The first reason that holds; "" where the field may matter.
std::string WhyIdle(const RunFacts& facts, absl::string_view path) {
  for (const auto* rules :
       {&ModelRules(), &SystemRules(), &HostRules(), &StrategyRules(),
        &ExecutionRules(), &TrainingRules(), &CostRules(), &SequenceRules(),
        &RealityRules()}) {
    for (const IdleRule& rule : *rules) {
      if (!Covers(rule, path)) continue;
      if (const char* why = rule.why(facts)) return why;
    }
  }
  absl::string_view key = path;
  return absl::ConsumePrefix(&key, "system.params.")
             ? WhyShapeParamIsIdle(facts, key)
             : "";
}

}  // namespace

std::vector<IdleOption> FindIdleOptions(const PreparedRun& run,
                                        const RunSizes& sizes) {
  const RunFacts facts(run, sizes);
  std::vector<IdleOption> idle;
  const std::vector<std::string>& defaulted = run.config.defaulted;
  for (const std::string& path : GivenPaths(run.config)) {
    if (std::find(defaulted.begin(), defaulted.end(), path) !=
        defaulted.end()) {
      continue;
    }
    const std::string why = WhyIdle(facts, path);
    if (why.empty()) continue;
    idle.push_back(
        {path, absl::StrCat(run.config.Field(path), " has no effect ", why)});
  }
  return idle;
}

}  // namespace pipewright
