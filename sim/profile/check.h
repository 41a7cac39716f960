// What is wrong with a profile: with an entry, beyond what each field tells by
// itself, numbers that contradict each other; and with all of it.
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

// Would ReadProfile take what WriteProfile makes of it? For profiles made of
// files whose numbers nobody has checked. Error: that of ReadProfile, without
// a line.
absl::Status CheckProfile(const Profile& profile,
                          absl::string_view source_name);

}  // namespace pipewright
