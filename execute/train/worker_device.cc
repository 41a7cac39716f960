#include "execute/train/worker_device.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/loader.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// Ranks of one process share a GPU: passes that overlap on it would time each
// other.
std::mutex& GpuToken() {
  static std::mutex token;
  return token;
}

}  // namespace

absl::Status WorkerDevice::Open(const PwKernels* kernels, int index,
                                const WorkerOptions& options, int part,
                                int parts) {
  handle_.kernels = kernels;
  holds_ = options.holds;
  token_ = options.token.get();
  if (token_ == nullptr && !options.parts &&
      absl::string_view(kernels->name) == "cuda") {
    token_ = &GpuToken();
  }
  if (options.parts) {
    const PwOpenPart open_part = pw_open_part_of(kernels);
    if (open_part == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the processors of ", kernels->name, " cannot be divided"));
    }
    PW_RETURN_IF_ERROR(Check(open_part(index, part, parts, &handle_.device),
                             "part of the device"));
  } else {
    PW_RETURN_IF_ERROR(Check(kernels->open(index, &handle_.device), "device"));
  }
  device_.reset(handle_.device,
                [kernels](PwDevice* device) { kernels->close(device); });
  for (PwEvent** const event : {&begin_, &end_}) {
    PW_RETURN_IF_ERROR(
        Check(kernels->create_event(handle_.device, event), "event"));
  }
  memory_ = std::make_shared<MemoryPool>(kernels, device_);
  host_ = std::make_shared<MemoryPool>(kernels, device_, PoolKind::kPinnedHost);
  return absl::OkStatus();
}

WorkerDevice::~WorkerDevice() {
  EndBeside();
  host_.reset();
  memory_.reset();
  for (PwEvent* const event : {begin_, end_}) {
    if (event != nullptr) handle_.kernels->destroy_event(handle_.device, event);
  }
}

absl::Status WorkerDevice::Synchronize(const char* what) const {
  return Check(handle_.kernels->synchronize(handle_.device, handle_.stream),
               what);
}

absl::Status WorkerDevice::Copy(PwCopy kind, void* to, const void* from,
                                size_t bytes, const char* what) const {
  return Check(handle_.kernels->copy(handle_.device, handle_.stream, kind, to,
                                     from, bytes),
               what);
}

absl::Status WorkerDevice::Accumulate(int64_t count, const void* from,
                                      float* into, const char* what) const {
  return Check(
      handle_.kernels->accumulate(handle_.device, handle_.stream, count,
                                  static_cast<const float*>(from), into),
      what);
}

absl::Status WorkerDevice::CopyOut(const void* from, size_t bytes,
                                   Payload* payload) const {
  PW_ASSIGN_OR_RETURN(*payload, memory_->TakeForMessages(bytes));
  return Copy(PW_DEVICE_TO_DEVICE, payload->data.get(), from, payload->bytes,
              "copy");
}

absl::StatusOr<double> WorkerDevice::Timed(
    const std::function<absl::Status()>& work, bool held) {
  std::unique_lock<std::mutex> token;
  if (token_ != nullptr) token = std::unique_lock<std::mutex>(*token_);
  const PwKernels& kernels = *handle_.kernels;
  held = held && holds_;
  if (held) {
    PW_RETURN_IF_ERROR(Check(
        kernels.hold_stream(handle_.device, handle_.stream), "hold a pass"));
  }
  absl::Status queued =
      Check(kernels.record(handle_.device, handle_.stream, begin_), "event");
  if (queued.ok()) queued = work();
  if (queued.ok()) {
    queued =
        Check(kernels.record(handle_.device, handle_.stream, end_), "event");
  }
  // Whatever happened: what is held would run into its time-out. A pass of
  // more launches than the driver queues has done so: its time is that of the
  // events all the same, with gaps, and so are those of the passes after it.
  if (held && kernels.release_streams(handle_.device) != PW_OK) holds_ = false;
  PW_RETURN_IF_ERROR(queued);
  PW_RETURN_IF_ERROR(Synchronize("synchronize"));
  memory_->Settle();
  double seconds = 0;
  PW_RETURN_IF_ERROR(
      Check(kernels.elapsed(handle_.device, begin_, end_, &seconds), "event"));
  return seconds;
}

absl::Status WorkerDevice::OpenBeside(Stream stream, const char* what) {
  const auto [found, is_new] = beside_.try_emplace(stream);
  if (!is_new) return absl::OkStatus();
  return Check(
      handle_.kernels->create_stream(handle_.device, 0, &found->second.stream),
      what);
}

void WorkerDevice::StartBeside(Stream stream,
                               std::function<absl::Status(PwStream*)> work,
                               WorkThread::Ended ended) {
  Beside& beside = beside_.at(stream);
  if (beside.thread == nullptr) beside.thread = std::make_unique<WorkThread>();
  beside.thread->Start(
      [work = std::move(work), stream = beside.stream] { return work(stream); },
      std::move(ended));
}

void WorkerDevice::EndBeside() {
  ends_.store(true, std::memory_order_relaxed);
  for (auto& [name, beside] : beside_) {
    beside.thread.reset();
    if (beside.stream == nullptr) continue;
    handle_.kernels->destroy_stream(handle_.device, beside.stream);
  }
  beside_.clear();
}

}  // namespace pipewright
