#include "execute/run/replay_endpoint.h"

#include <chrono>
#include <iterator>
#include <utility>

namespace pipewright {

ReplayEndpoint::ReplayEndpoint(Address self, const std::vector<Address>& others,
                               std::vector<RankMessage> messages)
    : self_(self),
      messages_(std::make_move_iterator(messages.begin()),
                std::make_move_iterator(messages.end())) {
  for (const Address other : others) {
    messages_.push_back({.kind = RankMessage::Kind::kDone, .from = other});
  }
}

void ReplayEndpoint::Send(Address to, RankMessage message) {
  if (!(to == self_)) return;
  message.from = self_;
  {
    std::lock_guard lock(mutex_);
    messages_.push_back(std::move(message));
  }
  arrived_.notify_one();
}

Received ReplayEndpoint::Receive(double timeout_s, RankMessage* message) {
  std::unique_lock lock(mutex_);
  if (messages_.empty()) {
    if (timeout_s <= 0) return Received::kTimeOut;
    // Nothing comes but from the rank's own work.
    if (pending_ == 0) return Received::kStuck;
    const auto deadline = std::chrono::steady_clock::now() +
                          std::chrono::duration<double>(timeout_s);
    if (!arrived_.wait_until(lock, deadline,
                             [this] { return !messages_.empty(); })) {
      return Received::kTimeOut;
    }
  }
  *message = std::move(messages_.front());
  messages_.pop_front();
  return Received::kMessage;
}

void ReplayEndpoint::Pending(int change) {
  std::lock_guard lock(mutex_);
  pending_ += change;
}

}  // namespace pipewright
