// The command line's shorthands: each flag stands for one path of the
// configuration (docs/architecture.md, Command line).
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/config/config_edit.h"

namespace pipewright {

struct ConfigFlag {
  std::string flag;   // "--backward-input"
  std::string path;   // "costs.uniform.backward_input"
  std::string value;  // for help: "TIME"
  // Where some values stand for another path: a file instead of a name, a
  // list instead of one time. "" and null: never.
  std::string other_path;
  bool (*is_other)(const std::string& value) = nullptr;
  bool repeats = false;  // KEY=VALUE pairs, below `path`
  // Taken where the flag stands alone and nothing else gives the field; "": the
  // flag needs a value.
  std::string alone;
};

const std::vector<ConfigFlag>& ConfigFlags();

// `value` is "" where the flag stood alone; then ReadConfig puts `alone` there.
// Error: kInvalidArgument for a pair without '='.
absl::StatusOr<ConfigEdit> EditOfFlag(const ConfigFlag& flag,
                                      const std::string& value);
// "a.b=c" of --set; "a.b=" clears the field.
absl::StatusOr<ConfigEdit> EditOfSet(const std::string& text);

// Tests of config.proto's `other`: a list of values, a file of a model, one of
// a system.
bool IsList(const std::string& value);
bool IsModelFile(const std::string& value);
bool IsSystemFile(const std::string& value);
// True for a schedule that is a file: it has a '/', ends in .pws .txt .json,
// or is no registered name but a file that is there, at `path`.
bool IsScheduleFile(const std::string& value, const std::string& path);
inline bool IsScheduleFile(const std::string& value) {
  return IsScheduleFile(value, value);
}

// What the field `path` holds that a file in `folder` ("sweeps/", "" for none)
// gives as `value`: relative files are looked up beside the file that names
// them. Names and absolute paths stay as they are.
std::string ValueInFolder(absl::string_view path, const std::string& value,
                          absl::string_view folder);

}  // namespace pipewright
