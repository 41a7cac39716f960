#include "tests/support/xml_check.h"

#include <cctype>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace pipewright::testing {
namespace {

std::string At(absl::string_view rest, absl::string_view what) {
  return absl::StrCat(what, " at: ", rest.substr(0, 60));
}

bool IsName(char letter) {
  return absl::ascii_isalnum(letter) || letter == '-' || letter == ':' ||
         letter == '_';
}

absl::string_view TakeName(absl::string_view* rest) {
  size_t length = 0;
  while (length < rest->size() && IsName((*rest)[length])) ++length;
  const absl::string_view name = rest->substr(0, length);
  rest->remove_prefix(length);
  return name;
}

// `rest` starts at &.
bool IsEntity(absl::string_view rest) {
  for (const absl::string_view entity :
       {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"}) {
    if (absl::StartsWith(rest, entity)) return true;
  }
  return false;
}

std::string AttributeProblem(absl::string_view* rest) {
  std::set<absl::string_view> seen;
  while (true) {
    *rest = absl::StripLeadingAsciiWhitespace(*rest);
    if (rest->empty()) return "tag without end";
    if ((*rest)[0] == '>' || (*rest)[0] == '/') return "";
    const absl::string_view start = *rest;
    const absl::string_view name = TakeName(rest);
    if (name.empty()) return At(start, "attribute without name");
    if (!seen.insert(name).second) return At(start, "attribute twice");
    if (!absl::StartsWith(*rest, "=\"")) return At(start, "unquoted value");
    const size_t end = rest->find('"', 2);
    if (end == absl::string_view::npos) return At(start, "quote without end");
    const absl::string_view value = rest->substr(2, end - 2);
    for (size_t index = 0; index < value.size(); ++index) {
      if (value[index] == '<') return At(start, "< in an attribute");
      if (value[index] == '&' && !IsEntity(value.substr(index))) {
        return At(start, "bare & in an attribute");
      }
    }
    rest->remove_prefix(end + 1);
    if (!rest->empty() && IsName((*rest)[0])) {
      return At(start, "no blank behind an attribute");
    }
  }
}

}  // namespace

std::string XmlProblem(absl::string_view text) {
  const std::set<absl::string_view> void_elements = {"meta", "link", "input",
                                                     "br"};
  std::vector<absl::string_view> open;
  bool root_seen = false;
  absl::string_view rest = text;
  absl::ConsumePrefix(&rest, "<!DOCTYPE html>");
  while (!rest.empty()) {
    if (rest[0] == '&' && !IsEntity(rest)) return At(rest, "bare &");
    if (rest[0] == '>') return At(rest, "bare >");
    if (rest[0] != '<') {
      if (open.empty() && !absl::ascii_isspace(rest[0])) {
        return At(rest, "text outside of the root");
      }
      rest.remove_prefix(1);
      continue;
    }
    const absl::string_view start = rest;
    rest.remove_prefix(1);
    if (absl::ConsumePrefix(&rest, "/")) {
      const absl::string_view name = TakeName(&rest);
      if (open.empty() || open.back() != name) {
        return At(start, "end that fits no start");
      }
      if (!absl::ConsumePrefix(&rest, ">")) return At(start, "bad end tag");
      open.pop_back();
      continue;
    }
    const absl::string_view name = TakeName(&rest);
    if (name.empty()) return At(start, "bare <");
    if (open.empty() && root_seen) return At(start, "second root");
    root_seen = true;
    if (std::string problem = AttributeProblem(&rest); !problem.empty()) {
      return problem;
    }
    const bool closed = absl::ConsumePrefix(&rest, "/");
    if (!absl::ConsumePrefix(&rest, ">")) return At(start, "bad tag");
    if (closed || void_elements.count(name) > 0) continue;
    open.push_back(name);
    if (name == "style" || name == "script") {  // raw text up to its end
      const size_t end = rest.find(absl::StrCat("</", name));
      if (end == absl::string_view::npos) {
        return absl::StrCat(name, " without end");
      }
      rest.remove_prefix(end);
    }
  }
  if (!open.empty()) return absl::StrCat("no end of ", open.back());
  return root_seen ? "" : "no element";
}

int Count(absl::string_view text, absl::string_view part) {
  int count = 0;
  for (size_t at = text.find(part); at != absl::string_view::npos;
       at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

}  // namespace pipewright::testing
