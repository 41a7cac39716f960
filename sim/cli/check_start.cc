#include "sim/cli/check_start.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "sim/analysis/search/memory_advice.h"
#include "sim/base/error_parts.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"
#include "sim/cli/common.h"
#include "sim/config/config_fields.h"
#include "sim/config/prepare.h"
#include "sim/foreign/key_table.h"
#include "sim/report/memory_report.h"
#include "sim/schedule/verify.h"
#include "sim/schedule/verify_transfers.h"

namespace pipewright {
namespace {

// The user's own key for a field: as the file gives it, else as the framework's
// table has it; "" for neither.
std::string KeyOfField(const RunConfig& config, const std::string& framework,
                       const std::string& path) {
  const auto given = config.origins.find(path);
  if (given != config.origins.end() && !given->second.flag.empty()) {
    return given->second.flag;
  }
  for (const ForeignKey& key : KeyTable::Of(framework).keys()) {
    if (key.field != path) continue;
    return key.flags.empty() ? key.id() : absl::StrCat("--", key.flags[0]);
  }
  return "";
}

// Is the key a switch, which no value goes with?
bool IsSwitch(const std::string& framework, const std::string& spelled) {
  const absl::string_view name = absl::StripPrefix(spelled, "--");
  return absl::c_any_of(
      KeyTable::Of(framework).keys(), [&](const ForeignKey& key) {
        return key.type == "bool" &&
               (key.id() == name || absl::c_linear_search(key.flags, name) ||
                absl::c_linear_search(key.clears, name) ||
                absl::c_linear_search(key.names, name));
      });
}

// "strategy.recompute full" as "--recompute-granularity [strategy.recompute
// full]".
std::string InUsersWords(const RunConfig& config, const std::string& framework,
                         const MemoryChange& change) {
  const std::string path = change.change.substr(0, change.change.find(' '));
  const std::string key = KeyOfField(config, framework, path);
  return key.empty() || IsSwitch(framework, key)
             ? change.change
             : absl::StrCat(key, " [", change.change, "]");
}

struct StartCheck {
  const RunConfig& config;
  std::string framework;
  Json& report;

  absl::Status Memory(PreparedRun& run, RunContext* context) const {
    if (!run.memory) {
      report["memory"] = {{"looked_at", false},
                          {"text", "not looked at: no model is known"}};
      return absl::OkStatus();
    }
    MemoryReport& memory = *run.memory;
    const int worst = memory.memory->WorstRank();
    const double needed =
        static_cast<double>(memory.memory->ranks[worst].needed());
    if (!memory.limit_bytes) {
      report["memory"] = {
          {"looked_at", false},
          {"worst_rank", worst},
          {"needed_bytes", needed},
          {"text",
           absl::StrCat("not looked at without a device (--system NAME); rank ",
                        worst, " needs most, ", FormatBytes(needed))}};
      return absl::OkStatus();
    }
    Json helps = Json::array();
    if (!memory.fits()) {
      memory.changes = AdviseMemory(run, kChangesNamed, context);
      // No framework has it.
      std::erase_if(memory.changes, [](const MemoryChange& change) {
        return absl::StartsWith(change.change, "strategy.data_parallel odc");
      });
      for (const MemoryChange& change : memory.changes) {
        helps.push_back(InUsersWords(config, framework, change));
      }
    }
    report["memory"] = {{"looked_at", true},
                        {"fits", memory.fits()},
                        {"worst_rank", worst},
                        {"needed_bytes", needed},
                        {"limit_bytes", *memory.limit_bytes},
                        {"would_help", std::move(helps)},
                        {"text", MemoryVerdictLine(memory)}};
    return MemoryVerdict(memory);
  }

