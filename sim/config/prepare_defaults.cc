// What a run takes where nobody says it: times, a schedule, degrees, a batch.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"
#include "sim/config/config_fields.h"
#include "sim/config/prepare.h"
#include "sim/config/prepare_parts.h"
#include "sim/cost/device.h"

namespace pipewright {
namespace {

// Tokens of a step: the 4M of Llama 2 (arXiv 2307.09288, table 1). [paper,
// tokens]
constexpr int64_t kUsualBatchTokens = int64_t{1} << 22;

constexpr char kWaysToTimes[] =
    "a system whose device is known (--system NAME; pipewright list systems), "
    "a device (--analytic NAME; pipewright list devices), a profile "
    "(--profile FILE; pipewright calibrate), or times of passes (--forward "
    "TIME --backward TIME)";

constexpr char kWithTimes[] =
    "with times of passes (--forward TIME --backward TIME), or with a model on "
    "a system or device, which are estimated";

void Note(const std::string& text, std::vector<std::string> fields,
          RunConfig* config) {
  config->notes.push_back(text);
  for (std::string& field : fields) {
    config->defaulted.push_back(std::move(field));
  }
}

// A pass of one unit stands beside nothing that takes seconds.
absl::Status RefuseSecondsBesideUnits(const RunConfig& config) {
  const auto refuse = [&config](const std::string& path,
                                absl::string_view what) {
    return WithValue(
        FieldError(config.Field(path),
                   absl::StrCat(what,
                                ", while passes of no given time take "
                                "one unit each; allowed: ",
                                kWithTimes)),
        "", kWithTimes);
  };
  for (const ConfigField& field : ConfigFields()) {
    if (!IsGiven(field, config)) continue;
    const absl::string_view path = field.path;
    if (field.unit == Unit::kTime && absl::StartsWith(path, "costs.")) {
      const absl::StatusOr<double> seconds =
          ParseQuantity(ValueOf(field, config), Unit::kTime);
      if (seconds.ok() && *seconds == 0) continue;  // in any unit
      return refuse(field.path, "a time in seconds");
    }
    if (path == "costs.price_per_device_hour" ||
        path == "reliability.mtbf_per_device") {
      return refuse(field.path, "counts hours");
    }
    if (path == "system.preset" || path == "system.file" ||
        path == "system.shape") {
      return refuse(field.path, "its links take seconds");
    }
  }
  return absl::OkStatus();
}

// Devices are listed one by one, not in an order of dimensions.
bool ListsDevices(const StrategyChoice& strategy) {
  return !strategy.mapping.empty() && !strategy.mapping[0].empty() &&
         absl::ascii_isdigit(strategy.mapping[0][0]);
}

void TakeSchedule(RunConfig* config) {
  if (config->schedule.name) return;
  const bool chunks = config->strategy.vpp.value_or(1) > 1;
  config->schedule.name = chunks ? "interleaved-1f1b" : "1f1b";
  Note(absl::StrCat("schedule.name: none is given: ", *config->schedule.name,
                    chunks ? ", as strategy.vpp is above 1" : "",
                    " (--schedule NAME)"),
       {"schedule.name"}, config);
}

std::string NodesText(const RunConfig& config) {
  const int nodes = config.system.nodes.value_or(1);
  return nodes == 1 ? "one node" : absl::StrCat(nodes, " nodes");
}

// Without degrees replicas fill the nodes; with some, those that are given.
absl::Status TakeDegrees(bool has_model, RunContext* context,
                         RunConfig* config) {
  StrategyChoice& strategy = config->strategy;
  const bool alone = !strategy.pp && has_model;
  if (alone) strategy.pp = 1;
  const bool fills =
      NamesSystem(config->system) && strategy.pp && !strategy.dp &&
      !HasClasses(strategy.dp_classes) && !ListsDevices(strategy) &&
      (alone || (config->system.nodes && !strategy.global_batch));
  int64_t dp = 1;
  if (fills) {
    PW_ASSIGN_OR_RETURN(const int per_node, DevicesOfNode(*config, context));
    const int64_t devices =
        int64_t{per_node} * config->system.nodes.value_or(1);
    const double replica =
        1.0 * *strategy.pp * strategy.tp.value_or(1) * strategy.cp.value_or(1);
    // NodesFor says what does not divide.
    if (replica <= static_cast<double>(devices) &&
        devices % static_cast<int64_t>(replica) == 0) {
      dp = std::min<int64_t>(devices / static_cast<int64_t>(replica),
                             limits::kMostReplicas);
    }
  }
  if (dp > 1) strategy.dp = static_cast<int>(dp);
  const std::string filled =
      dp > 1 ? absl::StrCat("dp ", dp, ", which fills ", NodesText(*config))
             : "";
  if (alone) {
    Note(absl::StrCat("strategy.pp: not given: 1", dp > 1 ? " and " : "",
                      filled),
         {"strategy.pp", "strategy.dp"}, config);
  } else if (dp > 1) {
    Note(absl::StrCat("strategy.dp: not given: ", filled), {"strategy.dp"},
         config);
  }
  return absl::OkStatus();
}

absl::Status TakeUsualBatch(RunContext* context, RunConfig* config) {
  StrategyChoice& strategy = config->strategy;
  // A framework's file has a batch of its own, or says why it is not known.
  if (strategy.microbatches || strategy.global_batch || strategy.framework ||
      !strategy.dp_classes.microbatches.empty() ||
      GivesLengths(config->sequences)) {
    return absl::OkStatus();
  }
  PW_ASSIGN_OR_RETURN(const int64_t samples, UsualBatch(*config, context));
  const int64_t each =
      strategy.microbatch_size.value_or(1) * int64_t{strategy.dp.value_or(1)};
  strategy.microbatches = static_cast<int>(
      std::clamp<int64_t>(samples / each, 1, limits::kMostMicrobatches));
  Note(absl::StrCat(
           "strategy.microbatches: no batch is given: ", *strategy.microbatches,
           kOfUsualBatch, "--microbatches N or --global-batch N)"),
       {"strategy.microbatches"}, config);
  return absl::OkStatus();
}

}  // namespace

bool InUnits(const RunConfig& config) {
  return !config.timed_by_run && !config.costs.analytic &&
         !config.costs.profile && !GivesPassTimes(config);
}

absl::StatusOr<int64_t> UsualBatch(const RunConfig& config,
                                   RunContext* context) {
  PW_ASSIGN_OR_RETURN(const int64_t sequence, SequenceOf(config, context));
  int64_t samples = 1;
  while (2 * samples * sequence <= kUsualBatchTokens) samples *= 2;
  if (!NamesSystem(config.system)) return samples;
  // Replicas on all devices share it evenly.
  PW_ASSIGN_OR_RETURN(const int per_node, DevicesOfNode(config, context));
  const int64_t devices = int64_t{per_node} * config.system.nodes.value_or(1);
  return devices > samples ? devices : samples - samples % devices;
}

absl::StatusOr<RunConfig> WithTimes(RunConfig config, RunContext* context) {
  if (!InUnits(config) || config.only_order || !GivesModel(config.model) ||
      !NamesSystem(config.system)) {
    return config;
  }
  PW_ASSIGN_OR_RETURN(const std::string device, DeviceOfNode(config, context));
  if (FindDevice(device).ok()) {
    config.costs.analytic = true;
    Note(absl::StrCat("costs: no times are given: estimated for ", device,
                      " (--analytic)"),
         {"costs.analytic"}, &config);
  }
  return config;
}

absl::Status CheckTimed(const RunConfig& config, RunContext* context) {
  if (!InUnits(config) || config.only_order) return absl::OkStatus();
  if (!GivesModel(config.model)) return RefuseSecondsBesideUnits(config);
  std::string why;
  if (NamesSystem(config.system)) {
    PW_ASSIGN_OR_RETURN(const std::string device,
                        DeviceOfNode(config, context));
    why = device.empty() ? ": the system names no device"
                         : absl::StrCat(": device '", device,
                                        "' of the system is not known");
  }
  return WithValue(
      FieldError(ConfigOrigin{.file = config.source}.Field("costs"),
                 absl::StrCat("nothing says what passes of the model take", why,
                              "; allowed: ", kWaysToTimes)),
      "", kWaysToTimes);
}

absl::StatusOr<RunConfig> WithDefaults(RunConfig config, RunContext* context) {
  PW_ASSIGN_OR_RETURN(config, WithTimes(std::move(config), context));
  if (config.schedule.file) return config;
  TakeSchedule(&config);
  if (config.only_order) return config;
  const bool has_model = GivesModel(config.model);
  PW_RETURN_IF_ERROR(TakeDegrees(has_model, context, &config));
  if (has_model && !config.timed_by_run) {
    PW_RETURN_IF_ERROR(TakeUsualBatch(context, &config));
  }
  return config;
}

}  // namespace pipewright
