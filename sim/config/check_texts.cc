#include "sim/config/check_texts.h"

#include <algorithm>
#include <vector>

#include "absl/strings/string_view.h"
#include "sim/base/error_parts.h"
#include "sim/base/names.h"
#include "sim/base/status.h"
#include "sim/cost/device.h"
#include "sim/cost/silicon.h"
#include "sim/engine/engine.h"
#include "sim/model/lengths.h"
#include "sim/model/model.h"
#include "sim/profile/profile.h"
#include "sim/schedule/registry.h"
#include "sim/topology/registry.h"
#include "sim/topology/system.h"

namespace pipewright {
namespace {

absl::Status CheckShapeName(const std::string& name) {
  if (FindShape(name) != nullptr) return absl::OkStatus();
  std::vector<std::string> known;
  for (const ShapeInfo* shape : AllShapes()) known.push_back(shape->name);
  return UnknownName("shape", name, known);
}

absl::Status CheckCostNames(const RunConfig& config) {
  const CostChoice& costs = config.costs;
  if (costs.analytic_device && *costs.analytic_device != "auto") {
    PW_RETURN_IF_ERROR(Prefix(config.Field("costs.analytic.device"),
                              FindDevice(*costs.analytic_device).status()));
  }
  if (costs.analytic_silicon) {
    const std::string& choice = *costs.analytic_silicon;
    if (choice != "auto" && choice != "shipped" && choice != "none" &&
        !IsSiliconFile(choice)) {
      return BadValue(config.Field("costs.analytic.silicon"), choice,
                      "auto, shipped, none, or a file (with a '/' or a '.')");
    }
  }
  if (costs.profile && !IsProfileFile(*costs.profile)) {
    const std::vector<std::string> known = ProfileNames();
    if (!std::binary_search(known.begin(), known.end(), *costs.profile)) {
      return Prefix(config.Field("costs.profile"),
                    UnknownName("profile", *costs.profile, known));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckEngineNames(const RunConfig& config,
                              const std::string& engine) {
  PW_RETURN_IF_ERROR(
      Prefix(config.Field("engine"), FindEngine(engine).status()));
  const std::string network = config.network.value_or("fluid");
  if (network != "fluid" && network != "native") {
    return Prefix(config.Field("network"),
                  UnknownName("network model", network, {"fluid", "native"}));
  }
  return absl::OkStatus();
}

absl::Status CheckTexts(const RunConfig& config, const std::string& engine) {
  PW_RETURN_IF_ERROR(CheckEngineNames(config, config.engine.value_or(engine)));
  if (config.schedule.name) {
    PW_RETURN_IF_ERROR(Prefix(config.Field("schedule.name"),
                              FindSchedule(*config.schedule.name).status()));
  }
  if (config.model.preset) {
    PW_RETURN_IF_ERROR(Prefix(config.Field("model.preset"),
                              FindModel(*config.model.preset).status()));
  }
  if (config.system.preset) {
    PW_RETURN_IF_ERROR(Prefix(config.Field("system.preset"),
                              FindSystem(*config.system.preset).status()));
  }
  if (config.system.shape) {
    PW_RETURN_IF_ERROR(Prefix(config.Field("system.shape"),
                              CheckShapeName(*config.system.shape)));
  }
  PW_RETURN_IF_ERROR(CheckBatchText(config));
  PW_RETURN_IF_ERROR(CheckCostNames(config));
  PW_RETURN_IF_ERROR(CheckJitterText(config));
  PW_RETURN_IF_ERROR(CheckSlowTexts(config));
  if (config.sequences.lengths && IsLengthLaw(*config.sequences.lengths)) {
    PW_RETURN_IF_ERROR(
        Prefix(config.Field("sequences.lengths"),
               ParseLengthLaw(*config.sequences.lengths).status()));
  }
  return absl::OkStatus();
}

}  // namespace pipewright
