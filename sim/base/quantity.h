// Numbers with units as people write them ("18.5ms", "80GiB", "400Gbps"), in
// and out. Inside, everything is seconds, bytes, or bytes per second, as
// double. Spelling is exact: Gbps is bits, GBps bytes; GB is 1e9, GiB 2^30
// (docs/architecture.md, Files).
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pipewright {

enum class Unit {
  kTime,       // seconds: ns us (or µs) ms s min h d
  kBytes,      // B KB MB GB TB KiB MiB GiB TiB
  kBandwidth,  // bytes per second: KBps..TBps, MiBps GiBps, Mbps Gbps Tbps
  kNone,       // a bare number
};

// The unit that numbers have inside: "s", "B", "B/s", "".
const char* SiUnit(Unit unit);

// "18.5ms" -> 0.0185. Blanks around the number and the unit are allowed.
// Error: kInvalidArgument that quotes `text` and lists the units allowed, for
// a missing, unknown or unexpected unit (with the nearest known one), and for
// a number that is negative, not finite, or out of the range of a double. It
// does not name the field: the caller puts that in front (Prefix).
absl::StatusOr<double> ParseQuantity(absl::string_view text, Unit unit);

// For keys with the unit in their name: the factor that the value of a key
// ending in `suffix` is multiplied by: "_ms" -> 1e-3, "_GiB" -> 2^30,
// "_Gbps" -> 1.25e8. Any unit of `unit` with "_" in front. Error:
// kInvalidArgument that lists the suffixes allowed.
absl::StatusOr<double> ScaleOfSuffix(absl::string_view suffix, Unit unit);

// For people: four digits and a fitting unit, "18.52 ms", "80 GiB",
// "450 GBps".
std::string FormatSeconds(double seconds);
// While one lives, what this thread formats as time reads in units of a pass,
// "28 units", as of runs that nobody gave times.
class TimesInUnits {
 public:
  explicit TimesInUnits(bool in_units);
  ~TimesInUnits();
  TimesInUnits(const TimesInUnits&) = delete;
  TimesInUnits& operator=(const TimesInUnits&) = delete;

  static bool now();

 private:
  const bool before_;
};
// The same for what may last for days: "26.5 min", "1.5 d".
std::string FormatDuration(double seconds);
std::string FormatBytes(double bytes);
std::string FormatBandwidth(double bytes_per_s);

// Limits of the amounts that people give: 0, or from least to most. The ends
// are far beyond any machine, and near enough that no sum, product or quotient
// of amounts leaves the range of a double.
struct AmountRange {
  double least;
  double most;
};
AmountRange RangeOf(Unit unit);

// Error: kInvalidArgument that quotes `text`, for a value that RangeOf(unit)
// does not have. It does not name the field.
absl::Status CheckAmount(double value, absl::string_view text, Unit unit);

}  // namespace pipewright
