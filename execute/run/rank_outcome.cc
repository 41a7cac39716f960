#include "execute/run/rank_outcome.h"

#include <sys/resource.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "execute/run/rank_run.h"
#include "execute/transport/message.h"
#include "sim/base/status.h"
#include "sim/engine/fast_engine.h"

namespace pipewright {
namespace {

std::unique_ptr<Clock> MakeClock(const ExecuteOptions& options, double epoch_s,
                                 double* late_s) {
  switch (options.clock) {
    case ClockKind::kVirtual:
      return MakeVirtualClock(options.takes_given);
    case ClockKind::kPaced:
      return MakePacedClock(epoch_s, late_s);
    case ClockKind::kReal:
      return options.replays ? MakeReplayClock(epoch_s)
                             : MakeRealClock(epoch_s);
  }
  return nullptr;
}

// Number of preemptions of this thread so far.
int64_t Preemptions() {
  struct rusage usage {};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

// The others may have started, and would wait for this rank.
void TellOfEnd(const Program& program, Address self, Endpoint* endpoint) {
  const std::string why = endpoint->ended_by();
  if (why.empty()) return;
  for (const Address other : OtherRanks(program, self)) {
    endpoint->Send(other, {.kind = RankMessage::Kind::kLost,
                           .payload = HostPayload(absl::StrCat(
                               RankName(program, self), ": ", why))});
  }
}

// From the time that is zero for all ranks to the last operation.
absl::Status RunStarted(const Program& program, Address self,
                        const IsolatedTimes& times, Endpoint* endpoint,
                        Worker* worker, double epoch_s,
                        const ExecuteOptions& options, RankOutcome* outcome) {
  std::shared_ptr<Clock> clock = MakeClock(options, epoch_s, &outcome->late_s);
  RankRun run(
      program, self, times, endpoint, worker, std::move(clock),
      {.timeout_s = options.timeout_s,
       .patience = options.patience,
       .hopeless = options.hopeless,
       .trace = options.trace,
       .faults = options.faults,
       .progress =
           self.replica == 0 && self.rank == 0 ? options.progress : nullptr,
       .record =
           options.records == nullptr
               ? nullptr
               : &(*options.records)[self.replica * program.pp() + self.rank],
       .takes = options.takes.empty() ? nullptr : options.takes[self.rank]});
  const int64_t preempted = Preemptions();
  const absl::Status ran = run.Run();
  outcome->preemptions = Preemptions() - preempted;
  outcome->position = run.position();
  if (!ran.ok()) outcome->blocked = run.Blocked();
  outcome->result.times = run.first_times();
  outcome->result.iteration_end_s = run.iteration_end_s();
  outcome->result.ops = std::move(run.ops());
  return ran;
}

}  // namespace

RankOutcome RunRank(const Program& program, Address self,
                    const IsolatedTimes& times, Endpoint* endpoint,
                    const MakeWorker& make_worker,
                    const ExecuteOptions& options,
                    const std::function<absl::StatusOr<double>(bool)>& start,
                    std::unique_ptr<Worker>* worker) {
  RankOutcome outcome;
  outcome.result.address = self;
  absl::StatusOr<std::unique_ptr<Worker>> made = nullptr;
  outcome.status = WithoutExceptions([&] {
    made = make_worker(self);
    return made.status();
  });
  outcome.status.Update(WithoutExceptions([&] {
    return endpoint->Connect(outcome.status.ok() ? made->get() : nullptr);
  }));
  double epoch_s = 0;
  outcome.status.Update(WithoutExceptions([&]() -> absl::Status {
    PW_ASSIGN_OR_RETURN(epoch_s, start(outcome.status.ok()));
    return absl::OkStatus();
  }));
  const bool starts = outcome.status.ok();
  if (starts) {
    *worker = *std::move(made);
    outcome.status = WithoutExceptions([&] {
      return RunStarted(program, self, times, endpoint, worker->get(), epoch_s,
                        options, &outcome);
    });
  } else {
    TellOfEnd(program, self, endpoint);
  }
  const bool ran = outcome.status.ok();
  outcome.status.Update(
      WithoutExceptions([&] { return endpoint->Disconnect(ran); }));
  if (outcome.status.code() == absl::StatusCode::kAborted) {
    outcome.blocked = absl::StrCat(RankName(program, self), ": lost");
  } else if (!starts) {
    outcome.blocked = absl::StrCat(RankName(program, self), ": did not start");
  } else if (!outcome.status.ok() && outcome.blocked.empty()) {
    outcome.blocked = absl::StrCat(RankName(program, self),
                                   ran ? ": has ended" : ": has failed");
  }
  return outcome;
}

absl::Status Verdict(const Program& program,
                     const std::vector<RankOutcome>& outcomes) {
  absl::Status lost;
  std::string blocked;
  bool deadlock = false;
  std::vector<int64_t> positions;
  for (const RankOutcome& each : outcomes) {
    switch (each.status.code()) {
      case absl::StatusCode::kOk:
      case absl::StatusCode::kAborted:
        break;
      case absl::StatusCode::kFailedPrecondition:
        deadlock = true;
        break;
      case absl::StatusCode::kUnavailable:
        if (lost.ok()) lost = each.status;
        break;
      default:
        // A failure explains the waiting of the others.
        return each.status;
    }
    const Address self = each.result.address;
    absl::StrAppend(&blocked, "\n",
                    each.blocked.empty()
                        ? absl::StrCat(RankName(program, self), ": has ended")
                        : each.blocked);
    if (self.replica == 0) positions.push_back(each.position);
  }
  // Who finds a deadlock has heard from every rank that it waits. A link that
  // breaks beside it is one that a rank left.
  if (!lost.ok() && !deadlock) {
    return absl::UnavailableError(absl::StrCat(lost.message(), blocked));
  }
  for (const RankOutcome& each : outcomes) {
    if (each.status.code() == absl::StatusCode::kAborted) return each.status;
  }
  if (!deadlock) return absl::OkStatus();
  const std::string where =
      absl::StrCat(":\n", BlockedGrid(program, positions), blocked);
  if (RunFast(program, {}).ok()) {
    return absl::UnavailableError(absl::StrCat(
        "a message is lost: every rank waits, but the schedule runs to its end "
        "in the simulating engine",
        where));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "deadlock (", WaitRuleName(program.wait_rule), " transfers)", where));
}

}  // namespace pipewright
