#include "sim/base/amount.h"

#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"

namespace pipewright {

AmountRange RangeOf(Unit unit) {
  switch (unit) {
    case Unit::kTime:
      return {1e-15, 1e9};
    case Unit::kBytes:
      return {1e-3, 1024.0 * 1024 * 1024 * 1024 * 1024};
    case Unit::kBandwidth:
      return {1, 1e18};
    case Unit::kNone:
      break;
  }
  return {0, std::numeric_limits<double>::max()};
}

absl::Status CheckAmount(double value, absl::string_view text, Unit unit) {
  const AmountRange range = RangeOf(unit);
  if (value == 0 || (value >= range.least && value <= range.most)) {
    return absl::OkStatus();
  }
  std::string allowed;
  switch (unit) {
    case Unit::kTime:
      allowed = "a time from 0 to 1e9 s (above 0 at least 1e-15 s)";
      break;
    case Unit::kBytes:
      allowed = "an amount from 0 to 1 PiB (above 0 at least 0.001 B)";
      break;
    case Unit::kBandwidth:
      allowed = "a bandwidth from 1 byte to 1e18 bytes a second";
      break;
    case Unit::kNone:
      allowed = "a finite number";
      break;
  }
  return WithValue(absl::InvalidArgumentError(absl::StrCat(
                       "'", text, "' is out of range; allowed: ", allowed)),
                   text, allowed);
}

}  // namespace pipewright
