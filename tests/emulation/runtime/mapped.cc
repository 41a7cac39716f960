// What else is in the process: a real library of CUDA beside this one would
// make whatever was checked worthless.
#include "tests/emulation/runtime/mapped.h"

#include <dlfcn.h>

#include <filesystem>
#include <fstream>
#include <regex>

namespace emulated {

std::set<std::string> RealLibraries() {
  Dl_info self;
  if (dladdr(reinterpret_cast<const void*>(&RealLibraries), &self) == 0) {
    return {"no name of the emulated runtime"};
  }
  // As the kernel names it: a build may be reached through a link.
  std::error_code error;
  const std::string own = std::filesystem::canonical(self.dli_fname, error);
  if (error) return {"no path of the emulated runtime"};
  const std::string folder = own.substr(0, own.rfind('/') + 1);
  const std::regex name(
      ".*/lib(cuda|cudart|cublas|cublasLt|cudnn[a-z_]*|nccl|nvidia-[a-z]*)"
      "\\.so[.0-9]*");
  std::set<std::string> real;
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    const size_t at = line.find('/');
    if (at == std::string::npos) continue;
    const std::string path = line.substr(at);
    if (std::regex_match(path, name) &&
        path.compare(0, folder.size(), folder)) {
      real.insert(path);
    }
  }
  return real;
}

}  // namespace emulated
