// The rules of idle_options.h, by section of the configuration.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "sim/config/run_facts.h"

namespace pipewright {

// Why the fields change nothing in a run; null where they may. A value that
// asks for nothing ("none", 1) needs no warning. Words that begin with "on",
// "other than" or "beyond" leave some effect.
struct IdleRule {
  std::vector<const char*> fields;  // one that ends in '.' is a section
  const char* (*why)(const RunFacts& facts);
};

const std::vector<IdleRule>& ModelRules();
const std::vector<IdleRule>& SystemRules();
const std::vector<IdleRule>& HostRules();
const std::vector<IdleRule>& StrategyRules();
const std::vector<IdleRule>& ExecutionRules();
const std::vector<IdleRule>& TrainingRules();
const std::vector<IdleRule>& CostRules();
const std::vector<IdleRule>& SequenceRules();
const std::vector<IdleRule>& RealityRules();

// Why system.params.KEY changes nothing in a run on a system; "" where it may.
std::string WhyShapeParamIsIdle(const RunFacts& facts, absl::string_view key);

// What several of them say.
inline constexpr char kNoModel[] = "without a model";
inline const char* Unless(bool matters, const char* words) {
  return matters ? nullptr : words;
}
// odc knows of no parts of a context.
inline const char* NoCopies(const RunFacts& facts) {
  return facts.mode().mode == DataParallel::kOdc ? "with dp 1"
                                                 : "with dp * cp = 1";
}
const char* NeedsModel(const RunFacts& facts);
const char* NeedsSystem(const RunFacts& facts);

}  // namespace pipewright
