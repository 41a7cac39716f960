#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sim/analysis/explain/page_extras.h"
#include "sim/analysis/search/memory_advice.h"
#include "sim/base/error_parts.h"
#include "sim/base/json.h"
#include "sim/base/parallel.h"
#include "sim/base/status.h"
#include "sim/cli/common.h"
#include "sim/cli/progress_bar.h"
#include "sim/cli/stop_signals.h"
#include "sim/cli/verbs.h"
#include "sim/program/program.h"
#include "sim/report/facts.h"
#include "sim/report/html.h"
#include "sim/report/memory_svg.h"
#include "sim/report/report.h"
#include "sim/report/svg.h"
#include "sim/run/monte_carlo.h"
#include "sim/run/simulated_run.h"
#include "sim/trace/export.h"
#include "sim/trace/trace.h"

namespace pipewright {
namespace {

// `simulate --seeds N`: many draws in place of one run.

struct SeedOptions {
  int seeds = 0;    // 0: one run
  int workers = 0;  // 0: as many as there are cores
  std::vector<std::string> versus;

  void AddTo(CLI::App* verb);
  // Options that only make sense together. Errors: kInvalidArgument.
  absl::Status Check(const OutputFiles& files) const;
};

constexpr int kMostDraws = 1'000'000;
constexpr int kMostDrawers = 1024;
// Every pair of them is tested.
constexpr size_t kMostStrategies = 16;

std::string NameOf(const ConfigOptions& config) {
  return config.file().empty() ? std::string("the run") : config.file();
}

void SeedOptions::AddTo(CLI::App* verb) {
  AddInteger(verb, "--seeds", &seeds, 1, kMostDraws,
             "draws of lengths and noise: mean and quantiles of the iteration "
             "time")
      ->group("Draws");
  AddInteger(verb, "-j", &workers, 1, kMostDrawers,
             "draws at a time (default: the cores)")
      ->group("Draws");
  verb->add_option("--versus", versus,
                   "another strategy with the same draws: a configuration, or "
                   "PATH=VALUE[,PATH=VALUE...] on top of this one")
      ->type_name("CONFIG|EDITS")
      ->allow_extra_args(false)
      ->group("Draws");
}

absl::Status SeedOptions::Check(const OutputFiles& files) const {
  if (seeds == 0) {
    for (const auto& [flag, given] :
         {std::pair<const char*, bool>{"--versus", !versus.empty()},
          {"-j", workers > 0}}) {
      if (!given) continue;
      return WithValue(FieldError(flag, "needs --seeds N: several draws"), "",
                       "with --seeds N");
    }
    return absl::OkStatus();
  }
  for (const char* flag :
       {"--svg", "--trace", "--perfetto", "--html", "--memory-svg"}) {
    if (!files.wanted(flag)) continue;
    return WithValue(
        FieldError(flag,
                   "shows one run, and --seeds asks for many; allowed: "
                   "one of them"),
        files.path(flag), "without --seeds");
  }
  if (versus.size() >= kMostStrategies) {
    return BadValue("--versus", absl::StrCat(versus.size()),
                    absl::StrCat("up to ", kMostStrategies - 1, " of them"));
  }
  return absl::OkStatus();
}

// Runs the draws; puts the report into `files`, as text or JSON.
absl::Status SimulateSeeds(const ConfigOptions& config,
                           const SeedOptions& options, OutputFiles* files) {
  std::vector<NamedConfig> strategies;
  PW_ASSIGN_OR_RETURN(RunConfig own, config.Read(files));
  strategies.push_back({NameOf(config), std::move(own)});
  for (const std::string& other : options.versus) {
    PW_ASSIGN_OR_RETURN(RunConfig another, config.ReadOther(files, other));
    strategies.push_back({other, std::move(another)});
  }
  PW_RETURN_IF_ERROR(files->Check());
  RunContext context;
  ProgressBar bar;
  PW_ASSIGN_OR_RETURN(
      const MonteCarlo result,
      RunMonteCarlo(std::move(strategies), options.seeds,
                    options.workers > 0 ? options.workers : NumCores(),
                    &context, &bar));
  PrintWarnings(result.warnings);
  files->Put("-o", files->json()
                       ? absl::StrCat(MonteCarloToJson(result).dump(2), "\n")
                       : MonteCarloToText(result));
  return files->Write();
}

// 96 bytes each while they are collected, and viewers give up earlier.
constexpr int64_t kMaxTracedOps = 20'000'000;

// Some of the numbers from 0 up, as "0-3,8" says; all without a text.
class Selection {
 public:
  // Error: kInvalidArgument naming `flag`, for what is no such text, and for a
  // number from `end` on.
  static absl::StatusOr<Selection> Parse(const std::string& flag,
                                         const std::string& text, int end);
  bool whole() const { return ranges_.empty(); }
  bool Has(int number) const {
    return whole() ||
           std::any_of(ranges_.begin(), ranges_.end(),
                       [number](const std::pair<int, int>& range) {
                         return range.first <= number && number <= range.second;
                       });
  }
  // How many of [0, end).
  int Count(int end) const {
    int count = 0;
    for (int number = 0; number < end; ++number) count += Has(number);
    return count;
  }

