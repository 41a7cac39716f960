// How the processes of a socket job (socket_job.h) come to have a connection
// between any two.
//
// Process 0 writes to PATH where it listens and a number that it has drawn for
// this job, at once by a rename and readable by its owner only; process R,
// when it has reached process 0, the same to PATH.R. Each reaches all lower
// ones. The two say the number to each other, and who does not know it is let
// go: the files of an earlier job and strangers do no harm. Connections are
// served side by side, each has one deadline, and of strangers only so many
// are kept.
//
// From its connection with process 0 on a process is missed as soon as it is
// gone: all end, and say who it was. So do those who come soon after it, since process 0, or who speaks for it, stays so long.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "execute/transport/socket_peer.h"

namespace pipewright {

struct SocketOptions {
  std::string path;
  int process = 0;
  int processes = 1;
  double timeout_s = 60;  // for all to come
  // The network interface, or its IPv4 address, at which this process can be
  // reached; "": from this machine only.
  std::string listen;
  // How long who comes too late is told why.
  double late_s = 1.5;
};

// Error: kUnavailable with those that have not come, or that are lost;
// kInvalidArgument. `peers` are to be told of it (SocketPeer::Bye).
absl::Status MeetBySockets(const SocketOptions& options, SocketPeers* peers);

}  // namespace pipewright
