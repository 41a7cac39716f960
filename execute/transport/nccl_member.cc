#include "execute/transport/nccl_member.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "execute/transport/steady_seconds.h"
#include "sim/base/check.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr size_t kFloat = 4;
// Short against what is worth timing on a GPU. The first tries come without a
// rest.
constexpr auto kMemberRest = std::chrono::microseconds(50);
constexpr int kMemberYields = 50;

}  // namespace

std::string NameOf(const NcclTransfer& transfer) {
  return absl::StrCat(OpKindName(transfer.kind), " of ", transfer.bytes,
                      " bytes over ", transfer.members, " GPUs");
}

absl::StatusOr<std::unique_ptr<NcclMember>> NcclMember::Open(Options options) {
  auto member = std::unique_ptr<NcclMember>(new NcclMember(std::move(options)));
  const Options& own = member->options_;
  PwDeviceInfo info = {};
  if (own.kernels->open(own.device, &member->device_) != PW_OK ||
      own.kernels->info(member->device_, &info) != PW_OK) {
    return absl::UnavailableError(
        absl::StrCat("device ", own.device, ": ", own.kernels->error()));
  }
  member->free_bytes_ = info.free_bytes;
  return member;
}

NcclMember::~NcclMember() {
  if (options_.given_up()) CutOff();
  for (const auto& [members, comm] : comms_) options_.nccl->leave(comm.comm);
  Release();
  if (device_ != nullptr) options_.kernels->close(device_);
}

absl::Status NcclMember::Reserve(int64_t bytes) {
  PW_CHECK(from_ == nullptr && into_ == nullptr);
  const PwKernels& kernels = *options_.kernels;
  const auto count = bytes / static_cast<int64_t>(kFloat);
  PwStatus status = PW_OK;
  for (void** memory : {&from_, &into_}) {
    if (status == PW_OK) {
      status = kernels.allocate(device_, static_cast<size_t>(bytes), memory);
    }
    if (status == PW_OK) {
      status = kernels.random(device_, nullptr, PW_FP32, *memory, count,
                              static_cast<uint64_t>(options_.self) + 1, 1);
    }
  }
  if (status == PW_OK) status = kernels.synchronize(device_, nullptr);
  if (status == PW_OK) return absl::OkStatus();
  const std::string why = kernels.error();
  Release();
  return absl::Status(
      status == PW_NO_MEMORY ? absl::StatusCode::kResourceExhausted
                             : absl::StatusCode::kUnavailable,
      absl::StrCat("device ", options_.device, ", two buffers of ", bytes,
                   " bytes: ", why));
}

void NcclMember::Release() {
  for (void** memory : {&from_, &into_}) {
    if (*memory != nullptr) options_.kernels->release(device_, *memory);
    *memory = nullptr;
  }
}

absl::Status NcclMember::Failed(const std::string& what) const {
  return absl::UnavailableError(absl::StrCat(
      "device ", options_.device, ", ", what, ": ", options_.nccl->error()));
}

// Waits until `ask` says 0; below 0 it has failed.
absl::Status NcclMember::Await(const std::string& what,
                               const std::function<int()>& ask) {
  const double deadline_s = SteadySeconds() + options_.timeout_s;
  for (int rests = 0;; ++rests) {
    const int state = ask();
    if (state == 0) return absl::OkStatus();
    if (state < 0) return Failed(what);
    if (options_.given_up()) {
      return absl::CancelledError(absl::StrCat("device ", options_.device, ", ",
                                               what, ": another has failed"));
    }
    if (SteadySeconds() > deadline_s) {
      return absl::UnavailableError(absl::StrCat("device ", options_.device,
                                                 ", ", what, ": goes on for ",
                                                 options_.timeout_s, " s"));
    }
    if (rests < kMemberYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kMemberRest);
    }
  }
}

// A call must be over on the host before the next call, and before an event
// that has to follow it.
absl::Status NcclMember::Call(const std::string& what, PwNcclComm* comm,
                              int called) {
  if (called < 0) return Failed(what);
  return Await(what, [this, comm] { return options_.nccl->state(comm); });
}

absl::Status NcclMember::Join(const PwNcclId& id, int members) {
  const std::string what = absl::StrCat("joining ", members, " GPUs");
  PwNcclComm* comm = nullptr;
  if (options_.nccl->join(options_.device, &id, members, options_.self, &comm) <
      0) {
    return Failed(what);
  }
  comms_[members] = {.comm = comm};
  return Call(what, comm, 0);
}

