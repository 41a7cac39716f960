#include "sim/schedule/token.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// Longest names first, so that a prefix never hides a longer one.
struct KindName {
  absl::string_view name;
  PassKind kind;
};
constexpr KindName kKindNames[] = {
    {"SYNC", PassKind::kSync},       {"FREE", PassKind::kFree},
    {"BW", PassKind::kBackwardFull}, {"F", PassKind::kForward},
    {"B", PassKind::kBackwardInput}, {"W", PassKind::kBackwardWeight},
    {"R", PassKind::kRecompute},     {"O", PassKind::kOffload},
    {"L", PassKind::kLoad},
};

bool IsBlank(char letter) { return letter == ' ' || letter == '\t'; }

absl::Status BadToken(absl::string_view token, absl::string_view problem,
                      absl::string_view allowed) {
  return WithValue(
      absl::InvalidArgumentError(absl::StrCat("token ", Quoted(token), ": ",
                                              problem, "; allowed: ", allowed)),
      token, allowed);
}

// Takes a number of 0..count-1 off `rest`.
absl::Status TakeIndex(absl::string_view token, absl::string_view what,
                       int count, absl::string_view& rest, int& index) {
  int64_t value = 0;
  // One way to write each number, so that tokens can be compared as text.
  const bool padded =
      rest.size() > 1 && rest[0] == '0' && absl::ascii_isdigit(rest[1]);
  if (padded) {
    return BadToken(token, absl::StrCat(what, " has a leading zero"),
                    absl::StrCat("0..", count - 1, " without one"));
  }
  if (!TakeNumber(rest, count - 1, value)) {
    return BadToken(token, absl::StrCat(what, " is missing or out of range"),
                    absl::StrCat("0..", count - 1));
  }
  index = static_cast<int>(value);
  return absl::OkStatus();
}

absl::StatusOr<Pass> ParsePass(absl::string_view token,
                               const TokenSizes& sizes) {
  absl::string_view rest = token;
  int direction = 0;
  if (sizes.directions > 1) {
    if (absl::ConsumePrefix(&rest, "b")) {
      direction = 1;
    } else if (!absl::ConsumePrefix(&rest, "a")) {
      return BadToken(token, "the replica is missing",
                      "a or b in front, with 2 replicas");
    }
  }
  const auto* kind =
      std::find_if(std::begin(kKindNames), std::end(kKindNames),
                   [&](const KindName& candidate) {
                     return absl::ConsumePrefix(&rest, candidate.name);
                   });
  // "BX0" is no B with an odd microbatch.
  if (kind == std::end(kKindNames) ||
      (!rest.empty() && absl::ascii_isalpha(rest[0]))) {
    return BadToken(token, "unknown kind",
                    sizes.directions > 1
                        ? "F B W BW R O L SYNC FREE"
                        : "F B W BW R O L SYNC FREE (a, b in front only with "
                          "2 replicas)");
  }
  int microbatch = 0;
  int chunk = 0;
  int slice = 0;
  PW_RETURN_IF_ERROR(TakeIndex(
      token, "microbatch", sizes.microbatches_per_direction, rest, microbatch));
  if (sizes.vpp > 1) {
    if (!absl::ConsumePrefix(&rest, ".")) {
      return BadToken(token, "the chunk is missing",
                      absl::StrCat(".CHUNK, 0..", sizes.vpp - 1));
    }
    PW_RETURN_IF_ERROR(TakeIndex(token, "chunk", sizes.vpp, rest, chunk));
  }
  if (sizes.slices > 1) {
    if (!absl::ConsumePrefix(&rest, "s")) {
      return BadToken(token, "the slice is missing",
                      absl::StrCat("sSLICE, 0..", sizes.slices - 1));
    }
    PW_RETURN_IF_ERROR(TakeIndex(token, "slice", sizes.slices, rest, slice));
  }
  if (!rest.empty()) {
    return BadToken(token, absl::StrCat("trailing ", Quoted(rest)),
                    absl::StrCat("KIND MB", sizes.vpp > 1 ? ".CHUNK" : "",
                                 sizes.slices > 1 ? "sSLICE" : "", " with vpp ",
                                 sizes.vpp, " and ", sizes.slices, " slices"));
  }
  return Pass(kind->kind, microbatch, chunk, slice, direction);
}

}  // namespace

bool TakeNumber(absl::string_view& text, int64_t maximum, int64_t& value) {
  size_t digits = 0;
  value = 0;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') {
    value = value * 10 + (text[digits] - '0');
    if (value > maximum) return false;
    ++digits;
  }
  text.remove_prefix(digits);
  return digits > 0;
}

absl::string_view TakeWord(absl::string_view& text) {
  size_t begin = 0;
  while (begin < text.size() && IsBlank(text[begin])) ++begin;
  size_t end = begin;
  while (end < text.size() && !IsBlank(text[end])) ++end;
  const absl::string_view word = text.substr(begin, end - begin);
  text.remove_prefix(end);
  return word;
}

std::string Quoted(absl::string_view token) {
  constexpr size_t kLongest = 40;
  return absl::StrCat("'", absl::CHexEscape(token.substr(0, kLongest)),
                      token.size() > kLongest ? "..." : "", "'");
}

absl::StatusOr<RankOrder> ParseOrder(absl::string_view text,
                                     const TokenSizes& sizes) {
  RankOrder order;
  size_t passes = 0;
  for (size_t index = 0; index < text.size(); ++index) {
    const bool starts =
        !IsBlank(text[index]) && (index == 0 || IsBlank(text[index - 1]));
    passes += starts || text[index] == '&';
  }
  order.reserve(passes);
  while (true) {
    const absl::string_view token = TakeWord(text);
    if (token.empty()) return order;
    absl::string_view pair = token;
    if (!absl::ConsumePrefix(&pair, "(")) {
      PW_ASSIGN_OR_RETURN(const Pass pass, ParsePass(token, sizes));
      order.push_back(pass);
      continue;
    }
    const size_t middle = pair.find('&');
    if (middle == absl::string_view::npos || !absl::ConsumeSuffix(&pair, ")")) {
      return BadToken(token, "no joint pair", "(X&Y) without blanks");
    }
    PW_ASSIGN_OR_RETURN(const Pass first,
                        ParsePass(pair.substr(0, middle), sizes));
    PW_ASSIGN_OR_RETURN(const Pass second,
                        ParsePass(pair.substr(middle + 1), sizes));
    order.push_back(first.WithJoint(true));
    order.push_back(second);
  }
}

void AppendOrder(const Schedule& schedule, int rank, char separator,
                 std::string* out) {
  const RankOrder& order = schedule.order(rank);
  for (size_t index = 0; index < order.size(); ++index) {
    if (index > 0) *out += separator;
    if (order[index].joint_with_next() && index + 1 < order.size()) {
      absl::StrAppend(out, "(", PassToString(schedule, order[index]), "&",
                      PassToString(schedule, order[index + 1]), ")");
      ++index;
    } else {
      absl::StrAppend(out, PassToString(schedule, order[index]));
    }
  }
}

}  // namespace pipewright
