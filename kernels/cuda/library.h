// A shared library that is looked for at run time: the CUDA backend loads
// without cuBLASLt or cuDNN and says which one is missing.
#ifndef PIPEWRIGHT_KERNELS_CUDA_LIBRARY_H_
#define PIPEWRIGHT_KERNELS_CUDA_LIBRARY_H_

#include <dlfcn.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/python_folders.h"

namespace pipewright::cuda {

// A library stays loaded until the process ends.
class Library {
 public:
  // The first of `names` that loads: file names that the dynamic loader looks
  // for (LD_LIBRARY_PATH, this library's run path, the system), or paths.
  explicit Library(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      library_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
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

// Where versions `majors` of `stem` ("libcublasLt") may be: for each of them
// the loader's own search, then Python's packages.
inline std::vector<std::string> LibraryPlaces(const std::string& stem,
                                              const std::vector<int>& majors) {
  std::vector<std::string> places;
  for (const int major : majors) {
    const std::string name = stem + ".so." + std::to_string(major);
    places.push_back(name);
    for (std::string& path : InPythonPackages(name)) {
      places.push_back(std::move(path));
    }
  }
  return places;
}

// Major versions of a CUDA library to try: the one whose header was compiled,
// then its neighbours, the newer first. The C interfaces that are called here
// are the same in all of them.
inline std::vector<int> MajorsToTry(int built) {
  return {built, built + 1, built - 1};
}

// An Api(Library) whose `library` has all functions and which `opens`: a
// library may load beside a driver that is too old for it, and then fails at
// its first call. Without one that opens, the first that is complete; without
// that, the first, whose error() says what is missing.
template <typename Api, typename Opens>
std::unique_ptr<Api> FirstThatOpens(const std::vector<std::string>& places,
                                    Opens opens) {
  std::unique_ptr<Api> best;
  for (const std::string& place : places) {
    auto api = std::make_unique<Api>(Library({place}));
    const bool complete = api->library.error().empty();
    if (complete && opens(*api)) return api;
    if (best == nullptr || (complete && !best->library.error().empty())) {
      best = std::move(api);
    }
  }
  return best;
}

}  // namespace pipewright::cuda

#endif  // PIPEWRIGHT_KERNELS_CUDA_LIBRARY_H_
