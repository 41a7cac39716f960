#include "execute/transport/timed_transport.h"

#include "sim/base/check.h"

namespace pipewright {

absl::string_view TransferName(TransferKind kind) {
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

}  // namespace pipewright
