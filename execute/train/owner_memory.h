// ODC's side of an owner (arXiv 2601.19362; its repository sail-sg/odc,
// scatter_accumulate.py): the part of the weights that it owns, which clients
// read themselves, the sums of their gradients, and a buffer for each client,
// which only that one writes. A client posts a request; the owner's service
// looks at the requests, adds what stands in the buffers, one client after the
// other, and acknowledges. It lies in memory that all of them share.
//
// Weights are read between two meetings of all, and written by their owner
// between the others; so are sums.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"

namespace pipewright {

struct OwnerShape {
  int clients = 1;
  std::vector<int64_t> shards;  // [unit of the rank]: elements of this owner
  int64_t buffer = 1;           // elements that a client pushes at a time

  size_t Bytes() const;
};

class OwnerMemory {
 public:
  // `memory`: OwnerShape::Bytes(), all 0 at first; must outlive it.
  OwnerMemory(OwnerShape shape, void* memory);

  const OwnerShape& shape() const { return shape_; }
  float* weights(int unit) const { return weights_ + first_[unit]; }
  float* sums(int unit) const { return sums_ + first_[unit]; }

  // True if all that client number `client` has posted is added: it may post
  // again.
  bool AllAdded(int client) const;
  void Post(int client, int unit, int64_t begin, const float* values,
            int64_t count);

  // Adds what has been posted, and returns the number of requests. The owner
  // calls it.
  int Serve();

  // Number of requests of all clients so far.
  uint64_t posted() const;
  uint64_t added() const;

 private:
  // A client's; lines of caches apart.
  struct alignas(128) Request {
    std::atomic<uint64_t> posted;
    int32_t unit;
    int64_t begin;
    int64_t count;
    alignas(64) std::atomic<uint64_t> added;
  };
  static_assert(std::atomic<uint64_t>::is_always_lock_free);

  friend struct OwnerShape;

  OwnerShape shape_;
  std::vector<int64_t> first_;  // [unit]
  Request* requests_ = nullptr;
  float* weights_ = nullptr;
  float* sums_ = nullptr;
  float* buffers_ = nullptr;
};

// Looks at an owner's requests every `poll_s` on a thread of its own, as the
// process beside each GPU does.
class OwnerService {
 public:
  OwnerService(OwnerMemory* memory, double poll_s);
  // At once, however long `poll_s` is.
  ~OwnerService();
  OwnerService(const OwnerService&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ends_ = false;
  std::thread thread_;
};

// Pushes one client's gradients of a unit to all owners: values + begins[owner]
// are those of `owner`. Slices of as much as a buffer takes go to all owners at
// once; then the client waits until all are added. kUnavailable where one is
// not for `patience_s`, and what `ended` says where it gives an error, which it
// is asked for while the client waits.
absl::Status PushToOwners(const std::vector<OwnerMemory*>& owners, int client,
                          int unit, const float* values,
                          const std::vector<int64_t>& begins, double patience_s,
                          const std::function<absl::Status()>& ended);

}  // namespace pipewright
