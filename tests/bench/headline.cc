#include "tests/bench/headline.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <new>
#include <vector>

namespace {

// In memory that children share.
std::atomic<int64_t>* AllocatedBytes() {
  static auto* const bytes = static_cast<std::atomic<int64_t>*>(
      ::mmap(nullptr, sizeof(std::atomic<int64_t>), PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  return bytes;
}

void* Allocate(size_t bytes, size_t alignment) {
  AllocatedBytes()->fetch_add(static_cast<int64_t>(bytes),
                              std::memory_order_relaxed);
  const size_t whole = (bytes + alignment - 1) / alignment * alignment;
  void* const memory = alignment <= alignof(std::max_align_t)
                           ? std::malloc(std::max<size_t>(bytes, 1))
                           : std::aligned_alloc(alignment, std::max(whole, alignment));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) {
  return Allocate(bytes, alignof(std::max_align_t));
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace pipewright {
namespace {

// The least of a few: what else runs makes none shorter.
double HandWrittenSeconds() {
  double least_s = std::numeric_limits<double>::infinity();
  for (int repetition = 0; repetition < 5; ++repetition) {
    const double begin_s = CpuSeconds();
    benchmark::DoNotOptimize(HandWritten1f1b(kHandWrittenMicrobatches));
    least_s = std::min(least_s, CpuSeconds() - begin_s);
  }
  return least_s;
}

int Planted() {
  const char* const text = std::getenv("PIPEWRIGHT_PLANTED");
  return text == nullptr ? 1 : std::max(1, std::atoi(text));
}

}  // namespace

double HandWritten1f1b(int microbatches) {
  constexpr int kRanks = kHandWrittenRanks;
  constexpr double kForward = 0.018522;
  constexpr double kBackward = 0.018086 + 0.009337;
  constexpr double kHop = 0.000601;
  std::vector<double> clock(kRanks, 0);
  std::vector<std::vector<double>> forward_end(
      kRanks, std::vector<double>(2 * kRanks, 0));
  std::vector<double> backward_end(kRanks, 0);
  const auto run_forward = [&](int rank, int microbatch) {
    double start = clock[rank];
    if (rank > 0) {
      start = std::max(start,
                       forward_end[rank - 1][microbatch % (2 * kRanks)] + kHop);
    }
    clock[rank] = start + kForward;
    forward_end[rank][microbatch % (2 * kRanks)] = clock[rank];
  };
  for (int rank = 0; rank < kRanks; ++rank) {
    for (int microbatch = 0; microbatch < kRanks - 1 - rank; ++microbatch) {
      run_forward(rank, microbatch);
    }
  }
  for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
    for (int rank = 0; rank < kRanks; ++rank) {
      const int forward = microbatch + kRanks - 1 - rank;
      if (forward < microbatches) run_forward(rank, forward);
    }
    for (int rank = kRanks - 1; rank >= 0; --rank) {
      double start = clock[rank];
      if (rank < kRanks - 1) {
        start = std::max(start, backward_end[rank + 1] + kHop);
      }
      clock[rank] = start + kBackward;
      backward_end[rank] = clock[rank];
    }
  }
  return *std::max_element(clock.begin(), clock.end());
}

double CpuSeconds() {
  timespec own;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
  rusage children;
  getrusage(RUSAGE_CHILDREN, &children);
  return static_cast<double>(own.tv_sec + children.ru_utime.tv_sec +
                             children.ru_stime.tv_sec) +
         1e-9 * static_cast<double>(own.tv_nsec) +
         1e-6 * static_cast<double>(children.ru_utime.tv_usec +
                                    children.ru_stime.tv_usec);
}

void Headline(benchmark::State& state, const std::function<double()>& body) {
  const int times = Planted();
  const double by_hand_s = HandWrittenSeconds();
  const int64_t bytes = *AllocatedBytes();
  const double begin_s = CpuSeconds();
  double count = 0;
  for (auto _ : state) {
    for (int time = 0; time < times; ++time) count += body();
  }
  const auto runs = static_cast<double>(state.iterations());
  const double seconds = (CpuSeconds() - begin_s) / runs;
  state.counters["cpu_ms"] = 1e3 * seconds;
  state.counters["ratio"] = seconds / by_hand_s;
  state.counters["bytes"] =
      static_cast<double>(*AllocatedBytes() - bytes) / runs;
  state.counters["count"] = count / runs;
}

}  // namespace pipewright
