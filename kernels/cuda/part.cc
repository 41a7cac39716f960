#include "kernels/cuda/part.h"

#include <cuda.h>

#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/cuda/functions.h"
#include "kernels/cuda/library.h"

namespace pipewright::cuda {

#if CUDA_VERSION >= 12040

namespace {

struct Driver {
  Library library{std::vector<std::string>{"libcuda.so.1"}};
  decltype(&cuDeviceGet) device_get;
  decltype(&cuDeviceGetDevResource) get_resource;
  decltype(&cuDevSmResourceSplitByCount) split;
  decltype(&cuDevResourceGenerateDesc) describe;
  decltype(&cuGreenCtxCreate) create;
  decltype(&cuGreenCtxDestroy) destroy;
  decltype(&cuCtxFromGreenCtx) context_of;
  decltype(&cuCtxSetCurrent) set_current;

  Driver() {
    library.Find("cuDeviceGet", &device_get);
    library.Find("cuDeviceGetDevResource", &get_resource);
    library.Find("cuDevSmResourceSplitByCount", &split);
    library.Find("cuDevResourceGenerateDesc", &describe);
    library.Find("cuGreenCtxCreate", &create);
    library.Find("cuGreenCtxDestroy", &destroy);
    library.Find("cuCtxFromGreenCtx", &context_of);
    library.Find("cuCtxSetCurrent", &set_current);
  }
};

const Driver& TheDriver() {
  static const Driver driver;
  return driver;
}

PwStatus FromDriver(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return PW_OK;
  return Fail(result == CUDA_ERROR_OUT_OF_MEMORY ? PW_NO_MEMORY : PW_INVALID,
              std::string(what) + ": CUDA driver error " +
                  std::to_string(static_cast<int>(result)));
}

}  // namespace

PwStatus Part::Make(int32_t device, int32_t part, int32_t parts,
                    std::unique_ptr<Part>* made) {
  const Driver& driver = TheDriver();
  if (!driver.library.error().empty()) {
    return Fail(PW_INVALID,
                "green contexts: the driver is older than CUDA 12.4 (" +
                    driver.library.error() + ")");
  }
  CUdevice handle = 0;
  PW_RETURN_IF_FAILED(
      FromDriver(driver.device_get(&handle, device), "cuDeviceGet"));
  CUdevResource whole;
  PW_RETURN_IF_FAILED(
      FromDriver(driver.get_resource(handle, &whole, CU_DEV_RESOURCE_TYPE_SM),
                 "cuDeviceGetDevResource"));
  // The driver rounds up to what the hardware can divide.
  const unsigned share = whole.sm.smCount / static_cast<unsigned>(parts);
  auto groups = static_cast<unsigned>(parts);
  std::vector<CUdevResource> split(groups);
  CUdevResource rest;
  unsigned count = share;
  while (true) {
    groups = static_cast<unsigned>(parts);
    if (count == 0) {
      return Fail(PW_INVALID,
                  "green contexts: " + std::to_string(whole.sm.smCount) +
                      " multiprocessors cannot be divided by " +
                      std::to_string(parts));
    }
    const CUresult result =
        driver.split(split.data(), &groups, &whole, &rest, 0, count);
    if (result == CUDA_SUCCESS && groups == static_cast<unsigned>(parts)) break;
    --count;
  }
  CUdevResourceDesc description = nullptr;
  PW_RETURN_IF_FAILED(FromDriver(driver.describe(&description, &split[part], 1),
                                 "cuDevResourceGenerateDesc"));
  std::unique_ptr<Part> one(new Part);
  CUgreenCtx green = nullptr;
  PW_RETURN_IF_FAILED(FromDriver(
      driver.create(&green, description, handle, CU_GREEN_CTX_DEFAULT_STREAM),
      "cuGreenCtxCreate"));
  one->green_ = green;
  CUcontext context = nullptr;
  PW_RETURN_IF_FAILED(
      FromDriver(driver.context_of(&context, green), "cuCtxFromGreenCtx"));
  one->context_ = context;
  one->cores_ = static_cast<int32_t>(split[part].sm.smCount);
  *made = std::move(one);
  return PW_OK;
}

Part::~Part() {
  if (green_ != nullptr) TheDriver().destroy(static_cast<CUgreenCtx>(green_));
}

PwStatus Part::Use() const {
  return FromDriver(TheDriver().set_current(static_cast<CUcontext>(context_)),
                    "cuCtxSetCurrent");
}

#else

PwStatus Part::Make(int32_t, int32_t, int32_t, std::unique_ptr<Part>*) {
  return Fail(PW_INVALID,
              "green contexts: this build's CUDA is older than 12.4");
}
Part::~Part() = default;
PwStatus Part::Use() const { return PW_OK; }

#endif

}  // namespace pipewright::cuda
