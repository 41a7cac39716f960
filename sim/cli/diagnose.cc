#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "sim/analysis/compare/log_report.h"
#include "sim/analysis/diagnose/diagnosis.h"
#include "sim/analysis/diagnose/job.h"
#include "sim/analysis/diagnose/kineto_job.h"
#include "sim/analysis/diagnose/read_table.h"
#include "sim/analysis/diagnose/trace_job.h"
#include "sim/analysis/plot/figure.h"
#include "sim/base/gzip.h"
#include "sim/base/input.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"
#include "sim/cli/common.h"
#include "sim/cli/verbs.h"
#include "sim/report/format.h"
#include "sim/report/html_parts.h"
#include "sim/trace/log_lines.h"
#include "sim/trace/trace_read.h"
#include "sim/trace/training_log.h"

namespace pipewright {
namespace {

// The pictures of a diagnosis that need more than sim/analysis/diagnose sees:
// the heat map of workers, and the page with it, tables and timelines.

constexpr size_t kMostPageRows = 256;
// A picture with more cells is longer than a page is of use.
constexpr size_t kMostTimelineRows = 64;

std::string WhatIfPage(const std::string& head,
                       const std::vector<JobWhatIf>& list, bool gaps) {
  HtmlTable table;
  table.header = {head, "keep", "faster if ideal"};
  if (gaps) table.header.push_back("gaps");
  for (const JobWhatIf& what : list) {
    table.rows.push_back({what.name,
                          absl::StrFormat("%.4f", what.slowdown_keep),
                          FormatChange(what.speedup_fix - 1)});
    if (gaps) {
      table.rows.back().push_back(
          absl::StrFormat("%+.3f ms", 1e3 * what.gap_s));
    }
  }
  return TableHtml(table, kMostPageRows);
}

std::string StepTable(const Diagnosis& diagnosis) {
  HtmlTable table;
  table.header = {"step", "recorded", "without gaps", "gap error"};
  for (const StepAnswer& step : diagnosis.steps) {
    table.rows.push_back(
        {absl::StrCat(step.step), FormatSeconds(step.recorded_s),
         FormatSeconds(step.no_gap_s), FormatChange(step.gap_error)});
  }
  return TableHtml(table, kMostPageRows);
}

std::string Answers(const Diagnosis& diagnosis) {
  HtmlTable table;
  table.header = {"step", "time"};
  table.rows = {{"recorded", FormatSeconds(diagnosis.recorded_s)},
                {"re-created without gaps", FormatSeconds(diagnosis.no_gap_s)},
                {"gap error", FormatChange(diagnosis.gap_error)},
                {"ideal", FormatSeconds(diagnosis.ideal_s)},
                {"slowdown by stragglers",
                 absl::StrFormat("%.4f", diagnosis.straggler_slowdown)}};
  return TableHtml(table, kMostPageRows);
}

std::string WorkerHeatMap(const MeasuredJob& job, const Diagnosis& diagnosis) {
  HeatMap map;
  map.title = "slowdown by each worker alone";
  map.row_name = "replica";
  map.column_name = job.place;
  map.value_name = "step with only this worker's own times, over the ideal";
  map.columns = static_cast<size_t>(job.pp);
  map.from = 1;
  for (const JobWhatIf& worker : diagnosis.workers) {
    map.values.push_back(worker.slowdown_keep);
  }
  return HeatMapSvg(map);
}

std::string DiagnosisHtml(const MeasuredJob& job, const Diagnosis& diagnosis) {
  const std::string title = absl::StrCat("Diagnosis of ", job.source);
  std::string body = absl::StrCat(
      HeaderHtml(title,
                 absl::StrCat(job.pp, " ", job.place, "s, ", job.dp,
                              " replicas, ", job.num_steps(), " steps of ",
                              job.num_ops(), " operations")),
      SectionHtml("answers", "Step", Answers(diagnosis)),
      SectionHtml("workers", "Workers",
                  absl::StrCat(PictureHtml(WorkerHeatMap(job, diagnosis)),
                               WhatIfPage("worker", diagnosis.workers, false))),
      SectionHtml("kinds", "Kinds of operations",
                  WhatIfPage("kind", diagnosis.kinds, true)),
      SectionHtml(
          "places", "Places",
          absl::StrCat(WhatIfPage(job.place, diagnosis.stages, false),
                       WhatIfPage("replica", diagnosis.replicas, false))));
  if (static_cast<size_t>(job.pp) <= kMostTimelineRows) {
    absl::StrAppend(
        &body, SectionHtml("timeline", "Timeline",
                           PictureHtml(TimelineSvg(
                               job, diagnosis, SlowestReplica(diagnosis)))));
  }
  absl::StrAppend(&body, SectionHtml("steps", "Steps", StepTable(diagnosis)));
  return PageHtml(title, body);
}

constexpr int kMostDiagnosed = 1 << 20;  // stages, or steps to skip

struct DiagnoseVerb {
  std::string trace;
  std::string ideal = "mean";
  KinetoJobOptions kineto;
  OutputFiles files;
  std::vector<CLI::Option*> of_kineto;
  std::vector<CLI::Option*> of_operations;  // of no log
  CLI::Option* skip_given = nullptr;

