#include "execute/run_mpi.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "execute/rank_outcome.h"
#include "execute/rank_run.h"
#include "execute/wire.h"
#include "sim/base/file.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// Between processes, beside the messages of the pipeline.
enum class Control : uint8_t {
  kReady,    // to process 0: is there a worker?
  kGo,       // from it: does everybody run, and since when
  kReport,   // to it: how a rank has ended
  kAlive,    // from it: the conclusion takes its time
  kVerdict,  // from it
};

// The same on all processes of one machine, which also share its clock.
std::string MachineName() {
  return ReadFile("/proc/sys/kernel/random/boot_id").value_or("");
}

void PutStatus(const absl::Status& status, WireWriter* writer) {
  writer->Put(static_cast<int32_t>(status.code()));
  writer->PutText(status.message());
}

absl::Status GetStatus(WireReader* reader) {
  const auto code = static_cast<absl::StatusCode>(reader->Get<int32_t>());
  return absl::Status(code, reader->GetText());
}

void PutOutcome(const RankOutcome& outcome, WireWriter* writer) {
  PutStatus(outcome.status, writer);
  writer->PutText(outcome.blocked);
  writer->Put(outcome.position);
  writer->Put(outcome.late_s);
  writer->Put(outcome.result.times);
  writer->PutAll(outcome.result.iteration_end_s);
  writer->PutAll(outcome.result.ops);
}

RankOutcome GetOutcome(WireReader* reader) {
  RankOutcome outcome;
  outcome.status = GetStatus(reader);
  outcome.blocked = reader->GetText();
  outcome.position = reader->Get<int64_t>();
  outcome.late_s = reader->Get<double>();
  outcome.result.times = reader->Get<RankTimes>();
  outcome.result.iteration_end_s = reader->GetAll<double>();
  outcome.result.ops = reader->GetAll<TraceOp>();
  return outcome;
}

// The agreement of the processes of one run.
class Party {
 public:
  Party(MpiJob* job, const Program& program, const ExecuteOptions& options)
      : job_(*job),
        program_(program),
        options_(options),
        run_(job->BeginRun()) {}

  int64_t run() const { return run_; }
  Address AddressOf(int process) const {
    return {process / program_.pp(), process % program_.pp()};
  }
  std::string NameOf(int process) const {
    return RankName(program_, AddressOf(process));
  }

  // All have come as far as this: the time that is zero for all.
  absl::StatusOr<double> Start(bool has_worker) {
    if (job_.process() > 0) {
      WireWriter ready = Begin(Control::kReady);
      ready.Put(has_worker);
      job_.Send(0, MpiJob::kControl, ready.bytes());
      PW_ASSIGN_OR_RETURN(const std::string go, Await(Control::kGo));
      WireReader reader(go);
      PW_RETURN_IF_ERROR(GetStatus(&reader));
      const auto epoch_s = reader.Get<double>();
      // Elsewhere the clocks agree to what this message took.
      return reader.GetText() == MachineName() ? epoch_s : SteadySeconds();
    }
    absl::Status all =
        has_worker
            ? absl::OkStatus()
            : absl::UnavailableError(absl::StrCat(NameOf(0), " did not start"));
    const absl::StatusOr<std::map<int, std::string>> ready =
        Gather(Control::kReady, Patience());
    if (!ready.ok()) return ready.status();
    for (int process = 1; process < job_.processes(); ++process) {
      const auto found = ready->find(process);
      if (found != ready->end() && WireReader(found->second).Get<bool>()) {
        continue;
      }
      all.Update(absl::UnavailableError(
          absl::StrCat(NameOf(process), ": did not start")));
    }
    WireWriter go = Begin(Control::kGo);
    const double epoch_s = SteadySeconds();
    PutStatus(all, &go);
    go.Put(epoch_s);
    go.PutText(MachineName());
    SendAll(go);
    PW_RETURN_IF_ERROR(all);
    return epoch_s;
  }

  void Report(const RankOutcome& outcome, absl::string_view more) {
    WireWriter report = Begin(Control::kReport);
    PutOutcome(outcome, &report);
    report.PutText(more);
    job_.Send(0, MpiJob::kControl, report.bytes());
  }

  // On process 0: of all ranks; those that say nothing are lost.
  absl::StatusOr<std::vector<RankOutcome>> Reports(
      RankOutcome own, std::string own_more, std::vector<std::string>* more) {
    // After a failure all know of it: who is still there says so soon.
    const double patience_s =
        own.status.ok() ? Patience() : std::max(1.0, options_.timeout_s / 2);
    PW_ASSIGN_OR_RETURN(const auto reports,
                        Gather(Control::kReport, patience_s));
    std::vector<RankOutcome> outcomes = {std::move(own)};
    more->assign(1, std::move(own_more));
    for (int process = 1; process < job_.processes(); ++process) {
      const auto found = reports.find(process);
      RankOutcome& outcome = outcomes.emplace_back();
      std::string& its_more = more->emplace_back();
      if (found == reports.end()) {
        all_there_ = false;
        outcome.status = absl::UnavailableError(
            absl::StrCat(NameOf(process), ": no report; lost"));
        outcome.blocked = absl::StrCat(NameOf(process), ": lost");
      } else {
        WireReader reader(found->second);
        outcome = GetOutcome(&reader);
        its_more = reader.GetText();
        if (!reader.ok()) outcome.status = absl::InternalError("short report");
      }
      outcome.result.address = AddressOf(process);
    }
    return outcomes;
  }

