#include "execute/transport/nccl_transfers.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "sim/base/check.h"
#include "sim/base/status.h"

namespace pipewright {
absl::StatusOr<std::unique_ptr<NcclTransfers>> NcclTransfers::Create(
    const Options& options) {
  PW_CHECK(options.devices >= 2);
  auto transfers = std::unique_ptr<NcclTransfers>(new NcclTransfers(options));
  PW_RETURN_IF_ERROR(transfers->Open());
  PW_RETURN_IF_ERROR(transfers->Reserve());
  return transfers;
}

NcclTransfers::~NcclTransfers() {
  {
    std::lock_guard lock(mutex_);
    quit_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

absl::Status NcclTransfers::Open() {
  const auto devices = static_cast<size_t>(options_.devices);
  members_.resize(devices);
  seconds_.resize(devices);
  for (int device = 0; device < options_.devices; ++device) {
    threads_.emplace_back([this, device] { Loop(device); });
  }
  return OnAll(options_.devices, [this](int device) -> absl::Status {
    PW_ASSIGN_OR_RETURN(
        members_[static_cast<size_t>(device)],
        NcclMember::Open({.nccl = options_.nccl,
                          .kernels = options_.kernels,
                          .device = device,
                          .self = device,
                          .timeout_s = options_.timeout_s,
                          .given_up = [this] { return failed_.load(); }}));
    return absl::OkStatus();
  });
}

absl::Status NcclTransfers::Reserve() {
  int64_t least_free = members_[0]->free_bytes();
  for (const auto& member : members_) {
    least_free = std::min(least_free, member->free_bytes());
  }
  most_bytes_ = TransferRoom(options_.most_bytes, least_free);
  // The free memory may be in pieces.
  while (most_bytes_ > 0) {
    std::atomic<bool> full{false};
    PW_RETURN_IF_ERROR(OnAll(options_.devices, [&](int device) {
      const absl::Status status =
          members_[static_cast<size_t>(device)]->Reserve(most_bytes_);
      if (!absl::IsResourceExhausted(status)) return status;
      full = true;
      return absl::OkStatus();
    }));
    if (!full) return absl::OkStatus();
    PW_RETURN_IF_ERROR(OnAll(options_.devices, [&](int device) {
      members_[static_cast<size_t>(device)]->Release();
      return absl::OkStatus();
    }));
    most_bytes_ = TransferRoom(most_bytes_ / 2, least_free);
  }
  return NoTransferRoom(least_free);
}

absl::Status NcclTransfers::Join(int members) {
  PW_CHECK(members >= 2 && members <= options_.devices);
  PW_RETURN_IF_ERROR(failure_);
  PwNcclId id;
  if (options_.nccl->make_id(&id) < 0) {
    return absl::UnavailableError(
        absl::StrCat("a new communicator: ", options_.nccl->error()));
  }
  return OnAll(members, [&](int device) {
    return members_[static_cast<size_t>(device)]->Join(id, members);
  });
}

absl::Status NcclTransfers::Begin(const NcclTransfer& transfer) {
  PW_CHECK(transfer.bytes <= most_bytes_ && transfer.repeats > 0);
  begun_ = transfer;
  return OnAll(transfer.members, [this](int device) {
    return members_[static_cast<size_t>(device)]->Begin(begun_);
  });
}

absl::StatusOr<double> NcclTransfers::End() {
  PW_RETURN_IF_ERROR(OnAll(begun_.members, [this](int device) -> absl::Status {
    const auto index = static_cast<size_t>(device);
    PW_ASSIGN_OR_RETURN(seconds_[index], members_[index]->End(begun_));
    return absl::OkStatus();
  }));
  return *std::max_element(seconds_.begin(), seconds_.begin() + begun_.members);
}

// On the threads of the first `members` devices; returns when all have ended.
absl::Status NcclTransfers::OnAll(int members, const Work& work) {
  PW_RETURN_IF_ERROR(failure_);
  std::unique_lock lock(mutex_);
  work_ = &work;
  taking_part_ = left_ = members;
  ++round_;
  changed_.notify_all();
  changed_.wait(lock, [this] { return left_ == 0; });
  return failure_;
}

void NcclTransfers::Loop(int device) {
  const auto index = static_cast<size_t>(device);
  int64_t seen = 0;
  while (true) {
    const Work* work = nullptr;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return quit_ || round_ != seen; });
      // Every member leaves on its own thread: they wait for each other.
      if (quit_) break;
      seen = round_;
      if (device >= taking_part_) continue;
      work = work_;
    }
    const absl::Status status = (*work)(device);
    if (!status.ok()) {
      {
        // The first is the cause: others hear of it when this one is cut off.
        std::lock_guard lock(mutex_);
        failure_.Update(status);
      }
      failed_ = true;
      if (members_[index] != nullptr) members_[index]->CutOff();
    }
    std::lock_guard lock(mutex_);
    if (--left_ == 0) changed_.notify_all();
  }
  members_[index].reset();
}

}  // namespace pipewright
