#include "execute/faults.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sim/base/status.h"

namespace pipewright {

absl::StatusOr<Faults> ParseFaults(const std::vector<std::string>& slow,
                                   const std::vector<std::string>& late) {
  Faults faults;
  for (const std::string& text : slow) {
    const absl::Status bad = BadValue(
        "--fault-slow", text,
        "KIND[@RANK]:FACTOR with KIND F, B, W, BW, R or *, as B@2:1.3");
    const size_t colon = text.find(':');
    if (colon == std::string::npos) return bad;
    std::string kind = text.substr(0, colon);
    Faults::SlowPass fault;
    if (!absl::SimpleAtod(text.substr(colon + 1), &fault.factor) ||
        fault.factor < 1) {
      return bad;
    }
    const size_t at = kind.find('@');
    if (at != std::string::npos) {
      if (!absl::SimpleAtoi(kind.substr(at + 1), &fault.rank)) return bad;
      kind.resize(at);
    }
    bool known = kind == "*";
    for (int index = 0; index <= static_cast<int>(PassKind::kRecompute);
         ++index) {
      const auto each = static_cast<PassKind>(index);
      if (PassKindName(each) != kind) continue;
      fault.kind = each;
      known = true;
    }
    if (!known) return bad;
    faults.slow_passes.push_back(fault);
  }
  for (const std::string& text : late) {
    const std::vector<std::string> parts = absl::StrSplit(text, ':');
    Faults::LateMessage fault;
    if (parts.size() != 4 || !absl::SimpleAtoi(parts[0], &fault.rank) ||
        !absl::SimpleAtoi(parts[1], &fault.iteration) ||
        !absl::SimpleAtoi(parts[2], &fault.number) ||
        !absl::SimpleAtod(parts[3], &fault.seconds)) {
      return BadValue("--fault-late", text,
                      "RANK:ITERATION:MESSAGE:SECONDS, below 0: never comes");
    }
    faults.late_messages.push_back(fault);
  }
  return faults;
}

}  // namespace pipewright
