// Words of a shell script, as far as scripts of training jobs go: quotes,
// backslashes, comments, variables that the script sets itself, with
// ${NAME:-default}. No arithmetic, no commands. Words of a variable that nobody
// sets keep their text.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace pipewright {

struct ShellWord {
  std::string text;
  int line = 1;
};

// In order; assignments (NAME=VALUE, NAME=(...), NAME+=(...)) set a variable
// and give the words inside the parentheses.
std::vector<ShellWord> ShellWords(absl::string_view script);

}  // namespace pipewright