absl::Status NcclMember::SendAndReceive(const NcclTransfer& transfer,
                                        PwNcclComm* comm) {
  const PwNccl& nccl = *options_.nccl;
  const auto bytes = static_cast<size_t>(transfer.bytes);
  const int other = 1 - options_.self;
  const std::string what = NameOf(transfer);
  for (const bool sends : {options_.self == 0, options_.self == 1}) {
    PW_RETURN_IF_ERROR(Call(what, comm,
                            sends ? nccl.send(comm, from_, bytes, other)
                                  : nccl.receive(comm, into_, bytes, other)));
  }
  return absl::OkStatus();
}

absl::Status NcclMember::One(const NcclTransfer& transfer, PwNcclComm* comm) {
  if (transfer.kind == OpKind::kSend) return SendAndReceive(transfer, comm);
  const PwNccl& nccl = *options_.nccl;
  const size_t whole = static_cast<size_t>(transfer.bytes) / kFloat;
  const size_t shard =
      std::max<size_t>(1, whole / static_cast<size_t>(transfer.members));
  const auto call = [&] {
    switch (transfer.kind) {
      case OpKind::kAllReduce:
        return nccl.all_reduce(comm, from_, into_, whole);
      case OpKind::kAllGather:
        return nccl.all_gather(comm, from_, into_, shard);
      case OpKind::kReduceScatter:
        return nccl.reduce_scatter(comm, from_, into_, shard);
      default:
        PW_CHECK(false);
    }
  };
  return Call(NameOf(transfer), comm, call());
}

absl::Status NcclMember::Begin(const NcclTransfer& transfer) {
  const PwNccl& nccl = *options_.nccl;
  Comm& comm = comms_.at(transfer.members);
  const std::string what = NameOf(transfer);
  PW_RETURN_IF_ERROR(Call(absl::StrCat(what, ", the start"), comm.comm,
                          nccl.all_reduce(comm.comm, from_, into_, 1)));
  if (nccl.clock(comm.comm, 0) < 0) return Failed(what);
  for (int repeat = 0; repeat < transfer.repeats; ++repeat) {
    PW_RETURN_IF_ERROR(One(transfer, comm.comm));
  }
  if (nccl.clock(comm.comm, 1) < 0 || nccl.mark(comm.comm) < 0) {
    return Failed(what);
  }
  ++comm.marks;
  return absl::OkStatus();
}

absl::StatusOr<double> NcclMember::End(const NcclTransfer& transfer) {
  const PwNccl& nccl = *options_.nccl;
  const Comm& comm = comms_.at(transfer.members);
  const std::string what = NameOf(transfer);
  PW_RETURN_IF_ERROR(Await(what, [&] {
    // An error of another member shows here, not at the mark.
    if (nccl.state(comm.comm) < 0) return -1;
    const int64_t reached = nccl.reached(comm.comm);
    return reached < 0 ? -1 : reached < comm.marks ? 1 : 0;
  }));
  double seconds = 0;
  if (nccl.elapsed(comm.comm, &seconds) < 0) return Failed(what);
  const int trips = transfer.kind == OpKind::kSend ? 2 : 1;
  return seconds / transfer.repeats / trips;
}

void NcclMember::CutOff() {
  for (const auto& [members, comm] : comms_) options_.nccl->cut_off(comm.comm);
  comms_.clear();
}

namespace {

constexpr int64_t kPartOfMemory = 8;
constexpr int64_t kBuffers = 2;
// Fewer bytes would say nothing about the bandwidth.
constexpr int64_t kLeastBytes = 1 << 16;

}  // namespace

int64_t TransferRoom(int64_t wanted, int64_t free_bytes) {
  int64_t bytes = wanted;
  while (bytes > free_bytes / kPartOfMemory / kBuffers) bytes /= 2;
  return bytes < kLeastBytes ? 0 : bytes;
}

absl::Status NoTransferRoom(int64_t free_bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("buffers for transfers: ", free_bytes,
                   " bytes are free on the fullest GPU, and they may take an "
                   "eighth of that; they need ",
                   kBuffers * kLeastBytes));
}

}  // namespace pipewright
