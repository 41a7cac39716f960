#include "kernels/loader.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <string>

#include "kernels/module.h"

namespace pipewright {
namespace {

constexpr char kLibrary[] = "libpipewright_cuda.so";

const PwKernels* CheckTable(const PwKernels* kernels, const std::string& path,
                            std::string* error) {
  if (kernels == nullptr) {
    *error = path + ": pw_cuda_kernels() gives nothing";
    return nullptr;
  }
  if (kernels->abi != PW_KERNELS_ABI) {
    *error = path + " is of interface " + std::to_string(kernels->abi) +
             ", this program of " + std::to_string(PW_KERNELS_ABI) +
             ": build both from the same sources";
    return nullptr;
  }
  if (kernels->device_count() < 1) {
    const char* reason = kernels->error();
    *error = std::string("no CUDA device: ") +
             (reason != nullptr && reason[0] != '\0' ? reason : "none found");
    return nullptr;
  }
  return kernels;
}

const PwKernels* LoadCuda(std::string* error) {
  // A kernel that is loaded at its first launch waits for the device, which a
  // held stream keeps from answering. A value that the user has set stays.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  // By default there are 8 hardware queues, and more streams than that share
  // them. A held stream, or a transfer that waits for its other end, would then
  // hold back an unrelated one.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  std::string path;
  void* const found = OpenModule(kLibrary, "PIPEWRIGHT_CUDA_LIBRARY",
                                 "pw_cuda_kernels", &path, error);
  if (found == nullptr) {
    if (path.empty()) {
      *error +=
          "; it is built where a CUDA toolkit is found, and "
          "PIPEWRIGHT_CUDA_LIBRARY may name it";
    }
    return nullptr;
  }
  using Function = const PwKernels* (*)();
  return CheckTable(reinterpret_cast<Function>(found)(), path, error);
}

}  // namespace
}  // namespace pipewright

const PwKernels* pw_load_kernels(const char* name, char* error, size_t size) {
  const std::string wanted = name;
  if (wanted == "cpu") return pw_cpu_kernels();
  std::string reason = "'" + wanted + "' is no backend; there are cpu and cuda";
  const PwKernels* kernels =
      wanted == "cuda" ? pipewright::LoadCuda(&reason) : nullptr;
  if (kernels == nullptr && error != nullptr && size > 0) {
    snprintf(error, size, "%s", reason.c_str());
  }
  return kernels;
}

PwOpenPart pw_open_part_of(const PwKernels* kernels) {
  Dl_info info;
  if (kernels == pw_cpu_kernels() || dladdr(kernels, &info) == 0)
    return nullptr;
  void* library = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  return reinterpret_cast<PwOpenPart>(dlsym(library, "pw_cuda_open_part"));
}
