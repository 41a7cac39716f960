// The same work for many indices on several threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/status/status.h"

namespace pipewright {

// As many as the machine runs at once, at least 1.
inline int NumCores() {
  const unsigned cores = std::thread::hardware_concurrency();
  return cores == 0 ? 1 : static_cast<int>(cores);
}

// `work(index)` for 0..count-1, `threads` at a time, each index once, in no
// fixed order. Returns the error of the smallest index that has one, whatever
// the number of threads; indices above it may be left out. `work` writes to
// what belongs to its index alone.
template <typename Work>
absl::Status ParallelFor(int64_t count, int threads, const Work& work) {
  std::atomic<int64_t> next = 0;
  std::atomic<int64_t> failed = count;
  const auto several = static_cast<size_t>(threads < 1 ? 1 : threads);
  std::vector<absl::Status> errors(several);
  std::vector<int64_t> failed_at(several, count);
  const auto run = [&](size_t thread) {
    for (int64_t index = next++; index < failed; index = next++) {
      absl::Status status = work(index);
      if (status.ok()) continue;
      errors[thread] = std::move(status);
      failed_at[thread] = index;
      int64_t before = failed;
      while (index < before && !failed.compare_exchange_weak(before, index)) {
      }
      return;
    }
  };
  std::vector<std::thread> others;
  for (size_t thread = 1; thread < several; ++thread) {
    others.emplace_back(run, thread);
  }
  run(0);
  for (std::thread& other : others) other.join();
  size_t first = 0;
  for (size_t thread = 1; thread < several; ++thread) {
    if (failed_at[thread] < failed_at[first]) first = thread;
  }
  return errors[first];
}

}  // namespace pipewright
