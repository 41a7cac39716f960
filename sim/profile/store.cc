#include "sim/profile/store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/base/file.h"
#include "sim/base/names.h"
#include "sim/base/status.h"

namespace pipewright {

// Written at build time (cmake/embed.cmake).
const std::vector<std::pair<std::string, std::string>>& EmbeddedProfiles();

std::vector<std::string> ProfileNames() {
  std::vector<std::string> names;
  for (const auto& [name, text] : EmbeddedProfiles()) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

bool IsProfileFile(absl::string_view name_or_path) {
  return absl::StrContains(name_or_path, '/') ||
         absl::EndsWith(name_or_path, ".txtpb") ||
         absl::EndsWith(name_or_path, ".textproto") ||
         absl::EndsWith(name_or_path, ".pbtxt");
}

absl::StatusOr<Profile> FindProfile(const std::string& name_or_path) {
  if (IsProfileFile(name_or_path)) {
    PW_ASSIGN_OR_RETURN(const std::string text,
                        ReadFile(name_or_path, InputKind::kProfile));
    return ReadProfile(text, name_or_path);
  }
  for (const auto& [name, text] : EmbeddedProfiles()) {
    if (name == name_or_path) return ReadProfile(text, name);
  }
  if (EmbeddedProfiles().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "unknown profile '", name_or_path,
        "' (none ships with this version); allowed: a file, with a '/' or "
        "ending in .txtpb, as pipewright calibrate writes it"));
  }
  return UnknownName("profile", name_or_path, ProfileNames());
}

}  // namespace pipewright
