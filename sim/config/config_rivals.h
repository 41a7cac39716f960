// Choices of the configuration that exclude each other.
#pragma once

#include <string>
#include <vector>

namespace pipewright {

// Paths of the fields that a choice at `path` in a higher layer puts aside in
// lower ones.
std::vector<std::string> RivalsOf(const std::string& path);

// True where the field only says more about a model or system that another
// field chooses: on one command line it stays beside that choice.
bool IsDetail(const std::string& path);

}  // namespace pipewright
