// The program's side of libpipewright_onednn.so.
#include <string>

#include "kernels/module.h"
#include "kernels/onednn/module.h"

namespace pipewright {

#ifdef PIPEWRIGHT_ONEDNN

namespace {

constexpr char kOneDnnLibrary[] = "libpipewright_onednn.so";

struct LoadedOneDnn {
  const OneDnnModule* module = nullptr;
  std::string error;
};

LoadedOneDnn LoadOneDnn() {
  LoadedOneDnn loaded;
  std::string path;
  void* const found = OpenModule(kOneDnnLibrary, "PIPEWRIGHT_ONEDNN_LIBRARY",
                                 kOneDnnModuleFunction, &path, &loaded.error);
  if (found == nullptr) {
    loaded.error +=
        ": it is built and installed with the program, and "
        "PIPEWRIGHT_ONEDNN_LIBRARY may name it";
    return loaded;
  }
  const OneDnnModule* const module =
      reinterpret_cast<OneDnnModuleFunction>(found)();
  if (module->abi == kOneDnnModuleAbi) {
    loaded.module = module;
  } else {
    loaded.error = path + " is of interface " + std::to_string(module->abi) +
                   ", this program of " + std::to_string(kOneDnnModuleAbi) +
                   ": build both from the same sources";
  }
  return loaded;
}

}  // namespace

const OneDnnModule* OneDnn(const char** error) {
  static const LoadedOneDnn* const loaded = new LoadedOneDnn(LoadOneDnn());
  if (error != nullptr) *error = loaded->error.c_str();
  return loaded->module;
}

#endif

}  // namespace pipewright
