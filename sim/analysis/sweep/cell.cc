#include "sim/analysis/sweep/cell.h"

#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/quantity.h"

namespace pipewright {

SweepCell CellOfValue(absl::string_view text) {
  double number = 0;
  if (absl::SimpleAtod(text, &number) && std::isfinite(number)) {
    return SweepCell::Number(number);
  }
  for (const Unit unit : {Unit::kTime, Unit::kBytes, Unit::kBandwidth}) {
    const absl::StatusOr<double> amount = ParseQuantity(text, unit);
    if (amount.ok()) return SweepCell::Number(*amount);
  }
  return SweepCell::Text(text);
}

std::string ToString(const SweepCell& cell) {
  switch (cell.kind) {
    case SweepCell::Kind::kNone:
      return "";
    case SweepCell::Kind::kText:
      return cell.text;
    case SweepCell::Kind::kNumber:
      break;
  }
  for (const int digits : {15, 16}) {
    std::string text = absl::StrFormat("%.*g", digits, cell.number);
    double back = 0;
    if (absl::SimpleAtod(text, &back) && back == cell.number) return text;
  }
  return absl::StrFormat("%.17g", cell.number);
}

}  // namespace pipewright
