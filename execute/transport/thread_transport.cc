#include "execute/transport/thread_transport.h"

#include <atomic>
#include <chrono>
#include <utility>

#include "execute/transport/steady_seconds.h"

namespace pipewright {

class ThreadFabric::Mailbox : public Endpoint {
 public:
  Mailbox(ThreadFabric* fabric, Address self) : fabric_(*fabric), self_(self) {}

  void Send(Address to, RankMessage message) override {
    message.from = self_;
    Mailbox& other = *fabric_.mailboxes_[to.replica * fabric_.pp_ + to.rank];
    {
      std::lock_guard lock(fabric_.mutex_);
      if (other.left_) return;
      other.messages_.push_back(std::move(message));
      ++fabric_.untaken_;
      fabric_.stuck_ = false;
    }
    other.arrived_.notify_one();
  }

  Received Receive(double timeout_s, RankMessage* message) override {
    std::unique_lock lock(fabric_.mutex_);
    if (messages_.empty()) {
      if (timeout_s <= 0) return Received::kTimeOut;
      ++fabric_.waiting_;
      fabric_.CheckStuck();
      const auto deadline = std::chrono::steady_clock::now() +
                            std::chrono::duration<double>(timeout_s);
      const bool woken = arrived_.wait_until(lock, deadline, [this] {
        return !messages_.empty() || fabric_.stuck_;
      });
      --fabric_.waiting_;
      if (!woken) return Received::kTimeOut;
      // A rank that waits for a lost one finds out by asking.
      if (messages_.empty()) {
        return fabric_.lost_ ? Received::kTimeOut : Received::kStuck;
      }
    }
    *message = std::move(messages_.front());
    messages_.pop_front();
    --fabric_.untaken_;
    return Received::kMessage;
  }

  void Pending(int change) override {
    std::lock_guard lock(fabric_.mutex_);
    fabric_.pending_ += change;
    fabric_.CheckStuck();
  }

  bool RunsSince(Address other, double) const override {
    std::lock_guard lock(fabric_.mutex_);
    return !fabric_.mailboxes_[other.replica * fabric_.pp_ + other.rank]->left_;
  }

  void GetsOn() override { got_on_s_ = SteadySeconds(); }
  double ComputesSince(Address other) const override {
    return fabric_.mailboxes_[other.replica * fabric_.pp_ + other.rank]
        ->got_on_s_;
  }

 private:
  friend class ThreadFabric;

  ThreadFabric& fabric_;
  const Address self_;
  std::condition_variable arrived_;
  std::deque<RankMessage> messages_;
  bool left_ = false;
  std::atomic<double> got_on_s_{0};
};

ThreadFabric::ThreadFabric(int replicas, int pp)
    : present_(replicas * pp), pp_(pp) {
  for (int replica = 0; replica < replicas; ++replica) {
    for (int rank = 0; rank < pp; ++rank) {
      mailboxes_.push_back(
          std::make_unique<Mailbox>(this, Address{replica, rank}));
    }
  }
}

ThreadFabric::~ThreadFabric() = default;

Endpoint* ThreadFabric::endpoint(Address address) {
  return mailboxes_[address.replica * pp_ + address.rank].get();
}

void ThreadFabric::Leave(Address address, bool lost) {
  std::lock_guard lock(mutex_);
  lost_ |= lost;
  Mailbox& mailbox = *mailboxes_[address.replica * pp_ + address.rank];
  mailbox.left_ = true;
  untaken_ -= static_cast<int64_t>(mailbox.messages_.size());
  mailbox.messages_.clear();
  --present_;
  CheckStuck();
}

void ThreadFabric::CheckStuck() {
  if (waiting_ < present_ || untaken_ > 0 || pending_ > 0) return;
  stuck_ = present_ > 0;
  for (const auto& mailbox : mailboxes_) mailbox->arrived_.notify_all();
}

}  // namespace pipewright
