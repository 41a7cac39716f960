#include "execute/transport/nccl_comm.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "execute/transport/steady_seconds.h"

namespace pipewright {

NcclComm::~NcclComm() {
  if (comm_ == nullptr) return;
  if (!idle() || calling_) {
    Abort();
  } else {
    nccl_.leave(comm_);
  }
}

void NcclComm::Abort() {
  if (comm_ != nullptr) nccl_.cut_off(comm_);
  comm_ = nullptr;
  queued_.clear();
  running_.clear();
}

void NcclComm::Enqueue(Operation operation) {
  operation.since_s = SteadySeconds();
  queued_.push_back(std::move(operation));
}

absl::Status NcclComm::Failed(const Operation* operation) const {
  return absl::UnavailableError(absl::StrCat(
      "NCCL", operation == nullptr ? "" : ", ",
      operation == nullptr ? "" : operation->what, ": ", nccl_.error()));
}

absl::Status NcclComm::Pump(double longest_s) {
  if (comm_ == nullptr) return absl::OkStatus();
  while (true) {
    // Errors of what runs on the device show here as well.
    const int state = nccl_.state(comm_);
    if (state < 0) {
      return Failed(!running_.empty()  ? &running_.front()
                    : !queued_.empty() ? &queued_.front()
                                       : nullptr);
    }
    if (state > 0) break;
    calling_ = false;
    if (issued_) {
      if (nccl_.mark(comm_) < 0) return Failed(&queued_.front());
      running_.push_back(std::move(queued_.front()));
      queued_.pop_front();
      issued_ = false;
    }
    if (queued_.empty()) break;
    calling_ = true;
    issued_ = true;
    if (queued_.front().issue(nccl_, comm_) < 0) {
      return Failed(&queued_.front());
    }
  }
  const int64_t reached = running_.empty() ? reached_ : nccl_.reached(comm_);
  if (reached < 0) return Failed(&running_.front());
  for (; reached_ < reached; ++reached_) {
    const Operation ended = std::move(running_.front());
    running_.pop_front();
    if (ended.ended) ended.ended();
  }
  if (idle()) return absl::OkStatus();
  const Operation& waits =
      running_.empty() ? queued_.front() : running_.front();
  if (SteadySeconds() - waits.since_s <= longest_s) return absl::OkStatus();
  return absl::UnavailableError(absl::StrFormat(
      "NCCL, %s: under way for longer than %g s", waits.what, longest_s));
}

}  // namespace pipewright
