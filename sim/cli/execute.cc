#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "execute/run/run_processes.h"
#include "execute/train/training.h"
#include "sim/base/error_parts.h"
#include "sim/base/names.h"
#include "sim/base/status.h"
#include "sim/cli/execute_html.h"
#include "sim/cli/execute_job.h"
#include "sim/cli/execute_memory.h"
#include "sim/cli/execute_model.h"
#include "sim/cli/execute_predict.h"
#include "sim/cli/execute_replicas.h"
#include "sim/cli/execute_report.h"
#include "sim/cli/execute_verb.h"
#include "sim/cli/idle_flags.h"
#include "sim/cli/verbs.h"
#include "sim/config/offload_turns.h"
#include "sim/config/prepare.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/program/program.h"
#include "sim/report/svg.h"
#include "sim/trace/export.h"

namespace pipewright {
namespace {

constexpr int kMostSteps = 1000;
// What process 0 tells the others of --row.
constexpr char kIsThere[] = "is in the table";
constexpr char kDiffers[] = "is in the table, and differs";
// 11 days; a date so far away is still one that the system knows.
constexpr double kMostTimeout_s = 1e6;

std::vector<double> StepTimes(const RunSummary& summary) {
  std::vector<double> steps;
  double before_s = 0;
  for (const double end_s : summary.iteration_end_s) {
    steps.push_back(end_s - before_s);
    before_s = end_s;
  }
  return steps;
}

}  // namespace

absl::StatusOr<ClockKind> Execute::Clock() const {
  if (clock == "virtual") return ClockKind::kVirtual;
  if (clock == "paced") return ClockKind::kPaced;
  if (clock == "real") return ClockKind::kReal;
  return UnknownName("--clock", clock, {"virtual", "paced", "real"});
}

void Execute::PutFiles(const Program& program, const Executed& executed,
                       const ExecuteReport& report) {
  const std::vector<double> step_s = StepTimes(executed.run.summary);
  const std::vector<TraceOp>& ops = executed.run.ops;
  // The paced clock has none.
  const MeasuredMemory* const memory =
      executed.memory.empty() ? nullptr : &executed.memory;
  ExecuteReport text = report;
  // On the terminal they already stand beside it.
  if (!files.wanted("-o")) text.report.warnings.clear();
  files.Put("-o", json ? absl::StrCat(ExecuteReportToJson(report, step_s), "\n")
                       : ExecuteReportToText(text, step_s));
  if (files.wanted("--trace")) {
    files.Put("--trace",
              ChromeTraceJson(program, ops, nullptr, memory, OriginOf(report)));
  }
  if (files.wanted("--perfetto")) {
    files.Put("--perfetto", PerfettoTrace(program, ops, nullptr, memory));
  }
  if (files.wanted("--svg")) {
    files.Put("--svg",
              ScheduleGridSvg(program, ops, {.title = ExecuteTitle(report)}));
  }
  if (files.wanted("--html")) {
    files.Put("--html", ExecutePage(report, program, ops, step_s));
  }
}

absl::Status Execute::CheckOptions() const {
  if (device != "cpu" && device != "cuda") {
    return UnknownName("--device", device, {"cpu", "cuda"});
  }
  // Here and not where flags are read, so that one of several processes says
  // it for all.
  if (!(timeout_s > 0 && timeout_s <= kMostTimeout_s)) {
    return BadValue("--timeout", absl::StrCat(timeout_s),
                    "a number above 0 and at most 1e6 s");
  }
  if (row_runs > 1 && !files.wanted("--row")) {
    return BadValue("--row-runs", absl::StrCat(row_runs), "with --row");
  }
  if (reference && (no_reference || !replay_rank.empty())) {
    return FieldError("--reference",
                      "allowed: without --no-reference and --replay-rank, "
                      "whose ranks get made-up data");
  }
  if (green_contexts &&
      (device != "cuda" || one_at_a_time || !replay_rank.empty())) {
    return FieldError(
        "--green-contexts",
        "gives each rank a part of one GPU; allowed: with "
        "--device cuda, without --one-at-a-time and --replay-rank");
  }
  return absl::OkStatus();
}

// A process a rank: one of them speaks for all.
absl::Status Execute::Run() {
  // Prepare says what is wrong with it.
  job_options.timeout_s = CheckOptions().ok() ? timeout_s : kUsualTimeout_s;
  job_options.device = device;
  PW_ASSIGN_OR_RETURN(const ProcessJob processes, JoinJob(job_options));
  ProcessGroup* const job = processes.job.get();
  if (job == nullptr) return RunIn(processes);
  job->SetLastWords([](const std::string& why) {
    std::_Exit(Refuse(absl::UnavailableError(why)));
  });
  bool returned = false;
  const absl::Status status = WithoutExceptions([&] {
    const absl::Status ran = RunIn(processes);
    returned = true;
    return ran;
  });
  // The others would wait for it to leave with them.
  if (!returned) job->Abandon();
  if (status.ok()) return status;
  // While it is part of the job: mpirun kills all when one has ended badly.
  if (job->speaks()) Refuse(status);
  return absl::Status(status.code(), "");
}

absl::Status Execute::Prepare(const ProcessJob& processes, Prepared* prepared) {
  PW_RETURN_IF_ERROR(CheckOptions());
  PW_ASSIGN_OR_RETURN(prepared->kind, Clock());
  TrainingOptions& training = prepared->training;
  PW_ASSIGN_OR_RETURN(training.execute.faults, ParseFaults(slow, late));
  training.execute.clock = prepared->kind;
  training.execute.timeout_s = timeout_s;
  if (processes.job != nullptr && !replay_rank.empty()) {
    return FieldError("--replay-rank",
                      "runs in one process; allowed: without mpirun and "
                      "--bootstrap");
  }
  if (processes.job != nullptr && one_at_a_time) {
    return FieldError("--one-at-a-time",
                      "processes do not wait for each other's passes; "
                      "allowed: without mpirun and --bootstrap");
  }
  if (processes.job == nullptr) {
    // The thread of a pass that never ends cannot be joined.
    training.execute.hopeless = [](const absl::Status& status) {
      Refuse(status);
      std::_Exit(1);
    };
  }
  for (const char* const flag : {"--trace", "--perfetto", "--svg", "--html"}) {
    training.execute.trace |= files.wanted(flag);
  }
  training.check = !no_check;
  PW_ASSIGN_OR_RETURN(const RunConfig read,
                      config.Read(&files, {{.path = "iterations",
                                            .value = absl::StrCat(steps),
                                            .origin = "--steps"}}));
  // Files of all ranks; the folders may be on its machine only.
  const bool writes = processes.job == nullptr || processes.job->process() == 0;
  if (json) files.SetFormat("-o", FileFormat::kJson);
  if (writes) PW_RETURN_IF_ERROR(files.Check());
  if (read.iterations && *read.iterations != steps) {
    return BadValue("--iterations", absl::StrCat(*read.iterations),
                    absl::StrCat("--steps ", *read.iterations,
                                 " (here an iteration is a training step)"));
  }
  PreparedRun& run = prepared->run;
  const WayToRun way = {.clock = prepared->kind,
                        .replays = !replay_rank.empty(),
                        .processes = processes.job != nullptr};
  PW_ASSIGN_OR_RETURN(
      run, PrepareToTrain(WithoutUnexecuted(read, way), &prepared->warnings));
  PW_RETURN_IF_ERROR(CheckPredictable(run, way));
  // What is executed is then compared: not found out behind hours of it.
  if (run.engine == "simgrid") PW_RETURN_IF_ERROR(SimgridStarts());
  if (prepared->kind != ClockKind::kPaced) TakeExecutorMemory(device, &run);
  prepared->warnings.insert(prepared->warnings.begin(), run.warnings.begin(),
                            run.warnings.end());
  WarnOfIdleInExecute(run,
                      {.paced = prepared->kind == ClockKind::kPaced,
                       .real = prepared->kind == ClockKind::kReal,
                       .replays = !replay_rank.empty(),
                       .no_check = no_check,
                       .one_at_a_time = one_at_a_time,
                       .seeded = seed != Execute().seed},
                      &prepared->warnings);
  PW_ASSIGN_OR_RETURN(prepared->program, LowerRun(run));
  WarnOfDroppedTurns(prepared->program, &prepared->warnings);
  const ReplicaChecks checks = {.device = device,
                                .replays = !replay_rank.empty(),
                                .kernels = prepared->kind != ClockKind::kPaced,
                                .timeout_s = timeout_s};
  PW_RETURN_IF_ERROR(CheckReplicas(run, prepared->program, checks));
  PW_RETURN_IF_ERROR(CheckFaults(training.execute.faults, prepared->program));
  if (run.lower.optimizer == OptimizerMode::kPostValidated &&
      TraitsOf(run.lower.data_parallel).shards_step &&
      prepared->program.replicas > 1) {
    return BadValue("strategy.optimizer", "post-validated",
                    "synchronised or none with a sharded optimizer (the "
                    "executor's state that goes down the ranks is that of one "
                    "shard)");
  }
  if (writes && files.wanted("--row")) {
    PW_RETURN_IF_ERROR(prepared->row_file.Open(
        files.path("--row"), run,
        {.steps = steps,
         .clock = prepared->kind,
         .checks = !no_check && replay_rank.empty(),
         .runs = row_runs,
         .more =
             absl::StrCat(OptionsOf(*prepared),
                          processes.job == nullptr ? "" : processes.name)}));
  }
  // Checked before the run. The memory of a system's device is no limit for
  // this one.
  PW_RETURN_IF_ERROR(run.limit());
  if (run.memory && run.config.system.memory_bytes &&
      prepared->kind != ClockKind::kPaced) {
    PW_RETURN_IF_ERROR(ExecutorMemoryVerdict(run));
  }
  if (processes.nccl != nullptr) {
    if (prepared->kind == ClockKind::kPaced) {
      return BadValue("--clock", "paced with --transport nccl",
                      "virtual or real (paced sends nothing)");
    }
    training.device_index = processes.device_index;
    training.device_path = true;
    training.execute.data_path = DataPath(processes, timeout_s);
  }
  PW_ASSIGN_OR_RETURN(prepared->replayed,
                      ReplayedRanks(prepared->kind, prepared->program.pp()));
  if (prepared->kind == ClockKind::kPaced) return absl::OkStatus();
  return PrepareTraining(processes, prepared);
}

absl::Status Execute::RunIn(const ProcessJob& processes) {
  ProcessGroup* const job = processes.job.get();
  Prepared prepared;
  const auto first = [&]() -> absl::StatusOr<FirstWord> {
    PW_RETURN_IF_ERROR(Prepare(processes, &prepared));
    const RowFile& row = prepared.row_file;
    return FirstWord{job == nullptr ? "" : SameOnAll(prepared),
                     !row.has_run()  ? ""
                     : row.differs() ? kDiffers
                                     : kIsThere,
                     prepared.memory};
  };
  ExecuteReport report;
  const auto judge = [&](const std::vector<MemoryNeed>& needs) -> absl::Status {
    // What the table has is not run again.
    if (prepared.row_file.has_run()) return absl::OkStatus();
    const bool alone = job != nullptr || !replay_rank.empty();
    return RunMemoryVerdict(
        needs, alone ? 1 : prepared.program.pp() * prepared.program.replicas,
        &report.needed_bytes);
  };
  std::string decision;
  if (job == nullptr) {
    PW_ASSIGN_OR_RETURN(FirstWord word, first());
    decision = std::move(word.decision);
    PW_RETURN_IF_ERROR(judge(SumClaims({word.memory})));
  } else {
    PW_ASSIGN_OR_RETURN(decision,
                        FirstOfAll(job, job_options.timeout_s, first, judge));
  }
  const PreparedRun& run = prepared.run;
  const Program& program = prepared.program;
  if (!decision.empty()) {
    if (job == nullptr || job->speaks()) {
      PrintWarnings(
          {absl::StrCat("--row: ", prepared.row_file.key(), " is in ",
                        files.path("--row"), " and is not run again")});
    }
    return decision == kDiffers ? Differs("sequential run") : absl::OkStatus();
  }
  Executed executed;
  executed.warnings = prepared.warnings;
  report.clock = prepared.kind;
  report.transport = processes.name;
  report.steps = steps;
  PredictMemory(run, &report);
  executed.peak_activations = report.predicted_peak_activations;
  PW_RETURN_IF_ERROR(Train(prepared, job, &report, &executed));
  const auto conclude = [&]() -> absl::Status {
    return Conclude(prepared, &executed, &report);
  };
  PW_RETURN_IF_ERROR(
      job == nullptr
          ? conclude()
          : LastOfAll(job, program, prepared.training.execute, conclude));
  return VerdictOf(report);
}

// Predicts the run and writes the files that are wanted.
absl::Status Execute::Conclude(const Prepared& prepared, Executed* executed,
                               ExecuteReport* report) {
  const PreparedRun& run = prepared.run;
  const Program& program = prepared.program;
  report->preemptions = executed->run.preemptions;
  PrintWarnings(executed->warnings);
  report->late_s = executed->run.late_s;
  report->wall_s = executed->run.wall_s;
  executed->run.summary.measured = true;
  report->report =
      Summarize(program, executed->run.summary, executed->peak_activations);
  DescribeExecuted(run, &report->report);
  report->report.warnings = executed->warnings;
  PW_RETURN_IF_ERROR(Predict(run, program, report));
  PutFiles(program, *executed, *report);
  if (files.wanted("--row")) {
    PW_ASSIGN_OR_RETURN(std::string table, prepared.row_file.With(*report));
    files.Put("--row", std::move(table));
  }
  return files.Write();
}

void AddExecute(CLI::App* app, Action* action) {
  CLI::App* verb = app->add_subcommand(
      "execute",
      "Train under the schedule with real kernels and check the gradients");
  auto execute = std::make_shared<Execute>();
  execute->config.AddTo(verb, ConfigOptions::File::kPositional);
  verb->add_option("--device", execute->device,
                   "device that computes: cpu, cuda")
      ->type_name("NAME")
      ->capture_default_str();
  verb->add_option("--clock", execute->clock,
                   "virtual: CPU time of the passes, any number of ranks; "
                   "paced: the given pass times in wall time, no kernels; "
                   "real: wall time")
      ->type_name("NAME")
      ->capture_default_str();
  AddInteger(verb, "--steps", &execute->steps, 1, kMostSteps,
             "training steps; of more than 3, the first and the last are "
             "compared in full, the others by their losses")
      ->type_name("N")
      ->capture_default_str();
  AddInteger(verb, "--train-seed", &execute->seed, 0,
             std::numeric_limits<int64_t>::max(),
             "seed of initial weights and tokens")
      ->type_name("N")
      ->capture_default_str();
  verb->add_option("--timeout", execute->timeout_s,
                   "seconds that a rank waits before it asks the others")
      ->type_name("SECONDS")
      ->capture_default_str();
  verb->add_option(
          "--replay-rank", execute->replay_rank,
          "run this rank alone, or all ranks one after the other; messages of "
          "other ranks arrive when a composed timeline says so")
      ->type_name("RANK|all");
  verb->add_flag("--one-at-a-time", execute->one_at_a_time,
                 "one rank computes at a time, as on a GPU that all share");
  verb->add_flag("--green-contexts", execute->green_contexts,
                 "with cuda: each rank has a part of the GPU's processors, and "
                 "all compute at the same time");
  AddJobOptions(verb, &execute->job_options);
  verb->add_flag("--no-check", execute->no_check,
                 "leave out the sequential run");
  verb->add_flag("--reference", execute->reference,
                 "compare the first step with a float64 reference that shares "
                 "no code with the kernels (default: up to 5e10 multiply-adds "
                 "in a step, seconds on two cores, and 2^25 parameters)");
  verb->add_flag("--no-reference", execute->no_reference,
                 "leave out the float64 reference");
  verb->add_option(
      "--fault-slow", execute->slow,
      "a fault on purpose: passes take longer, KIND[@RANK]:FACTOR");
  verb->add_option("--fault-late", execute->late,
                   "a fault on purpose: a message comes late, "
                   "RANK:ITERATION:MESSAGE:SECONDS");
  verb->add_flag("--json", execute->json, "one JSON object on standard output")
      ->group("Output");
  OutputFiles& files = execute->files;
  files.AddTo(verb, "-o", "the report, instead of standard output",
              FileFormat::kText);
  files.AddTo(verb, "--svg", "picture of the first iteration",
              FileFormat::kSvg);
  files.AddTo(verb, "--html", "report as one page", FileFormat::kHtml);
  files.AddTo(verb, "--trace", "Chrome trace, JSON", FileFormat::kJson);
  files.AddTo(verb, "--perfetto", "Perfetto trace, protobuf",
              FileFormat::kPerfetto);
  files.AddTo(verb, "--row",
              "append the run to a table for compare --summary, unless the "
              "table has it",
              FileFormat::kCsv);
  AddInteger(verb, "--row-runs", &execute->row_runs, 1, kMostSteps,
             "run until the table of --row has the same run this often")
      ->type_name("N")
      ->capture_default_str()
      ->group("Output");
  verb->callback(
      [action, execute] { *action = [execute] { return execute->Run(); }; });
}

}  // namespace pipewright
