// The values of a field that is a choice among names.
#pragma once

#include <vector>

namespace pipewright {

struct ChoiceRow {
  const char* name;
  int value;
  bool available = true;  // false: refused as not in this version
};

// The name of an available value.
template <typename Enum>
const char* ChoiceName(const std::vector<ChoiceRow>& rows, Enum value) {
  for (const ChoiceRow& row : rows) {
    if (row.available && row.value == static_cast<int>(value)) return row.name;
  }
  return "";
}

}  // namespace pipewright
