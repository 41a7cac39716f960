// The verb execute: its options, how its ranks come together, and what it
// prints and writes. The run is execute/report/execute_run.h.
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "execute/report/execute_run.h"
#include "execute/transport/nccl_transport.h"
#include "sim/base/names.h"
#include "sim/base/status.h"
#include "sim/cli/bootstrap.h"
#include "sim/cli/progress_bar.h"
#include "sim/cli/verbs.h"
#include "sim/profile/profile.h"
#include "sim/report/svg.h"
#include "sim/trace/export.h"

namespace pipewright {
namespace {

constexpr int kMostSteps = 1000;
// How the ranks come together: threads of this process, or processes that
// mpirun or the user has started.
struct JobOptions {
  std::string transport;  // "": as the process was started
  Bootstrap bootstrap;    // not given: by MPI
};

// An option with a value; `type` stands for it in --help.
template <typename Value>
CLI::Option* AddValue(CLI::App* verb, const char* flag, Value* value,
                      const char* type, const char* help) {
  return verb->add_option(flag, *value, help)->type_name(type);
}

void AddJobOptions(CLI::App* verb, JobOptions* options) {
  AddValue(verb, "--transport", &options->transport, "NAME",
           "threads; mpi (under mpirun); sockets (--bootstrap); nccl: data "
           "between GPUs, one process each (default: as the process was "
           "started)");
  options->bootstrap.AddTo(verb, "number of this process, dp_rank * pp + rank");
}

// Refuses options that do not go with the transport `name`.
absl::Status CheckTransport(const std::string& name, bool by_file, bool mpi,
                            const std::string& device) {
  const bool nccl = name == kNcclTransport;
  const struct {
    bool refused;
    std::string value;
    const char* allowed;
  } rows[] = {
      {name == kThreadsTransport && by_file, "threads with --bootstrap",
       "sockets or nccl"},
      {name == kMpiTransport && by_file, "mpi with --bootstrap",
       "mpi under mpirun; sockets or nccl with --bootstrap"},
      {name == kSocketsTransport && !by_file, "sockets without --bootstrap",
       "--bootstrap file:PATH --rank R --ranks P"},
      {nccl && device != "cuda", absl::StrCat("nccl with --device ", device),
       "nccl with --device cuda"},
      {nccl && !by_file && !mpi, "nccl in one process",
       "mpirun -n P, or --bootstrap file:PATH --rank R --ranks P"}};
  for (const auto& [refused, value, allowed] : rows) {
    if (refused) return BadValue("--transport", value, allowed);
  }
  return absl::OkStatus();
}

// Errors: kInvalidArgument for options that do not go together; kUnavailable
// for a transport or device that is not there.
absl::StatusOr<ProcessJob> JoinJob(const JobOptions& options,
                                   const ExecuteRequest& request) {
  const bool by_file = options.bootstrap.given();
  const bool mpi = ProcessGroup::Started() && !by_file;
  ProcessJob joined = {.name = options.transport};
  if (joined.name.empty()) {
    joined.name = by_file ? kSocketsTransport
                  : mpi   ? kMpiTransport
                          : kThreadsTransport;
  }
  const std::vector<std::string> known = TransportNames();
  if (std::find(known.begin(), known.end(), joined.name) == known.end()) {
    return UnknownName("--transport", joined.name, known);
  }
  PW_RETURN_IF_ERROR(options.bootstrap.Check());
  PW_RETURN_IF_ERROR(CheckTransport(joined.name, by_file, mpi, request.device));
  if (joined.name == kThreadsTransport) return joined;
  // Whatever else is wrong is said by one process, once all have come.
  if (CheckOptions(request).ok()) joined.timeout_s = request.timeout_s;
  // Before anything is done on a device.
  if (joined.name == kNcclTransport) {
    PW_ASSIGN_OR_RETURN(joined.nccl, LoadNccl());
  }
  PW_ASSIGN_OR_RETURN(joined.job, by_file
                                      ? options.bootstrap.Join(joined.timeout_s)
                                      : ProcessGroup::Create());
  if (joined.nccl != nullptr) {
    PW_ASSIGN_OR_RETURN(joined.device_index,
                        GpuOfProcess(*joined.nccl, joined.job->process()));
  }
  return joined;
}

struct Execute {
  ConfigOptions config;
  OutputFiles files;
  ExecuteRequest request;
  JobOptions job;

