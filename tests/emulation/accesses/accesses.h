// What kernels read and write, by warp: which sectors of 32 bytes the lanes of
// a warp touch together, and how often their accesses to shared memory meet in
// a bank. The kernels are compiled with -fsanitize=thread, which calls a
// function at each access (hooks.cc); nothing of that sanitizer is linked.
#ifndef PIPEWRIGHT_TESTS_EMULATION_ACCESSES_ACCESSES_H_
#define PIPEWRIGHT_TESTS_EMULATION_ACCESSES_ACCESSES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace emulated {

constexpr uint64_t kSectorBytes = 32;

// Sectors of one allocation of device memory.
struct Moved {
  uint64_t read_sectors = 0;  // as often as they were asked for
  uint64_t written_sectors = 0;
  uint64_t distinct_read = 0;  // each once
};

// Accesses of all launches from one line.
struct LaunchAccesses {
  std::string name;      // file and line
  int64_t requests = 0;  // by warps, to device memory
  int64_t sectors = 0;
  int64_t least_sectors = 0;  // had the same bytes been side by side
  int64_t bytes = 0;          // that lanes asked for, at each request once
  int64_t lanes = 0;
  int64_t lane_bytes = 0;         // over all lanes
  int64_t shared_wavefronts = 0;  // for requests to shared memory
  int64_t least_wavefronts = 0;   // without two words in one bank
};

struct Accesses {
  std::vector<LaunchAccesses> launches;  // in the order of their first launch
  std::map<uintptr_t, Moved> moved;      // by the end of the allocation
};

// Begins to count; what was counted since the last call.
Accesses TakeAccesses();

// The end of the allocation that an address is in: its name in `moved`.
uintptr_t AllocationOf(const void* address);

}  // namespace emulated

#endif  // PIPEWRIGHT_TESTS_EMULATION_ACCESSES_ACCESSES_H_
