// How a prepared run and its parts read (prepare.h).
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sim/base/quantity.h"
#include "sim/config/config_fields.h"
#include "sim/config/prepare.h"
#include "sim/schedule/text.h"

namespace pipewright {
namespace {

// "  name: value\n"
std::string Line(absl::string_view name, absl::string_view value) {
  return absl::StrCat("  ", name, ": ", value, "\n");
}

std::string Indented(absl::string_view text) {
  std::string out;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!line.empty()) absl::StrAppend(&out, "  ", line, "\n");
  }
  return out;
}

// "F 3 s, B 5 s, W 7 s": those that take time.
std::string TimesOf(const StageCosts& stage) {
  std::vector<std::string> times;
  const auto add = [&times](absl::string_view name, double seconds) {
    if (seconds != 0) {
      times.push_back(absl::StrCat(name, " ", FormatSeconds(seconds)));
    }
  };
  add("F", stage.forward_s);
  add("B", stage.backward_input_s);
  add("W", stage.backward_weight_s);
  add("BW", stage.backward_full_s);
  add("R", stage.recompute_s);
  add("O", stage.offload_s);
  add("L", stage.load_s);
  return absl::StrJoin(times, ", ");
}

// A line for stages that follow each other and read alike.
std::string Stages(const std::vector<StageCosts>& stages) {
  std::string out;
  for (size_t first = 0; first < stages.size();) {
    const std::string times = TimesOf(stages[first]);
    size_t end = first + 1;
    while (end < stages.size() && TimesOf(stages[end]) == times) ++end;
    out +=
        Line(end == first + 1 ? absl::StrCat("stage ", first)
                              : absl::StrCat("stages ", first, " to ", end - 1),
             times);
    first = end;
  }
  return out;
}

std::string Factors(absl::string_view name, const std::vector<double>& values) {
  return values.empty() ? "" : Line(name, absl::StrJoin(values, " "));
}

std::string Strategy(const LowerOptions& lower) {
  std::string out = absl::StrCat(
      "strategy\n", Line("dp", absl::StrCat(lower.replicas)),
      Line("data_parallel", TraitsOf(lower.data_parallel).name),
      Line("optimizer", ChoiceName(OptimizerChoices(), lower.optimizer)),
      Line("waiting", ChoiceName(WaitingChoices(), lower.wait_rule)),
      Line("iterations", lower.iterations == 0
                             ? "as many as the period needs"
                             : absl::StrCat(lower.iterations)));
  if (lower.hop_bytes > 0) out += Line("hop", FormatBytes(lower.hop_bytes));
  const auto bytes = [&out](absl::string_view name,
                            const std::vector<double>& stages) {
    if (stages.empty()) return;
    std::vector<std::string> sizes;
    for (const double each : stages) sizes.push_back(FormatBytes(each));
    out += Line(name, absl::StrJoin(sizes, ", "));
  };
  bytes("gradients of each stage", lower.gradient_bytes);
  bytes("parameters of each stage", lower.parameter_bytes);
  return out;
}

}  // namespace

std::string ToString(const PreparedNetwork& network) {
  std::string out = absl::StrCat("network\n", Line("name", network.name),
                                 Line("hop", FormatSeconds(network.hop_s)));
  if (!network.system.empty()) out += Line("system", network.system);
  if (network.links.mapping != nullptr) {
    absl::StrAppend(&out, "  ranks on devices:\n",
                    Indented(Indented(network.links.mapping->ToString(
                        *network.links.cluster))));
  }
  return out;
}

std::string ToString(const PreparedCosts& costs) {
  const PassCosts& passes = costs.passes;
  std::string out = "costs\n";
  if (costs.analytic) {
    out += Line("times",
                absl::StrCat("estimated for ", costs.analytic->device.name));
  } else if (costs.profile) {
    out += Line("times", absl::StrCat("of profile ", costs.profile->name));
  }
  if (costs.device) out += Line("device", costs.device->name);
  absl::StrAppend(&out, Stages(passes.stages),
                  Factors("factors of microbatches", passes.microbatch_factor),
                  Factors("factors of slices", passes.slice_factor));
  const auto seconds = [&out](absl::string_view name, double value) {
    if (value != 0) out += Line(name, FormatSeconds(value));
  };
  seconds("optimizer", passes.optimizer_s);
  seconds("validation", passes.validation_s);
  seconds("roll-back", passes.rollback_s);
  seconds("prediction", passes.prediction_s);
  absl::StrAppend(
      &out,
      Line("held until the weight pass",
           absl::StrCat(passes.held_until_weight)),
      Line("factor of pairs", absl::StrCat(passes.pair_factor)),
      Line("jitter", costs.jitter == nullptr ? "none" : "drawn"),
      Line("interference", costs.interference == nullptr ? "off" : "on"));
  return out;
}

std::string ToString(const PreparedSchedule& schedule) {
  std::string out = "schedule\n";
  absl::StrAppend(&out, Line("name", schedule.written->name));
  for (const auto& [key, value] : schedule.params) out += Line(key, value);
  if (schedule.limit) {
    absl::StrAppend(&out, Line("limit of activations",
                               schedule.limit->ok() ? "met" : "exceeded"));
  }
  absl::StrAppend(&out, Indented(ScheduleToText(*schedule.written)));
  return out;
}

std::string ToString(const MemoryReport& memory) {
  return absl::StrCat(
      "memory\n",
      Indented(MemoryToText(memory, std::numeric_limits<int32_t>::max())));
}

std::string ToString(const PreparedRun& run) {
  std::string out =
      absl::StrCat("configuration\n", Indented(ToString(run.config)),
                   "engine\n", Line("name", run.engine));
  if (!run.model.empty()) {
    absl::StrAppend(&out, "model\n", Line("name", run.model), "  stages:\n",
                    Indented(Indented(run.prepared_model->layout.ToString())));
  }
  absl::StrAppend(&out, ToString(run.network), ToString(run.costs),
                  ToString(run.schedule));
  if (run.memory) out += ToString(*run.memory);
  out += Strategy(run.lower);
  if (run.tokens) {
    absl::StrAppend(&out, "tokens\n",
                    Line("of an iteration", absl::StrCat(*run.tokens)));
  }
  if (!run.warnings.empty()) {
    absl::StrAppend(&out, "warnings\n",
                    Indented(absl::StrJoin(run.warnings, "\n")));
  }
  return out;
}

}  // namespace pipewright
