#include "tests/emulation/runtime/block.h"

#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/emulation/runtime/queue.h"
#include "tests/emulation/runtime/settings.h"

namespace emulated {

Place place;
bool inside = false;
Watcher watcher;

namespace {

// Leaves one stack for another: *from is where the first goes on, `to` where
// the second does. All registers are given up but the frame pointer, which is
// on the stack, below the 128 bytes that a function may use there (System V ABI
// for AMD64, "The Stack Frame"). No call and no return, nor in what does this:
// a processor foretells a return from the last call, which was on another
// stack, and half of the time of a kernel that exchanges much was wrong
// guesses.
[[gnu::always_inline]] inline void Switch(void** from, void* to) {
  asm volatile(
      "leaq -128(%%rsp), %%rsp\n\t"
      "pushq %%rbp\n\t"
      "leaq 1f(%%rip), %%rax\n\t"
      "pushq %%rax\n\t"
      "movq %%rsp, (%%rdi)\n\t"
      "movq %%rsi, %%rsp\n\t"
      "popq %%rax\n\t"
      "jmpq *%%rax\n"
      "1:\n\t"
      "popq %%rbp\n\t"
      "leaq 128(%%rsp), %%rsp\n\t"
      : "+D"(from), "+S"(to)
      :
      : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13",
        "r14", "r15", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6",
        "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",
        "xmm15", "memory", "cc");
}

constexpr size_t kStackBytes = size_t{256} << 10;
constexpr size_t kLineBytes = 64;
constexpr size_t kSpreadBytes = size_t{32} << 10;
constexpr size_t kPageBytes = 4096;

Kernel* running = nullptr;

// Says which kernel it was; the second time, the process ends as it would have.
void OnFault(int signal_number, siginfo_t* info, void*) {
  signal(signal_number, SIG_DFL);
  if (!inside) return;
  const char* const where = running->Behind(info->si_addr)
                                ? "beyond dynamic shared memory"
                                : "beyond an allocation or in freed memory";
  std::fprintf(
      stderr, "emulation: VIOLATION: %s: block %u, thread %u is %s, at %p\n",
      running->name(), place.block.x, place.thread.x, where, info->si_addr);
}

void CatchFaults() {
  static const bool caught = [] {
    struct sigaction action = {};
    action.sa_sigaction = OnFault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, nullptr);
    return true;
  }();
  (void)caught;
}

std::vector<void*>& FreeStacks() {
  static std::vector<void*> stacks;
  return stacks;
}

void* TakeStack() {
  if (!FreeStacks().empty()) {
    void* stack = FreeStacks().back();
    FreeStacks().pop_back();
    return stack;
  }
  void* stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack == MAP_FAILED) abort();
  return stack;
}

// Where a stack begins. Not at the same place in each page: caches have few
// lines for addresses that differ by a power of two.
void** TopOf(void* stack) {
  const auto number = reinterpret_cast<uintptr_t>(stack) / kStackBytes;
  return reinterpret_cast<void**>(static_cast<char*>(stack) + kStackBytes -
                                  number * kLineBytes * 5 % kSpreadBytes);
}

Index IndexOf(int64_t number, const dim3& size) {
  return {static_cast<unsigned>(number % size.x),
          static_cast<unsigned>(number / size.x % size.y),
          static_cast<unsigned>(number / size.x / size.y)};
}

}  // namespace

Kernel::Kernel(const KernelCall& call) : call_(call) {
  CatchFaults();
  blocks_ = static_cast<int64_t>(call.grid.x) * call.grid.y * call.grid.z;
  threads_ = static_cast<int>(call.block.x * call.block.y * call.block.z);
  for (int thread = 0; thread < threads_; ++thread) {
    indexes_.push_back(IndexOf(thread, call_.block));
  }
  if (call.dynamic_bytes == 0) return;
  constexpr size_t kUnit = sizeof(float4);
  const size_t bytes = (call.dynamic_bytes + kUnit - 1) / kUnit * kUnit;
  const size_t pages = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  mapped_bytes_ = pages + kPageBytes;
  mapped_ = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped_ == MAP_FAILED) abort();
  char* const end = static_cast<char*>(mapped_) + pages;
  mprotect(end, kPageBytes, PROT_NONE);
  dynamic_ = end - bytes;
}

