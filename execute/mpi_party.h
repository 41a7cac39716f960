// What the processes of one run tell each other beside the messages of the
// pipeline: process 0 hears how all have fared and says what becomes of it.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "execute/mpi_transport.h"
#include "execute/pulse.h"
#include "execute/rank_outcome.h"
#include "execute/rank_run.h"
#include "execute/run_mpi.h"
#include "execute/wire.h"
#include "sim/base/exceptions.h"
#include "sim/base/status.h"

namespace pipewright {

// Between processes, beside the messages of the pipeline.
enum class Control : uint8_t {
  kPrepared,  // to process 0: what it makes of options and files
  kReady,     // to it: is there a worker?
  kGo,        // from it: does everybody run, and since when
  kReport,    // to it: how a rank has ended
  kVerdict,   // from it
};

// The same on all processes of one machine, which also share its clock.
std::string MachineName();

void PutStatus(const absl::Status& status, WireWriter* writer);
absl::Status GetStatus(WireReader* reader);
void PutOutcome(const RankOutcome& outcome, WireWriter* writer);
RankOutcome GetOutcome(WireReader* reader);

// The agreement of the processes of one run. While it lasts a process is there
// as long as its pulse is, whatever it does.
class Party {
 public:
  // `program`: null while there is none. `most_s`: how long a rank may compute
  // one thing.
  Party(MpiJob* job, const Program* program, double timeout_s, double most_s)
      : job_(*job),
        program_(program),
        timeout_s_(timeout_s),
        most_s_(std::max(1.0, most_s)),
        run_(job->BeginRun()),
        pulse_(job, timeout_s) {}

  int64_t run() const { return run_; }
  Pulse& pulse() { return pulse_; }
  Address AddressOf(int process) const {
    return {process / program_->pp(), process % program_->pp()};
  }
  std::string NameOf(int process) const {
    return program_ == nullptr ? absl::StrCat("process ", process)
                               : RankName(*program_, AddressOf(process));
  }

  // See FirstOfMpi.
  absl::StatusOr<std::string> Agree(const absl::StatusOr<FirstWord>& own);

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

  // To process 0. `leaves`: awaits nothing more.
  void Report(const RankOutcome& outcome, absl::string_view more,
              bool leaves = false) {
    WireWriter report = Begin(Control::kReport);
    report.Put(leaves);
    PutOutcome(outcome, &report);
    report.PutText(more);
    job_.Send(0, MpiJob::kControl, report.bytes());
  }

  // On process 0: of all ranks; those that say nothing are lost.
  absl::StatusOr<std::vector<RankOutcome>> Reports(
      RankOutcome own, std::string own_more, std::vector<std::string>* more) {
    // After a failure all know of it: who is still there says so soon.
    const double patience_s =
        own.status.ok() ? Patience() : std::max(1.0, timeout_s_ / 2);
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
        if (reader.Get<bool>()) all_there_ = false;
        outcome = GetOutcome(&reader);
        its_more = reader.GetText();
        if (!reader.ok()) outcome.status = absl::InternalError("short report");
      }
      outcome.result.address = AddressOf(process);
    }
    return outcomes;
  }

  // `work` on another thread, so that an end of the job is seen meanwhile:
  // that this process `does` it is then said. What it throws is an error.
  absl::StatusOr<std::string> Watch(
      absl::string_view does,
      const std::function<absl::StatusOr<std::string>()>& work) {
    const auto why = [&]() -> std::string {
      const std::string ended = job_.ended_by();
      return ended.empty() ? ""
                           : absl::StrCat(ended, "\n", NameOf(job_.process()),
                                          ": ", does);
    };
    absl::StatusOr<std::string> result = std::string();
    const absl::Status status = WithoutExceptions([&] {
      auto running = std::async(std::launch::async, work);
      while (running.wait_for(kLook) != std::future_status::ready) {
        if (const std::string text = why(); !text.empty()) {
          job_.EndAtOnce(text);
        }
      }
      result = running.get();
      return result.status();
    });
    if (const std::string text = why(); !text.empty()) {
      return absl::UnavailableError(text);
    }
    if (!status.ok()) return status;
    return result;
  }

  // On process 0.
  absl::StatusOr<std::string> Conclude(
      const std::function<absl::StatusOr<std::string>()>& conclude) {
    return Watch("has ended and concludes the run for all", conclude);
  }

  // When this process is ended from outside, and perhaps no other.
  void TakeLeave(const RankOutcome& outcome, const absl::Status& status) {
    if (job_.process() > 0) return Report(outcome, "", /*leaves=*/true);
    all_there_ = false;
    Judge(status);
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
  // mpirun gives a second from SIGTERM to SIGKILL.
  static constexpr std::chrono::milliseconds kLook{50};

  double Patience() const { return std::max(2.0, 2 * timeout_s_); }

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

  // No sign of life, or always the same.
  bool IsSilent(int process, double patience_s) const {
    const double now_s = SteadySeconds();
    const double stands_s = pulse_.stands_since_s(process);
    return now_s - pulse_.heard_s(process) > patience_s ||
           (stands_s > 0 && now_s - stands_s > most_s_);
  }

  // The next of this run; nothing after `patience_s` without any.
  struct Taken {
    int from = 0;
    Control control = Control::kReady;
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
      PW_ASSIGN_OR_RETURN(const std::optional<Taken> taken,
                          Take(Patience() / 8));
      if (taken && taken->control == control) return taken->text;
      if (taken || !IsSilent(0, Patience())) continue;
      job_.Abandon();
      return absl::UnavailableError(
          absl::StrCat(NameOf(0), ": no word for ", Patience(), " s; lost"));
    }
  }

  // [process] on process 0: without those that fall silent for `patience_s`
  // before.
  absl::StatusOr<std::map<int, std::string>> Gather(Control control,
                                                    double patience_s) {
    std::map<int, std::string> texts;
    const auto awaits = [&] {
      for (int process = 1; process < job_.processes(); ++process) {
        if (!texts.contains(process) && !IsSilent(process, patience_s)) {
          return true;
        }
      }
      return false;
    };
    while (awaits()) {
      PW_ASSIGN_OR_RETURN(const std::optional<Taken> taken,
                          Take(patience_s / 8));
      if (taken && taken->control == control) texts[taken->from] = taken->text;
    }
    return texts;
  }

  MpiJob& job_;
  const Program* const program_;
  const double timeout_s_;
  const double most_s_;
  const int64_t run_;
  Pulse pulse_;
  bool all_there_ = true;
};

}  // namespace pipewright
