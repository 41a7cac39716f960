// The transport of a rank that runs alone: what others would send is known
// beforehand and there at once, with the time at which it comes. What the rank
// sends to others goes nowhere; what its own copies tell it arrives.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <vector>

#include "execute/transport/transport.h"

namespace pipewright {

class ReplayEndpoint : public Endpoint {
 public:
  // `others` need nothing of the rank.
  ReplayEndpoint(Address self, const std::vector<Address>& others,
                 std::vector<RankMessage> messages);

  void Send(Address to, RankMessage message) override;
  Received Receive(double timeout_s, RankMessage* message) override;
  void Pending(int change) override;

 private:
  const Address self_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<RankMessage> messages_;
  int pending_ = 0;
};

}  // namespace pipewright