 private:
  std::vector<std::pair<int, int>> ranges_;  // first and last
};

absl::StatusOr<Selection> Selection::Parse(const std::string& flag,
                                           const std::string& text, int end) {
  Selection selection;
  if (text.empty()) return selection;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> ends =
        absl::StrSplit(part, absl::MaxSplits('-', 1));
    std::pair<int, int> range;
    const bool is_one = !absl::StrContains(part, "-");
    if (!absl::SimpleAtoi(ends.first, &range.first) ||
        !absl::SimpleAtoi(is_one ? ends.first : ends.second, &range.second) ||
        range.first < 0 || range.second < range.first || range.second >= end) {
      return BadValue(
          flag, text,
          absl::StrCat("numbers and ranges from 0 to ", end - 1, " (0-3,8)"));
    }
    selection.ranges_.push_back(range);
  }
  return selection;
}

// Which operations the files of --trace and --perfetto hold.
struct TracedPart {
  Selection ranks;
  Selection iterations;

  bool Has(const TraceOp& op) const {
    return ranks.Has(op.rank) && iterations.Has(op.iteration);
  }
};

struct SimulateVerb {
  ConfigOptions config;
  SeedOptions seeds;
  OutputFiles files;
  std::string trace_ranks;
  std::string trace_iterations;

  // Traces are of every iteration, pictures of the first one.
  bool traces() const {
    return files.wanted("--trace") || files.wanted("--perfetto");
  }
  bool draws() const {
    return files.wanted("--svg") || files.wanted("--html") ||
           files.wanted("--memory-svg");
  }
  absl::StatusOr<TracedPart> Traced(const Program& program) const;
  absl::Status Run();
};

absl::StatusOr<TracedPart> SimulateVerb::Traced(const Program& program) const {
  TracedPart part;
  PW_ASSIGN_OR_RETURN(
      part.ranks, Selection::Parse("--trace-ranks", trace_ranks, program.pp()));
  PW_ASSIGN_OR_RETURN(part.iterations,
                      Selection::Parse("--trace-iterations", trace_iterations,
                                       program.iterations));
  return part;
}

// `traced`: null if only the first iteration is drawn.
absl::Status CheckTraceable(const Program& program, const TracedPart* traced) {
  double ops = 0;
  const std::vector<int> replicas = program.ReplicasOfClasses();
  for (int index = 0; index < program.num_classes(); ++index) {
    ops += static_cast<double>(program.dp_class(index).num_ops()) *
           (traced != nullptr ? replicas[index] : 1);
  }
  if (traced != nullptr) {
    ops *= static_cast<double>(traced->ranks.Count(program.pp())) /
           program.pp() * traced->iterations.Count(program.iterations);
  }
  if (ops <= static_cast<double>(kMaxTracedOps)) return absl::OkStatus();
  const std::string allowed =
      absl::StrCat(kMaxTracedOps,
                   " (--trace-ranks 0-3, fewer microbatches or replicas, or "
                   "--iterations 1)");
  return WithValue(
      FieldError(
          "--svg, --trace, --perfetto, --html",
          absl::StrCat("up to ", ops,
                       " operations would be traced; allowed: ", allowed)),
      absl::StrCat(ops), allowed);
}

absl::Status SimulateVerb::Run() {
  PW_RETURN_IF_ERROR(seeds.Check(files));
  for (const auto& [flag, list] :
       {std::pair("--trace-ranks", &trace_ranks),
        std::pair("--trace-iterations", &trace_iterations)}) {
    if (list->empty() || traces()) continue;
    return WithValue(FieldError(flag, "needs --trace or --perfetto"), "",
                     "with --trace or --perfetto");
  }
  if (seeds.seeds > 0) return SimulateSeeds(config, seeds, &files);
  PW_ASSIGN_OR_RETURN(const RunConfig run_config, config.Read(&files));
  PW_RETURN_IF_ERROR(files.Check());
  RunContext context;
  absl::StatusOr<PreparedRun> made = PrepareUntilSignal(run_config, &context);
  // How the files were read may say why.
  if (!made.ok()) PrintWarnings(run_config.notes);
  PW_ASSIGN_OR_RETURN(PreparedRun prepared, std::move(made));
  if (files.wanted("--memory-svg") && !prepared.memory) {
    return WithValue(
        FieldError("--memory-svg",
                   "no memory is known; allowed: with a model (--model)"),
        files.path("--memory-svg"), "with a model (--model)");
  }
  PrintWarnings(prepared.warnings);
  const auto warned = std::ssize(prepared.warnings);
  // What pictures may be of: the first replica of each class.
  std::vector<int> drawn;
  TracedPart traced;
  SampledTrace trace(
      [this, &drawn, &traced](const TraceOp& op) {
        return (traces() && traced.Has(op)) ||
               (draws() && op.iteration == 0 &&
                std::find(drawn.begin(), drawn.end(), op.replica) !=
                    drawn.end());
      },
      kMaxTracedOps);
  ProgressBar bar;
  SimulateOptions options = {.progress = &bar, .interval = true};
  options.admit = [this, &drawn, &traced](
                      const PreparedRun&,
                      const Program& program) -> absl::Status {
    if (!traces() && !draws()) return absl::OkStatus();
    drawn = program.FirstReplicas();
    PW_ASSIGN_OR_RETURN(traced, Traced(program));
    return CheckTraceable(program, traces() ? &traced : nullptr);
  };
  if (traces() || draws()) options.trace = &trace;
  options.advise = [&context](const PreparedRun& run) {
    return AdviseMemory(run, kChangesNamed, &context);
  };
  PW_ASSIGN_OR_RETURN(SimulatedRun simulated,
                      Simulate(std::move(prepared), options));
  const PreparedRun& run = simulated.prepared;
  // Some are known only of the program.
  PrintWarnings({run.warnings.begin() + warned, run.warnings.end()});
  const Program& program = *simulated.program;
  Report& report = simulated.report;
  // On the terminal they already stand beside the text.
  if (!files.json() && !files.wanted("-o")) report.warnings.clear();
  files.Put("-o", files.json() ? absl::StrCat(ReportToJson(report), "\n")
                               : ReportToText(report));
  report.warnings = run.warnings;
  if (files.wanted("--svg")) {
    GridOptions grid;
    grid.title = PictureTitle(report);
    if (report.dp_classes) {
      grid.replica = drawn[report.dp_classes->slowest];
      absl::StrAppend(&grid.title, ", replica ", grid.replica, " of class ",
                      report.dp_classes->slowest, ", the slowest");
    }
    files.Put("--svg", ScheduleGridSvg(program, trace.ops(), grid));
  }
  // Pictures may need more operations than the files shall have.
  std::vector<TraceOp> part;
  if (traces() && draws()) {
    std::copy_if(trace.ops().begin(), trace.ops().end(),
                 std::back_inserter(part),
                 [&traced](const TraceOp& op) { return traced.Has(op); });
  }
  const std::vector<TraceOp>& filed = draws() ? part : trace.ops();
  if (files.wanted("--trace")) {
    files.Put("--trace",
              ChromeTraceJson(program, filed, run.memory_of_ranks(), nullptr,
                              {.clock = std::string(kSimulatedClock),
                               .memory = std::string(kAllocatorMemory)}));
  }
  if (files.wanted("--perfetto")) {
    files.Put("--perfetto",
              PerfettoTrace(program, filed, run.memory_of_ranks()));
  }
  if (files.wanted("--memory-svg")) {
    MemoryPicture picture;
    picture.title = absl::StrCat("Memory of ", PictureTitle(report));
    picture.limit_bytes = report.memory->allocator_limit();
    if (report.dp_classes)
      picture.replica = drawn[report.dp_classes->hungriest];
    files.Put("--memory-svg", MemoryOverTimeSvg(program, *report.memory->memory,
                                                trace.ops(), picture));
  }
  if (files.wanted("--html")) {
    const PageExtras extras = PageExtrasOf(simulated, trace.ops());
    files.Put("--html", ReportHtml(report, program, trace.ops(), "", &extras));
  }
  PW_RETURN_IF_ERROR(files.Write());
  PW_RETURN_IF_ERROR(SignalVerdict(simulated.schedule()));
  PW_RETURN_IF_ERROR(run.limit());
  return report.memory ? MemoryVerdict(*report.memory) : absl::OkStatus();
}

}  // namespace

