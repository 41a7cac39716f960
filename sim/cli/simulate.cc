#include <cstdint>
#include <memory>

#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"
#include "sim/cli/verbs.h"
#include "sim/config/describe_costs.h"
#include "sim/config/prepare.h"
#include "sim/config/step_prediction.h"
#include "sim/engine/engine.h"
#include "sim/memory/activations.h"
#include "sim/report/html.h"
#include "sim/report/memory_svg.h"
#include "sim/report/report.h"
#include "sim/report/svg.h"
#include "sim/search/memory_advice.h"
#include "sim/trace/export.h"
#include "sim/trace/trace.h"

namespace pipewright {
namespace {

constexpr size_t kChangesNamed = 3;
// 96 bytes each while they are collected, and viewers give up earlier.
constexpr int64_t kMaxTracedOps = 20'000'000;

struct Simulate {
  ConfigOptions config;
  OutputFiles files;
  bool json = false;

  // Traces are of every iteration, pictures of the first one.
  bool traces() const {
    return files.wanted("--trace") || files.wanted("--perfetto");
  }
  bool draws() const {
    return files.wanted("--svg") || files.wanted("--html") ||
           files.wanted("--memory-svg");
  }
  absl::Status Run();
};

absl::Status CheckTraceable(const Program& program, bool whole) {
  const double copies =
      whole ? static_cast<double>(program.replicas) * program.iterations : 1;
  const double ops = static_cast<double>(program.num_ops()) * copies;
  if (ops <= static_cast<double>(kMaxTracedOps)) return absl::OkStatus();
  const std::string allowed = absl::StrCat(
      kMaxTracedOps, " (fewer microbatches or replicas, or --iterations 1)");
  return WithValue(
      FieldError(
          "--svg, --trace, --perfetto, --html",
          absl::StrCat("up to ", ops,
                       " operations would be traced; allowed: ", allowed)),
      absl::StrCat(ops), allowed);
}

bool IsDrawn(const TraceOp& op) { return op.iteration == 0 && op.replica == 0; }

// What the program does not know.
void Describe(const PreparedRun& run, Report* report) {
  report->engine = run.engine;
  DescribeRun(run, report);
  // Prepare fills these in where there is something to synchronise.
  if (!run.lower.gradient_bytes.empty()) {
    report->gradient_sync = report->data_parallel;
  }
  DescribeCosts(run, report);
  if (run.limit) report->fits = run.limit->ok();
  report->memory = run.memory;
  if (!run.memory || !run.memory->limit_bytes) return;
  report->fits = report->fits.value_or(true) && run.memory->fits();
  if (!run.memory->fits()) {
    report->memory->changes = AdviseMemory(run, kChangesNamed);
  }
}

std::string GridTitle(const Report& report) {
  std::string title = absl::StrCat(report.schedule, ", pp ", report.pp);
  if (report.vpp > 1) absl::StrAppend(&title, ", vpp ", report.vpp);
  if (report.dp > 1) absl::StrAppend(&title, ", dp ", report.dp);
  absl::StrAppend(&title, ", ", report.microbatches, " microbatches");
  for (const auto& [key, value] : report.params) {
    absl::StrAppend(&title, ", ", key, " ", value);
  }
  return title;
}

absl::Status Simulate::Run() {
  if (json) files.SetFormat("-o", FileFormat::kJson);
  PW_ASSIGN_OR_RETURN(const RunConfig run_config, config.Read(&files));
  PW_RETURN_IF_ERROR(files.Check());
  PW_ASSIGN_OR_RETURN(const PreparedRun run, Prepare(run_config));
  if (files.wanted("--memory-svg") && !run.memory) {
    return WithValue(
        FieldError("--memory-svg",
                   "no memory is known; allowed: with a model (--model)"),
        files.path("--memory-svg"), "with a model (--model)");
  }
  PrintWarnings(run.warnings);
  PW_ASSIGN_OR_RETURN(const Program program, Lower(run.schedule, run.lower));
  if (traces() || draws()) {
    PW_RETURN_IF_ERROR(CheckTraceable(program, traces()));
  }
  PW_ASSIGN_OR_RETURN(const EngineInfo* engine, FindEngine(run.engine));
  const bool whole = traces();
  SampledTrace trace(
      [whole](const TraceOp& op) { return whole || IsDrawn(op); },
      kMaxTracedOps);
  EngineOptions options = {.native_flows = run.config.network == "native"};
  if (traces() || draws()) options.trace = &trace;
  PW_ASSIGN_OR_RETURN(const RunSummary summary, engine->run(program, options));

  Report report = Summarize(
      program, summary,
      PeakActivations(*run.schedule, run.lower.costs.held_until_weight));
  PW_ASSIGN_OR_RETURN(report.interval,
                      PredictStepOf(run, program, report.iteration_s));
  report.held_until_weight = run.lower.costs.held_until_weight;
  Describe(run, &report);
  // A text on the terminal stands beside them already.
  if (json || files.wanted("-o")) report.warnings = run.warnings;
  files.Put("-o", json ? absl::StrCat(ReportToJson(report), "\n")
                       : ReportToText(report));
  report.warnings = run.warnings;
  if (files.wanted("--svg")) {
    GridOptions grid;
    grid.title = GridTitle(report);
    files.Put("--svg", ScheduleGridSvg(program, trace.ops(), grid));
  }
  if (files.wanted("--trace")) {
    files.Put(
        "--trace",
        ChromeTraceJson(program, trace.ops(), run.memory_of_ranks(), nullptr,
                        {.clock = std::string(kSimulatedClock),
                         .memory = std::string(kAllocatorMemory)}));
  }
  if (files.wanted("--perfetto")) {
    files.Put("--perfetto",
              PerfettoTrace(program, trace.ops(), run.memory_of_ranks()));
  }
  if (files.wanted("--memory-svg")) {
    MemoryPicture picture;
    picture.limit_bytes = report.memory->allocator_limit();
    files.Put("--memory-svg", MemoryOverTimeSvg(program, *report.memory->memory,
                                                trace.ops(), picture));
  }
  if (files.wanted("--html")) {
    files.Put("--html", ReportHtml(report, program, trace.ops()));
  }
  PW_RETURN_IF_ERROR(files.Write());
  if (run.limit && !run.limit->ok()) return *run.limit;
  return report.memory ? MemoryVerdict(*report.memory) : absl::OkStatus();
}

}  // namespace

void AddSimulate(CLI::App* app, Action* action) {
  CLI::App* verb = app->add_subcommand(
      "simulate", "Run a schedule and report times, bubbles and memory");
  auto simulate = std::make_shared<Simulate>();
  simulate->config.AddTo(verb, ConfigOptions::File::kPositional);
  verb->add_flag("--json", simulate->json, "one JSON object on standard output")
      ->group("Output");
  OutputFiles& files = simulate->files;
  files.AddTo(verb, "-o", "the report, instead of standard output",
              FileFormat::kText);
  files.AddTo(verb, "--svg", "picture of the first iteration",
              FileFormat::kSvg);
  files.AddTo(verb, "--trace", "Chrome trace, JSON", FileFormat::kJson);
  files.AddTo(verb, "--perfetto", "Perfetto trace, protobuf",
              FileFormat::kPerfetto);
  files.AddTo(verb, "--html", "report as one page", FileFormat::kHtml);
  files.AddTo(verb, "--memory-svg",
              "picture of the ranks' memory over the first iteration",
              FileFormat::kSvg);
  verb->callback(
      [action, simulate] { *action = [simulate] { return simulate->Run(); }; });
}

}  // namespace pipewright
