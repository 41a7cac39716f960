// Names of what moves data between ranks, as profiles (TransferEntry), flags
// and reports spell them. What they do is execute/transport's.
#pragma once

#include <string>
#include <vector>

namespace pipewright {

inline constexpr char kThreadsTransport[] = "threads";  // in one process
inline constexpr char kMpiTransport[] = "mpi";          // under mpirun
inline constexpr char kSocketsTransport[] = "sockets";  // without it
inline constexpr char kNcclTransport[] = "nccl";        // between GPUs

// That `execute` takes, in the order of messages.
inline std::vector<std::string> TransportNames() {
  return {kThreadsTransport, kMpiTransport, kSocketsTransport, kNcclTransport};
}

// That `calibrate` measures and profiles hold, in the order of messages.
inline std::vector<std::string> MeasuredTransports() {
  return {kThreadsTransport, kMpiTransport, kNcclTransport};
}

}  // namespace pipewright
