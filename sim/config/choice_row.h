// One value of a field that is a choice.
#pragma once

namespace pipewright {

struct ChoiceRow {
  const char* name;
  int value;
  bool available = true;  // false: refused as not in this version
};

}  // namespace pipewright
