// Where NVIDIA's Python packages put their libraries: <site-packages>/nvidia/
// <package>/lib, which the dynamic loader does not know. For the CUDA backend
// and the NCCL module.
#ifndef PIPEWRIGHT_KERNELS_CUDA_PYTHON_FOLDERS_H_
#define PIPEWRIGHT_KERNELS_CUDA_PYTHON_FOLDERS_H_

#include <glob.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

namespace pipewright::cuda {

// Roots of Python installations, the most specific first: the environment that
// is active, the user's own packages, every folder of PATH that has a python3,
// the system's.
inline std::vector<std::string> PythonRoots() {
  std::vector<std::string> roots;
  const auto add = [&](std::string root) {
    if (std::find(roots.begin(), roots.end(), root) == roots.end()) {
      roots.push_back(std::move(root));
    }
  };
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const char* root = std::getenv(name);
    if (root != nullptr && *root != '\0') add(root);
  }
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home != '\0') add(std::string(home) + "/.local");
  const char* path = std::getenv("PATH");
  std::string folder;
  for (const char* at = path == nullptr ? "" : path;; ++at) {
    if (*at != ':' && *at != '\0') {
      folder += *at;
      continue;
    }
    const size_t slash = folder.rfind("/bin");
    if (slash != std::string::npos && slash + 4 == folder.size()) {
      add(folder.substr(0, slash));
    }
    folder.clear();
    if (*at == '\0') break;
  }
  add("/usr/local");
  add("/usr");
  return roots;
}

// Files of this name in those packages, in the order of PythonRoots.
inline std::vector<std::string> InPythonPackages(const std::string& name) {
  std::vector<std::string> found;
  for (const std::string& root : PythonRoots()) {
    for (const char* packages : {"site-packages", "dist-packages"}) {
      const std::string pattern =
          root + "/lib/python3*/" + packages + "/nvidia/*/lib/" + name;
      glob_t matches = {};
      if (glob(pattern.c_str(), 0, nullptr, &matches) == 0) {
        for (size_t index = 0; index < matches.gl_pathc; ++index) {
          found.emplace_back(matches.gl_pathv[index]);
        }
      }
      globfree(&matches);
    }
  }
  return found;
}

}  // namespace pipewright::cuda

#endif  // PIPEWRIGHT_KERNELS_CUDA_PYTHON_FOLDERS_H_
