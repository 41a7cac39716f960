// Parts of libpipewright_onednn.so that module.cc puts into its table.
#ifndef PIPEWRIGHT_KERNELS_ONEDNN_PARTS_H_
#define PIPEWRIGHT_KERNELS_ONEDNN_PARTS_H_

#include "kernels/onednn/module.h"

namespace pipewright {

// See OneDnnModule.
OneDnnBf16* OpenBf16(char* name, size_t size);
void CloseBf16(OneDnnBf16* bf16);
bool RunBf16(OneDnnBf16* bf16, const PwGemm& gemm, const void* a, const void* b,
             const void* bias, void* c, char* error, size_t size);
const char* Bf16Implementation(const OneDnnBf16* bf16);

}  // namespace pipewright

#endif  // PIPEWRIGHT_KERNELS_ONEDNN_PARTS_H_