  absl::Status Run();
  absl::Status RunLog();
  absl::Status Refuse(const std::vector<CLI::Option*>& options,
                      const std::string& allowed) const;
  // `head`: ReadHead of a file.
  absl::StatusOr<MeasuredJob> ReadJob(absl::string_view head) const;
};

absl::Status DiagnoseVerb::Refuse(const std::vector<CLI::Option*>& options,
                                  const std::string& allowed) const {
  for (const CLI::Option* option : options) {
    if (option->count() == 0) continue;
    return BadValue(option->get_name(), option->results()[0], allowed);
  }
  return absl::OkStatus();
}

absl::StatusOr<MeasuredJob> DiagnoseVerb::ReadJob(
    absl::string_view head) const {
  std::vector<std::string> paths;
  if (IsFolder(trace)) {
    PW_ASSIGN_OR_RETURN(paths, TracesOfFolder(trace));
  } else {
    const bool is_json = BeginsJson(head);
    bool ours = !is_json;
    if (is_json) {
      PW_ASSIGN_OR_RETURN(ours, IsOwnTraceFile(trace));
    }
    if (ours) {
      PW_RETURN_IF_ERROR(Refuse(
          of_kineto, absl::StrCat("with traces of PyTorch's profiler; ", trace,
                                  is_json ? " is one of pipewright's own"
                                          : " is a table")));
      PW_ASSIGN_OR_RETURN(const auto in, InputFile::Open(trace));
      if (is_json) {
        const absl::StatusOr<ReadTrace> read =
            ReadChromeTrace(in->stream(), trace);
        PW_RETURN_IF_ERROR(in->status());
        PW_RETURN_IF_ERROR(read.status());
        return JobOfTrace(*read);
      }
      absl::StatusOr<MeasuredJob> job = ReadJobTable(in->stream(), trace);
      PW_RETURN_IF_ERROR(in->status());
      return job;
    }
    paths.push_back(trace);
  }
  KinetoJob job(kineto);
  for (const std::string& path : paths) {
    PW_ASSIGN_OR_RETURN(const auto in, InputFile::Open(path));
    const absl::Status added = job.Add(in->stream(), path);
    PW_RETURN_IF_ERROR(in->status());
    PW_RETURN_IF_ERROR(added);
  }
  return job.Finish(trace);
}

// A log has times of whole steps: no operations to replay or to draw.
absl::Status DiagnoseVerb::RunLog() {
  PW_RETURN_IF_ERROR(
      Refuse(of_operations, absl::StrCat("with measured operations; ", trace,
                                         " is a log, which has whole steps")));
  PW_ASSIGN_OR_RETURN(const std::string text, ReadText(trace));
  PW_ASSIGN_OR_RETURN(const TrainingLog log, ReadTrainingLog(text, trace));
  PrintWarnings(log.warnings);
  PW_ASSIGN_OR_RETURN(
      const LogSummary summary,
      SummarizeLog(log, skip_given->count() > 0 ? kineto.skip : -1));
  files.Put("-o", files.json()
                      ? absl::StrCat(LogToJson(log, summary, nullptr), "\n")
                      : LogToText(log, summary, nullptr));
  return files.Write();
}

// A table begins with its columns. A line of a log may have commas.
bool IsLog(absl::string_view head) {
  if (BeginsJson(head)) return false;
  head.remove_prefix(ByteOrderMarkSize(head));
  for (const absl::string_view part :
       absl::StrSplit(head.substr(0, head.find('\n')), ',')) {
    const std::string word = absl::StrReplaceAll(part, {{"\"", ""}});
    const absl::string_view column = absl::StripAsciiWhitespace(word);
    for (const char* known : {"dp_rank", "optype", "start_ns"}) {
      if (column == known) return false;
    }
  }
  return true;
}

absl::Status DiagnoseVerb::Run() {
  files.Reads("TRACE", trace);
  if (IsFolder(trace)) {
    PW_ASSIGN_OR_RETURN(const std::vector<std::string> paths,
                        TracesOfFolder(trace));
    for (const std::string& path : paths) files.Reads("TRACE", path);
  }
  PW_RETURN_IF_ERROR(files.Check());
  if (ideal != "mean" && ideal != "median") {
    return BadValue("--ideal", ideal, "mean, median");
  }
  // "" of a folder, too.
  PW_ASSIGN_OR_RETURN(const std::string head, ReadHead(trace));
  if (!head.empty() && IsLog(head)) return RunLog();
  PW_ASSIGN_OR_RETURN(const MeasuredJob job, ReadJob(head));
  const TimesInUnits units(job.in_units);
  const Diagnosis diagnosis = Diagnose(
      job, ideal == "median" ? ComputeIdeal::kMedian : ComputeIdeal::kMean);
  PrintWarnings(diagnosis.warnings);
  files.Put("-o", files.json()
                      ? absl::StrCat(DiagnosisToJson(job, diagnosis), "\n")
                      : DiagnosisToText(job, diagnosis));
  if (files.wanted("--svg")) {
    files.Put("--svg", WorkerHeatMap(job, diagnosis));
  }
  if (files.wanted("--timeline")) {
    files.Put("--timeline", IdealTimelineJson(job, diagnosis));
  }
  if (files.wanted("--html")) {
    files.Put("--html", DiagnosisHtml(job, diagnosis));
  }
  return files.Write();
}

}  // namespace

void AddDiagnose(CLI::App* app, Action* action) {
  CLI::App* verb = app->add_subcommand(
      "diagnose",
      "Find what makes the step of a measured job slow, and how fast it would "
      "be without");
  auto diagnose = std::make_shared<DiagnoseVerb>();
  verb->add_option("TRACE", diagnose->trace,
                   "measured operations: a table (CSV), a trace of simulate or "
                   "execute --trace, a trace of PyTorch's profiler or a folder "
                   "with one of each rank; or the log of Megatron-LM, "
                   "Megatron-Bridge or torchtitan; .gz too")
      ->required()
      ->type_name("PATH");
  CLI::Option* const ideal =
      verb->add_option(
              "--ideal", diagnose->ideal,
              "ideal time of what computes: mean or median of its kind "
              "[mean]; of what communicates it is the median transfer "
              "time")
          ->type_name("mean|median");
  const auto of_kineto = [&](CLI::Option* option) {
    diagnose->of_kineto.push_back(
        option->group("Traces of PyTorch's profiler"));
  };
  for (const Region region :
       {Region::kForward, Region::kBackwardFull, Region::kBackwardInput,
        Region::kBackwardWeight, Region::kRecompute, Region::kOptimizer}) {
    of_kineto(
        verb->add_option(std::string(RegionFlag(region)),
                         diagnose->kineto.patterns[static_cast<int>(region)],
                         "regular expression for the names of these regions")
            ->type_name("REGEX"));
  }
  of_kineto(AddInteger(verb, "--pp", &diagnose->kineto.pp, 1, kMostDiagnosed,
                       "stages; the ranks of one stage follow each other "
                       "(default: as many as there are traces)")
                ->type_name("N"));
  diagnose->of_operations = diagnose->of_kineto;
  diagnose->of_operations.push_back(ideal);
  diagnose->skip_given =
      AddInteger(verb, "--skip", &diagnose->kineto.skip, 0, kMostDiagnosed,
                 "leave out this many steps at the start; of a log so many "
                 "lines with a step (default: those slower than 1.2 times the "
                 "median)")
          ->type_name("N");
  of_kineto(diagnose->skip_given);
  OutputFiles& files = diagnose->files;
  files.AddReport(verb, "the report");
  files.AddTo(verb, "--svg", "heat map of the workers' slowdown",
              FileFormat::kSvg);
  files.AddTo(verb, "--timeline", "the ideal step as a Chrome trace",
              FileFormat::kJson);
  files.AddTo(verb, "--html", "report as one page", FileFormat::kHtml);
  for (const char* drawn : {"--svg", "--timeline", "--html"}) {
    diagnose->of_operations.push_back(verb->get_option(drawn));
  }
  verb->callback(
      [action, diagnose] { *action = [diagnose] { return diagnose->Run(); }; });
}

}  // namespace pipewright
