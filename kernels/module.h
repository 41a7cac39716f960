// Loads a library of kernels that the program must start without. kernels/
// builds without Abseil, hence apart from sim/base/load_module.h.
#ifndef PIPEWRIGHT_KERNELS_MODULE_H_
#define PIPEWRIGHT_KERNELS_MODULE_H_

#include <string>
#include <vector>

namespace pipewright {

// Where a library such as "libpipewright_cuda.so" may be: the file that the
// variable of the environment names, and no other; else beside the program, up
// to two folders above (a build's), in ../lib/pipewright (of what is
// installed), and where the dynamic linker looks.
std::vector<std::string> ModulePaths(const char* library, const char* variable);

// Opens the first that can be opened and finds `function` in it; `path` is the
// one. Null: `error` says what was tried.
void* OpenModule(const char* library, const char* variable,
                 const char* function, std::string* path, std::string* error);

}  // namespace pipewright

#endif  // PIPEWRIGHT_KERNELS_MODULE_H_
