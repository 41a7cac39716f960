#include "sim/config/flags.h"

#include <sys/stat.h>

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/base/status.h"
#include "sim/config/config_fields.h"
#include "sim/model/model.h"
#include "sim/schedule/registry.h"

namespace pipewright {

bool IsList(const std::string& value) { return absl::StrContains(value, ','); }

bool IsSystemFile(const std::string& value) {
  return absl::StrContains(value, '/') || absl::EndsWith(value, ".textproto") ||
         absl::EndsWith(value, ".txtpb") || absl::EndsWith(value, ".pbtxt");
}

bool IsModelFile(const std::string& value) {
  if (absl::StrContains(value, '/') || absl::EndsWith(value, ".json")) {
    return true;
  }
  struct stat info;
  return !FindModel(value).ok() && ::stat(value.c_str(), &info) == 0 &&
         S_ISDIR(info.st_mode);
}

bool IsScheduleFile(const std::string& value, const std::string& path) {
  if (absl::StrContains(value, '/') || absl::EndsWith(value, ".pws") ||
      absl::EndsWith(value, ".txt") || absl::EndsWith(value, ".json") ||
      absl::EndsWith(value, ".csv")) {
    return true;
  }
  struct stat info;
  return !FindSchedule(value).ok() && ::stat(path.c_str(), &info) == 0 &&
         S_ISREG(info.st_mode);
}

const std::vector<ConfigFlag>& ConfigFlags() {
  static const auto* const flags = [] {
    auto* all = new std::vector<ConfigFlag>;
    for (const ConfigField& field : ConfigFields()) {
      if (*field.flag == '\0') continue;
      all->push_back({field.flag, field.path, field.flag_value,
                      field.other_path, field.is_other,
                      field.kind == FieldKind::kPairs, field.alone});
    }
    return all;
  }();
  return *flags;
}

absl::StatusOr<ConfigEdit> EditOfFlag(const ConfigFlag& flag,
                                      const std::string& value) {
  if (flag.repeats) {
    const size_t equals = value.find('=');
    if (equals == std::string::npos || equals == 0) {
      return BadValue(flag.flag, value, "KEY=VALUE");
    }
    const std::string key = value.substr(0, equals);
    if (absl::StrContains(key, '.')) {
      return BadValue(flag.flag, value, "KEY=VALUE, the key without dots");
    }
    return ConfigEdit{absl::StrCat(flag.path, ".", key),
                      value.substr(equals + 1),
                      absl::StrCat(flag.flag, " ", value)};
  }
  const bool other = flag.is_other != nullptr && flag.is_other(value);
  return ConfigEdit{other ? flag.other_path : flag.path, value, flag.flag};
}

absl::StatusOr<ConfigEdit> EditOfSet(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return BadValue("--set", text, "PATH=VALUE, as in strategy.pp=8");
  }
  const std::string value = text.substr(equals + 1);
  // The name of a flag stands for its field, as in axes of a sweep; sections
  // have names of their own.
  const std::string name = text.substr(0, equals);
  const bool is_field = std::any_of(
      ConfigFields().begin(), ConfigFields().end(),
      [&name](const ConfigField& field) {
        return field.path == name ||
               absl::StartsWith(field.path, absl::StrCat(name, "."));
      });
  for (const ConfigFlag& flag : ConfigFlags()) {
    if (is_field || value.empty() || flag.flag.substr(2) != name) continue;
    PW_ASSIGN_OR_RETURN(ConfigEdit edit, EditOfFlag(flag, value));
    edit.origin = absl::StrCat("--set ", text);
    return edit;
  }
  return ConfigEdit{text.substr(0, equals), value, absl::StrCat("--set ", text),
                    value.empty()};
}

}  // namespace pipewright
