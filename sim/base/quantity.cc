#include "sim/base/quantity.h"

#include <cmath>
#include <limits>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/charconv.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "sim/base/error_parts.h"
#include "sim/base/names.h"

namespace pipewright {
namespace {

struct UnitName {
  const char* name;
  double scale;
};

constexpr double kKibi = 1024.0;
constexpr double kMebi = kKibi * kKibi;
constexpr double kGibi = kMebi * kKibi;
constexpr double kTebi = kGibi * kKibi;
constexpr double kPebi = kTebi * kKibi;

const std::vector<UnitName>& UnitsOf(Unit unit) {
  static const std::vector<UnitName> time = {
      {"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1},
      {"min", 60},  {"h", 3600},  {"d", 86400}};
  static const std::vector<UnitName> bytes = {
      {"B", 1},       {"KB", 1e3},    {"MB", 1e6},    {"GB", 1e9},
      {"TB", 1e12},   {"PB", 1e15},   {"KiB", kKibi}, {"MiB", kMebi},
      {"GiB", kGibi}, {"TiB", kTebi}, {"PiB", kPebi},
  };
  static const std::vector<UnitName> bandwidth = {
      {"KBps", 1e3},     {"MBps", 1e6},    {"GBps", 1e9},    {"TBps", 1e12},
      {"MiBps", kMebi},  {"GiBps", kGibi}, {"Mbps", 1.25e5}, {"Gbps", 1.25e8},
      {"Tbps", 1.25e11}, {"B/s", 1},
  };
  static const std::vector<UnitName> none;
  switch (unit) {
    case Unit::kTime:
      return time;
    case Unit::kBytes:
      return bytes;
    case Unit::kBandwidth:
      return bandwidth;
    case Unit::kNone:
      break;
  }
  return none;
}

// "us" for the micro sign and the Greek letter, which keyboards and other
// programs write; what follows a number otherwise.
absl::string_view InAscii(absl::string_view name) {
  return name == "\u00b5s" || name == "\u03bcs" ? "us" : name;
}

std::string Allowed(Unit unit) {
  if (unit == Unit::kNone) return "a bare number";
  return absl::StrCat("a number with one of ",
                      absl::StrJoin(UnitsOf(unit), ", ",
                                    [](std::string* out, const UnitName& name) {
                                      absl::StrAppend(out, name.name);
                                    }));
}

absl::Status Bad(absl::string_view text, absl::string_view why, Unit unit) {
  const std::string allowed = Allowed(unit);
  return WithValue(absl::InvalidArgumentError(absl::StrCat(
                       "'", text, "' ", why, "; allowed: ", allowed)),
                   text, allowed);
}

// The units that differ from `name` in case only, else the nearest one:
// "'GBps' or 'Gbps'"; "" when nothing is near.
std::string Hint(absl::string_view name, Unit unit) {
  std::vector<std::string> known;
  std::vector<std::string> same;
  for (const UnitName& candidate : UnitsOf(unit)) {
    known.push_back(candidate.name);
    if (absl::EqualsIgnoreCase(name, candidate.name)) {
      same.push_back(absl::StrCat("'", candidate.name, "'"));
    }
  }
  if (!same.empty()) return absl::StrJoin(same, " or ");
  const std::string nearest = NearestName(name, known);
  return nearest.empty() ? "" : absl::StrCat("'", nearest, "'");
}

std::string Digits(double value) {
  return std::abs(value) < 1e4 ? absl::StrFormat("%.4g", value)
                               : absl::StrFormat("%.0f", value);
}

// Prints in the largest of `units` (rising) that leaves at least 1.
std::string Format(double value, const std::vector<UnitName>& units) {
  const UnitName* best = &units.front();
  for (const UnitName& unit : units) {
    if (std::abs(value) >= unit.scale) best = &unit;
  }
  return absl::StrCat(Digits(value / best->scale), " ", best->name);
}

}  // namespace

const char* SiUnit(Unit unit) {
  switch (unit) {
    case Unit::kTime:
      return "s";
    case Unit::kBytes:
      return "B";
    case Unit::kBandwidth:
      return "B/s";
    case Unit::kNone:
      return "";
  }
  return "";
}

absl::StatusOr<double> ParseQuantity(absl::string_view text, Unit unit) {
  const absl::string_view body = absl::StripAsciiWhitespace(text);
  if (body.empty()) return Bad(text, "is empty", unit);
  if (body[0] == '-') return Bad(text, "is negative", unit);
  // from_chars would take "inf" and "nan".
  if (!absl::ascii_isdigit(body[0]) && body[0] != '.') {
    return Bad(text, "does not begin with a number", unit);
  }
  // It takes "0x10" as well.
  if (body.size() > 1 && absl::ascii_tolower(body[1]) == 'x') {
    return Bad(text, "is not a decimal number", unit);
  }
  double number = 0;
  const absl::from_chars_result parsed =
      absl::from_chars(body.data(), body.data() + body.size(), number);
  if (parsed.ec == std::errc::result_out_of_range) {
    return Bad(text, "is out of the range of a double", unit);
  }
  if (parsed.ec != std::errc()) return Bad(text, "is not a number", unit);
  const absl::string_view name = InAscii(absl::StripLeadingAsciiWhitespace(
      body.substr(static_cast<size_t>(parsed.ptr - body.data()))));
  if (unit == Unit::kNone) {
    if (!name.empty()) {
      return Bad(text, absl::StrCat("has '", name, "' after the number"), unit);
    }
    return number;
  }
  if (name.empty()) return Bad(text, "has no unit", unit);
  for (const UnitName& known : UnitsOf(unit)) {
    if (name != known.name) continue;
    const double value = number * known.scale;
    if (!std::isfinite(value)) {
      return Bad(text, "is out of the range of a double", unit);
    }
    return value;
  }
  const std::string hint = Hint(name, unit);
  return Bad(text,
             absl::StrCat("has the unknown unit '", name, "'",
                          hint.empty() ? "" : "; did you mean ", hint,
                          hint.empty() ? "" : "?"),
             unit);
}

absl::StatusOr<double> ScaleOfSuffix(absl::string_view suffix, Unit unit) {
  absl::string_view name = suffix;
  std::vector<std::string> known;
  const bool underscore = absl::ConsumePrefix(&name, "_");
  for (const UnitName& candidate : UnitsOf(unit)) {
    if (underscore && name == candidate.name) return candidate.scale;
    known.push_back(absl::StrCat("_", candidate.name));
  }
  return UnknownName("unit", suffix, known);
}

namespace {

thread_local bool times_in_units = false;

}  // namespace

TimesInUnits::TimesInUnits(bool in_units) : before_(times_in_units) {
  times_in_units = in_units;
}
TimesInUnits::~TimesInUnits() { times_in_units = before_; }
bool TimesInUnits::now() { return times_in_units; }

std::string FormatSeconds(double seconds) {
  if (times_in_units) {
    return absl::StrCat(Digits(seconds), seconds == 1 ? " unit" : " units");
  }
  static const std::vector<UnitName> units = {
      {"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
  return seconds == 0 ? "0 s" : Format(seconds, units);
}

std::string FormatDuration(double seconds) {
  return seconds < 60 ? FormatSeconds(seconds)
                      : Format(seconds, UnitsOf(Unit::kTime));
}

std::string FormatBytes(double bytes) {
  static const std::vector<UnitName> units = {
      {"B", 1}, {"KiB", kKibi}, {"MiB", kMebi}, {"GiB", kGibi}, {"TiB", kTebi}};
  return Format(bytes, units);
}

std::string FormatBandwidth(double bytes_per_s) {
  static const std::vector<UnitName> units = {
      {"Bps", 1}, {"KBps", 1e3}, {"MBps", 1e6}, {"GBps", 1e9}, {"TBps", 1e12}};
  return Format(bytes_per_s, units);
}

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
