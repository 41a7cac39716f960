#include "sim/trace/log_lines.h"

#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sim/base/input.h"

namespace pipewright {
namespace {

constexpr size_t kLongestMark = 80;

// Escape sequences end with a letter: "\x1b[31m". A carriage return overwrites
// what stands before it.
std::string WithoutControls(absl::string_view line) {
  absl::ConsumeSuffix(&line, "\r");
  line.remove_prefix(line.rfind('\r') + 1);
  std::string text;
  for (size_t at = 0; at < line.size(); ++at) {
    if (line[at] != '\x1b') {
      text += line[at];
      continue;
    }
    if (at + 1 < line.size() && line[at + 1] == '[') ++at;
    while (at + 1 < line.size() && !absl::ascii_isalpha(line[at + 1])) ++at;
    ++at;
  }
  return text;
}

// Bytes of the mark at the start; 0 without one.
size_t MarkSize(absl::string_view line) {
  size_t at = 0;
  if (absl::StartsWith(line, "[")) {
    at = line.find(']');
    if (at > kLongestMark) return 0;
    ++at;
    for (const char* stream : {"<stdout>", "<stderr>"}) {
      absl::string_view rest = line.substr(at);
      if (absl::ConsumePrefix(&rest, stream)) at = line.size() - rest.size();
    }
    return at < line.size() && line[at] == ':' ? at + 1 : 0;
  }
  while (at < line.size() && absl::ascii_isdigit(line[at])) ++at;
  return at > 0 && absl::StartsWith(line.substr(at), ": ") ? at + 2 : 0;
}

}  // namespace

std::vector<LogLine> LogLines(absl::string_view text) {
  text.remove_prefix(ByteOrderMarkSize(text));
  std::vector<LogLine> lines;
  for (const absl::string_view each : absl::StrSplit(text, '\n')) {
    LogLine line = {.number = static_cast<int64_t>(lines.size()) + 1};
    const std::string plain = WithoutControls(each);
    absl::string_view rest = plain;
    while (true) {
      const absl::string_view trimmed = absl::StripLeadingAsciiWhitespace(rest);
      const size_t size = MarkSize(trimmed);
      if (size == 0) break;
      line.writer += std::string(trimmed.substr(0, size));
      rest = trimmed.substr(size);
    }
    line.text = std::string(rest);
    lines.push_back(std::move(line));
  }
  return lines;
}

bool NumberBehind(absl::string_view line, absl::string_view key,
                  double* value) {
  const size_t at = line.find(key);
  if (at == absl::string_view::npos) return false;
  std::string digits;
  for (const char letter :
       absl::StripLeadingAsciiWhitespace(line.substr(at + key.size()))) {
    if (letter == ',') continue;
    if (!absl::ascii_isdigit(letter) && letter != '.' && letter != '-' &&
        letter != '+' && letter != 'e' && letter != 'E') {
      break;
    }
    digits += letter;
  }
  return absl::SimpleAtod(digits, value) && std::isfinite(*value);
}

bool BeginsJson(absl::string_view text) {
  text.remove_prefix(ByteOrderMarkSize(text));
  text = absl::StripLeadingAsciiWhitespace(text);
  if (absl::ConsumePrefix(&text, "[")) {
    text = absl::StripLeadingAsciiWhitespace(text);
    return text.empty() || absl::StartsWith(text, "{") ||
           absl::StartsWith(text, "]");
  }
  return absl::StartsWith(text, "{");
}

}  // namespace pipewright