bool Kernel::Behind(const void* address) const {
  const char* const at = static_cast<const char*>(address);
  const char* const begin = static_cast<const char*>(mapped_);
  return mapped_ != nullptr && at >= begin && at < begin + mapped_bytes_;
}

Kernel::~Kernel() {
  for (const Fiber& fiber : fibers_) {
    if (fiber.stack != nullptr) FreeStacks().push_back(fiber.stack);
  }
  if (mapped_ != nullptr) munmap(mapped_, mapped_bytes_);
}

void Kernel::BeginBlock() {
  fibers_.assign(static_cast<size_t>(threads_), {});
  warps_.assign(static_cast<size_t>(threads_ + 31) / 32, {});
  const int last = threads_ % 32;
  if (last != 0) warps_.back().gone = ~0u << last;
  order_.resize(static_cast<size_t>(threads_));
  for (int thread = 0; thread < threads_; ++thread) {
    order_[static_cast<size_t>(thread)] = thread;
  }
  if (Seed() == 1) std::reverse(order_.begin(), order_.end());
  if (Seed() > 1) std::shuffle(order_.begin(), order_.end(), Random());
  // Every bit set is NaN in each type of the kernels.
  shared_.clear();
  if (dynamic_ != nullptr) std::memset(dynamic_, 0xff, call_.dynamic_bytes);
  with_predicate_ = 0;
  ended_ = 0;
  inside_ = true;
}

[[gnu::always_inline]] inline void Kernel::Resume(int thread) {
  Fiber& fiber = fibers_[static_cast<size_t>(thread)];
  current_ = thread;
  place.thread = indexes_[static_cast<size_t>(thread)];
  if (fiber.stack == nullptr) {
    fiber.stack = TakeStack();
    void** top = TopOf(fiber.stack);
    *--top = nullptr;  // what Enter would return to; aligns its frame
    *--top = reinterpret_cast<void*>(&Kernel::Enter);
    fiber.top = top;
  }
  fiber.wait = Wait::kNothing;
  inside = true;
  Switch(&host_, fiber.top);
  inside = false;
  if (fiber.wait != Wait::kEnded) return;
  ++ended_;
  warps_[static_cast<size_t>(thread) / 32].gone |= 1u << (thread % 32);
  FreeStacks().push_back(fiber.stack);
  fiber.stack = nullptr;
}

[[gnu::always_inline]] inline void Kernel::Pause(Wait wait) {
  Fiber& fiber = fibers_[static_cast<size_t>(current_)];
  fiber.wait = wait;
  Switch(&fiber.top, host_);
}

void Kernel::Enter() {
  running->call_.body();
  running->Pause(Wait::kEnded);
  abort();
}

bool Kernel::CanRun(int thread) const {
  const Fiber& fiber = fibers_[static_cast<size_t>(thread)];
  switch (fiber.wait) {
    case Wait::kBarrier:
    case Wait::kEnded:
      return false;
    case Wait::kWarp:
      return warps_[static_cast<size_t>(thread) / 32].complete >=
             fiber.exchanges;
    default:
      return true;
  }
}

bool Kernel::TurnOfAll(bool* slept) {
  bool moved = false;
  *slept = false;
  for (const int thread : order_) {
    if (!CanRun(thread)) continue;
    Resume(thread);
    if (fibers_[static_cast<size_t>(thread)].wait == Wait::kSleep) {
      *slept = true;
    } else {
      moved = true;
    }
  }
  return moved;
}

