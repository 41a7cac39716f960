#include "execute/transport/mpi_transfers.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "sim/base/check.h"

namespace pipewright {
namespace {

// What process 0 tells the others; zero repeats: that was all.
struct Order {
  int64_t kind = 0;
  int64_t bytes = 0;
  int64_t repeats = 0;
};

void SendToAll(ProcessGroup* job, const Order& order) {
  for (int process = 1; process < job->processes(); ++process) {
    job->Send(process, ProcessGroup::kControl,
              {reinterpret_cast<const char*>(&order), sizeof(order)});
  }
}

}  // namespace

MpiTransfers::MpiTransfers(ProcessGroup* job) : job_(*job) {
  PW_CHECK(job->processes() >= 2);
}

MpiTransfers::~MpiTransfers() {
  if (job_.process() == 0) SendToAll(&job_, {});
}

absl::StatusOr<double> MpiTransfers::Time(PwTransfer kind, int64_t bytes,
                                          int repeats) {
  PW_CHECK(job_.process() == 0 && repeats > 0);
  SendToAll(&job_, {kind, bytes, repeats});
  return job_.Transfer(kind, bytes, repeats);
}

absl::Status MpiTransfers::Serve() {
  PW_CHECK(job_.process() > 0);
  // Process 0 may be busy for as long as it likes; when it is gone, mpirun
  // ends the others.
  constexpr double kLong_s = 3600;
  while (true) {
    ProcessGroup::Incoming incoming;
    switch (job_.Receive(ProcessGroup::kControl, kLong_s, &incoming)) {
      case Received::kTimeOut:
        continue;
      case Received::kMessage:
        break;
      default:
        return absl::InternalError(job_.ended_by());
    }
    Order order;
    if (incoming.bytes != sizeof(order)) {
      return absl::InternalError(
          absl::StrCat("process 0 says ", incoming.bytes, " bytes: not ours"));
    }
    std::memcpy(&order, incoming.data.get(), sizeof(order));
    if (order.repeats == 0) return absl::OkStatus();
    const absl::Status status =
        job_.Transfer(static_cast<PwTransfer>(order.kind), order.bytes,
                      static_cast<int>(order.repeats))
            .status();
    if (!status.ok()) return status;
  }
}

}  // namespace pipewright
