#include "execute/run/run_processes.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "execute/run/party.h"
#include "execute/run/rank_outcome.h"
#include "execute/run/rank_run.h"
#include "execute/transport/message.h"
#include "execute/transport/steady_seconds.h"
#include "sim/base/status.h"

namespace pipewright {

absl::StatusOr<std::string> FirstOfAll(
    ProcessGroup* job, double timeout_s,
    const std::function<absl::StatusOr<FirstWord>()>& first,
    const JudgeMemory& judge) {
  Party party(job, nullptr, timeout_s, std::numeric_limits<double>::infinity());
  absl::StatusOr<FirstWord> word = FirstWord();
  const absl::Status status = party
                                  .Watch("prepares the run",
                                         [&]() -> absl::StatusOr<std::string> {
                                           word = first();
                                           PW_RETURN_IF_ERROR(word.status());
                                           return "";
                                         })
                                  .status();
  if (!status.ok()) word = status;
  return party.Agree(word, judge);
}

absl::Status CheckProcesses(const ProcessGroup& job, const Program& program) {
  if (job.processes() == program.replicas * program.pp()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      job.count_option(), ": ", job.processes(),
      " is not allowed; allowed: ", program.replicas * program.pp(), " (dp ",
      program.replicas, " x pp ", program.pp(), ")"));
}

absl::StatusOr<ProcessesRun> RunProcesses(ProcessGroup* job,
                                          const Program& program,
                                          const MakeWorker& make_worker,
                                          const ExecuteOptions& options,
                                          const RunReports& reports) {
  PW_RETURN_IF_ERROR(CheckProcesses(*job, program));
  Party party(job, &program, options.timeout_s,
              options.patience * options.timeout_s);
  ProcessEndpoint endpoint(job, program.pp(), party.run(), &party.pulse());
  const Address self = endpoint.self();
  // Until all have told how they have ended.
  std::unique_ptr<Endpoint> data_path;
  if (options.data_path) {
    data_path = options.data_path(program, self, &endpoint);
  }
  const ReplicaRows rows = SortReplicas(program);
  double epoch_s = 0;
  RankOutcome outcome;
  {
    std::unique_ptr<Worker> worker;
    const auto start = [&](bool has_worker) -> absl::StatusOr<double> {
      PW_ASSIGN_OR_RETURN(epoch_s, party.Start(has_worker));
      return epoch_s;
    };
    party.pulse().RankBegins();
    outcome =
        RunRank(program, self, rows.times[rows.row_of_replica[self.replica]],
                data_path == nullptr ? &endpoint : data_path.get(), make_worker,
                options, start, &worker);
    party.pulse().RankEnds();
    if (outcome.status.code() == absl::StatusCode::kAborted) raise(SIGKILL);
  }
  // mpirun lets nobody agree on anything then.
  const auto ended = [&](const absl::Status& status) {
    return absl::Status(
        status.code(),
        absl::StrCat(status.message(), "\n",
                     outcome.blocked.empty()
                         ? RankName(program, self) + ": has ended"
                         : outcome.blocked));
  };
  if (const std::string why = job->ended_by(); !why.empty()) {
    party.TakeLeave(outcome, absl::UnavailableError(absl::StrCat(
                                 RankName(program, self), ": ", why)));
    return ended(absl::UnavailableError(why));
  }
  std::string more;
  if (outcome.status.ok() && reports.report) more = reports.report();
  ProcessesRun run;
  if (self.replica > 0 || self.rank > 0) {
    party.Report(outcome, more);
    absl::StatusOr<std::string> verdict = party.Verdict();
    // The verdict names what every rank waits for, itself.
    if (!verdict.ok() && job->speaks()) return ended(verdict.status());
    PW_RETURN_IF_ERROR(verdict.status());
    run.conclusion = *std::move(verdict);
    return run;
  }
  std::vector<std::string> mores;
  absl::StatusOr<std::vector<RankOutcome>> outcomes =
      party.Reports(outcome, std::move(more), &mores);
  if (!outcomes.ok()) return ended(outcomes.status());
  absl::StatusOr<std::string> conclusion = std::string();
  if (absl::Status verdict = Verdict(program, *outcomes); !verdict.ok()) {
    conclusion = std::move(verdict);
  } else {
    std::vector<RankResult> results;
    double late_s = 0;
    int64_t preemptions = 0;
    for (RankOutcome& each : *outcomes) {
      preemptions += each.preemptions;
      late_s = std::max(late_s, each.late_s);
      results.push_back(std::move(each.result));
    }
    run.run = GatherResults(program, std::move(results));
    run.run.late_s = late_s;
    run.run.preemptions = preemptions;
    run.run.wall_s = SteadySeconds() - epoch_s;
    if (reports.conclude) {
      conclusion =
          party.Conclude([&] { return reports.conclude(run.run, mores); });
    }
  }
  party.Judge(conclusion);
  PW_RETURN_IF_ERROR(conclusion.status());
  run.conclusion = *std::move(conclusion);
  return run;
}

absl::Status LastOfAll(ProcessGroup* job, const Program& program,
                       const ExecuteOptions& options,
                       const std::function<absl::Status()>& last) {
  Party party(job, &program, options.timeout_s,
              options.patience * options.timeout_s);
  if (job->process() > 0) return party.Verdict().status();
  if (const std::string why = job->ended_by(); !why.empty()) {
    return absl::UnavailableError(why);
  }
  absl::Status status = WithoutExceptions(last);
  if (const std::string why = job->ended_by(); status.ok() && !why.empty()) {
    status = absl::UnavailableError(
        absl::StrCat(why, " (after the run: its files are written)"));
  }
  absl::StatusOr<std::string> verdict = std::string();
  if (!status.ok()) verdict = status;
  party.Judge(verdict);
  return status;
}

}  // namespace pipewright
