// Messages between the processes of one run beside those of the pipeline:
// process 0 collects every outcome and decides the common one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "execute/run/rank_outcome.h"
#include "execute/run/run_processes.h"
#include "execute/transport/process_group.h"
#include "execute/transport/pulse.h"
#include "execute/transport/wire.h"

namespace pipewright {

// Between processes, beside the messages of the pipeline.
enum class Control : uint8_t {
  kPrepared,  // to process 0: what it makes of options and files
  kReady,     // to it: is there a worker?
  kGo,        // from it: does everybody run, and since when
  kReport,    // to it: how a rank has ended
  kVerdict,   // from it
};

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
  Party(ProcessGroup* job, const Program* program, double timeout_s,
        double most_s)
      : job_(*job),
        program_(program),
        timeout_s_(timeout_s),
        most_s_(std::max(1.0, most_s)),
        run_(job->BeginRun()),
        pulse_(job, NameOf(job->process()), timeout_s) {}

  int64_t run() const { return run_; }
  Pulse& pulse() { return pulse_; }
  Address AddressOf(int process) const;
  std::string NameOf(int process) const;

  // See FirstOfAll.
  absl::StatusOr<std::string> Agree(const absl::StatusOr<FirstWord>& own,
                                    const JudgeMemory& judge);

  // All have come as far as this: the time that is zero for all.
  absl::StatusOr<double> Start(bool has_worker);

  // To process 0. `leaves`: awaits nothing more.
  void Report(const RankOutcome& outcome, absl::string_view more,
              bool leaves = false);

  // On process 0: of all ranks; those that say nothing are lost.
  absl::StatusOr<std::vector<RankOutcome>> Reports(
      RankOutcome own, std::string own_more, std::vector<std::string>* more);

  // `work` on another thread, so that an end of the job is seen meanwhile:
  // that this process `does` it is then said. What it throws is an error.
  absl::StatusOr<std::string> Watch(
      absl::string_view does,
      const std::function<absl::StatusOr<std::string>()>& work);

  // On process 0.
  absl::StatusOr<std::string> Conclude(
      const std::function<absl::StatusOr<std::string>()>& conclude);

  // When this process is ended from outside, and perhaps no other.
  void TakeLeave(const RankOutcome& outcome, const absl::Status& status);

  void Judge(const absl::StatusOr<std::string>& conclusion);

  // On the others.
  absl::StatusOr<std::string> Verdict();

 private:
  // How soon the end of the job, or of another process, is seen.
  static constexpr double kLook_s = 0.05;

  double Patience() const { return std::max(2.0, 2 * timeout_s_); }

  WireWriter Begin(Control control) const;
  void SendAll(const WireWriter& writer);

  // No more words come from it: it has left, gives no sign of life, or always
  // the same sign.
  bool IsSilent(int process, double patience_s) const;

  // True when it has left the job and all its words have been taken.
  bool HasLeft(int process) const;
  // Why nothing comes from a process that is silent.
  std::string NoWord(int process) const;

  // The next of this run; nothing after `patience_s` without any, or as soon as
  // the wait is `in_vain`.
  struct Taken {
    int from = 0;
    Control control = Control::kReady;
    std::string text;
  };
  absl::StatusOr<std::optional<Taken>> Take(
      double patience_s, const std::function<bool()>& in_vain);

  // From process 0.
  absl::StatusOr<std::string> Await(Control control);

  // [process] on process 0: without those that leave before, or fall silent for
  // `patience_s`.
  absl::StatusOr<std::map<int, std::string>> Gather(Control control,
                                                    double patience_s);

  ProcessGroup& job_;
  const Program* const program_;
  const double timeout_s_;
  const double most_s_;
  const int64_t run_;
  Pulse pulse_;
  bool all_there_ = true;
  // What process 0 said while something else was awaited.
  std::optional<std::string> early_verdict_;
  // [process] on process 0: reports, which may also come while something else
  // is awaited, and the pieces of those that have not come as a whole.
  std::map<int, std::string> reports_;
  std::map<int, std::string> pieces_;
};

}  // namespace pipewright