  // On process 0: `conclude` on another thread; the others know that it is
  // still there.
  absl::StatusOr<std::string> Conclude(
      const std::function<absl::StatusOr<std::string>()>& conclude) {
    auto result = std::async(std::launch::async, conclude);
    const std::chrono::duration<double> pause(options_.timeout_s / 4);
    while (result.wait_for(pause) != std::future_status::ready) {
      SendAll(Begin(Control::kAlive));
    }
    return result.get();
  }

  void Judge(const absl::StatusOr<std::string>& conclusion) {
    WireWriter verdict = Begin(Control::kVerdict);
    verdict.Put(all_there_);
    PutStatus(conclusion.status(), &verdict);
    verdict.PutText(conclusion.ok() ? *conclusion : "");
    SendAll(verdict);
    if (!all_there_) job_.Abandon();
  }

  // On the others.
  absl::StatusOr<std::string> Verdict() {
    PW_ASSIGN_OR_RETURN(const std::string verdict, Await(Control::kVerdict));
    WireReader reader(verdict);
    if (!reader.Get<bool>()) job_.Abandon();
    PW_RETURN_IF_ERROR(GetStatus(&reader));
    return reader.GetText();
  }

 private:
  double Patience() const { return 2 * options_.timeout_s; }

  WireWriter Begin(Control control) const {
    WireWriter writer;
    writer.Put(run_);
    writer.Put(control);
    return writer;
  }
  void SendAll(const WireWriter& writer) {
    for (int process = 1; process < job_.processes(); ++process) {
      job_.Send(process, MpiJob::kControl, writer.bytes());
    }
  }

  // The next of this run; nothing after `patience_s` without any.
  struct Taken {
    int from = 0;
    Control control = Control::kAlive;
    std::string text;
  };
  absl::StatusOr<std::optional<Taken>> Take(double patience_s) {
    while (true) {
      MpiJob::Incoming incoming;
      switch (job_.Receive(MpiJob::kControl, patience_s, &incoming)) {
        case Received::kMessage:
          break;
        case Received::kEnded:
          return absl::UnavailableError(job_.ended_by());
        default:
          return std::nullopt;
      }
      WireReader reader(incoming.text());
      if (reader.Get<int64_t>() != run_) continue;
      Taken taken = {.from = incoming.from, .control = reader.Get<Control>()};
      taken.text = std::string(
          incoming.text().substr(sizeof(int64_t) + sizeof(Control)));
      return taken;
    }
  }

  // From process 0.
  absl::StatusOr<std::string> Await(Control control) {
    while (true) {
      PW_ASSIGN_OR_RETURN(const std::optional<Taken> taken, Take(Patience()));
      if (!taken) {
        job_.Abandon();
        return absl::UnavailableError(
            absl::StrCat(NameOf(0), ": no word for ", Patience(), " s; lost"));
      }
      if (taken->control == control) return taken->text;
    }
  }

  // [process] on process 0: without those that do not come for `patience_s`.
  absl::StatusOr<std::map<int, std::string>> Gather(Control control,
                                                    double patience_s) {
    std::map<int, std::string> texts;
    double deadline_s = SteadySeconds() + patience_s;
    while (static_cast<int>(texts.size()) + 1 < job_.processes() &&
           SteadySeconds() < deadline_s) {
      PW_ASSIGN_OR_RETURN(const std::optional<Taken> taken,
                          Take(patience_s / 8));
      // Those that are there await what becomes of the others.
      SendAll(Begin(Control::kAlive));
      if (!taken || taken->control != control) continue;
      texts[taken->from] = taken->text;
      deadline_s = SteadySeconds() + patience_s;
    }
    return texts;
  }

  MpiJob& job_;
  const Program& program_;
  const ExecuteOptions& options_;
  const int64_t run_;
  bool all_there_ = true;
};

}  // namespace

absl::StatusOr<MpiRun> RunMpi(MpiJob* job, const Program& program,
                              const MakeWorker& make_worker,
                              const ExecuteOptions& options,
                              const MpiReports& reports) {
  if (job->processes() != program.replicas * program.pp()) {
    return absl::InvalidArgumentError(absl::StrCat(
        job->count_option(), ": ", job->processes(),
        " is not allowed; allowed: ", program.replicas * program.pp(), " (dp ",
        program.replicas, " x pp ", program.pp(), ")"));
  }
  Party party(job, program, options);
  MpiEndpoint endpoint(job, program.pp(), party.run());
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
    outcome =
        RunRank(program, self, rows.times[rows.row_of_replica[self.replica]],
                data_path == nullptr ? &endpoint : data_path.get(), make_worker,
                options, start, &worker);
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
  if (!job->ended_by().empty()) {
    return ended(absl::UnavailableError(job->ended_by()));
  }
  std::string more;
  if (outcome.status.ok() && reports.report) more = reports.report();
  MpiRun run;
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
    for (RankOutcome& each : *outcomes) {
      late_s = std::max(late_s, each.late_s);
      results.push_back(std::move(each.result));
    }
    run.run = GatherResults(program, std::move(results));
    run.run.late_s = late_s;
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

}  // namespace pipewright