  absl::Status Run();
  absl::Status RunIn(const ProcessJob& processes);
  absl::StatusOr<RunConfig> Read(const ProcessJob& processes);
  void PutFiles(const Program& program, ExecuteReport* report);
};

// A process a rank: one of them speaks for all.
absl::Status Execute::Run() {
  if (files.wanted("--row")) request.row = files.path("--row");
  for (const char* const flag : {"--trace", "--perfetto", "--svg", "--html"}) {
    request.trace |= files.wanted(flag);
  }
  PW_ASSIGN_OR_RETURN(const ProcessJob processes, JoinJob(job, request));
  ProcessGroup* const group = processes.job.get();
  if (group == nullptr) return RunIn(processes);
  group->SetLastWords([](const std::string& why) {
    std::_Exit(Refuse(absl::UnavailableError(why)));
  });
  bool returned = false;
  const absl::Status status = WithoutExceptions([&] {
    const absl::Status ran = RunIn(processes);
    returned = true;
    return ran;
  });
  // The others would wait for it to leave with them.
  if (!returned) group->Abandon();
  if (status.ok()) return status;
  // While it is part of the job: mpirun kills all when one has ended badly.
  if (group->speaks()) Refuse(status);
  return absl::Status(status.code(), "");
}

absl::Status Execute::RunIn(const ProcessJob& processes) {
  ProgressBar bar;
  return ExecuteRun(request, processes,
                    {.read = [&] { return Read(processes); },
                     .warn = PrintWarnings,
                     .write =
                         [&](const Program& program, ExecuteReport* report,
                             std::optional<std::string> table) {
                           bar.Wipe();
                           PutFiles(program, report);
                           if (table) files.Put("--row", *std::move(table));
                           return files.Write();
                         },
                     .progress = processes.writes() ? &bar : nullptr,
                     .hopeless =
                         [](const absl::Status& status) {
                           Refuse(status);
                           std::_Exit(1);
                         }});
}

absl::StatusOr<RunConfig> Execute::Read(const ProcessJob& processes) {
  const int steps = request.steps;
  PW_ASSIGN_OR_RETURN(RunConfig read,
                      config.Read(&files, {{.path = "iterations",
                                            .value = absl::StrCat(steps),
                                            .origin = "--steps"}}));
  // The files of all ranks; their folders may be on this machine only.
  if (processes.writes()) PW_RETURN_IF_ERROR(files.Check());
  if (read.iterations && *read.iterations != steps) {
    return BadValue("--iterations", absl::StrCat(*read.iterations),
                    absl::StrCat("--steps ", *read.iterations,
                                 " (here an iteration is a training step)"));
  }
  return read;
}

void Execute::PutFiles(const Program& program, ExecuteReport* report) {
  const std::vector<TraceOp>& ops = report->trained.run.ops;
  MeasuredMemory measured;
  for (WorkerRecord& record : report->trained.records) {
    measured.push_back(std::move(record.memory));
  }
  // The paced clock has none.
  const MeasuredMemory* const memory = measured.empty() ? nullptr : &measured;
  if (files.wanted("--trace")) {
    files.Put("--trace", ChromeTraceJson(program, ops, nullptr, memory,
                                         OriginOf(*report)));
  }
  if (files.wanted("--perfetto")) {
    files.Put("--perfetto", PerfettoTrace(program, ops, nullptr, memory));
  }
  if (files.wanted("--svg")) {
    files.Put("--svg",
              ScheduleGridSvg(program, ops, {.title = ExecuteTitle(*report)}));
  }
  if (files.wanted("--html")) {
    files.Put("--html", ExecutePage(*report, program));
  }
  if (files.json()) {
    files.Put("-o", absl::StrCat(ExecuteReportToJson(*report), "\n"));
    return;
  }
  // On the terminal they already stand beside it.
  if (!files.wanted("-o")) report->report.warnings.clear();
  files.Put("-o", ExecuteReportToText(*report));
}

}  // namespace

void AddExecute(CLI::App* app, Action* action) {
  CLI::App* verb = app->add_subcommand(
      "execute",
      "Train under the schedule with real kernels and check the gradients");
  auto execute = std::make_shared<Execute>();
  ExecuteRequest* const request = &execute->request;
  execute->config.AddTo(verb, ConfigOptions::File::kPositional);
  AddValue(verb, "--device", &request->device, "NAME",
           "device that computes: cpu, cuda")
      ->capture_default_str();
  AddValue(verb, "--clock", &request->clock, "NAME",
           "virtual: CPU time of the passes, any number of ranks; paced: the "
           "given pass times in wall time, no kernels; real: wall time")
      ->capture_default_str();
  AddInteger(verb, "--steps", &request->steps, 1, kMostSteps,
             "training steps; of more than 3, the first and the last are "
             "compared in full, the others by their losses")
      ->type_name("N")
      ->capture_default_str();
  AddInteger(verb, "--train-seed", &request->seed, 0,
             std::numeric_limits<int64_t>::max(),
             "seed of initial weights and tokens")
      ->type_name("N")
      ->capture_default_str();
  AddValue(verb, "--timeout", &request->timeout_s, "SECONDS",
           "seconds that a rank waits before it asks the others")
      ->capture_default_str();
  AddValue(verb, "--replay-rank", &request->replay_rank, "RANK|all",
           "run this rank alone, or all ranks one after the other; messages of "
           "other ranks arrive when a composed timeline says so");
  verb->add_flag("--one-at-a-time", request->one_at_a_time,
                 "one rank computes at a time, as on a GPU that all share");
  verb->add_flag("--green-contexts", request->green_contexts,
                 "with cuda: each rank has a part of the GPU's processors, and "
                 "all compute at the same time");
  AddJobOptions(verb, &execute->job);
  verb->add_flag("--no-check", request->no_check,
                 "leave out the sequential run");
  verb->add_flag("--reference", request->reference,
                 "compare the first step with a float64 reference that shares "
                 "no code with the kernels (default: up to 5e10 multiply-adds "
                 "in a step, seconds on two cores, and 2^25 parameters)");
  verb->add_flag("--no-reference", request->no_reference,
                 "leave out the float64 reference");
  verb->add_option(
      "--fault-slow", request->slow,
      "a fault on purpose: passes take longer, KIND[@RANK]:FACTOR");
  verb->add_option("--fault-late", request->late,
                   "a fault on purpose: a message comes late, "
                   "RANK:ITERATION:MESSAGE:SECONDS");
  OutputFiles& files = execute->files;
  files.AddReport(verb, "the report");
  files.AddTo(verb, "--svg", "picture of the first iteration",
              FileFormat::kSvg);
  files.AddTo(verb, "--html", "report as one page", FileFormat::kHtml);
  files.AddTo(verb, "--trace", "Chrome trace, JSON (.json.gz: packed)",
              FileFormat::kTrace);
  files.AddTo(verb, "--perfetto",
              "Perfetto trace, protobuf (.pftrace.gz: packed)",
              FileFormat::kPerfetto);
  files.AddTo(verb, "--row",
              "append the run to a table for compare --summary, unless the "
              "table has it",
              FileFormat::kCsv);
  AddInteger(verb, "--row-runs", &request->row_runs, 1, kMostSteps,
             "run until the table of --row has the same run this often")
      ->type_name("N")
      ->capture_default_str()
      ->group("Output");
  verb->callback(
      [action, execute] { *action = [execute] { return execute->Run(); }; });
}

}  // namespace pipewright
