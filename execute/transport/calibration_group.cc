#include "execute/transport/calibration_group.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "execute/transport/calibration_nccl.h"
#include "execute/transport/nccl_processes.h"
#include "execute/transport/nccl_transport.h"
#include "kernels/loader.h"
#include "sim/base/check.h"
#include "sim/base/names.h"
#include "sim/base/status.h"
#include "sim/profile/profile.h"

namespace pipewright {
namespace {

PwTransfer KindOf(TransferKind kind) {
  switch (kind) {
    case TransferKind::kSendRecv:
      return PW_SEND_RECV;
    case TransferKind::kAllReduce:
      return PW_ALL_REDUCE;
    case TransferKind::kAllGather:
      return PW_ALL_GATHER;
    case TransferKind::kReduceScatter:
      return PW_REDUCE_SCATTER;
  }
  PW_CHECK(false);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CalibrationGroup>> CalibrationGroup::Start(
    const std::string& name, const std::string& device,
    std::unique_ptr<ProcessGroup> job) {
  constexpr char kFlag[] = "--transport";
  const std::vector<std::string> known = MeasuredTransports();
  if (!name.empty() &&
      std::find(known.begin(), known.end(), name) == known.end()) {
    return UnknownName(kFlag, name, known);
  }
  const bool wanted = name == kMpiTransport;
  // Sockets have nothing else to measure.
  const bool nccl = name == kNcclTransport || job != nullptr;
  if (nccl && device != "cuda") {
    return BadValue(kFlag, absl::StrCat("nccl with --device ", device),
                    "nccl with --device cuda");
  }
  if (wanted && device != "cpu") {
    return BadValue(kFlag, name,
                    absl::StrCat("nccl or threads with --device ", device,
                                 " (MPI's transfers are of host memory)"));
  }
  auto transport = std::unique_ptr<CalibrationGroup>(new CalibrationGroup());
  if (job != nullptr) {
    if (job->processes() > 1) transport->job_ = std::move(job);
  } else if (ProcessGroup::Started()) {
    PW_ASSIGN_OR_RETURN(transport->job_, ProcessGroup::Create());
    if (transport->job_->processes() < 2) {
      if (wanted) return BadValue("mpirun -n", "1", "2 or more");
      transport->job_.reset();
    }
  } else if (wanted) {
    return BadValue(kFlag, name,
                    "threads, or mpi under mpirun: mpirun -n 2 pipewright "
                    "calibrate ...");
  }
  if (nccl || (name.empty() && device == "cuda")) {
    transport->TakeNccl(/*wanted=*/nccl);
    return transport;
  }
  if (transport->job_ == nullptr) return transport;
  if (!wanted && !(name.empty() && device == "cpu")) {
    const absl::Status refused = BadValue(
        "mpirun -n", absl::StrCat(transport->job_->processes()),
        "1, or --transport mpi with --device cpu, nccl with --device cuda");
    return transport->job_->speaks() ? refused
                                     : absl::Status(refused.code(), "");
  }
  transport->transfers_ = std::make_unique<MpiTransfers>(transport->job_.get());
  return transport;
}

void CalibrationGroup::TakeNccl(bool wanted) {
  nccl_ = LoadNccl();
  nccl_wanted_ = wanted;
  // Process 0 measures all else on the first GPU.
  if (!serves() || !nccl_->ok()) return;
  const absl::StatusOr<int> gpu = GpuOfProcess(***nccl_, job_->process());
  if (gpu.ok()) {
    gpu_ = *gpu;
  } else {
    nccl_ = gpu.status();
  }
}

CalibrationGroup::~CalibrationGroup() {
  if (nccl_ && job_ != nullptr && job_->process() == 0) {
    NcclProcesses::LetGo(job_.get());
  }
}

absl::Status CalibrationGroup::Serve() {
  if (transfers_ != nullptr) return transfers_->Serve();
  NcclProcesses::Options options = {.nccl = *nccl_, .device = gpu_};
  char error[512] = "";
  options.kernels = pw_load_kernels("cuda", error, sizeof(error));
  if (options.kernels == nullptr) options.nccl = absl::UnavailableError(error);
  return NcclProcesses::Serve(job_.get(), options);
}

absl::StatusOr<TimedTransports> CalibrationGroup::OverNccl(
    const PwKernels* kernels, bool quick) {
  TimedTransports nccl =
      job_ == nullptr ? TransportsOverNccl(*nccl_, kernels, quick)
                      : TransportsOverNccl(job_.get(), *nccl_, kernels, quick);
  if (nccl_wanted_ && nccl.transports.empty()) {
    return absl::UnavailableError(
        absl::StrCat("--transport nccl: ", nccl.warnings[0]));
  }
  return nccl;
}

absl::StatusOr<TimedTransports> CalibrationGroup::Transports(
    const PwKernels* kernels, bool quick) {
  if (nccl_) return OverNccl(kernels, quick);
  TimedTransports timed;
  if (transfers_ == nullptr) return timed;
  Transport transport;
  transport.name = kMpiTransport;
  transport.ranks = job_->processes();
  transport.run = [this](TransferKind kind, int64_t bytes, int repeats) {
    return transfers_->Time(KindOf(kind), bytes, repeats);
  };
  timed.transports = {std::move(transport)};
  timed.library = job_->version();
  return timed;
}

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
