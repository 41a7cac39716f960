// MPI between threads, each of which is a process to ProcessGroup: messages in
// order from mailboxes in memory. No transfers.
#pragma once

#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "execute/transport/mpi/module.h"

namespace pipewright::testing {

// One at a time is behind FakeMpi().
class FakeMpiWorld {
 public:
  explicit FakeMpiWorld(int processes);
  ~FakeMpiWorld();
  // The calling thread is this process from now on.
  static void Become(int process);
  // What `from` sends comes, but not all of it before Arrive().
  void Delay(int from);
  void Arrive();

 private:
  friend struct FakeMpiCalls;
  struct Mail {
    int from = 0;
    int tag = 0;
    std::string text;
  };
  std::mutex mutex_;
  int delayed_ = -1;
  std::vector<std::deque<Mail>> boxes_;
};

const PwProcesses* FakeMpi();

}  // namespace pipewright::testing
