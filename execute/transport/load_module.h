// Loads a part of the executor that is a library of its own, because the
// program must start without what it is linked with.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pipewright {

struct Module {
  const char* library;   // "libpipewright_mpi.so"
  const char* variable;  // of the environment; may name another file
  const char* function;  // that it exports
  bool global = false;   // do libraries that it loads look for its symbols?
};

// The function's address. Looks beside the program, in the folder above, and
// where the dynamic linker does. Error: kUnavailable with all that was tried;
// `help` says what to do.
absl::StatusOr<void*> LoadModule(const Module& module, absl::string_view help);

}  // namespace pipewright
