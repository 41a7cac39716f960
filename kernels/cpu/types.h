// Storage types of the CPU backend.
#ifndef PIPEWRIGHT_KERNELS_CPU_TYPES_H_
#define PIPEWRIGHT_KERNELS_CPU_TYPES_H_

#include <stdint.h>

namespace pipewright {

// The upper half of an fp32.
struct Bf16 {
  uint16_t bits;
};

}  // namespace pipewright

#endif  // PIPEWRIGHT_KERNELS_CPU_TYPES_H_
