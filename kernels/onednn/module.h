// What the program and libpipewright_onednn.so know of each other: plain
// functions and data. oneDNN is loaded when a CPU device is opened, because no
// simulation needs it.
#ifndef PIPEWRIGHT_KERNELS_ONEDNN_MODULE_H_
#define PIPEWRIGHT_KERNELS_ONEDNN_MODULE_H_

#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/loops.h"
#include "kernels/kernels.h"

namespace pipewright {

// To be raised with every change of this file.
constexpr int32_t kOneDnnModuleAbi = 1;

// bf16 products of one device, kept by shape.
struct OneDnnBf16;

struct OneDnnModule {
  int32_t abi;
  const char* (*version)();  // "2.6.3"
  // The instructions that oneDNN uses: "avx512_core".
  const char* (*isa)();
  // On the calling thread alone. 0, or oneDNN's status.
  int (*sgemm)(const SgemmShape& shape, const float* a, const float* b,
               float* c);
  int out_of_memory;  // that status
  // Null where this oneDNN or this processor has no bf16. The implementation's
  // name, as of bf16_implementation, is put into `name`.
  OneDnnBf16* (*open_bf16)(char* name, size_t size);
  void (*close_bf16)(OneDnnBf16* bf16);
  // Arguments as of PwKernels.gemm. False: `error` says why.
  bool (*run_bf16)(OneDnnBf16* bf16, const PwGemm& gemm, const void* a,
                   const void* b, const void* bias, void* c, char* error,
                   size_t size);
  // oneDNN's name of what ran last.
  const char* (*bf16_implementation)(const OneDnnBf16* bf16);
};

// The module exports this one function under the name below.
using OneDnnModuleFunction = const OneDnnModule* (*)();
constexpr char kOneDnnModuleFunction[] = "pipewright_onednn";

// The loaded module (in the program, kernels/cpu/onednn.cc). Null: `error`,
// unless it is null, says why.
const OneDnnModule* OneDnn(const char** error);

}  // namespace pipewright

#endif  // PIPEWRIGHT_KERNELS_ONEDNN_MODULE_H_
