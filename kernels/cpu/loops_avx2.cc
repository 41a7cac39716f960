// The CPU backend's loops for processors with AVX2.
#include <math.h>
#include <string.h>

#include "kernels/cpu/loops.h"
#include "kernels/random.h"

#if defined(__x86_64__)
#pragma GCC target("avx2,fma")

#define PW_LANES 8
#define PW_TILE_ROWS 6
#define PW_LOOPS Avx2Loops
#define PW_LOOPS_NAME "avx2"
#include "kernels/cpu/loops.inc"

#endif
