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
#include "absl/strings/strip.h"
#include "execute/report/execute_run.h"
#include "execute/transport/nccl_device.h"
#include "execute/transport/socket_job.h"
#include "sim/base/exceptions.h"
#include "sim/base/names.h"
#include "sim/base/status.h"
#include "sim/cli/verbs.h"
#include "sim/profile/transport_names.h"
#include "sim/report/svg.h"
#include "sim/trace/export.h"

namespace pipewright {
namespace {

constexpr int kMostSteps = 1000;
// No process has more sockets than that.
constexpr int kMostRanks = 1 << 16;

// How the ranks come together: threads of this process, or processes that
// mpirun or the user has started.
struct JobOptions {
  std::string transport;  // "": as the process was started
  std::string bootstrap;  // "": by MPI
  int rank = -1;
  int ranks = -1;
  std::string listen;  // "": for this machine only
};

absl::StatusOr<std::unique_ptr<ProcessGroup>> JoinByFile(
    const JobOptions& options, double timeout_s) {
  absl::string_view path = options.bootstrap;
  if (!absl::ConsumePrefix(&path, "file:") || path.empty()) {
    return BadValue("--bootstrap", options.bootstrap, "file:PATH");
  }
  if (options.ranks < 1) {
    return BadValue("--ranks", absl::StrCat(options.ranks), "1 or more");
  }
  if (options.rank < 0 || options.rank >= options.ranks) {
    return BadValue("--rank", absl::StrCat(options.rank),
                    absl::StrCat("0 to ", options.ranks - 1));
  }
  return CreateSocketJob({.path = std::string(path),
                          .process = options.rank,
                          .processes = options.ranks,
                          .timeout_s = timeout_s,
                          .listen = options.listen});
}

void AddJobOptions(CLI::App* verb, JobOptions* options) {
  verb->add_option("--transport", options->transport,
                   "threads; mpi (under mpirun); sockets (--bootstrap); nccl: "
                   "data between GPUs, one process each (default: as the "
                   "process was started)")
      ->type_name("NAME");
  verb->add_option("--bootstrap", options->bootstrap,
                   "processes find each other through this file instead of "
                   "mpirun; all of them must see it")
      ->type_name("file:PATH");
  AddInteger(verb, "--rank", &options->rank, 0, kMostRanks - 1,
             "with --bootstrap: number of this process, dp_rank * pp + rank")
      ->type_name("R");
  AddInteger(verb, "--ranks", &options->ranks, 1, kMostRanks,
             "with --bootstrap: number of processes")
      ->type_name("P");
  verb->add_option("--listen", options->listen,
                   "with --bootstrap: network interface, or its IPv4 address, "
                   "at which other machines reach this process (default: "
                   "this machine only)")
      ->type_name("INTERFACE");
}

// Errors: kInvalidArgument for options that do not go together; kUnavailable
// for a transport or device that is not there.
absl::StatusOr<ProcessJob> JoinJob(const JobOptions& options,
                                   const ExecuteRequest& request) {
  const bool by_file = !options.bootstrap.empty();
  const bool mpi = ProcessGroup::Started() && !by_file;
  std::string name = options.transport;
  if (name.empty()) {
    name = by_file ? kSocketsTransport
           : mpi   ? kMpiTransport
                   : kThreadsTransport;
  }
  const std::vector<std::string> known = TransportNames();
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    return UnknownName("--transport", name, known);
  }
  if (!by_file &&
      (options.rank >= 0 || options.ranks >= 0 || !options.listen.empty())) {
    return BadValue("--rank, --ranks, --listen", "given",
                    "together with --bootstrap file:PATH only");
  }
  ProcessJob joined = {.name = name};
  // Whatever else is wrong is said by one process, once all have come.
  if (CheckOptions(request).ok()) joined.timeout_s = request.timeout_s;
  if (name == kThreadsTransport) {
    if (!by_file) return joined;
    return BadValue("--transport", "threads with --bootstrap",
                    "sockets or nccl");
  }
  if (name == kMpiTransport && by_file) {
    return BadValue("--transport", "mpi with --bootstrap",
                    "mpi under mpirun; sockets or nccl with --bootstrap");
  }
  if (name == kSocketsTransport && !by_file) {
    return BadValue("--transport", "sockets without --bootstrap",
                    "--bootstrap file:PATH --rank R --ranks P");
  }
  if (name == kNcclTransport) {
    if (request.device != "cuda") {
      return BadValue("--transport",
                      absl::StrCat("nccl with --device ", request.device),
                      "nccl with --device cuda");
    }
    if (!by_file && !mpi) {
      return BadValue("--transport", "nccl in one process",
                      "mpirun -n P, or --bootstrap file:PATH --rank R "
                      "--ranks P");
    }
    // Before anything is done on a device.
    PW_ASSIGN_OR_RETURN(joined.nccl, LoadNccl());
  }
  PW_ASSIGN_OR_RETURN(joined.job, by_file
                                      ? JoinByFile(options, joined.timeout_s)
                                      : ProcessGroup::Create());
  if (joined.nccl != nullptr) {
    PW_ASSIGN_OR_RETURN(joined.device_index,
                        DeviceOfProcess(*joined.nccl, joined.job->process()));
  }
  return joined;
}

struct Execute {
  ConfigOptions config;
  OutputFiles files;
  bool json = false;
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
  return ExecuteRun(request, processes,
                    {.read = [&] { return Read(processes); },
                     .warn = PrintWarnings,
                     .write =
                         [this](const Program& program, ExecuteReport* report,
                                std::optional<std::string> table) {
                           PutFiles(program, report);
                           if (table) files.Put("--row", *std::move(table));
                           return files.Write();
                         },
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
  if (json) files.SetFormat("-o", FileFormat::kJson);
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
  if (json) {
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
  verb->add_option("--device", request->device,
                   "device that computes: cpu, cuda")
      ->type_name("NAME")
      ->capture_default_str();
  verb->add_option("--clock", request->clock,
                   "virtual: CPU time of the passes, any number of ranks; "
                   "paced: the given pass times in wall time, no kernels; "
                   "real: wall time")
      ->type_name("NAME")
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
  verb->add_option("--timeout", request->timeout_s,
                   "seconds that a rank waits before it asks the others")
      ->type_name("SECONDS")
      ->capture_default_str();
  verb->add_option(
          "--replay-rank", request->replay_rank,
          "run this rank alone, or all ranks one after the other; messages of "
          "other ranks arrive when a composed timeline says so")
      ->type_name("RANK|all");
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
  AddInteger(verb, "--row-runs", &request->row_runs, 1, kMostSteps,
             "run until the table of --row has the same run this often")
      ->type_name("N")
      ->capture_default_str()
      ->group("Output");
  verb->callback(
      [action, execute] { *action = [execute] { return execute->Run(); }; });
}

}  // namespace pipewright
