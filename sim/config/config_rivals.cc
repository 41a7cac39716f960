#include "sim/config/config_rivals.h"

#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "sim/config/run_config.h"

namespace pipewright {
namespace {

// Is `path` the field, or a field of that section? What is no field may be one
// with a unit behind it, as "costs.uniform.forward_ms".
bool IsField(absl::string_view path, bool known, absl::string_view field) {
  return absl::ConsumePrefix(&path, field) &&
         (path.empty() || path[0] == '.' || (!known && path[0] == '_'));
}

}  // namespace

std::vector<std::string> RivalsOf(const std::string& path) {
  static const auto* rivals =
      new std::vector<std::pair<std::string, std::string>>{
          {"schedule.name", "schedule.file"},
          {"costs.offload_ratio", "costs.uniform.offload"},
          {"costs.offload_ratio", "costs.uniform.load"},
          {"strategy.offload_chunks", "strategy.offload_fraction"},
          {"costs.uniform.forward", "costs.per_stage.forward"},
          {"costs.uniform.backward_input", "costs.per_stage.backward_input"},
          {"costs.uniform.backward_weight", "costs.per_stage.backward_weight"},
          {"costs.analytic", "costs.uniform.forward"},
          {"costs.analytic", "costs.uniform.backward_input"},
          {"costs.analytic", "costs.uniform.backward_weight"},
          {"costs.analytic", "costs.per_stage.forward"},
          {"costs.analytic", "costs.per_stage.backward_input"},
          {"costs.analytic", "costs.per_stage.backward_weight"},
          {"costs.profile", "costs.analytic"},
          {"costs.profile", "costs.uniform.forward"},
          {"costs.profile", "costs.uniform.backward_input"},
          {"costs.profile", "costs.uniform.backward_weight"},
          {"costs.profile", "costs.per_stage.forward"},
          {"costs.profile", "costs.per_stage.backward_input"},
          {"costs.profile", "costs.per_stage.backward_weight"},
          {"costs.uniform.backward", "costs.uniform.backward_input"},
          {"costs.uniform.backward", "costs.uniform.backward_weight"},
          {"costs.uniform.backward", "costs.per_stage.backward_input"},
          {"costs.uniform.backward", "costs.per_stage.backward_weight"},
          {"costs.uniform.backward", "costs.per_stage.backward"},
          {"costs.per_stage.backward", "costs.uniform.backward_input"},
          {"costs.per_stage.backward", "costs.uniform.backward_weight"},
          {"costs.per_stage.backward", "costs.per_stage.backward_input"},
          {"costs.per_stage.backward", "costs.per_stage.backward_weight"},
          {"costs.analytic", "costs.uniform.backward"},
          {"costs.analytic", "costs.per_stage.backward"},
          {"costs.profile", "costs.uniform.backward"},
          {"costs.profile", "costs.per_stage.backward"},
          {"sequences.lengths", "sequences.histogram"},
          {"strategy.layers", "strategy.layout"},
          {"strategy.layers", "strategy.split"},
          {"strategy.layout", "strategy.split"}};
  std::vector<std::string> found;
  // These say how to estimate, not to estimate: beside given times they
  // contradict them.
  if (path == "costs.analytic.clock" || path == "costs.analytic.silicon" ||
      path == "costs.analytic.kernels" || path == "costs.analytic.contention" ||
      path == "costs.analytic.speed_range" ||
      path == "costs.analytic.launch_time") {
    return found;
  }
  static const auto* const fields = [] {
    const std::vector<std::string> paths = ConfigPaths();
    return new std::set<std::string>(paths.begin(), paths.end());
  }();
  const bool known = fields->count(path) > 0;
  for (const auto& [one, other] : *rivals) {
    if (IsField(path, known, one)) found.push_back(other);
    if (IsField(path, known, other)) found.push_back(one);
  }
  const auto whole_section = [&](absl::string_view section,
                                 absl::string_view kept) {
    for (const std::string& field : ConfigPaths()) {
      if (absl::StartsWith(field, section) && field != kept && field != path) {
        found.push_back(field);
      }
    }
  };
  if (path == "model.preset" || path == "model.hf") {
    whole_section("model.", "");
  }
  if (path == "system.preset" || path == "system.file") {
    whole_section("system.", "system.nodes");
  }
  return found;
}

bool IsDetail(const std::string& path) {
  static const auto* choices = new std::set<std::string>{
      "model.preset", "model.hf", "system.preset", "system.file"};
  return (absl::StartsWith(path, "model.") ||
          absl::StartsWith(path, "system.")) &&
         choices->count(path) == 0;
}

}  // namespace pipewright
