// Errors of a profile: in an entry, numbers that contradict each other though
// each field is valid; and in the profile as a whole.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "sim/profile/profile.h"

namespace pipewright {

struct Wrong {
  const char* field = nullptr;  // as sim/proto/profile.proto; null: nothing
  std::string value;            // in the unit of the field
  std::string allowed;
};

// Zeros stand for what an import does not know.
Wrong WhatIsWrong(const Distribution& time);
Wrong WhatIsWrong(const InterferenceEntry& entry);
template <class Entry>
Wrong WhatIsWrong(const Entry&) {
  return {};
}

// Would ReadProfile take what WriteProfile makes of it? For profiles made from
// unchecked files. Error: that of ReadProfile, without a line.
absl::Status CheckProfile(const Profile& profile,
                          absl::string_view source_name);

}  // namespace pipewright
