#include <algorithm>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sim/base/file.h"
#include "sim/base/names.h"
#include "sim/base/status.h"
#include "sim/cli/idle_flags.h"
#include "sim/cli/verbs.h"
#include "sim/config/prepare.h"
#include "sim/memory/activations.h"
#include "sim/report/memory_report.h"
#include "sim/schedule/text.h"
#include "sim/schedule/verify_transfers.h"
#include "sim/search/memory_advice.h"

namespace pipewright {
namespace {

using Json = nlohmann::ordered_json;

struct Check {
  ConfigOptions config;
  std::string file;
  std::string semantics = "buffered";
  bool json = false;

  absl::Status Run();
  absl::StatusOr<MemoryReport> MemoryOf(RunConfig run_config) const;
};

// The file's order with the configuration's model.
absl::StatusOr<MemoryReport> Check::MemoryOf(RunConfig run_config) const {
  run_config.schedule.name.reset();
  run_config.schedule.file = file;
  PW_ASSIGN_OR_RETURN(PreparedRun run, Prepare(run_config));
  if (!run.memory) {
    return absl::InvalidArgumentError(absl::StrCat(
        run_config.Field("system.memory"),
        ": no model tells what the passes need; allowed: with a --config that "
        "has model.preset, model.hf or the model's sizes"));
  }
  if (!run.memory->fits()) run.memory->changes = AdviseMemory(run, 3);
  return *std::move(run.memory);
}

int64_t CountPasses(const Schedule& schedule) {
  int64_t passes = 0;
  for (const auto& order : schedule.orders) {
    passes += std::count_if(order->begin(), order->end(), [](Pass pass) {
      return IsComputePass(pass.kind());
    });
  }
  return passes;
}

std::string ToText(const Json& report) {
  std::string text = absl::StrFormat(
      "%s: %s\n", report["file"].get<std::string>(),
      report["valid"].get<bool>()
          ? absl::StrCat("complete, runs to its end with ",
                         report["semantics"].get<std::string>(), " transfers")
      : report.contains("transfers")
          ? absl::StrCat("complete, but deadlocks with ",
                         report["semantics"].get<std::string>(), " transfers")
          : "not legal");
  absl::StrAppend(&text, "pp ", report["pp"].get<int>(), ", vpp ",
                  report["vpp"].get<int>(), ", microbatches ",
                  report["microbatches"].get<int>(), ", slices ",
                  report["slices"].get<int>(), ", ",
                  report["ops"].get<int64_t>(), " passes\n");
  if (report.contains("transfers")) {
    absl::StrAppend(&text, report["transfers"].get<int64_t>(),
                    " transfers between ranks, sends and receives ",
                    report["transfers_from"] == "file" ? "as the file has them"
                    : report["transfers_from"] == "blocking"
                        ? "directly beside their passes"
                        : "posted ahead",
                    "\n");
  }
  if (report.contains("peak_activations")) {
    absl::StrAppend(
        &text, "peak activations by rank (microbatches): ",
        absl::StrJoin(report["peak_activations"].get<std::vector<double>>(),
                      " "),
        "\n");
  }
  if (report.contains("memory_verdict")) {
    absl::StrAppend(
        &text, "memory: ", report["memory_verdict"].get<std::string>(), "\n");
  }
  return text;
}

absl::StatusOr<Semantics> FindSemantics(const std::string& name) {
  std::vector<std::string> known;
  for (const Semantics semantics :
       {Semantics::kBuffered, Semantics::kRendezvous, Semantics::kNccl}) {
    if (name == SemanticsName(semantics)) return semantics;
    known.emplace_back(SemanticsName(semantics));
  }
  return Prefix("--semantics", UnknownName("value", name, known));
}

// Passes first: whether transfers fit is no question before that.
absl::Status Verify(const ScheduleFile& file, Semantics semantics,
                    Json* report) {
  PW_RETURN_IF_ERROR(VerifyScheduleFile(file));
  const bool given = !file.steps.empty();
  const std::vector<StepList> steps =
      given ? file.steps : DefaultSteps(file.schedule, semantics);
  int64_t transfers = 0;
  for (const StepList& list : steps) {
    transfers += std::count_if(list.begin(), list.end(), [](const Step& step) {
      return step.kind == StepKind::kSend;
    });
  }
  (*report)["transfers"] = transfers;
  (*report)["transfers_from"] = given ? "file"
                                : semantics == Semantics::kRendezvous
                                    ? "blocking"
                                    : "posted-ahead";
  return CheckProgress(file.schedule, steps, semantics);
}

absl::Status Check::Run() {
  PW_ASSIGN_OR_RETURN(const Semantics rule, FindSemantics(semantics));
  PW_ASSIGN_OR_RETURN(const RunConfig run_config, config.Read());
  PW_ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
  PW_ASSIGN_OR_RETURN(const ScheduleFile parsed, ParseScheduleFile(text, file));
  PrintWarnings(parsed.notes);
  const Schedule& schedule = parsed.schedule;
  PrintWarnings(IdleInCheck(run_config, schedule));
  Json report = {{"file", file},
                 {"schedule", schedule.name},
                 {"pp", schedule.pp()},
                 {"vpp", schedule.vpp()},
                 {"microbatches", schedule.microbatches},
                 {"slices", schedule.slices},
                 {"replicas", schedule.replicas},
                 {"ops", CountPasses(schedule)},
                 {"semantics", semantics}};
  absl::Status verdict = Verify(parsed, rule, &report);
  report["valid"] = verdict.ok();
  if (verdict.ok()) {
    const std::vector<double> peaks = PeakActivations(
        schedule, run_config.costs.held_until_weight.value_or(1));
    report["peak_activations"] = peaks;
    const double worst = *std::max_element(peaks.begin(), peaks.end());
    if (const auto& limit = run_config.strategy.max_activations) {
      report["max_activations"] = *limit;
      report["fits"] = worst <= *limit * (1 + 1e-9);
      if (!report["fits"].get<bool>()) {
        verdict = absl::ResourceExhaustedError(absl::StrCat(
            run_config.Field("strategy.max_activations"), ": ", *limit,
            " is exceeded: the peak of ", file, " is ", worst));
      }
    }
  }
  if (verdict.ok() && run_config.system.memory_bytes) {
    PW_ASSIGN_OR_RETURN(const MemoryReport memory, MemoryOf(run_config));
    report["memory"] = MemoryToJson(memory);
    report["fits"] = report.value("fits", true) && memory.fits();
    report["memory_verdict"] = MemoryVerdictLine(memory);
    verdict = MemoryVerdict(memory);
  }
  if (!verdict.ok()) report["error"] = std::string(verdict.message());
  PW_RETURN_IF_ERROR(
      Print(json ? absl::StrCat(report.dump(2, ' ', false,
                                            Json::error_handler_t::replace),
                                "\n")
                 : ToText(report)));
  return verdict;
}

}  // namespace

void AddCheck(CLI::App* app, Action* action) {
  CLI::App* verb = app->add_subcommand(
      "check", "Is a schedule file complete, does it run to its end and fit?");
  auto check = std::make_shared<Check>();
  verb->add_option("FILE", check->file,
                   "schedule file: text, JSON or PyTorch's CSV")
      ->required()
      ->type_name("");
  check->config.AddTo(verb, ConfigOptions::File::kOption,
                      {"--max-activations", "--held-until-weight", "--memory"});
  verb->add_option("--semantics", check->semantics,
                   "whom transfers hold. buffered: nobody; rendezvous: both "
                   "sides, one call after the other; nccl: batches of what "
                   "lies between two passes, receives posted ahead")
      ->type_name("RULE");
  verb->add_flag("--json", check->json, "one JSON object on standard output");
  verb->callback(
      [action, check] { *action = [check] { return check->Run(); }; });
}

}  // namespace pipewright
