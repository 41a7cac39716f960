#include "sim/report/format.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/quantity.h"

namespace pipewright {
namespace {

// Bytes of the well-formed UTF-8 sequence at the front of `text` (RFC 3629),
// 0 where it is broken.
size_t SequenceLength(absl::string_view text) {
  const auto byte = [text](size_t index) {
    return static_cast<unsigned char>(text[index]);
  };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (size_t index = 1; index < length; ++index) {
    if ((byte(index) & 0xc0) != 0x80) return 0;
  }
  if (first == 0xe0 && byte(1) < 0xa0) return 0;  // overlong
  if (first == 0xed && byte(1) > 0x9f) return 0;  // surrogates
  if (first == 0xf0 && byte(1) < 0x90) return 0;  // overlong
  if (first == 0xf4 && byte(1) > 0x8f) return 0;  // beyond U+10FFFF
  return length;
}

}  // namespace

TimeUnit UnitFor(double largest_s) {
  if (TimesInUnits::now()) return {"units", 1};
  const double size = std::abs(largest_s);
  if (size == 0 || size >= 1) return {"s", 1};
  if (size >= 1e-3) return {"ms", 1e-3};
  if (size >= 1e-6) return {"us", 1e-6};
  return {"ns", 1e-9};
}

ByteUnit ByteUnitFor(double largest) {
  for (const ByteUnit unit :
       {ByteUnit{"GiB", 1024.0 * 1024 * 1024}, ByteUnit{"MiB", 1024.0 * 1024},
        ByteUnit{"KiB", 1024}}) {
    if (largest >= unit.bytes) return unit;
  }
  return {"B", 1};
}

std::string FormatPercent(double share) {
  return absl::StrFormat("%.2f %%", 100 * share);
}

std::string FormatChange(double share) {
  return absl::StrFormat("%+.2f %%", 100 * share);
}

std::string WithSeparators(double value) {
  std::string text = absl::StrFormat("%.6g", value);
  if (std::abs(value) < 1e4 || std::abs(value) >= 1e15) return text;
  text = absl::StrFormat("%.0f", value);
  const int first = value < 0 ? 1 : 0;
  for (int at = static_cast<int>(text.size()) - 3; at > first; at -= 3) {
    text.insert(at, ",");
  }
  return text;
}

std::string ReportLine(absl::string_view name, absl::string_view value,
                       absl::string_view note) {
  return absl::StrFormat("%-14s %10s  %s\n", name, value, note);
}

std::string TextTable(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const std::vector<std::string>& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t column = 0; column < row.size(); ++column) {
      widths[column] = std::max(widths[column], row[column].size());
    }
  }
  std::string out;
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (size_t column = 0; column < row.size(); ++column) {
      const std::string pad(widths[column] - row[column].size(), ' ');
      absl::StrAppend(&line, column == 0 ? "" : "  ", column == 0 ? "" : pad,
                      row[column], column == 0 ? pad : "");
    }
    absl::StrAppend(&out, absl::StripTrailingAsciiWhitespace(line), "\n");
  }
  return out;
}

std::string EscapeXml(absl::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
    const char letter = text[0];
    if (length == 0) {
      out += "\xef\xbf\xbd";  // U+FFFD, the replacement character
    } else if (letter == '&') {
      out += "&amp;";
    } else if (letter == '<') {
      out += "&lt;";
    } else if (letter == '>') {
      out += "&gt;";
    } else if (letter == '"') {
      out += "&quot;";
    } else if (letter == '\'') {
      out += "&#39;";
    } else if (length == 1 && static_cast<unsigned char>(letter) < 0x20) {
      out += ' ';  // XML 1.0 allows few control characters, we need none
    } else {
      absl::StrAppend(&out, text.substr(0, length));
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

}  // namespace pipewright
