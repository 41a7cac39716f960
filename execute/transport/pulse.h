// Signs of life between the processes of a run, on a thread of their own: as
// long as they come a process is there, however long its rank computes. What a
// rank waits for is not in them (rank_waits.cc).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "execute/transport/process_group.h"

namespace pipewright {

class Pulse {
 public:
  // Often enough that several come while somebody waits for an answer. `name`:
  // what this process is for people.
  Pulse(ProcessGroup* job, std::string name, double timeout_s);
  ~Pulse();
  Pulse(const Pulse&) = delete;

  // Between these the rank of this process says so: it takes messages, or will
  // when it has computed.
  void RankBegins() { runs_ = true; }
  void RankEnds() { runs_ = false; }
  // It begins or has ended something.
  void RankGetsOn() { ++steps_; }
  // While one is there it waits for messages.
  class Waits {
   public:
    explicit Waits(Pulse* pulse) : pulse_(*pulse) { pulse_.waits_ = true; }
    ~Waits() { pulse_.waits_ = false; }
    Waits(const Waits&) = delete;

   private:
    Pulse& pulse_;
  };

  double period_s() const { return period_s_; }
  // When `process` was heard last, of SteadySeconds(); before that when this
  // began.
  double heard_s(int process) const;
  // And when last with a running rank; 0: never.
  double heard_running_s(int process) const;
  // Since when its running rank has said that it is where it was; 0: it does
  // not run.
  double stands_since_s(int process) const;

 private:
  struct Heard {
    double any_s = 0;
    double running_s = 0;
    bool runs = false;
    int64_t steps = -1;
    double got_on_s = 0;
  };
  void Run();
  void Beat();
  void EndIfStuck();
  void EndIfComputing();
  void EndAtOnce();

  ProcessGroup& job_;
  const std::string name_;
  const double period_s_;
  std::atomic<bool> runs_{false};
  std::atomic<bool> waits_{false};
  std::atomic<int64_t> steps_{0};
  int64_t steps_at_end_ = -1;   // since the job's end was seen
  double stands_at_end_s_ = 0;  // since when they are the same
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool ends_ = false;
  std::vector<Heard> heard_;  // [process]
  std::thread thread_;
};

}  // namespace pipewright
