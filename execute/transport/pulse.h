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
  // Signs come often enough that several arrive while a rank waits for an
  // answer. `name` is what messages call this process.
  Pulse(ProcessGroup* job, std::string name, double timeout_s);
  ~Pulse();
  Pulse(const Pulse&) = delete;

  // Between these two calls the signs say that the rank of this process runs:
  // it takes messages, or will do so after its pass.
  void RankBegins() { runs_ = true; }
  void RankEnds() { runs_ = false; }
  // The rank begins or has ended something.
  void RankGetsOn() { ++steps_; }
  // While such an object lives, the rank waits for messages.
  class Waits {
   public:
    explicit Waits(Pulse* pulse) : pulse_(*pulse) { pulse_.waits_ = true; }
    ~Waits() { pulse_.waits_ = false; }
    Waits(const Waits&) = delete;

   private:
    Pulse& pulse_;
  };

  double period_s() const { return period_s_; }
  // When `process` was last heard (SteadySeconds()); at first, when this object
  // began.
  double heard_s(int process) const;
  // When it was last heard with a running rank; 0: never.
  double heard_running_s(int process) const;
  // Since when its running rank has made no progress; 0: it does not run.
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
  void Listen();
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
