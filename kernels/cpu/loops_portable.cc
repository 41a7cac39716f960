// The CPU backend's loops for any processor (vectors of four).
#include <math.h>
#include <string.h>

#include "kernels/cpu/loops.h"
#include "kernels/random.h"

#define PW_LANES 4
#define PW_TILE_ROWS 4
#define PW_LOOPS PortableLoops
#define PW_LOOPS_NAME "portable"
#include "kernels/cpu/loops.inc"
