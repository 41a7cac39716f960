#include "sim/schedule/params.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/status.h"

namespace pipewright {

absl::StatusOr<int> IntParam(const ScheduleParams& params,
                             absl::string_view key, int fallback, int minimum,
                             int maximum) {
  const auto found = params.own.find(std::string(key));
  if (found == params.own.end()) return fallback;
  int value = 0;
  if (!absl::SimpleAtoi(found->second, &value) || value < minimum ||
      value > maximum) {
    return BadValue(absl::StrCat("schedule.params.", key), found->second,
                    minimum > maximum ? std::string("nothing at this size")
                                      : absl::StrCat("an integer in ", minimum,
                                                     "..", maximum));
  }
  return value;
}

absl::StatusOr<double> RealParam(const ScheduleParams& params,
                                 absl::string_view key, double fallback,
                                 double minimum, double maximum) {
  const auto found = params.own.find(std::string(key));
  if (found == params.own.end()) return fallback;
  double value = 0;
  if (!absl::SimpleAtod(found->second, &value) ||
      !(value >= minimum && value <= maximum)) {
    return BadValue(absl::StrCat("schedule.params.", key), found->second,
                    absl::StrCat("a number in ", minimum, "..", maximum));
  }
  return value;
}

absl::StatusOr<std::string> ChoiceParam(
    const ScheduleParams& params, absl::string_view key,
    absl::string_view fallback, const std::vector<std::string>& choices) {
  const auto found = params.own.find(std::string(key));
  if (found == params.own.end()) return std::string(fallback);
  if (std::find(choices.begin(), choices.end(), found->second) ==
      choices.end()) {
    return BadValue(absl::StrCat("schedule.params.", key), found->second,
                    absl::StrJoin(choices, ", "));
  }
  return found->second;
}

absl::Status RequireOnly(absl::string_view schedule, absl::string_view field,
                         int value, int only) {
  if (value == only) return absl::OkStatus();
  return BadValue(field, absl::StrCat(value),
                  absl::StrCat(only, " (schedule ", schedule, ")"));
}

double SliceWork(const SequenceShape& sequence, int64_t begin, int64_t end) {
  const auto tokens = static_cast<double>(sequence.tokens);
  return PrefixWork(sequence.attention, static_cast<double>(end) / tokens) -
         PrefixWork(sequence.attention, static_cast<double>(begin) / tokens);
}

std::vector<double> SliceFactors(const SequenceShape& sequence,
                                 const std::vector<int64_t>& lengths) {
  std::vector<double> factors;
  int64_t begin = 0;
  for (const int64_t length : lengths) {
    factors.push_back(SliceWork(sequence, begin, begin + length) *
                      static_cast<double>(lengths.size()));
    begin += length;
  }
  return factors;
}

double EqualSliceFactor(double attention, int slice, int slices) {
  return slices * (PrefixWork(attention, (slice + 1.0) / slices) -
                   PrefixWork(attention, 1.0 * slice / slices));
}

}  // namespace pipewright
