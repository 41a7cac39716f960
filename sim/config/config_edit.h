// Fields that were given outside a file, and the origin of each field.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"

namespace pipewright {

// A line of a file, or a flag as it was given: "--pp", "--set strategy.pp=8".
struct ConfigOrigin {
  std::string file;
  int64_t line = 0;
  std::string flag;
  // What messages call the field, where it was given by a second path.
  std::string path;

  FieldPlace Field(absl::string_view field) const {
    const absl::string_view name = path.empty() ? field : path;
    return file.empty() ? FieldPlace::FromFlag(flag, name)
                        : FieldPlace::InFile(file, line, name);
  }
};

// Puts the origin in front of a message that begins with its field.
inline absl::Status At(const ConfigOrigin& origin, const absl::Status& status) {
  return origin.file.empty() ? Prefix(origin.flag, status)
                             : InFile(origin.file, origin.line, status);
}

// By field path.
using ConfigOrigins = std::map<std::string, ConfigOrigin>;

// One field, given outside a file. Lists are separated by commas.
struct ConfigEdit {
  std::string path;  // "strategy.pp", "schedule.params.key"
  std::string value;
  std::string origin;   // for messages
  bool clears = false;  // removes the field, as if it had not been given
};

}  // namespace pipewright
