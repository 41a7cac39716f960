// Words of a shell script, as far as scripts of training jobs go: quotes,
// backslashes, comments, variables that the script sets itself, with
// ${NAME:-default} and ${NAME:=default}, and $((...)) of whole numbers.
// Commands are not run: $(...) and words of a variable that nobody sets keep
// their text. A branch of an if or a case is left out if its condition is known
// not to hold; a word says in which of the others it stands.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace pipewright {

// One branch of an if or a case.
struct ShellBranch {
  int conditional = 0;  // which if or case of the script, from 1
  int number = 0;       // which of its branches
};

struct ShellWord {
  std::string text;
  int line = 1;
  // First of a command or of a list in parentheses: no value of a flag before.
  bool is_first = false;
  int command = 0;                    // which of the script; 0 in a list
  std::vector<ShellBranch> branches;  // around it, the outermost first
  // A variable in it that two branches set, "NAME (lines 2 and 4)"; "" for
  // none.
  std::string ambiguous;
};

// True if not both of the two can run.
bool Exclude(const std::vector<ShellBranch>& left,
             const std::vector<ShellBranch>& right);

// In order; assignments (NAME=VALUE, NAME=(...), NAME+=(...)) set a variable
// and give the words inside the parentheses. `environment` has what the script
// does not set, and wins over what a branch sets; empty: nothing.
std::vector<ShellWord> ShellWords(
    absl::string_view script,
    const std::function<std::optional<std::string>(const std::string&)>&
        environment = nullptr);

}  // namespace pipewright
