// Words of a shell script, as far as scripts of training jobs go: quotes,
// backslashes, comments, variables that the script sets itself, with
// ${NAME:-default}, and $((...)) of whole numbers. No commands. Words of a
// variable that nobody sets keep their text.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace pipewright {

struct ShellWord {
  std::string text;
  int line = 1;
  // First of a command or of a list in parentheses: no value of a flag before.
  bool is_first = false;
};

// In order; assignments (NAME=VALUE, NAME=(...), NAME+=(...)) set a variable
// and give the words inside the parentheses. `environment` has what the script
// does not set; empty: nothing.
std::vector<ShellWord> ShellWords(
    absl::string_view script,
    const std::function<std::optional<std::string>(const std::string&)>&
        environment = nullptr);

}  // namespace pipewright
