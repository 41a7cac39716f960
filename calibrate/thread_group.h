// Threads that stand in for ranks and exchange buffers through memory that
// they share: the CPU's transport, for measuring transfers. A receiver copies
// straight out of the sender's buffer. Waiting spins for 20 us and then sleeps.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/string_view.h"
#include "execute/transport/timed_transport.h"

namespace pipewright {

// Waits until all have come; the same `count` threads may use it again and
// again.
class Barrier {
 public:
  explicit Barrier(int count) : count_(count) {}
  void Wait();

 private:
  const int count_;
  std::atomic<int> arrived_{0};
  std::atomic<uint32_t> phase_{0};
};

class ThreadGroup {
 public:
  // `ranks` of at least 2; buffers for up to `max_bytes`.
  ThreadGroup(int ranks, int64_t max_bytes);
  ~ThreadGroup();

  int ranks() const { return ranks_; }

  // Wall-clock seconds of one transfer, the median over `repeats` in a row: a
  // transfer in which a thread lost its core measures the scheduler. Send-recv
  // goes from rank 0 to 1 and back, halved; the others are rings. `bytes` as
  // NCCL counts them (sim/profile/profile.h).
  double Run(TransferKind kind, int64_t bytes, int repeats);

  // The same, repeated in the background; End returns the seconds of each.
  void Begin(TransferKind kind, int64_t bytes);
  std::vector<double> End();

 private:
  struct Rank {
    std::vector<float> own;   // what is sent and reduced into
    std::vector<float> from;  // what is received
    std::atomic<const float*> mailbox{nullptr};  // to this rank
    std::thread thread;
  };

  void Loop(int rank);
  void Transfer(int rank, TransferKind kind, int64_t bytes);
  void Send(int to, const float* data);
  // Waits for the mailbox and copies (or adds) `count` elements.
  void Receive(int rank, float* into, int64_t count, bool add);
  void WaitTaken(int to);
  void Ring(int rank, int64_t bytes, bool reduce, int first_shard);

  const int ranks_;
  std::vector<std::unique_ptr<Rank>> all_;
  Barrier barrier_;
  Barrier start_;  // with the caller
  Barrier end_;
  TransferKind kind_ = TransferKind::kSendRecv;
  int64_t bytes_ = 0;
  int repeats_ = 0;
  bool quit_ = false;
  std::atomic<bool> stop_{false};
  bool go_ = false;  // rank 0's word for the next transfer
  std::vector<double> seconds_;
};

}  // namespace pipewright
