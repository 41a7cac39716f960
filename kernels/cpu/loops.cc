#include "kernels/cpu/loops.h"

namespace pipewright {

const Loops& BestLoops() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return Avx512Loops();
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return Avx2Loops();
  }
#endif
  return PortableLoops();
}

}  // namespace pipewright
