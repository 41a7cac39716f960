// What the configuration takes from outside a file, and where fields are
// from.
#pragma once

#include <map>
#include <string>

namespace pipewright {

// Field path -> "run.yaml:3", "--pp" or "--set strategy.pp=8".
using ConfigOrigins = std::map<std::string, std::string>;

// One field, given outside a file. Lists are separated by commas.
struct ConfigEdit {
  std::string path;  // "strategy.pp", "schedule.params.key"
  std::string value;
  std::string origin;   // for messages
  bool clears = false;  // takes the field away, as if nobody had given it
};

}  // namespace pipewright
