// What the processes of one run tell each other beside the messages of the
// pipeline: process 0 hears how all have fared and says what becomes of it.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "execute/mpi_transport.h"
#include "execute/rank_outcome.h"
#include "execute/rank_run.h"
#include "execute/wire.h"
#include "sim/base/status.h"

namespace pipewright {

// Between processes, beside the messages of the pipeline.
enum class Control : uint8_t {
  kReady,    // to process 0: is there a worker?
  kGo,       // from it: does everybody run, and since when
  kReport,   // to it: how a rank has ended
  kAlive,    // from it and to it: what comes next takes its time
  kVerdict,  // from it
};

// The same on all processes of one machine, which also share its clock.
std::string MachineName();

void PutStatus(const absl::Status& status, WireWriter* writer);
absl::Status GetStatus(WireReader* reader);
void PutOutcome(const RankOutcome& outcome, WireWriter* writer);
RankOutcome GetOutcome(WireReader* reader);

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

  // Says that this process is still there, while it lives: to process 0, or
  // from it to all.
  class Heartbeat {
   public:
    explicit Heartbeat(Party* party)
        : thread_([this, party] {
            const std::chrono::duration<double> pause(
                party->options_.timeout_s / 4);
            std::unique_lock lock(mutex_);
            while (!wake_.wait_for(lock, pause, [this] { return ends_; })) {
              party->SayAlive();
            }
          }) {}
    ~Heartbeat() {
      {
        std::lock_guard lock(mutex_);
        ends_ = true;
      }
      wake_.notify_all();
      thread_.join();
    }

   private:
    std::mutex mutex_;
    std::condition_variable wake_;
    bool ends_ = false;
    std::thread thread_;
  };

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
    const Heartbeat heartbeat(this);
    auto result = std::async(std::launch::async, conclude);
    while (result.wait_for(kLook) != std::future_status::ready) {
      if (const std::string why = job_.ended_by(); !why.empty()) {
        job_.EndAtOnce(WhileConcluding(why));
      }
    }
    if (const std::string why = job_.ended_by(); !why.empty()) {
      return absl::UnavailableError(WhileConcluding(why));
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
  // mpirun gives a second from SIGTERM to SIGKILL.
  static constexpr std::chrono::milliseconds kLook{50};

  std::string WhileConcluding(const std::string& why) const {
    return absl::StrCat(why, "\n", NameOf(0),
                        ": has ended and concludes the run for all");
  }

  void SayAlive() {
    const WireWriter alive = Begin(Control::kAlive);
    if (job_.process() == 0) return SendAll(alive);
    job_.Send(0, MpiJob::kControl, alive.bytes());
  }

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
      if (!taken) continue;
      if (taken->control == control) {
        texts[taken->from] = taken->text;
      } else if (taken->control != Control::kAlive) {
        continue;
      }
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

}  // namespace pipewright
