// The transport of one process with a thread a rank: a mailbox each. Knows
// when all ranks wait for each other.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "execute/transport/transport.h"

namespace pipewright {

class ThreadFabric {
 public:
  // Ranks of all replicas.
  ThreadFabric(int replicas, int pp);
  ~ThreadFabric();

  // Endpoint of one rank; lives as long as the fabric.
  Endpoint* endpoint(Address address);

  // The rank's thread is about to end: it will receive nothing more. `lost`:
  // without having done all that the others wait for.
  void Leave(Address address, bool lost);

 private:
  class Mailbox;

  // With mutex_ held.
  void CheckStuck();

  // Waiting ranks, and messages not taken yet: if all ranks wait and there is
  // no message, none will ever come. Guards the mailboxes too: there are few
  // ranks and long passes.
  std::mutex mutex_;
  int present_ = 0;
  int waiting_ = 0;
  int64_t untaken_ = 0;
  int64_t pending_ = 0;
  bool stuck_ = false;
  bool lost_ = false;
  const int pp_;
  std::vector<std::unique_ptr<Mailbox>> mailboxes_;
};

}  // namespace pipewright