void AddSimulate(CLI::App* app, Action* action) {
  CLI::App* verb = app->add_subcommand(
      "simulate", "Run a schedule and report times, bubbles and memory");
  auto simulate = std::make_shared<SimulateVerb>();
  simulate->config.AddTo(verb, ConfigOptions::File::kPositional);
  simulate->seeds.AddTo(verb);
  OutputFiles& files = simulate->files;
  files.AddReport(verb, "the report");
  files.AddTo(verb, "--svg", "picture of the first iteration",
              FileFormat::kSvg);
  files.AddTo(verb, "--trace", "Chrome trace, JSON (.json.gz: packed)",
              FileFormat::kTrace);
  files.AddTo(verb, "--perfetto",
              "Perfetto trace, protobuf (.pftrace.gz: packed)",
              FileFormat::kPerfetto);
  verb->add_option("--trace-ranks", simulate->trace_ranks,
                   "pipeline ranks of the traces, 0-3,8 (default: all)")
      ->type_name("LIST")
      ->group("Output");
  verb->add_option("--trace-iterations", simulate->trace_iterations,
                   "iterations of the traces, 0 (default: all)")
      ->type_name("LIST")
      ->group("Output");
  files.AddTo(verb, "--html", "report as one page", FileFormat::kHtml);
  files.AddTo(verb, "--memory-svg",
              "picture of the ranks' memory over the first iteration",
              FileFormat::kSvg);
  verb->callback(
      [action, simulate] { *action = [simulate] { return simulate->Run(); }; });
}

}  // namespace pipewright
