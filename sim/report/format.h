// How numbers and texts read in reports: times with a unit that fits, bytes,
// percentages, and text escaped for XML and HTML. No numbers are computed here
// and none of these strings is meant to be read back (ReportToJson is).
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace pipewright {

// The unit in which all times of a table or an axis are printed.
struct TimeUnit {
  absl::string_view name;  // "s", "ms", "us", "ns"
  double seconds = 1;      // of one such unit
};

// The largest unit in which `largest_s` is at least 1; seconds for 0.
TimeUnit UnitFor(double largest_s);

// Four significant digits and a unit of its own: "18.52 ms", "0 s".
std::string FormatSeconds(double seconds);

// `share` of 1 as per cent with two decimals: "8.33 %".
std::string FormatPercent(double share);

// Powers of 1000 (DESIGN section 5: GB is 1e9): "1.5 GB", "12 bytes".
std::string FormatBytes(double bytes);

// & < > " ' replaced, control characters and broken UTF-8 too, so that the
// result may stand in an XML or HTML text or attribute.
std::string EscapeXml(absl::string_view text);

}  // namespace pipewright
