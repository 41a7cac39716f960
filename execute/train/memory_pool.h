// Device memory, or pinned host memory, of one rank: blocks that are used again
// once they are free, and accounts of how much is in use at most. Allocating
// and first touching memory inside a pass would be timed with it. Blocks are
// cut from slabs, as caching allocators do: on a CPU a slab has large pages,
// which a block of a few MiB by itself would not get.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "execute/transport/message.h"
#include "kernels/kernels.h"

namespace pipewright {

// What `status` of a backend means for the run, with what it says itself.
absl::Status KernelStatus(const PwKernels& kernels, PwStatus status,
                          const char* what);

enum class PoolKind { kDevice, kPinnedHost };

// Bytes in use now and at most. Thread-safe.
class MemoryAccount : public std::enable_shared_from_this<MemoryAccount> {
 public:
  // On the account until the last copy of what it returns is gone.
  std::shared_ptr<void> Charge(size_t bytes);
  size_t used() const;
  size_t peak() const;
  // The peak until now; the next one begins at what is in use.
  size_t ResetPeak();

 private:
  mutable std::mutex mutex_;
  size_t used_ = 0;
  size_t peak_ = 0;
};

// Has two accounts. `used` is what the rank works with: what it has taken and
// not given away, and what it has been given from the pass on that reads it. It
// depends on the rank's order alone. `messages` is what is on its way or waits
// for a pass, with the parts of collectives: that depends on how far ranks are
// apart.
//
// Made by std::make_shared: what it has given away keeps it, and the device,
// alive, for a message may outlive the rank that has sent it.
class MemoryPool : public std::enable_shared_from_this<MemoryPool> {
 public:
  MemoryPool(const PwKernels* kernels, std::shared_ptr<PwDevice> device,
             PoolKind kind = PoolKind::kDevice)
      : kernels_(kernels), device_(std::move(device)), kind_(kind) {}
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;

  // A block that returns when the last holder lets go of it, on any thread; it
  // is on the account `used`. No bytes: an empty one. Error:
  // kResourceExhausted.
  //
  // For work that is queued behind what used it before: a block that has
  // returned may still wait for a kernel that was queued with it.
  absl::StatusOr<Payload> Take(size_t bytes) {
    return Give(bytes, false, used_);
  }
  // For work on another stream: nothing that is queued uses it.
  absl::StatusOr<Payload> TakeSettled(size_t bytes) {
    return Give(bytes, true, used_);
  }
  // The same two for what was never the rank's own: on `messages` at once.
  absl::StatusOr<Payload> TakeForMessages(size_t bytes) {
    return Give(bytes, false, messages_);
  }
  absl::StatusOr<Payload> TakeSettledForMessages(size_t bytes) {
    return Give(bytes, true, messages_);
  }
  // All that was queued with blocks returned so far has ended.
  void Settle();
  // Allocates until `count` blocks are free for TakeSettled.
  absl::Status Reserve(size_t bytes, int count);

  // Puts what is taken, of this pool or another, on an account of this one.
  void ChargeUsed(Payload* payload) { Charge(used_, payload); }
  void ChargeMessages(Payload* payload) { Charge(messages_, payload); }

  // What blocks of so many bytes in all take, where they share slabs; larger
  // blocks than kLargestShared have one of their own.
  static constexpr size_t kLargestShared = size_t{8} << 20;
  static size_t SlabBytes(size_t bytes);

  size_t used() const { return used_->used(); }
  size_t peak() const { return used_->peak(); }
  size_t ResetPeak() { return used_->ResetPeak(); }
  size_t messages_peak() const { return messages_->peak(); }
  void ResetMessagesPeak() { messages_->ResetPeak(); }

 private:
  absl::StatusOr<Payload> Give(size_t bytes, bool settled,
                               const std::shared_ptr<MemoryAccount>& account);
  static void Charge(const std::shared_ptr<MemoryAccount>& account,
                     Payload* payload);
  // Under the lock.
  absl::StatusOr<void*> Cut(size_t bytes);
  absl::StatusOr<void*> AllocateSlab(size_t bytes);
  void Return(void* memory, size_t bytes);

  const PwKernels* const kernels_;
  const std::shared_ptr<PwDevice> device_;
  const PoolKind kind_;
  mutable std::mutex mutex_;
  using Blocks = std::map<size_t, std::vector<void*>>;  // [bytes]
  static void* TakeFrom(Blocks& blocks, size_t bytes);

  std::vector<void*> slabs_;
  char* rest_ = nullptr;  // free part of the newest shared slab
  size_t rest_bytes_ = 0;
  size_t next_slab_ = 0;
  Blocks free_;
  Blocks unsettled_;  // returned since the last Settle; device memory only
  const std::shared_ptr<MemoryAccount> used_ =
      std::make_shared<MemoryAccount>();
  const std::shared_ptr<MemoryAccount> messages_ =
      std::make_shared<MemoryAccount>();
};

}  // namespace pipewright
