// libcuda: green contexts, as kernels/cuda/part.cc loads them (CUDA driver API,
// "Green Contexts"). A part computes as the whole device does.
#include <cuda.h>

#include "tests/emulation/runtime/queue.h"

#if CUDA_VERSION >= 12040

namespace {

// Fewest multiprocessors of a part with compute capability 9.0, and the step.
constexpr unsigned kFewest = 8;

unsigned RoundUp(unsigned count) {
  return (count + kFewest - 1) / kFewest * kFewest;
}

}  // namespace

struct CUdevResourceDesc_st {
  unsigned cores;
};
struct CUgreenCtx_st {
  int device;
};
struct CUctx_st {
  int device;
};

// Not called by its name, but the header gives some functions another one.
extern "C" {

CUresult cuDeviceGet(CUdevice* device, int index) {
  if (index < 0 || index >= emulated::Devices()) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  *device = index;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetDevResource(CUdevice, CUdevResource* resource,
                                CUdevResourceType type) {
  if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  *resource = {};
  resource->type = type;
  resource->sm.smCount = static_cast<unsigned>(emulated::Cores());
  return CUDA_SUCCESS;
}

CUresult cuDevSmResourceSplitByCount(CUdevResource* parts, unsigned* count,
                                     const CUdevResource* whole,
                                     CUdevResource* rest, unsigned,
                                     unsigned least) {
  const unsigned share = RoundUp(least);
  const unsigned possible = whole->sm.smCount / share;
  if (possible == 0) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  if (*count > possible) *count = possible;
  for (unsigned part = 0; part < *count; ++part) {
    parts[part] = *whole;
    parts[part].sm.smCount = share;
  }
  if (rest != nullptr) {
    *rest = *whole;
    rest->sm.smCount = whole->sm.smCount - *count * share;
  }
  return CUDA_SUCCESS;
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* description,
                                   CUdevResource* resources, unsigned count) {
  if (count != 1) return CUDA_ERROR_INVALID_VALUE;
  *description = new CUdevResourceDesc_st{resources[0].sm.smCount};
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxCreate(CUgreenCtx* context, CUdevResourceDesc, CUdevice on,
                          unsigned flags) {
  if (flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
  *context = new CUgreenCtx_st{on};
  return CUDA_SUCCESS;
}
CUresult cuGreenCtxDestroy(CUgreenCtx context) {
  delete context;
  return CUDA_SUCCESS;
}
CUresult cuCtxFromGreenCtx(CUcontext* context, CUgreenCtx green) {
  *context = new CUctx_st{green->device};
  return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
  return emulated::MakeCurrent(context->device) == cudaSuccess
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_CONTEXT;
}

}  // extern "C"

#endif
