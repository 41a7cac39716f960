#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"
#include "sim/cli/verbs.h"
#include "sim/report/facts.h"
#include "sim/report/html.h"
#include "sim/report/memory_svg.h"
#include "sim/report/report.h"
#include "sim/report/svg.h"
#include "sim/run/simulated_run.h"
#include "sim/search/memory_advice.h"
#include "sim/trace/export.h"
#include "sim/trace/trace.h"

namespace pipewright {
namespace {

constexpr size_t kChangesNamed = 3;
// 96 bytes each while they are collected, and viewers give up earlier.
constexpr int64_t kMaxTracedOps = 20'000'000;

struct SimulateVerb {
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

absl::Status SimulateVerb::Run() {
  if (json) files.SetFormat("-o", FileFormat::kJson);
  PW_ASSIGN_OR_RETURN(const RunConfig run_config, config.Read(&files));
  PW_RETURN_IF_ERROR(files.Check());
  RunContext context;
  PW_ASSIGN_OR_RETURN(PreparedRun prepared, Prepare(run_config, &context));
  if (files.wanted("--memory-svg") && !prepared.memory) {
    return WithValue(
        FieldError("--memory-svg",
                   "no memory is known; allowed: with a model (--model)"),
        files.path("--memory-svg"), "with a model (--model)");
  }
  PrintWarnings(prepared.warnings);
  const bool whole = traces();
  SampledTrace trace(
      [whole](const TraceOp& op) { return whole || IsDrawn(op); },
      kMaxTracedOps);
  SimulateOptions options = {.interval = true};
  if (traces() || draws()) {
    options.trace = &trace;
    options.admit = [whole](const PreparedRun&, const Program& program) {
      return CheckTraceable(program, whole);
    };
  }
  options.advise = [&context](const PreparedRun& run) {
    return AdviseMemory(run, kChangesNamed, &context);
  };
  PW_ASSIGN_OR_RETURN(SimulatedRun simulated,
                      Simulate(std::move(prepared), options));
  const PreparedRun& run = simulated.prepared;
  const Program& program = simulated.program;
  Report& report = simulated.report;
  // On the terminal they already stand beside the text.
  if (!json && !files.wanted("-o")) report.warnings.clear();
  files.Put("-o", json ? absl::StrCat(ReportToJson(report), "\n")
                       : ReportToText(report));
  report.warnings = run.warnings;
  if (files.wanted("--svg")) {
    GridOptions grid;
    grid.title = PictureTitle(report);
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
  PW_RETURN_IF_ERROR(run.limit());
  return report.memory ? MemoryVerdict(*report.memory) : absl::OkStatus();
}

}  // namespace

void AddSimulate(CLI::App* app, Action* action) {
  CLI::App* verb = app->add_subcommand(
      "simulate", "Run a schedule and report times, bubbles and memory");
  auto simulate = std::make_shared<SimulateVerb>();
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
