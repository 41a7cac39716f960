// What is wrong with an entry of a profile beyond what each field tells by
// itself: numbers that contradict each other.
#pragma once

#include <string>

#include "sim/cost/profile.h"

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

}  // namespace pipewright
