#include "execute/memory_pool.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "sim/base/status.h"

namespace pipewright {

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

MemoryPool::~MemoryPool() {
  for (const Blocks* const all : {&free_, &unsettled_}) {
    for (const auto& [bytes, blocks] : *all) {
      for (void* const block : blocks) Free(block);
    }
  }
}

// Touches every page.
absl::StatusOr<void*> MemoryPool::Allocate(size_t bytes) {
  void* memory = nullptr;
  if (kind_ == PoolKind::kPinnedHost) {
    PW_RETURN_IF_ERROR(KernelStatus(
        *kernels_, kernels_->allocate_host(device_.get(), bytes, &memory),
        "pinned host memory"));
    std::memset(memory, 0, bytes);
    return memory;
  }
  PW_RETURN_IF_ERROR(
      KernelStatus(*kernels_, kernels_->allocate(device_.get(), bytes, &memory),
                   "device memory"));
  const PwStatus zeroed = kernels_->zero(device_.get(), nullptr, memory, bytes);
  if (zeroed != PW_OK) {
    Free(memory);
    return KernelStatus(*kernels_, zeroed, "device memory");
  }
  // Whoever gets it may write it on another stream.
  const PwStatus touched = kernels_->synchronize(device_.get(), nullptr);
  if (touched != PW_OK) {
    Free(memory);
    return KernelStatus(*kernels_, touched, "device memory");
  }
  return memory;
}

void MemoryPool::Free(void* memory) {
  if (kind_ == PoolKind::kPinnedHost) {
    kernels_->release_host(device_.get(), memory);
  } else {
    kernels_->release(device_.get(), memory);
  }
}

void* MemoryPool::TakeFrom(Blocks& blocks, size_t bytes) {
  const auto found = blocks.find(bytes);
  if (found == blocks.end() || found->second.empty()) return nullptr;
  void* const memory = found->second.back();
  found->second.pop_back();
  return memory;
}

absl::StatusOr<Payload> MemoryPool::Give(size_t bytes, bool settled) {
  if (bytes == 0) return Payload();
  void* memory = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (!settled) memory = TakeFrom(unsettled_, bytes);
    if (memory == nullptr) memory = TakeFrom(free_, bytes);
  }
  if (memory == nullptr) {
    PW_ASSIGN_OR_RETURN(memory, Allocate(bytes));
  }
  std::lock_guard lock(mutex_);
  used_ += bytes;
  peak_ = std::max(peak_, used_);
  return Payload{.data = std::shared_ptr<void>(
                     memory, [self = shared_from_this(), bytes](
                                 void* block) { self->Return(block, bytes); }),
                 .bytes = bytes,
                 .on_device = kind_ == PoolKind::kDevice};
}

void MemoryPool::Return(void* memory, size_t bytes) {
  std::lock_guard lock(mutex_);
  used_ -= bytes;
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
  while (true) {
    {
      std::lock_guard lock(mutex_);
      if (static_cast<int>(free_[bytes].size()) >= count) {
        return absl::OkStatus();
      }
    }
    PW_ASSIGN_OR_RETURN(void* const memory, Allocate(bytes));
    std::lock_guard lock(mutex_);
    free_[bytes].push_back(memory);
  }
}

size_t MemoryPool::used() const {
  std::lock_guard lock(mutex_);
  return used_;
}

size_t MemoryPool::peak() const {
  std::lock_guard lock(mutex_);
  return peak_;
}

size_t MemoryPool::ResetPeak() {
  std::lock_guard lock(mutex_);
  return std::exchange(peak_, used_);
}

}  // namespace pipewright
