// Transfers that `calibrate` times, on any transport.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/base/check.h"

namespace pipewright {

enum class TransferKind { kSendRecv, kAllReduce, kAllGather, kReduceScatter };
inline constexpr TransferKind kTransferKinds[] = {
    TransferKind::kSendRecv, TransferKind::kAllReduce, TransferKind::kAllGather,
    TransferKind::kReduceScatter};

inline absl::string_view TransferName(TransferKind kind) {
  switch (kind) {
    case TransferKind::kSendRecv:
      return "send_recv";
    case TransferKind::kAllReduce:
      return "all_reduce";
    case TransferKind::kAllGather:
      return "all_gather";
    case TransferKind::kReduceScatter:
      return "reduce_scatter";
  }
  PW_CHECK(false);
}

// Ranks that transfer when told to.
struct Transport {
  std::string name;  // as TransferEntry has it
  int ranks = 0;
  // Seconds of one transfer out of `repeats` in a row.
  std::function<absl::StatusOr<double>(TransferKind kind, int64_t bytes,
                                       int repeats)>
      run;
  // Makes new threads with new buffers; empty where ranks are processes or
  // GPUs.
  std::function<void()> renew;
  int nodes = 0;  // that the ranks are on; 0: not known
  // The sizes to measure; empty: those that suit the memory of a host.
  std::vector<int64_t> sizes;
  // Small transfers are repeated until about so many bytes have moved.
  int64_t sample_bytes = 1 << 20;
  int least_repeats = 1;
  int most_repeats = 32;
  // For transfers beside passes, on GPUs of which the measured one is the
  // first; empty elsewhere. `begin` queues `count` transfers, `end` gives the
  // seconds of one when all have ended.
  std::function<absl::Status(TransferKind kind, int64_t bytes, int count)>
      begin;
  std::function<absl::StatusOr<double>()> end;
};

struct TimedTransports {
  std::vector<Transport> transports;  // none: threads of this process
  std::string library;                // "NCCL 2.28.9"; "" without transports
  std::vector<std::string> warnings;  // what is not measured, and why
};

}  // namespace pipewright
