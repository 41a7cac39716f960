#include "execute/train/memory_pool.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr size_t kAlignment = 512;
// Each slab is twice the one before, up to the last.
constexpr size_t kFirstSlab = size_t{1} << 20;
constexpr size_t kLastSlab = 4 * MemoryPool::kLargestShared;

}  // namespace

absl::Status KernelStatus(const PwKernels& kernels, PwStatus status,
                          const char* what) {
  if (status == PW_OK) return absl::OkStatus();
  const char* const said = kernels.error();
  const std::string text = absl::StrCat(
      what, ": ", said == nullptr || *said == '\0' ? "failed" : said);
  switch (status) {
    case PW_INVALID:
      return absl::InvalidArgumentError(text);
    case PW_NO_MEMORY:
      return absl::ResourceExhaustedError(text);
    default:
      return absl::InternalError(text);
  }
}

std::shared_ptr<void> MemoryAccount::Charge(size_t bytes) {
  {
    std::lock_guard lock(mutex_);
    used_ += bytes;
    peak_ = std::max(peak_, used_);
  }
  // Without memory for the pointer itself the bytes leave the account at once.
  return {this, [self = shared_from_this(), bytes](void*) {
            std::lock_guard lock(self->mutex_);
            self->used_ -= bytes;
          }};
}

size_t MemoryAccount::used() const {
  std::lock_guard lock(mutex_);
  return used_;
}

size_t MemoryAccount::peak() const {
  std::lock_guard lock(mutex_);
  return peak_;
}

size_t MemoryAccount::ResetPeak() {
  std::lock_guard lock(mutex_);
  return std::exchange(peak_, used_);
}

MemoryPool::~MemoryPool() {
  for (void* const slab : slabs_) {
    if (kind_ == PoolKind::kPinnedHost) {
      kernels_->release_host(device_.get(), slab);
    } else {
      kernels_->release(device_.get(), slab);
    }
  }
}

// Touches every page.
absl::StatusOr<void*> MemoryPool::AllocateSlab(size_t bytes) {
  void* memory = nullptr;
  if (kind_ == PoolKind::kPinnedHost) {
    PW_RETURN_IF_ERROR(KernelStatus(
        *kernels_, kernels_->allocate_host(device_.get(), bytes, &memory),
        "pinned host memory"));
    slabs_.push_back(memory);
    std::memset(memory, 0, bytes);
    return memory;
  }
  PW_RETURN_IF_ERROR(
      KernelStatus(*kernels_, kernels_->allocate(device_.get(), bytes, &memory),
                   "device memory"));
  slabs_.push_back(memory);
  PW_RETURN_IF_ERROR(KernelStatus(
      *kernels_, kernels_->zero(device_.get(), nullptr, memory, bytes),
      "device memory"));
  // Whoever gets it may write it on another stream.
  PW_RETURN_IF_ERROR(KernelStatus(*kernels_,
                                  kernels_->synchronize(device_.get(), nullptr),
                                  "device memory"));
  return memory;
}

size_t MemoryPool::SlabBytes(size_t bytes) {
  size_t slab = 0;
  size_t sum = 0;
  while (sum < bytes) {
    slab = std::clamp(2 * slab, kFirstSlab, kLastSlab);
    sum += slab;
  }
  return sum;
}

absl::StatusOr<void*> MemoryPool::Cut(size_t bytes) {
  const size_t aligned = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (aligned > kLargestShared) return AllocateSlab(aligned);
  while (rest_bytes_ < aligned) {
    // What is left is lost: little of it, with blocks this small.
    next_slab_ = std::clamp(2 * next_slab_, kFirstSlab, kLastSlab);
    if (next_slab_ < aligned) continue;
    PW_ASSIGN_OR_RETURN(void* const slab, AllocateSlab(next_slab_));
    rest_ = static_cast<char*>(slab);
    rest_bytes_ = next_slab_;
  }
  void* const block = rest_;
  rest_ += aligned;
  rest_bytes_ -= aligned;
  return block;
}

void* MemoryPool::TakeFrom(Blocks& blocks, size_t bytes) {
  const auto found = blocks.find(bytes);
  if (found == blocks.end() || found->second.empty()) return nullptr;
  void* const memory = found->second.back();
  found->second.pop_back();
  return memory;
}

absl::StatusOr<Payload> MemoryPool::Give(
    size_t bytes, bool settled, const std::shared_ptr<MemoryAccount>& account) {
  if (bytes == 0) return Payload();
  std::unique_lock lock(mutex_);
  void* memory = settled ? nullptr : TakeFrom(unsettled_, bytes);
  if (memory == nullptr) memory = TakeFrom(free_, bytes);
  if (memory == nullptr) {
    PW_ASSIGN_OR_RETURN(memory, Cut(bytes));
  }
  // Without memory for the pointer itself the block returns at once.
  lock.unlock();
  Payload payload = {
      .data = std::shared_ptr<void>(
          memory, [self = shared_from_this(),
                   bytes](void* block) { self->Return(block, bytes); }),
      .bytes = bytes,
      .on_device = kind_ == PoolKind::kDevice};
  Charge(account, &payload);
  return payload;
}

// Never on two accounts, nor twice on one.
void MemoryPool::Charge(const std::shared_ptr<MemoryAccount>& account,
                        Payload* payload) {
  payload->charge.reset();
  if (payload->bytes > 0) payload->charge = account->Charge(payload->bytes);
}

void MemoryPool::Return(void* memory, size_t bytes) {
  std::lock_guard lock(mutex_);
  (kind_ == PoolKind::kDevice ? unsettled_ : free_)[bytes].push_back(memory);
}

void MemoryPool::Settle() {
  std::lock_guard lock(mutex_);
  for (auto& [bytes, blocks] : unsettled_) {
    std::vector<void*>& free = free_[bytes];
    free.insert(free.end(), blocks.begin(), blocks.end());
    blocks.clear();
  }
}

absl::Status MemoryPool::Reserve(size_t bytes, int count) {
  if (bytes == 0) return absl::OkStatus();
  std::lock_guard lock(mutex_);
  while (static_cast<int>(free_[bytes].size()) < count) {
    PW_ASSIGN_OR_RETURN(void* const memory, Cut(bytes));
    free_[bytes].push_back(memory);
  }
  return absl::OkStatus();
}

}  // namespace pipewright
