#include "execute/train/owner_memory.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_format.h"
#include "execute/transport/steady_seconds.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// A client looks this often whether all is added.
constexpr std::chrono::microseconds kClientLook{20};

int64_t SumOf(const std::vector<int64_t>& shards) {
  return std::accumulate(shards.begin(), shards.end(), int64_t{0});
}

}  // namespace

size_t OwnerShape::Bytes() const {
  return clients * sizeof(OwnerMemory::Request) +
         static_cast<size_t>(2 * SumOf(shards) + clients * buffer) *
             sizeof(float);
}

OwnerMemory::OwnerMemory(OwnerShape shape, void* memory)
    : shape_(std::move(shape)) {
  // Zeros are requests of which none is posted.
  requests_ = static_cast<Request*>(memory);
  weights_ = reinterpret_cast<float*>(requests_ + shape_.clients);
  const int64_t all = SumOf(shape_.shards);
  sums_ = weights_ + all;
  buffers_ = sums_ + all;
  int64_t first = 0;
  for (const int64_t shard : shape_.shards) {
    first_.push_back(first);
    first += shard;
  }
}

bool OwnerMemory::AllAdded(int client) const {
  const Request& request = requests_[client];
  return request.added.load(std::memory_order_acquire) ==
         request.posted.load(std::memory_order_relaxed);
}

void OwnerMemory::Post(int client, int unit, int64_t begin, const float* values,
                       int64_t count) {
  Request& request = requests_[client];
  memcpy(buffers_ + client * shape_.buffer, values,
         static_cast<size_t>(count) * sizeof(float));
  request.unit = unit;
  request.begin = begin;
  request.count = count;
  request.posted.fetch_add(1, std::memory_order_release);
}

int OwnerMemory::Serve() {
  int served = 0;
  for (int client = 0; client < shape_.clients; ++client) {
    Request& request = requests_[client];
    const uint64_t posted = request.posted.load(std::memory_order_acquire);
    if (posted == request.added.load(std::memory_order_relaxed)) continue;
    float* const into = sums(request.unit) + request.begin;
    const float* const from = buffers_ + client * shape_.buffer;
    for (int64_t at = 0; at < request.count; ++at) into[at] += from[at];
    request.added.store(posted, std::memory_order_release);
    ++served;
  }
  return served;
}

uint64_t OwnerMemory::posted() const {
  uint64_t all = 0;
  for (int client = 0; client < shape_.clients; ++client) {
    all += requests_[client].posted.load(std::memory_order_acquire);
  }
  return all;
}

uint64_t OwnerMemory::added() const {
  uint64_t all = 0;
  for (int client = 0; client < shape_.clients; ++client) {
    all += requests_[client].added.load(std::memory_order_acquire);
  }
  return all;
}

OwnerService::OwnerService(OwnerMemory* memory, double poll_s)
    : thread_([this, memory, poll_s] {
        const std::chrono::duration<double> poll(poll_s);
        std::unique_lock lock(mutex_);
        while (!ends_) {
          lock.unlock();
          memory->Serve();
          std::this_thread::yield();
          lock.lock();
          wake_.wait_for(lock, poll, [this] { return ends_; });
        }
      }) {}

OwnerService::~OwnerService() {
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

absl::Status PushToOwners(const std::vector<OwnerMemory*>& owners, int client,
                          int unit, const float* values,
                          const std::vector<int64_t>& begins, double patience_s,
                          const std::function<absl::Status()>& ended) {
  bool more = true;
  for (int64_t begin = 0; more;) {
    more = false;
    int64_t step = 0;
    for (size_t owner = 0; owner < owners.size(); ++owner) {
      const OwnerShape& shape = owners[owner]->shape();
      const int64_t left = shape.shards[unit] - begin;
      step = shape.buffer;
      if (left <= 0) continue;
      owners[owner]->Post(client, unit, begin, values + begins[owner] + begin,
                          std::min(left, shape.buffer));
      more |= left > shape.buffer;
    }
    begin += step;
    const double since_s = SteadySeconds();
    for (size_t owner = 0; owner < owners.size(); ++owner) {
      while (!owners[owner]->AllAdded(client)) {
        if (SteadySeconds() - since_s > patience_s) {
          return absl::UnavailableError(absl::StrFormat(
              "replica %d has not added what replica %d pushed to it for %.6g "
              "s: lost",
              owner, client, patience_s));
        }
        PW_RETURN_IF_ERROR(ended());
        std::this_thread::sleep_for(kClientLook);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace pipewright
