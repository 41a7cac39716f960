// NCCL between threads, on memory of the host: a table of the transport's
// (execute/transport/nccl/module.h) over what the emulated libnccl.so.2 is made
// of (tests/emulation/nccl), with streams of its own, faults, and notes of
// where NCCL's rules are broken.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "execute/transport/nccl/module.h"

namespace pipewright::testing {

// One at a time is behind FakeNccl().
class FakeNcclWorld {
 public:
  FakeNcclWorld();
  ~FakeNcclWorld();

  // How often state() says that a call goes on before it is over.
  int calls_go_on = 2;
  // Communicators in the order of their ids: nothing on it ever ends, or it
  // fails after that many calls.
  int hangs = -1;
  int fails = -1;
  int fails_after = 0;
  // Only this member's own call fails, and nobody else hears of it; what this
  // one calls goes nowhere, as if it never came.
  int fails_alone = -1;
  int never_comes = -1;

  // GPUs of this process.
  int devices = 1;
  // What an operation takes on the devices' clocks, all of which run alike:
  // its kind, the bytes of the whole buffer, how many take part. 0: nothing.
  std::function<double(const std::string& kind, size_t bytes, size_t members)>
      seconds;

  // What breaks the rules of the library.
  std::vector<std::string> violations;
  // Communicators that were made, and by how they have ended.
  int made = 0;
  int aborted = 0;
  int left = 0;
  // "all_reduce", ...: how often it ran, once for all members.
  std::map<std::string, int> ran;

  // A communicator of all its members.
  struct Instance;

 private:
  friend struct FakeCalls;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Instance>> instances_;  // [id]
  int ids_ = 0;
};

const PwNccl* FakeNccl();

}  // namespace pipewright::testing
