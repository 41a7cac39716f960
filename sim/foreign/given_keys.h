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

namespace pipewright {

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

  // As its file has it: "--tp", "model.num_layers".
  std::string Spelled() const;
};

// Values of variables that a script does not set itself.
using Environment =
    std::function<std::optional<std::string>(const std::string& name)>;

// Flags, and "section.key=value" words (overrides of a recipe), of a shell
// script or command line.
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

}  // namespace pipewright
