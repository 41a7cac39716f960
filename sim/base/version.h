// The version of Pipewright, which CMake reads here: in a header, so that a release
// compiles anew only what prints it.
#pragma once

namespace pipewright {

inline constexpr char kVersion[] = "0.9.0";

}  // namespace pipewright
