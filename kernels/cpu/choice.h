// Which instructions the CPU backend uses: all that the processor has, or fewer
// where two environment variables say so, to show on one machine the results of
// others (tests/hosts.sh).
//   PIPEWRIGHT_CPU_LOOPS  portable, avx2 or avx512: these loops of its own; the
//                         best unless set
//   PIPEWRIGHT_CPU_BF16   off: no bf16 products; on: also where they are slow,
//                         without AMX
//   ONEDNN_MAX_CPU_ISA    oneDNN's own: SSE41, AVX2, AVX512_CORE,
//                         AVX512_CORE_BF16, AVX512_CORE_AMX
// A test that depends on the type that a device computes in says which one
// (FakeDevice::types in tests). No part of loops.h, which is compiled for
// several instruction sets and takes no inline function from others.
#ifndef PIPEWRIGHT_KERNELS_CPU_CHOICE_H_
#define PIPEWRIGHT_KERNELS_CPU_CHOICE_H_

#include <string>
#include <vector>

#include "kernels/cpu/loops.h"

namespace pipewright {

enum class Bf16Products { kWhereFast, kOff, kOn };

struct CpuChoice {
  const Loops* loops = nullptr;  // never null
  Bf16Products bf16 = Bf16Products::kWhereFast;
  std::string problem;  // with a variable: which, its value, what is allowed
};

// Those that this processor runs, the best one last.
std::vector<const Loops*> AllLoops();

// By the environment as it is now. Where it has a problem, the best loops.
CpuChoice ChooseCpu();

}  // namespace pipewright

#endif  // PIPEWRIGHT_KERNELS_CPU_CHOICE_H_