// Once all threads that have not ended have come.
bool Kernel::OpenBarrier() {
  int waiting = 0;
  for (const Fiber& fiber : fibers_) {
    if (fiber.wait == Wait::kBarrier) ++waiting;
  }
  if (waiting == 0 || waiting + ended_ < threads_) return false;
  counted_ = with_predicate_;
  with_predicate_ = 0;
  for (Fiber& fiber : fibers_) {
    if (fiber.wait == Wait::kBarrier) fiber.wait = Wait::kNothing;
  }
  return true;
}

void Kernel::Stuck() const {
  std::fprintf(stderr,
               "emulation: threads of the kernel at %s wait for each other "
               "(1 at a barrier, 2 in an exchange, 4 ended):\n",
               call_.name.c_str());
  for (const Fiber& fiber : fibers_) {
    std::fprintf(stderr, "%d", static_cast<int>(fiber.wait));
  }
  std::fprintf(stderr, "\n");
  abort();
}

bool Kernel::Step() {
  Kernel* const before = running;
  running = this;
  place.block_size = {call_.block.x, call_.block.y, call_.block.z};
  place.grid_size = {call_.grid.x, call_.grid.y, call_.grid.z};
  bool asleep = false;
  while (!asleep && (inside_ || begun_ < blocks_)) {
    if (!inside_) {
      BeginBlock();
      place.block = IndexOf(begun_++, call_.grid);
      if (watcher.block_begins) watcher.block_begins(call_);
    }
    bool slept = false;
    const bool moved = TurnOfAll(&slept);
    if (ended_ == threads_) {
      inside_ = false;
      if (watcher.block_ends) watcher.block_ends();
    } else if (!OpenBarrier() && !moved) {
      if (!slept) Stuck();
      asleep = true;
    }
  }
  running = before;
  return !asleep;
}

int Kernel::Barrier(bool predicate) {
  if (predicate) ++with_predicate_;
  Pause(Wait::kBarrier);
  return counted_;
}

void Kernel::Sleep() {
  Pause(Wait::kSleep);
  // Other kernels may have run meanwhile.
  place.block = IndexOf(begun_ - 1, call_.grid);
}

const uint64_t* Kernel::Exchange(unsigned mask, uint64_t value) {
  Fiber& fiber = fibers_[static_cast<size_t>(current_)];
  Warp& warp = warps_[static_cast<size_t>(current_) / 32];
  const int side = ++fiber.exchanges & 1;
  if ((mask >> lane() & 1u) == 0) {
    Violation("%s: a lane is not in the mask of its own exchange",
              call_.name.c_str());
  }
  if ((mask & warp.gone) != 0) {
    Violation("%s: lanes %08x of an exchange have ended or never were",
              call_.name.c_str(), mask & warp.gone);
    mask &= ~warp.gone;
  }
  if (warp.arrived == 0) {
    warp.wanted = mask;
  } else if (warp.wanted != mask) {
    Violation("%s: masks of one exchange differ", call_.name.c_str());
  }
  warp.values[side][lane()] = value;
  warp.arrived |= 1u << lane();
  if ((warp.arrived & mask) == mask) {
    warp.complete = fiber.exchanges;
    warp.arrived = 0;
  }
  if (warp.complete < fiber.exchanges) Pause(Wait::kWarp);
  return warp.values[side];
}

void Kernel::BeginShared(void* memory, size_t bytes) {
  if (std::count(shared_.begin(), shared_.end(), memory) > 0) return;
  shared_.push_back(memory);
  if (watcher.shared_begins) watcher.shared_begins(memory, bytes);
  std::memset(memory, 0xff, bytes);
}

void BeginShared(void* memory, size_t bytes) {
  running->BeginShared(memory, bytes);
}
float* DynamicShared() {
  if (running->dynamic() == nullptr) {
    Violation("dynamic shared memory of a launch that asked for none");
    abort();
  }
  return running->dynamic();
}
int Barrier(bool predicate) { return running->Barrier(predicate); }
int Lane() { return running->lane(); }
void Sleep() { running->Sleep(); }
const uint64_t* Exchange(unsigned mask, uint64_t value) {
  return running->Exchange(mask, value);
}

}  // namespace emulated