  absl::Status Order(const Schedule& schedule, const DeviceRoom& room) const {
    const auto steps = DefaultSteps(schedule, Semantics::kNccl);
    ProgressFacts facts;
    const CommCalls calls = CallsOf(schedule, steps);
    absl::Status ends =
        CheckProgress(schedule, steps, Semantics::kNccl, &facts);
    if (ends.ok()) ends = ProveCalls(calls, room);
    report["order"] = {
        {"schedule", schedule.name},
        {"ends", ends.ok()},
        {"communicators", static_cast<int64_t>(calls.comms.size())},
        {"text",
         absl::StrCat(schedule.name, " on ", schedule.pp(),
                      schedule.pp() == 1 ? " rank, " : " ranks, ",
                      calls.comms.size(), " communicators between ranks: ",
                      ends.ok() ? "runs to its end" : "does not end")}};
    return ends;
  }
};

// Is it the framework that refuses? Its rules say so; else it is a value of its
// file that none of its choices are, and not one that we have no field for.
bool IsOfFramework(const absl::Status& refused, bool in_reading) {
  if (absl::StrContains(refused.message(), "refuses this")) return true;
  return in_reading && PartsOf(refused).file.has_value() &&
         absl::StrContains(refused.message(), " is not allowed; allowed: ") &&
         !absl::StrContains(refused.message(), "no field");
}

Json RulesOf(const absl::Status& refused, bool in_reading) {
  if (refused.ok()) return {{"hold", true}, {"text", "hold"}};
  const std::string text(refused.message());
  if (IsOfFramework(refused, in_reading)) {
    return {{"hold", false}, {"text", text}};
  }
  return {{"hold", Json()}, {"text", absl::StrCat("not known: ", text)}};
}

}  // namespace

CheckedStart CheckStart(const std::string& file,
                        const absl::StatusOr<RunConfig>& config,
                        const DeviceRoom& room) {
  CheckedStart checked;
  Json& report = checked.report;
  report = {{"file", file}};
  absl::Status& verdict = checked.verdict;
  RunContext context;
  std::optional<PreparedRun> run;
  verdict = config.status();
  if (config.ok()) {
    RunConfig order = *config;
    order.only_order = true;
    // Nodes that the file names are of no use without a system.
    if (!NamesSystem(order.system)) order.system.nodes.reset();
    absl::StatusOr<PreparedRun> prepared = Prepare(order, &context);
    verdict = prepared.status();
    if (prepared.ok()) run = *std::move(prepared);
  }
  report["rules"] = RulesOf(verdict, !config.ok());
  if (config.ok()) {
    const StrategyChoice& strategy = config->strategy;
    const std::string framework =
        strategy.framework ? ChoiceName(FrameworkChoices(), *strategy.framework)
                           : "megatron";
    report["framework"] = framework;
    if (verdict.ok()) {
      checked.warnings = run->warnings;
      const StartCheck start = {*config, framework, report};
      verdict = start.Memory(*run, &context);
      const absl::Status order = start.Order(*run->schedule.lowered, room);
      if (verdict.ok()) verdict = order;
    }
  }
  report["starts"] =
      report["rules"]["hold"].is_null() ? Json() : Json(verdict.ok());
  if (!verdict.ok()) report["error"] = ErrorToJson(verdict);
  return checked;
}

std::string StartText(const Json& report) {
  std::string text = absl::StrCat(
      report["file"].get<std::string>(), ": ",
      report["starts"].is_null()     ? "not known whether it would start"
      : report["starts"].get<bool>() ? "would start"
                                     : "would not start",
      "\n");
  for (const char* const part : {"rules", "memory", "order"}) {
    const Json* const found = report.find(part);
    if (found == nullptr) continue;
    absl::StrAppend(&text, "  ", part, ": ",
                    (*found)["text"].get<std::string>(), "\n");
    const Json* const helps = found->find("would_help");
    if (helps == nullptr) continue;
    for (const Json& help : *helps) {
      absl::StrAppend(&text, "    would help: ", help.get<std::string>(), "\n");
    }
  }
  return text;
}

}  // namespace pipewright
