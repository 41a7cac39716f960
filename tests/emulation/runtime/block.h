// A kernel that runs on the CPU: one block at a time, each thread of it a
// fiber. For files of this folder only.
#ifndef PIPEWRIGHT_TESTS_EMULATION_RUNTIME_BLOCK_H_
#define PIPEWRIGHT_TESTS_EMULATION_RUNTIME_BLOCK_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "tests/emulation/device/emulated_cuda.h"

namespace emulated {

// Who counts what kernels touch (../accesses); nobody unless set.
struct Watcher {
  std::function<void(const KernelCall& call)> block_begins;
  std::function<void()> block_ends;
  std::function<void(void* memory, size_t bytes)> shared_begins;
};
extern Watcher watcher;

// Hidden: its functions can be inlined.
class __attribute__((visibility("hidden"))) Kernel {
 public:
  explicit Kernel(const KernelCall& call);
  ~Kernel();
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  // Runs until all blocks are done (true) or all threads of one sleep. Only
  // kernels without shared memory may sleep: what has names is there once.
  bool Step();

  // Called by its threads.
  int Barrier(bool predicate);
  const uint64_t* Exchange(unsigned mask, uint64_t value);
  void Sleep();
  void BeginShared(void* memory, size_t bytes);
  int lane() const { return current_ % 32; }
  float* dynamic() { return static_cast<float*>(dynamic_); }

  // Is it in the page behind dynamic shared memory?
  bool Behind(const void* address) const;
  const char* name() const { return call_.name.c_str(); }

  // Where a fiber starts.
  static void Enter();

 private:
  enum class Wait { kNothing, kBarrier, kWarp, kSleep, kEnded };
  struct Fiber {
    void* stack = nullptr;
    void* top = nullptr;  // where it goes on
    Wait wait = Wait::kNothing;
    int exchanges = 0;
  };
  // Values of an exchange stay until the one after the next.
  struct Warp {
    uint64_t values[2][32];
    unsigned arrived = 0;
    unsigned wanted = 0;
    unsigned gone = 0;  // lanes that have ended or never were
    int complete = 0;
  };

  void BeginBlock();
  // One turn of all threads that can go on.
  bool TurnOfAll(bool* slept);
  bool CanRun(int thread) const;
  void Resume(int thread);
  void Pause(Wait wait);
  bool OpenBarrier();
  [[noreturn]] void Stuck() const;

  KernelCall call_;
  int64_t blocks_ = 0;
  int64_t begun_ = 0;
  bool inside_ = false;
  int threads_ = 0;
  int ended_ = 0;
  int with_predicate_ = 0;  // at the barrier that is filling
  int counted_ = 0;         // at the last one
  int current_ = -1;
  void* host_ = nullptr;
  std::vector<Index> indexes_;  // [thread]
  std::vector<Fiber> fibers_;
  std::vector<Warp> warps_;
  std::vector<int> order_;
  // Up to the end of a page; what lies behind it ends the process.
  void* dynamic_ = nullptr;
  void* mapped_ = nullptr;
  size_t mapped_bytes_ = 0;
  std::vector<void*> shared_;  // that the block has begun
};

}  // namespace emulated

#endif  // PIPEWRIGHT_TESTS_EMULATION_RUNTIME_BLOCK_H_
