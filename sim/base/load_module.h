// Loads a part of the program that is a library of its own, because the program
// must start without what it is linked with, or faster than with it.
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

// The function's address. Looks beside the program, or the library that this
// code is part of, and in the folder above (a build's), in ../lib/pipewright (of
// what is installed), and where the dynamic linker does. Error: kUnavailable with all that was tried; `help` says what to
// do.
absl::StatusOr<void*> LoadModule(const Module& module, absl::string_view help);

}  // namespace pipewright
