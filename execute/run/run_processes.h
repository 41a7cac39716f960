// Runs a Program with a process a rank, as mpirun has started them: every
// process runs its own rank, process 0 gets what all have told, and all end
// with the same error or none.
//
// `--transport mpi` in three lines:
//   PW_ASSIGN_OR_RETURN(auto job, ProcessGroup::Create());
//   run = RunProcesses(job.get(), program, make_worker, options);  // or
//   TrainProcesses print run or its error only if job->speaks(); exit as its
//   status says
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "execute/run/run_threads.h"
#include "execute/transport/process_group.h"
#include "sim/base/memory_claim.h"

namespace pipewright {

struct ProcessesRun {
  ExecutedRun run;         // on process 0 only
  std::string conclusion;  // on all
};

// What a caller adds to the run; may be empty.
struct RunReports {
  // What this rank tells process 0 besides, once its worker is gone.
  std::function<std::string()> report;
  // On process 0, when all is well: what all processes get to know. Takes
  // [replica * pp + rank] of the above. Called on a thread of its own.
  std::function<absl::StatusOr<std::string>(const ExecutedRun&,
                                            const std::vector<std::string>&)>
      conclude;
};

// What a process knows before the run.
struct FirstWord {
  std::string same;      // lines that must be the same on all processes
  std::string decision;  // process 0 says it to all
  // What it is going to take. Names are made those of its machine.
  std::vector<MemoryClaim> memory;
};

// What every process does before the run, such as reading its configuration,
// with one status on all. Where `same` is not, kInvalidArgument with the first
// line that is another. Where all is well `judge` has the last word on process
// 0, about what all of them take. Gives the decision.
using JudgeMemory =
    std::function<absl::Status(const std::vector<MemoryNeed>& needs)>;
absl::StatusOr<std::string> FirstOfAll(
    ProcessGroup* job, double timeout_s,
    const std::function<absl::StatusOr<FirstWord>()>& first,
    const JudgeMemory& judge = nullptr);

// Error: kInvalidArgument where there are not replicas * pp processes.
absl::Status CheckProcesses(const ProcessGroup& job, const Program& program);

// Errors: that of CheckProcesses, else
// as RunThreads; with one code on all processes that are still there. Where the
// job is ended from outside (SIGTERM) each process gets kUnavailable with what
// its own rank waited for. The fault `death` ends the process with SIGKILL.
//
// Nobody waits for a process without a sign of life for longer than twice
// options.timeout_s. One that lives is waited for, for options.patience of
// them.
absl::StatusOr<ProcessesRun> RunProcesses(ProcessGroup* job,
                                          const Program& program,
                                          const MakeWorker& make_worker,
                                          const ExecuteOptions& options,
                                          const RunReports& reports = {});

// What process 0 does once more for all, such as writing files: with its status
// on all processes that are still there, so that they exit with one code. Where
// one is lost meanwhile that is kUnavailable, even if all is written. Not after
// a failed RunProcesses.
absl::Status LastOfAll(ProcessGroup* job, const Program& program,
                       const ExecuteOptions& options,
                       const std::function<absl::Status()>& last);

}  // namespace pipewright
