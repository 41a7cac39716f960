// The transport of several processes, one a rank, on one node or on several:
// what mpirun has started. MPI itself is in libpipewright_mpi.so, which is
// loaded here (mpi/module.h); the program runs without it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "execute/transport/mpi/module.h"
#include "execute/transport/transport.h"

namespace pipewright {

class Pulse;

// This process as part of what mpirun has started. There is one object a
// process; any thread may call Send and Receive. From its creation on SIGTERM
// does not end the process but its waits, so that it can say what it waited
// for: mpirun sends it to all when one process dies, and SIGKILL some
// milliseconds later (12 in Open MPI 4.1, a second after SIGCONT).
class ProcessGroup {
 public:
  // True where mpirun, or another starter of MPI processes, has set the
  // environment.
  static bool Started();
  // Error: kUnavailable, with what is missing.
  static absl::StatusOr<std::unique_ptr<ProcessGroup>> Create();
  // Processes that something else brings together, see socket_job.h; `name` is
  // what messages call it, `count_option` the option that says how many
  // processes there are.
  static absl::StatusOr<std::unique_ptr<ProcessGroup>> Create(
      const PwProcesses* mpi, const char* name, const char* count_option);
  // Waits for all others to come to the same, unless Abandon() was called.
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;

  int process() const { return process_; }
  int processes() const { return processes_; }
  std::string version() const { return mpi_.version(); }  // "Open MPI v4.1.4"

  // All processes call it alike; see module.h. Error: kInternal, MPI's.
  absl::StatusOr<double> Transfer(PwTransfer kind, int64_t bytes, int repeats);
  // The option that has said how many processes there are.
  const char* count_option() const { return count_option_; }

  // 2 is for what the module itself measures.
  enum Tag : int { kPipeline = 0, kControl = 1, kPulse = 3 };
  struct Incoming {
    int from = 0;
    // Aligned for any kernel.
    std::shared_ptr<char> data;
    size_t bytes = 0;
    absl::string_view text() const { return {data.get(), bytes}; }
  };
  // Does not wait. What cannot be sent ends the job for this process.
  void Send(int to, Tag tag, absl::string_view head, const void* body = nullptr,
            size_t bytes = 0);
  // Waits at most `timeout_s`, with 0 not at all; lets others use the
  // processor meanwhile. `also` is tried too: true ends the wait as well.
  Received Receive(Tag tag, double timeout_s, Incoming* incoming,
                   const std::function<bool()>& also = nullptr);
  // True when nothing more with `tag` will come from `process`: it has left the
  // job and said so, and all messages of before have been received.
  bool HasLeft(int process, Tag tag);
  // Has SIGTERM come?
  static bool Terminated();
  // What to do when it comes, at once and on a thread of its own; null:
  // nothing.
  static void SetOnTerminate(std::function<void()> call);
  // The job has ended for this process.
  void End(const std::string& why);
  // Why Receive gave kEnded; "" while nothing has ended the job.
  std::string ended_by() const;

  // Runs are numbered, so that what is left over from one that has ended badly
  // is not taken for a part of the next.
  int64_t BeginRun() { return ++runs_; }

  // `last_words` is called where a run cannot return when the job is ended,
  // because a thread of it still computes. It is told why, says so and ends the
  // process.
  void SetLastWords(std::function<void(const std::string&)> last_words) {
    last_words_ = std::move(last_words);
  }
  void EndAtOnce(const std::string& why);

  // Processes are missing: MPI can no longer be left in good order.
  void Abandon() { abandoned_ = true; }
  // Should this process say how the run has ended? One speaks for all, but
  // where processes are missing each says what it knows.
  bool speaks() const {
    return process_ == 0 || abandoned_ || !ended_by().empty();
  }

 private:
  ProcessGroup(const PwProcesses* mpi, const char* name,
               const char* count_option)
      : mpi_(*mpi), name_(name), count_option_(count_option) {}
  bool Failed(int code);
  bool Probe(Tag tag, Incoming* incoming);
  void KeepComing();
  void Leave();

  // A message whose parts are still on their way. Other messages go on
  // meanwhile, and its sender may die.
  struct Coming {
    Tag tag = kPipeline;
    int number = 0;  // the module's
    Incoming incoming;
  };

  const PwProcesses& mpi_;
  const char* const name_;
  const char* const count_option_;
  // Guards calls of mpi_, and failure_: a transport in front of this one may
  // have a thread of its own.
  mutable std::mutex mutex_;
  int process_ = 0;
  int processes_ = 1;
  bool abandoned_ = false;
  int64_t runs_ = 0;
  std::string failure_;
  std::list<Coming> coming_;
  std::function<void(const std::string&)> last_words_;
};

// What ProcessEndpoint::Send has sent; `run` gets the number of its run. Error:
// kUnavailable where it is not what the rank of process `incoming.from` sends.
absl::StatusOr<RankMessage> ReadRankMessage(
    const ProcessGroup::Incoming& incoming, int pp, int64_t* run);

// The end of this process's rank in run number `run` of the job: process
// replica * pp + rank. Payloads are memory of the host.
class ProcessEndpoint : public Endpoint {
 public:
  ProcessEndpoint(ProcessGroup* job, int pp, int64_t run, Pulse* pulse)
      : job_(*job),
        pulse_(*pulse),
        pp_(pp),
        run_(run),
        self_{job->process() / pp, job->process() % pp} {}

  Address self() const { return self_; }

  void Send(Address to, RankMessage message) override;
  Received Receive(double timeout_s, RankMessage* message) override;
  // Nothing outside can see that all wait, so the ranks ask each other.
  void Pending(int) override {}
  std::string ended_by() const override { return job_.ended_by(); }
  bool RunsSince(Address other, double since_s) const override;
  void GetsOn() override;
  double ComputesSince(Address other) const override;

 private:
  bool TakeOwn(RankMessage* message);

  ProcessGroup& job_;
  Pulse& pulse_;
  const int pp_;
  const int64_t run_;
  const Address self_;
  std::mutex mutex_;
  std::deque<RankMessage> own_;
};

}  // namespace pipewright
