// A shared library that is looked for at run time: the CUDA backend loads
// without cuBLASLt or cuDNN and says which one is missing.
#ifndef PIPEWRIGHT_KERNELS_CUDA_LIBRARY_H_
#define PIPEWRIGHT_KERNELS_CUDA_LIBRARY_H_

#include <dlfcn.h>

#include <initializer_list>
#include <string>

namespace pipewright::cuda {

// Where the dynamic loader looks (LD_LIBRARY_PATH, this library's run path,
// the system). A library stays loaded until the process ends.
class Library {
 public:
  // The first of `names` that loads.
  explicit Library(std::initializer_list<const char*> names) {
    for (const char* name : names) {
      library_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (library_ != nullptr) {
        error_.clear();
        return;
      }
      const char* why = dlerror();
      if (error_.empty()) error_ = why == nullptr ? name : why;
    }
  }

  // Points *function at a symbol. A symbol that is missing makes error().
  template <typename Function>
  void Find(const char* name, Function* function) {
    *function = nullptr;
    if (library_ == nullptr) return;
    *function = reinterpret_cast<Function>(dlsym(library_, name));
    if (*function == nullptr && error_.empty()) {
      error_ = std::string("it has no ") + name;
    }
  }

  // "" when the library and all that was looked for are there.
  const std::string& error() const { return error_; }

 private:
  void* library_ = nullptr;
  std::string error_;
};

}  // namespace pipewright::cuda

#endif  // PIPEWRIGHT_KERNELS_CUDA_LIBRARY_H_
