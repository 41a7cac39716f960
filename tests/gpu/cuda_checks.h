// Checks of what only the CUDA backend has: fp8 products, graphs, held
// streams. Needs the standard library and kernels/ alone.
#ifndef PIPEWRIGHT_TESTS_GPU_CUDA_CHECKS_H_
#define PIPEWRIGHT_TESTS_GPU_CUDA_CHECKS_H_

#include <vector>

#include "tests/support/kernel_checks.h"

namespace pipewright {

// Run each with PW_BF16.
std::vector<KernelCheck> CudaChecks();

}  // namespace pipewright

#endif  // PIPEWRIGHT_TESTS_GPU_CUDA_CHECKS_H_
