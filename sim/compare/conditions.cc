#include "sim/compare/conditions.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace pipewright {
namespace {

// "a, b and c".
std::string List(const std::vector<std::string>& words) {
  if (words.size() < 2) return absl::StrJoin(words, "");
  return absl::StrCat(absl::StrJoin(words.begin(), words.end() - 1, ", "),
                      " and ", words.back());
}

std::string ClockCondition(const TraceOrigin& origin, Side side) {
  const absl::string_view name =
      side == kSimulated ? "the simulated trace" : "the measured trace";
  if (origin.clock == kUnknownClock) {
    return absl::StrCat(name,
                        " does not say by which clock it ran: what of it was "
                        "given and not measured is unknown");
  }
  const bool is_simulated = origin.clock == kSimulatedClock;
  if (side == kSimulated) {
    return is_simulated ? ""
                        : absl::StrCat(name, " is an executed run (",
                                       origin.clock, " clock), no prediction");
  }
  if (is_simulated) {
    return absl::StrCat(name, " is simulated too: nothing in it is measured");
  }
  std::string text;
  if (!origin.given.empty()) {
    text = absl::StrCat(
        name, " ran by the ", origin.clock, " clock: its ", List(origin.given),
        " are the program's own numbers, not measured; they could not differ");
  }
  if (!origin.only_rank.empty()) {
    absl::StrAppend(&text, text.empty() ? name : "",
                    text.empty() ? " ran" : "; ", "only rank ",
                    origin.only_rank,
                    " ran: the passes of all others are given too");
  }
  return text;
}

}  // namespace

std::string MemoryInWords(absl::string_view memory) {
  if (memory == kAllocatorMemory) {
    return "what a model says that the device's allocator holds";
  }
  if (memory == kExecutorMemory) return "what the executor has allocated";
  if (memory.empty()) return "an unknown count";
  return absl::StrCat("a count called \"", memory, "\"");
}

void AddConditions(TraceComparison* comparison) {
  const auto add = [comparison](const std::string& text) {
    if (!text.empty()) comparison->conditions.push_back(text);
  };
  const TraceOrigin& simulated = comparison->origin[kSimulated];
  const TraceOrigin& measured = comparison->origin[kMeasured];
  add(ClockCondition(simulated, kSimulated));
  add(ClockCondition(measured, kMeasured));
  const std::vector<RankComparison>& ranks = comparison->ranks;
  const bool counts_activations =
      std::any_of(ranks.begin(), ranks.end(), [](const RankComparison& row) {
        return row.peak_activations.has_value();
      });
  // When a copy ends decides how many are held.
  const bool copies = std::any_of(
      comparison->differences.begin(), comparison->differences.end(),
      [](const Difference& each) { return each.cause == kCopyTimes; });
  if (counts_activations && !copies &&
      simulated.activations == kCountedFromOrder &&
      measured.activations == kCountedFromOrder) {
    add("peak activations are counted from the order of the passes in both, "
        "which is one: they could not differ");
  }
  const bool two_memories =
      std::any_of(ranks.begin(), ranks.end(), [](const RankComparison& row) {
        return row.memory_bytes[kSimulated] && row.memory_bytes[kMeasured] &&
               !row.peak_memory_bytes;
      });
  if (two_memories) {
    add(absl::StrCat("peak memory is not compared: simulated it is ",
                     MemoryInWords(simulated.memory), ", measured ",
                     MemoryInWords(measured.memory)));
  }
}

}  // namespace pipewright
