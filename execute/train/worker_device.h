// The device of one rank: its compute stream, whose work it times, its memory,
// pinned memory of its host, and streams beside compute.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "execute/train/memory_pool.h"
#include "execute/train/stage.h"
#include "execute/train/work_thread.h"
#include "execute/train/worker_options.h"
#include "kernels/kernels.h"
#include "sim/program/op_kind.h"

namespace pipewright {

class WorkerDevice {
 public:
  WorkerDevice() = default;
  // Memory that it has given away keeps the device open.
  ~WorkerDevice();
  WorkerDevice(const WorkerDevice&) = delete;

  // Device number `index`; with options.parts, part `part` of `parts` of its
  // processors. Error: kInvalidArgument if they cannot be divided.
  absl::Status Open(const PwKernels* kernels, int index,
                    const WorkerOptions& options, int part, int parts);
  bool is_open() const { return memory_ != nullptr; }

  const DeviceHandle& handle() const { return handle_; }
  MemoryPool& memory() const { return *memory_; }
  MemoryPool& host() const { return *host_; }

  absl::Status Check(PwStatus status, const char* what) const {
    return KernelStatus(*handle_.kernels, status, what);
  }
  // All that is queued on the compute stream has ended.
  absl::Status Synchronize(const char* what) const;
  // Queued on the compute stream, as the two below.
  absl::Status Copy(PwCopy kind, void* to, const void* from, size_t bytes,
                    const char* what) const;
  absl::Status Accumulate(int64_t count, const void* from, float* into,
                          const char* what) const;
  // Copies into a new block for a message.
  absl::Status CopyOut(const void* from, size_t bytes, Payload* payload) const;

  // Seconds between events around what `work` queues, which has ended. `held`:
  // it may be queued whole before it starts (WorkerOptions::holds).
  absl::StatusOr<double> Timed(const std::function<absl::Status()>& work,
                               bool held = false);

  // Streams beside compute where time is real: each has a stream of the device
  // and a thread, first in, first out, as the copy engines of a GPU and the
  // cores of a host are. OpenBeside makes the stream, once; `work` may use the
  // device on it, and `ended` is told on the thread what it gives.
  absl::Status OpenBeside(Stream stream, const char* what);
  void StartBeside(Stream stream, std::function<absl::Status(PwStream*)> work,
                   WorkThread::Ended ended);
  // Nobody needs what is under way there: waits for its end.
  void EndBeside();
  bool ends() const { return ends_.load(std::memory_order_relaxed); }

 private:
  struct Beside {
    PwStream* stream = nullptr;
    std::unique_ptr<WorkThread> thread;
  };

  DeviceHandle handle_;
  std::shared_ptr<PwDevice> device_;
  PwEvent* begin_ = nullptr;
  PwEvent* end_ = nullptr;
  std::shared_ptr<MemoryPool> memory_;
  std::shared_ptr<MemoryPool> host_;
  std::mutex* token_ = nullptr;
  bool holds_ = false;
  std::map<Stream, Beside> beside_;
  std::atomic<bool> ends_{false};
};

}  // namespace pipewright
