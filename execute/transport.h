// How messages get from rank to rank. An Endpoint is one rank's end; between
// two endpoints messages keep their order. Rows: threads of one process
// (thread_transport.h), processes under MPI (mpi_transport.h).
#pragma once

#include <string>

#include "execute/message.h"

namespace pipewright {

enum class Received {
  kMessage,
  kTimeOut,
  kStuck,  // every rank waits and nothing is under way: a deadlock
  kEnded,  // the job is ended from outside, see Endpoint::ended_by()
};

class Endpoint {
 public:
  virtual ~Endpoint() = default;

  // Never blocks on the receiver. Messages to itself are allowed.
  virtual void Send(Address to, RankMessage message) = 0;
  // The next message; waits at most `timeout_s`, with 0 not at all.
  virtual Received Receive(double timeout_s, RankMessage* message) = 0;
  // Work that ends with a message to this rank is (+1) or is no more (-1)
  // under way elsewhere: until then the rank's waiting is no deadlock.
  virtual void Pending(int change) = 0;
  // Why nothing will come any more, after kEnded.
  virtual std::string ended_by() const { return ""; }
};

}  // namespace pipewright
