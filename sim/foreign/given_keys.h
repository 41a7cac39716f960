// The keys that a file of a training framework gives, before anybody asks what
// they mean: flags of a command line or shell script, and the sections of YAML,
// JSON and TOML.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/foreign/shell_words.h"

namespace pipewright {

// Name of the key that has the name of a file's Python function.
inline constexpr char kPythonFunction[] = "def";

struct GivenKey {
  // "model", "zero_optimization.offload_optimizer"; "" for flags and keys of
  // the top level.
  std::string section;
  // As given; of a flag without dashes, of a short one, "-tp", with it.
  std::string name;
  bool is_flag = false;
  // A list's items; of a list of lists each is "a,b". None of a switch.
  std::vector<std::string> values;
  bool is_list = false;
  bool is_null = false;
  int line = 0;
  // In a script: its command, if that runs Python; else 0.
  int program = 0;
  std::vector<ShellBranch> branches;
  std::string ambiguous;  // a variable in it that two branches set

  // As its file has it: "--tp", "model.num_layers".
  std::string Spelled() const;
};

// Values of variables that a script does not set itself.
using Environment =
    std::function<std::optional<std::string>(const std::string& name)>;

// Flags, and "section.key=value" words (overrides of a recipe), of a shell
// script or command line. Behind a Python program "key=value" is one, too.
std::vector<GivenKey> KeysOfShell(absl::string_view text,
                                  const Environment& environment);

// Errors: kInvalidArgument "FILE:LINE: ..." for what does not parse, a key that
// stands twice included.
absl::StatusOr<std::vector<GivenKey>> KeysOfYaml(absl::string_view text,
                                                 const std::string& path);
absl::StatusOr<std::vector<GivenKey>> KeysOfJson(absl::string_view text,
                                                 const std::string& path);
absl::StatusOr<std::vector<GivenKey>> KeysOfToml(absl::string_view text,
                                                 const std::string& path);

// Keyword arguments of the calls in a function that returns a configuration:
// "section=Class(" opens a section, "key=literal" gives a key, and
// "config.section.key = literal" as well. Keys of functions that it calls come
// first. `function`: its name; "": the only one. Errors: kInvalidArgument with
// the functions that there are.
absl::StatusOr<std::vector<GivenKey>> KeysOfPython(absl::string_view text,
                                                   const std::string& path,
                                                   const std::string& function);

}  // namespace pipewright
