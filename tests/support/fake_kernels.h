// The CPU's kernels with a clock that a test writes: between two events in a
// row passes always the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace pipewright::testing {

struct FakeDevice {
  double seconds = 1e-3;           // between events
  int64_t free_bytes = 1LL << 34;  // that the device claims
  int32_t devices = 1;
  const char* name = "cpu";
  int32_t capability = 0;  // 90: it takes graphs, as sm_90 does
  int32_t fp8_gemm = 2;    // emulated, as the CPU's
  // That products take, bits of PwType; not the CPU's, which differ. bf16 ones
  // leave their result as it is.
  int32_t types = 1 << PW_FP32;
  // Step of the clock at each reading of the state, from 1000 on.
  double clock_step_mhz = 0;
  size_t largest_block = SIZE_MAX;  // that it allocates
  int32_t missing = -1;             // this one cannot be opened
  int64_t cache_bytes = -1;  // that the device claims; below 0: the CPU's
  // Seconds between events instead of `seconds`, asked each time.
  std::function<double()> elapsed = nullptr;
  int failing_release = 0;  // number of a release, from 1; 0: none fails
  std::function<void(const PwGemm& gemm, bool bias)> multiplies = nullptr;
  // Told of "hold", "release", "wait" and "gemm".
  std::function<void(const std::string& call)> hear = nullptr;
};

// An optimizer's step that was asked for, on the device or the host.
struct AdamCall {
  bool host = false;
  PwType type = PW_FP32;
  bool weights = false;  // written beside the master
};
// Since the last FakeKernels().
const std::vector<AdamCall>& AdamCalls();
// What became of graphs since the last FakeKernels.
struct FakeGraphs {
  int captured = 0;
  int launched = 0;
  int destroyed = 0;
};
FakeGraphs GraphsOfFake();

// One at a time: the table's functions have no place for more.
const PwKernels* FakeKernels(const FakeDevice& device);

}  // namespace pipewright::testing
