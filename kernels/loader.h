/* Finds a backend by name. Not an owner: a loaded library stays loaded. */
#ifndef PIPEWRIGHT_KERNELS_LOADER_H_
#define PIPEWRIGHT_KERNELS_LOADER_H_

#include <stddef.h>

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "cpu", or "cuda", for which libpipewright_cuda.so is looked for in the file
 * that PIPEWRIGHT_CUDA_LIBRARY names, beside the binary, and on the dynamic
 * linker's path, in this order. NULL, with what is missing in `error` (of
 * `size` bytes), where there is no such backend, library or device. */
const PwKernels* pw_load_kernels(const char* name, char* error, size_t size);

/* Opens number `part` of `parts` that the processors of device `index` are
 * divided into: as open() of the table, for ranks of one process that run on
 * one GPU at the same time. */
typedef PwStatus (*PwOpenPart)(int32_t index, int32_t part, int32_t parts,
                               PwDevice** device);
/* NULL where the backend has no such function: the CPU's. */
PwOpenPart pw_open_part_of(const PwKernels* kernels);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PIPEWRIGHT_KERNELS_LOADER_H_ */
