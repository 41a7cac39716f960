// The CPU backend's loops for processors with AVX512.
#include <math.h>
#include <string.h>

#include "kernels/cpu/loops.h"
#include "kernels/random.h"

#if defined(__x86_64__)
#pragma GCC target( \
    "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")

#define PW_LANES 16
#define PW_TILE_ROWS 14
#define PW_LOOPS Avx512Loops
#define PW_LOOPS_NAME "avx512"
#include "kernels/cpu/loops.inc"

#endif
