// A value of a sweep, of an axis or a column of its results: nothing, a number
// in SI units, or a text.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace pipewright {

struct SweepCell {
  enum class Kind { kNone, kNumber, kText };
  Kind kind = Kind::kNone;
  double number = 0;
  std::string text;

  static SweepCell Number(double value) {
    return {Kind::kNumber, value, std::string()};
  }
  static SweepCell Text(absl::string_view value) {
    return {Kind::kText, 0, std::string(value)};
  }
  bool operator==(const SweepCell& other) const {
    return kind == other.kind && number == other.number && text == other.text;
  }
};

// As a field's value is written: "8", "18.5ms" (0.0185), "80GiB", "full".
SweepCell CellOfValue(absl::string_view text);

// A number as it reads back exactly, a text as it is, "" for nothing.
std::string ToString(const SweepCell& cell);

}  // namespace pipewright
