#include "sim/base/load_module.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace pipewright {
namespace {

// "/usr/bin/" of a binary there; "" when not known.
std::string BinaryFolder() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  if (length <= 0) return "";
  const std::string whole(path, static_cast<size_t>(length));
  return whole.substr(0, whole.rfind('/') + 1);
}

// Folder of the library that this code is part of, where another program has
// loaded it; "" for our own program.
std::string OwnFolder() {
  Dl_info own;
  Dl_info program;
  const auto* const entry = reinterpret_cast<const void*>(getauxval(AT_ENTRY));
  if (dladdr(reinterpret_cast<const void*>(&BinaryFolder), &own) == 0 ||
      dladdr(entry, &program) == 0 || own.dli_fbase == program.dli_fbase) {
    return "";
  }
  const std::string whole = own.dli_fname;
  return whole.substr(0, whole.rfind('/') + 1);
}

}  // namespace

absl::StatusOr<void*> LoadModule(const Module& module, absl::string_view help) {
  std::vector<std::string> candidates = {
      absl::StrCat(BinaryFolder(), module.library),
      absl::StrCat(BinaryFolder(), "../", module.library),
      absl::StrCat(BinaryFolder(), "../lib/pipewright/", module.library),
      module.library};
  if (const std::string own = OwnFolder(); !own.empty()) {
    candidates.insert(candidates.begin(), own + module.library);
  }
  // A user who names a file wants that one and no other.
  const char* const chosen = getenv(module.variable);
  if (chosen != nullptr && chosen[0] != '\0') candidates = {chosen};
  std::string tried;
  for (const std::string& path : candidates) {
    void* const library = dlopen(
        path.c_str(), RTLD_NOW | (module.global ? RTLD_GLOBAL : RTLD_LOCAL));
    if (library == nullptr) {
      absl::StrAppend(&tried, tried.empty() ? "" : "; ", dlerror());
      continue;
    }
    void* const function = dlsym(library, module.function);
    if (function != nullptr) return function;
    return absl::UnavailableError(absl::StrCat(
        path, " has no ", module.function, ": build it from the same sources"));
  }
  return absl::UnavailableError(
      absl::StrCat(module.library, " is not there (", tried, "); ", help));
}

}  // namespace pipewright
