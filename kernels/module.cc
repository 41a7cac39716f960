#include "kernels/module.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

namespace pipewright {
namespace {

// "/usr/bin/" of a binary there; "" when not known.
std::string BinaryFolder() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  if (length <= 0) return "";
  const std::string whole(path, length);
  return whole.substr(0, whole.rfind('/') + 1);
}

}  // namespace

std::vector<std::string> ModulePaths(const char* library,
                                     const char* variable) {
  const char* chosen = getenv(variable);
  if (chosen != nullptr && chosen[0] != '\0') return {chosen};
  std::vector<std::string> paths;
  for (const char* folder : {"", "../", "../../", "../lib/pipewright/"}) {
    paths.push_back(BinaryFolder() + folder + library);
  }
  paths.push_back(library);
  return paths;
}

void* OpenModule(const char* library, const char* variable,
                 const char* function, std::string* path, std::string* error) {
  std::string tried;
  for (const std::string& candidate : ModulePaths(library, variable)) {
    void* opened = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (opened == nullptr) {
      if (!tried.empty()) tried += "; ";
      tried += dlerror();
      continue;
    }
    *path = candidate;
    void* found = dlsym(opened, function);
    if (found == nullptr) *error = candidate + " has no " + function;
    return found;
  }
  *error = std::string(library) + " cannot be loaded (" + tried + ")";
  return nullptr;
}

}  // namespace pipewright
