// What a run takes where nobody says it: times, a schedule, degrees, a batch.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/error_parts.h"
#include "sim/base/nearest.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"
#include "sim/config/config_fields.h"
#include "sim/config/framework.h"
#include "sim/config/prepare.h"
#include "sim/config/prepare_parts.h"
#include "sim/cost/device.h"
#include "sim/model/training.h"
#include "sim/schedule/registry.h"

namespace pipewright {
namespace {

// Tokens of a step: the 4M of Llama 2 (arXiv 2307.09288, table 1). [paper,
// tokens]
constexpr int64_t kUsualBatchTokens = int64_t{1} << 22;

constexpr char kMicrobatches[] = "strategy.microbatches";

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

// The nodes that are given, else those that `used` devices need.
struct NodesOfRun {
  int64_t nodes = 1;
  int64_t devices = 1;

  // How many times `used` devices fit; 0 where NodesFor says that they do not.
  int64_t Times(int64_t used, bool given) const {
    return used > devices || (given && devices % used != 0) ? 0
                                                            : devices / used;
  }
  std::string Text(int64_t used) const {
    const std::string where =
        nodes == 1 ? "one node" : absl::StrCat(nodes, " nodes");
    return used == devices
               ? absl::StrCat(", which fills ", where)
               : absl::StrCat("; ", devices - used, " of the ", devices,
                              " devices of ", where, " stay idle");
  }
};

absl::StatusOr<NodesOfRun> NodesOf(int64_t used, const RunConfig& config,
                                   RunContext* context) {
  PW_ASSIGN_OR_RETURN(const int per_node, DevicesOfNode(config, context));
  NodesOfRun run;
  run.nodes = config.system.nodes.value_or((used + per_node - 1) / per_node);
  run.devices = run.nodes * per_node;
  return run;
}

// The most replicas, up to `most`, among which a batch that is given divides.
absl::StatusOr<int64_t> MostReplicas(int64_t most, const RunConfig& config,
                                     RunContext* context) {
  most = std::min<int64_t>(most, limits::kMostReplicas);
  if (!config.strategy.global_batch) return most;
  PW_ASSIGN_OR_RETURN(const int64_t samples,
                      GlobalBatchSamples(config, context));
  const int64_t size = config.strategy.microbatch_size.value_or(1);
  while (most > 1 && samples % (size * most) != 0) --most;
  return most;
}

// The most tensor ranks, up to `most`, that the model's sizes take.
absl::StatusOr<int64_t> MostTensorRanks(int64_t most, const RunConfig& config,
                                        RunContext* context) {
  PW_ASSIGN_OR_RETURN(const std::optional<ModelSpec> model,
                      PrepareModel(config, context));
  while (most > 1 && model && !TensorFits(*model, most)) --most;
  return most;
}

// One rank, if nobody says how many, of a model. Replicas fill the nodes if at
// most one degree is given, or none of dp where nodes are; if dp is that one,
// tensor parallelism does.
absl::Status TakeDegrees(bool has_model, RunContext* context,
                         RunConfig* config) {
  StrategyChoice& strategy = config->strategy;
  const bool at_most_one =
      has_model && strategy.pp.has_value() + strategy.tp.has_value() +
                           strategy.cp.has_value() + strategy.dp.has_value() <=
                       1;
  std::vector<std::string> taken;  // "pp 1"
  std::vector<std::string> fields;
  const auto take = [&](absl::string_view name, int64_t value,
                        std::optional<int>* degree) {
    *degree = static_cast<int>(value);
    taken.push_back(absl::StrCat(name, " ", value));
    fields.push_back(absl::StrCat("strategy.", name));
  };
  const bool takes_pp = !strategy.pp && has_model;
  if (takes_pp) take("pp", 1, &strategy.pp);
  std::string filled;
  const double replica = 1.0 * strategy.pp.value_or(1) *
                         strategy.tp.value_or(1) * strategy.cp.value_or(1) *
                         strategy.dp.value_or(1);
  const bool by_dp = !strategy.dp;
  const bool nodes = config->system.nodes.has_value();
  // Replicas follow from both then (TakeGlobalBatch).
  const bool by_batch = by_dp && !takes_pp && nodes && strategy.global_batch;
  const bool wanted =
      !by_batch && (at_most_one || (by_dp && (takes_pp || nodes)));
  if (wanted && strategy.pp && NamesSystem(config->system) &&
      !HasClasses(strategy.dp_classes) && !ListsDevices(strategy) &&
      !config->timed_by_run && replica <= limits::kMostReplicas) {
    const auto used = static_cast<int64_t>(replica);
    PW_ASSIGN_OR_RETURN(const NodesOfRun run, NodesOf(used, *config, context));
    const int64_t times = run.Times(used, config->system.nodes.has_value());
    if (times > 0) {
      PW_ASSIGN_OR_RETURN(const int64_t more,
                          by_dp ? MostReplicas(times, *config, context)
                                : MostTensorRanks(times, *config, context));
      if (more > 1) {
        take(by_dp ? "dp" : "tp", more, by_dp ? &strategy.dp : &strategy.tp);
      }
      if (more > 1 || used < run.devices) filled = run.Text(used * more);
    }
  }
  if (taken.empty() && filled.empty()) return absl::OkStatus();
  if (taken.empty()) take("dp", 1, &strategy.dp);
  const std::string first = fields.front();
  Note(absl::StrCat(first, ": not given: ", absl::StrJoin(taken, " and "),
                    filled),
       std::move(fields), config);
  return absl::OkStatus();
}

std::string UsualBatchNote(int64_t microbatches, const std::string& nearest) {
  return absl::StrCat(kMicrobatches, ": no batch is given: ", microbatches,
                      nearest, kOfUsualBatch,
                      "--microbatches N or --global-batch N)");
}

absl::Status TakeUsualBatch(RunContext* context, RunConfig* config) {
  StrategyChoice& strategy = config->strategy;
  // A framework's file has a batch of its own, or says why it is not known.
  if (strategy.microbatches || strategy.global_batch ||
      FrameworkIsOfFile(*config) || !strategy.dp_classes.microbatches.empty() ||
      GivesLengths(config->sequences)) {
    return absl::OkStatus();
  }
  PW_ASSIGN_OR_RETURN(const int64_t samples, UsualBatch(*config, context));
  const int64_t each =
      strategy.microbatch_size.value_or(1) * int64_t{strategy.dp.value_or(1)};
  strategy.microbatches = static_cast<int>(
      std::clamp<int64_t>(samples / each, 1, limits::kMostMicrobatches));
  Note(UsualBatchNote(*strategy.microbatches, ""), {kMicrobatches}, config);
  return absl::OkStatus();
}

bool IsSearched(const RunConfig& config) {
  const absl::StatusOr<ScheduleMatch> match =
      FindSchedule(config.schedule.name.value_or(""));
  return match.ok() && match->info->asks_for_room;
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
  // An order alone depends on times if it is searched for.
  const bool wants_times = !config.only_order || IsSearched(config);
  if (!InUnits(config) || !wants_times || !GivesModel(config.model) ||
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

bool RefusesUsualBatch(const RunConfig& config, const absl::Status& status) {
  return PartsOf(status).field.value_or("") == kMicrobatches &&
         std::find(config.defaulted.begin(), config.defaulted.end(),
                   kMicrobatches) != config.defaulted.end();
}

absl::Status TakeNearestBatch(RunContext* context, RunConfig* config) {
  PW_ASSIGN_OR_RETURN(RunSizes sizes, PrepareSizes(*config, nullptr, context));
  PW_ASSIGN_OR_RETURN(const std::optional<ModelSpec> model,
                      PrepareModel(*config, context));
  const int usual = sizes.microbatches;
  const std::vector<int64_t> nearest = NearestWorking(
      usual, limits::kMostMicrobatches, [&](int64_t microbatches) {
        sizes.microbatches = static_cast<int>(microbatches);
        const absl::Status refusal =
            RefusalOfSizes(*config, sizes, model, absl::OkStatus());
        return PartsOf(refusal).field.value_or("") != kMicrobatches;
      });
  if (nearest.empty()) return absl::OkStatus();  // the schedule says why
  const int64_t taken = nearest.back() - usual < usual - nearest.front()
                            ? nearest.back()
                            : nearest.front();
  config->strategy.microbatches = static_cast<int>(taken);
  std::replace(
      config->notes.begin(), config->notes.end(), UsualBatchNote(usual, ""),
      UsualBatchNote(taken, absl::StrCat(", the nearest to ", usual, " that ",
                                         *config->schedule.name, " runs")));
  return absl::OkStatus();
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
