#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/error_parts.h"
#include "sim/base/names.h"
#include "sim/base/status.h"
#include "sim/cli/idle_flags.h"
#include "sim/cli/stop_signals.h"
#include "sim/cli/verbs.h"
#include "sim/config/flags.h"
#include "sim/config/prepare.h"
#include "sim/engine/engine.h"
#include "sim/report/svg.h"
#include "sim/run/simulated_run.h"
#include "sim/schedule/text.h"
#include "sim/schedule/torch_csv.h"
#include "sim/trace/trace.h"

namespace pipewright {
namespace {

absl::StatusOr<std::string> Svg(PreparedRun prepared) {
  prepared.lower.iterations = 1;
  FullTrace trace;
  SimulateOptions options;
  options.trace = &trace;
  PW_ASSIGN_OR_RETURN(options.engine, FindEngine("fast"));
  PW_ASSIGN_OR_RETURN(const SimulatedRun run,
                      Simulate(std::move(prepared), options));
  GridOptions grid;
  grid.title = run.schedule().name;
  return ScheduleGridSvg(*run.program, trace.ops(), grid);
}

FileFormat FormatOf(absl::string_view form) {
  if (form == "json") return FileFormat::kJson;
  if (form == "svg") return FileFormat::kSvg;
  return absl::StrContains(form, "csv") ? FileFormat::kCsv
                                        : FileFormat::kSchedule;
}

struct Convert {
  ConfigOptions config;
  OutputFiles files;
  std::string schedule;  // name or file
  std::string format = "text";
  bool json = false;

  absl::Status Run();
};

absl::Status Convert::Run() {
  const std::string form = json ? "json" : format;
  const std::vector<std::string> known = {
      "text", "json", "csv", "torch-csv", "torch-csv-comms", "svg"};
  if (std::find(known.begin(), known.end(), form) == known.end()) {
    return AboutField("--format", UnknownName("format", form, known));
  }
  files.SetFormat("-o", FormatOf(form));
  std::vector<ConfigEdit> extra;
  if (!schedule.empty()) {
    const bool is_file = IsScheduleFile(schedule);
    extra.push_back(
        {is_file ? "schedule.file" : "schedule.name", schedule, "schedule"});
  }
  PW_ASSIGN_OR_RETURN(RunConfig run_config, config.Read(&files, extra));
  run_config.only_order = true;
  PW_RETURN_IF_ERROR(files.Check());
  PW_RETURN_IF_ERROR(RefuseClasses(run_config, "schedule"));
  RunContext context;
  PW_ASSIGN_OR_RETURN(const PreparedRun run,
                      PrepareUntilSignal(run_config, &context));
  if (form != "svg") PrintWarnings(IdleInSchedule(run_config, run));
  if (form != "svg" && run.schedule.written->found && run.prepared_model) {
    PrintWarnings(run.config.notes);
    if (run.costs.in_units) {
      PrintWarnings(
          {"nothing says what passes of the model take: the order is "
           "searched for passes of 1 unit each"});
    }
  }
  const std::vector<double>& factors = run.lower.costs.slice_factor;
  if (std::any_of(factors.begin(), factors.end(),
                  [](double factor) { return factor != 1; })) {
    PrintWarnings({absl::StrCat(
        "a schedule file has no times: give the costs of the slices again when "
        "it runs, --set costs.slice_factor=[",
        absl::StrJoin(factors, ","), "]")});
  }
  const int every = run.schedule.written->update_every;
  if (every > 0 && absl::StrContains(form, "csv")) {
    PrintWarnings(
        {absl::StrCat("format ", form, " has no update_every ", every,
                      ": a program that reads it flushes the pipeline")});
  }
  std::string content;
  if (form == "text") {
    content = ScheduleToText(*run.schedule.written);
  } else if (form == "json") {
    content = absl::StrCat(ScheduleToJson(*run.schedule.written), "\n");
  } else if (form == "csv") {
    content = ScheduleToCsv(*run.schedule.written);
  } else if (absl::StartsWith(form, "torch-csv")) {
    std::vector<std::string> warnings;
    PW_ASSIGN_OR_RETURN(
        content,
        ScheduleToTorchCsv(*run.schedule.written,
                           form == "torch-csv" ? TorchFlavour::kComputeOnly
                                               : TorchFlavour::kComputeComms,
                           &warnings));
    PrintWarnings(warnings);
  } else {
    PrintWarnings(run.warnings);
    PW_ASSIGN_OR_RETURN(content, Svg(run));
  }
  files.Put("-o", std::move(content));
  PW_RETURN_IF_ERROR(files.Write());
  PW_RETURN_IF_ERROR(SignalVerdict(*run.schedule.written));
  return run.limit();
}

}  // namespace

void AddSchedule(CLI::App* app, Action* action) {
  CLI::App* verb = app->add_subcommand(
      "schedule", "Build, print or convert a schedule, without running it");
  auto convert = std::make_shared<Convert>();
  verb->add_option("SCHEDULE", convert->schedule,
                   "registered schedule, or schedule file")
      ->type_name("");
  convert->config.AddTo(verb, ConfigOptions::File::kOption);
  CLI::Option* format =
      verb->add_option("--format", convert->format,
                       "text, json, csv, svg; torch-csv, torch-csv-comms: "
                       "PyTorch's CSV, passes only or with sends and receives")
          ->type_name("FORMAT")
          ->group("Output");
  verb->add_flag("--json", convert->json, "the same as --format json")
      ->excludes(format)
      ->group("Output");
  convert->files.AddTo(verb, "-o", "instead of standard output",
                       FileFormat::kSchedule);
  verb->callback(
      [action, convert] { *action = [convert] { return convert->Run(); }; });
}

}  // namespace pipewright
