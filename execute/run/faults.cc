#include "execute/run/faults.h"

#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sim/base/status.h"
#include "sim/program/program.h"

namespace pipewright {
namespace {

constexpr double kMostSlow = 1e6;
constexpr double kMostLate_s = 1e6;

}  // namespace

absl::StatusOr<Faults> ParseFaults(const std::vector<std::string>& slow,
                                   const std::vector<std::string>& late) {
  Faults faults;
  for (const std::string& text : slow) {
    const absl::Status bad = BadValue(
        "--fault-slow", text,
        "KIND[@RANK]:FACTOR with KIND F, B, W, BW, R or *, FACTOR from 1 to "
        "1000000, as B@2:1.3");
    const size_t colon = text.find(':');
    if (colon == std::string::npos) return bad;
    std::string kind = text.substr(0, colon);
    Faults::SlowPass fault;
    if (!absl::SimpleAtod(text.substr(colon + 1), &fault.factor) ||
        !(fault.factor >= 1 && fault.factor <= kMostSlow)) {
      return bad;
    }
    const size_t at = kind.find('@');
    if (at != std::string::npos) {
      if (!absl::SimpleAtoi(kind.substr(at + 1), &fault.rank) ||
          fault.rank < 0) {
        return bad;
      }
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
        !absl::SimpleAtod(parts[3], &fault.seconds) ||
        !(std::abs(fault.seconds) <= kMostLate_s)) {
      return BadValue(
          "--fault-late", text,
          "RANK:ITERATION:MESSAGE:SECONDS of at most 1000000, below "
          "0: never comes");
    }
    faults.late_messages.push_back(fault);
  }
  return faults;
}

absl::Status CheckFaults(const Faults& faults, const Program& program) {
  const std::string ranks = absl::StrCat("a rank from 0 to ", program.pp() - 1);
  for (const Faults::SlowPass& fault : faults.slow_passes) {
    if (fault.rank >= program.pp()) {
      return BadValue("--fault-slow", absl::StrCat("rank ", fault.rank), ranks);
    }
    bool runs = !fault.kind;
    for (int rank = 0; rank < program.pp(); ++rank) {
      if (fault.rank >= 0 && fault.rank != rank) continue;
      for (const Pass pass : *program.ranks[rank].order) {
        runs |= pass.kind() == fault.kind;
      }
    }
    if (!runs) {
      return BadValue("--fault-slow", PassKindName(*fault.kind),
                      "a kind of pass that the rank runs");
    }
  }
  for (const Faults::LateMessage& fault : faults.late_messages) {
    if (fault.rank < 0 || fault.rank >= program.pp()) {
      return BadValue("--fault-late", absl::StrCat("rank ", fault.rank), ranks);
    }
    if (fault.iteration < 0 || fault.iteration >= program.iterations) {
      return BadValue(
          "--fault-late", absl::StrCat("iteration ", fault.iteration),
          absl::StrCat("an iteration from 0 to ", program.iterations - 1));
    }
    if (fault.number < 0) {
      return BadValue("--fault-late", absl::StrCat("message ", fault.number),
                      "a number from 0 on");
    }
  }
  return absl::OkStatus();
}

}  // namespace pipewright
