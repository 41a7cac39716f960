// How numbers and texts read in reports: units of tables, percentages, and text
// escaped for XML and HTML; quantities by themselves are base/quantity.h's. No
// numbers are computed here and none of these strings is meant to be read back
// (ReportToJson is).
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace pipewright {

// The unit in which all times of a table or an axis are printed.
struct TimeUnit {
  absl::string_view name;  // "s", "ms", "us", "ns"
  double seconds = 1;      // one such unit
};

// The largest unit in which `largest_s` is at least 1; seconds for 0. That of
// TimesInUnits while there is one.
TimeUnit UnitFor(double largest_s);

struct ByteUnit {
  absl::string_view name;  // "GiB", "MiB", "KiB", "B"
  double bytes = 1;        // one such unit
};

// The largest unit in which `largest` is at least 1; bytes for less.
ByteUnit ByteUnitFor(double largest);

// `share` of 1 as per cent with two decimals: "8.33 %".
std::string FormatPercent(double share);
// The same with its sign, for a change or an error: "+8.33 %".
std::string FormatChange(double share);

// Six significant digits; from 10,000 on a whole number: "268,319".
std::string WithSeparators(double value);

// A line of a report: name, value, and what the value is of.
std::string ReportLine(absl::string_view name, absl::string_view value,
                       absl::string_view note);

// Cells as lines with columns as wide as they need: the first flush left, the
// others flush right.
std::string TextTable(const std::vector<std::vector<std::string>>& rows);

// & < > " ' replaced, control characters and broken UTF-8 too, so that the
// result may stand in an XML or HTML text or attribute.
std::string EscapeXml(absl::string_view text);

}  // namespace pipewright
