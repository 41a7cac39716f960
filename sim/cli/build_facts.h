// What this program was built of and with (cmake/build_facts.cmake).
#pragma once

#include <utility>
#include <vector>

namespace pipewright {

struct BuildFacts {
  const char* commit;       // "+changes" behind it: of files; "": no repository
  const char* commit_date;  // 2026-01-31, of the commit
  const char* compiler;     // "GNU 12.2.0"
  const char* build_type;   // CMake's: "Release"
  // Names and versions when it was built.
  std::vector<std::pair<const char*, const char*>> libraries;
};

extern const BuildFacts kBuildFacts;

}  // namespace pipewright
