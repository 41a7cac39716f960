#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "sim/analysis/compare/comparison.h"
#include "sim/analysis/compare/foreign_trace.h"
#include "sim/analysis/compare/log_report.h"
#include "sim/analysis/compare/run_summary.h"
#include "sim/base/file.h"
#include "sim/base/gzip.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"
#include "sim/cli/common.h"
#include "sim/cli/verbs.h"
#include "sim/trace/log_lines.h"
#include "sim/trace/training_log.h"

namespace pipewright {
namespace {

// The most that the reader of traces takes (trace_read.cc).
constexpr int kMostIteration = 1'000'000;

struct CompareVerb {
  std::string simulated;
  std::vector<std::string> measured;
  ForeignOptions foreign;
  std::string limit;
  bool summary = false;
  int iteration = -1;
  OutputFiles files;
  std::vector<CLI::Option*> of_others;  // traces of other programs
  std::vector<CLI::Option*> of_traces;  // no logs
  CLI::Option* skip_given = nullptr;

  absl::Status Run();
  absl::Status Summarize();
  absl::Status CompareLog(std::optional<double> most);
  absl::StatusOr<ReadTrace> ReadMeasured(ReadTrace* simulated_run,
                                         std::vector<std::string>* warnings);
};

// What was read, or why the file itself is broken.
template <class Result>
Result Read(const InputFile& file, Result result) {
  PW_RETURN_IF_ERROR(file.status());
  return result;
}

absl::StatusOr<ReadTrace> CompareVerb::ReadMeasured(
    ReadTrace* simulated_run, std::vector<std::string>* warnings) {
  PW_ASSIGN_OR_RETURN(const bool ours, IsOwnTraceFile(measured[0]));
  if (ours && measured.size() > 1) {
    return BadValue("MEASURED", measured[1],
                    "one file where it is one of pipewright's own");
  }
  for (const CLI::Option* option : of_others) {
    if (!ours || option->count() == 0) continue;
    return BadValue(option->get_name(), option->results()[0],
                    absl::StrCat("with the trace of another program; ",
                                 measured[0], " is one of pipewright's own"));
  }
  std::vector<std::unique_ptr<InputFile>> inputs;
  for (const std::string& path : measured) {
    PW_ASSIGN_OR_RETURN(std::unique_ptr<InputFile> in, InputFile::Open(path));
    inputs.push_back(std::move(in));
  }
  if (ours) {
    return Read(*inputs[0], ReadChromeTrace(inputs[0]->stream(), measured[0]));
  }
  std::vector<ForeignFile> foreign_files;
  for (size_t file = 0; file < measured.size(); ++file) {
    foreign_files.push_back({&inputs[file]->stream(), measured[file]});
  }
  absl::StatusOr<ReadTrace> foreign_run =
      ReadForeignTrace(foreign_files, foreign, *simulated_run);
  for (const auto& input : inputs) PW_RETURN_IF_ERROR(input->status());
  PW_ASSIGN_OR_RETURN(ReadTrace read, std::move(foreign_run));
  *simulated_run = WithoutUnknown(*simulated_run, read, warnings);
  return read;
}

// "5%" or "0.05" -> 0.05.
absl::StatusOr<std::optional<double>> ReadLimit(const std::string& text) {
  if (text.empty()) return std::optional<double>();
  absl::string_view number = text;
  const bool percent = absl::ConsumeSuffix(&number, "%");
  double value = 0;
  if (!absl::SimpleAtod(number, &value) || !std::isfinite(value) || value < 0) {
    return BadValue("--limit", text, "a share such as 5% or 0.05");
  }
  return std::optional<double>(percent ? value / 100 : value);
}

absl::Status WithinLimit(double error, std::optional<double> most) {
  if (!most || std::abs(error) <= *most) return absl::OkStatus();
  return absl::InternalError(absl::StrFormat(
      "--limit: the step time is off by %.2f %%, more than %.4g %%",
      std::abs(error) * 100, *most * 100));
}

// Units of a pass are no seconds.
absl::Status RefuseUnits(const std::string& what, const std::string& file) {
  return BadValue(what, file,
                  "a run with times of passes, as what it is compared with: "
                  "nobody gave this one any, and it is in units of a pass");
}

// --limit holds for every run.
absl::Status CompareVerb::Summarize() {
  PW_ASSIGN_OR_RETURN(const std::optional<double> most, ReadLimit(limit));
  PW_ASSIGN_OR_RETURN(const std::string content,
                      ReadFile(simulated, InputKind::kProfile));
  PW_ASSIGN_OR_RETURN(std::vector<ExecutedRow> rows,
                      ParseExecutedTable(content, simulated));
  PW_ASSIGN_OR_RETURN(const RunsSummary runs, SummarizeRuns(std::move(rows)));
  files.Put("-o", files.json() ? absl::StrCat(RunsToJson(runs), "\n")
                               : RunsToText(runs));
  if (files.wanted("--svg")) files.Put("--svg", RunsSvg(runs));
  if (files.wanted("--html")) files.Put("--html", RunsHtml(runs));
  PW_RETURN_IF_ERROR(files.Write());
  if (most && std::abs(runs.worst_error) > *most) {
    return absl::InternalError(absl::StrFormat(
        "--limit: the step time of %s is off by %.2f %%, more than %.4g %%",
        runs.worst, std::abs(runs.worst_error) * 100, *most * 100));
  }
  return absl::OkStatus();
}

// The measured side is a training log, the simulated one a report or a trace.
absl::Status CompareVerb::CompareLog(std::optional<double> most) {
  if (measured.size() > 1) {
    return BadValue("MEASURED", measured[1], "one file where it is a log");
  }
  for (const CLI::Option* option : of_traces) {
    if (option->count() == 0) continue;
    return BadValue(option->get_name(), option->results()[0],
                    absl::StrCat("with a trace of the measurement; ",
                                 measured[0], " is a log"));
  }
  PW_ASSIGN_OR_RETURN(const std::string text, ReadText(measured[0]));
  PW_ASSIGN_OR_RETURN(const TrainingLog log,
                      ReadTrainingLog(text, measured[0]));
  PrintWarnings(log.warnings);
  PW_ASSIGN_OR_RETURN(
      const LogSummary steps,
      SummarizeLog(log, skip_given->count() > 0 ? foreign.skip : -1));
  PW_ASSIGN_OR_RETURN(const std::string head, ReadHead(simulated));
  PredictedStep predicted;
  if (absl::StrContains(head, "traceEvents")) {
    PW_ASSIGN_OR_RETURN(const auto in, InputFile::Open(simulated));
    PW_ASSIGN_OR_RETURN(const ReadTrace trace,
                        Read(*in, ReadChromeTrace(in->stream(), simulated)));
    if (trace.origin.in_units) return RefuseUnits("SIM", simulated);
    predicted = PredictionOfTrace(trace);
  } else {
    PW_ASSIGN_OR_RETURN(const std::string report, ReadText(simulated));
    PW_ASSIGN_OR_RETURN(predicted, PredictionOfReport(report, simulated));
    if (predicted.in_units) return RefuseUnits("SIM", simulated);
  }
  files.Put("-o", files.json()
                      ? absl::StrCat(LogToJson(log, steps, &predicted), "\n")
                      : LogToText(log, steps, &predicted));
  PW_RETURN_IF_ERROR(files.Write());
  return WithinLimit(StepError(predicted, steps), most);
}

absl::Status CompareVerb::Run() {
  files.Reads("SIM", simulated);
  for (const std::string& path : measured) files.Reads("MEASURED", path);
  PW_RETURN_IF_ERROR(files.Check());
  if (!summary && measured.empty()) {
    return MissingValue("MEASURED",
                        "the trace of a measurement behind that of the "
                        "prediction, or --summary with a table of runs");
  }
  if (summary && !measured.empty()) {
    return BadValue("MEASURED", measured[0],
                    "no trace with --summary, whose table has the runs");
  }
  if (summary) return Summarize();
  PW_ASSIGN_OR_RETURN(const std::optional<double> most, ReadLimit(limit));
  PW_ASSIGN_OR_RETURN(const auto in, InputFile::Open(simulated));
  PW_ASSIGN_OR_RETURN(const std::string head, ReadHead(measured[0]));
  if (!head.empty() && !BeginsJson(head)) return CompareLog(most);
  PW_ASSIGN_OR_RETURN(ReadTrace simulated_run,
                      Read(*in, ReadChromeTrace(in->stream(), simulated)));
  std::vector<std::string> warnings;
  PW_ASSIGN_OR_RETURN(const ReadTrace measured_run,
                      ReadMeasured(&simulated_run, &warnings));
  const bool in_units = simulated_run.origin.in_units;
  if (in_units != measured_run.origin.in_units) {
    return in_units ? RefuseUnits("SIM", simulated)
                    : RefuseUnits("MEASURED", measured[0]);
  }
  const TimesInUnits units(in_units);
  PW_ASSIGN_OR_RETURN(PairedRun run, PairRuns(simulated_run, measured_run));
  run.warnings.insert(run.warnings.begin(), warnings.begin(), warnings.end());
  PW_ASSIGN_OR_RETURN(const TraceComparison comparison,
                      Compare(run, simulated_run, measured_run, iteration));
  files.Put("-o", files.json()
                      ? absl::StrCat(ComparisonToJson(comparison), "\n")
                      : ComparisonToText(comparison));
  if (files.wanted("--svg")) {
    OverlayOptions options;
    options.iteration = comparison.iteration;
    options.title =
        absl::StrCat(comparison.schedule, ", iteration ", comparison.iteration);
    files.Put("--svg", OverlaySvg(run, options));
  }
  if (files.wanted("--html")) {
    files.Put("--html", ComparisonHtml(comparison, run));
  }
  PW_RETURN_IF_ERROR(files.Write());
  return WithinLimit(comparison.step_s.error(), most);
}

}  // namespace

void AddCompare(CLI::App* app, Action* action) {
  CLI::App* verb = app->add_subcommand("compare",
                                       "Show where two traces of one schedule "
                                       "differ: prediction and measurement");
  auto compare = std::make_shared<CompareVerb>();
  verb->add_option("SIM", compare->simulated,
                   "trace of the prediction (simulate --trace); beside a log "
                   "also its report (simulate --json); with --summary a table "
                   "of runs (execute --row)")
      ->required()
      ->type_name("");
  verb->add_option("MEASURED", compare->measured,
                   "trace of the measurement (execute --trace), or of another "
                   "program: a Chrome trace with a region around each pass, in "
                   "one file or one file for each rank; or the log of "
                   "Megatron-LM, Megatron-Bridge or torchtitan")
      ->type_name("");
  CLI::Option* const summary =
      verb->add_flag("--summary", compare->summary,
                     "print the errors and the order of all runs of a table");
  CLI::Option* const of_iteration =
      AddInteger(verb, "--iteration", &compare->iteration, 0, kMostIteration,
                 "compare this iteration, from 0 (default: the last that both "
                 "traces contain in full)")
          ->excludes(summary)
          ->type_name("N");
  verb->add_option("--limit", compare->limit,
                   "exit code 1 where the step time is off by more, such as 5%")
      ->type_name("SHARE");
  const auto of_others = [&](CLI::Option* option, const char* type) {
    option->group("Traces of other programs")->type_name(type);
    compare->of_others.push_back(option->excludes(summary));
  };
  for (const Region region :
       {Region::kForward, Region::kBackwardFull, Region::kBackwardInput,
        Region::kBackwardWeight, Region::kRecompute, Region::kOptimizer}) {
    of_others(
        verb->add_option(std::string(RegionFlag(region)),
                         compare->foreign.patterns[static_cast<int>(region)],
                         "regular expression for the names of these regions"),
        "REGEX");
  }
  of_others(verb->add_option("--rank-of", compare->foreign.rank_of,
                             "how to tell the rank of a region: file or pid "
                             "(default: file where there are several)"),
            "");
  compare->of_traces = compare->of_others;
  compare->of_traces.push_back(of_iteration);
  of_others(
      AddInteger(verb, "--skip", &compare->foreign.skip, 0, kMostIteration,
                 "leave out this many iterations at the start; of a log so "
                 "many lines with a step (default: those slower than 1.2 times "
                 "the median)"),
      "N");
  compare->skip_given = compare->of_others.back();
  OutputFiles& files = compare->files;
  files.AddReport(verb, "the report");
  files.AddTo(verb, "--svg", "picture of both timelines on one axis",
              FileFormat::kSvg);
  files.AddTo(verb, "--html", "report as one page", FileFormat::kHtml);
  for (const char* drawn : {"--svg", "--html"}) {
    compare->of_traces.push_back(verb->get_option(drawn));
  }
  verb->callback(
      [action, compare] { *action = [compare] { return compare->Run(); }; });
}

}  // namespace pipewright
