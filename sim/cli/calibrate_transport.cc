#include "sim/cli/calibrate_transport.h"

#include "absl/strings/str_cat.h"
#include "sim/base/check.h"
#include "sim/base/names.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

PwMpiTransfer KindOf(TransferKind kind) {
  switch (kind) {
    case TransferKind::kSendRecv:
      return PW_MPI_SEND_RECV;
    case TransferKind::kAllReduce:
      return PW_MPI_ALL_REDUCE;
    case TransferKind::kAllGather:
      return PW_MPI_ALL_GATHER;
    case TransferKind::kReduceScatter:
      return PW_MPI_REDUCE_SCATTER;
  }
  PW_CHECK(false);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CalibrateTransport>> CalibrateTransport::Start(
    const std::string& name, const std::string& device) {
  constexpr char kFlag[] = "--transport";
  if (!name.empty() && name != "threads" && name != "mpi") {
    return UnknownName(kFlag, name, {"threads", "mpi"});
  }
  const bool wanted = name == "mpi";
  if (wanted && device != "cpu") {
    return BadValue(kFlag, name,
                    absl::StrCat("threads with --device ", device,
                                 " (MPI's transfers are of host memory)"));
  }
  auto transport =
      std::unique_ptr<CalibrateTransport>(new CalibrateTransport());
  if (!MpiJob::Started()) {
    if (!wanted) return transport;
    return BadValue(kFlag, name,
                    "threads, or mpi under mpirun: mpirun -n 2 pipewright "
                    "calibrate ...");
  }
  PW_ASSIGN_OR_RETURN(transport->job_, MpiJob::Create());
  const int processes = transport->job_->processes();
  if (processes < 2) {
    if (wanted) return BadValue("mpirun -n", "1", "2 or more");
    transport->job_.reset();
    return transport;
  }
  if (!wanted && (!name.empty() || device != "cpu")) {
    const absl::Status refused =
        BadValue("mpirun -n", absl::StrCat(processes),
                 "1, or --transport mpi with --device cpu");
    return transport->job_->speaks() ? refused
                                     : absl::Status(refused.code(), "");
  }
  transport->transfers_ = std::make_unique<MpiTransfers>(transport->job_.get());
  return transport;
}

void CalibrateTransport::Put(CalibrateOptions* options) {
  if (transfers_ == nullptr) return;
  Transport transport;
  transport.name = "mpi";
  transport.ranks = job_->processes();
  transport.run = [this](TransferKind kind, int64_t bytes, int repeats) {
    return transfers_->Time(KindOf(kind), bytes, repeats);
  };
  options->transports = {std::move(transport)};
  options->transport_library = job_->version();
}

}  // namespace pipewright
