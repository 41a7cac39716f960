// The header fields that the text and JSON forms of a schedule share (text.h):
// what they may be, and what they say together.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/schedule/schedule.h"
#include "sim/schedule/token.h"

namespace pipewright {

inline constexpr char kScheduleFormat[] = "pipewright-schedule";
// Well above the largest published pipeline (64 ranks, arXiv 2104.04473,
// table 1), small enough for tables by rank.
inline constexpr int kMaxRanks = 1 << 16;

// A field that is a number; `fallback` 0 means that it must be stated,
// kLeftOut that the schedule has no such thing unless it is.
inline constexpr int kLeftOut = -1;
struct HeaderField {
  absl::string_view name;
  int64_t minimum, maximum;
  int fallback;
};

// nullptr for an unknown name.
const HeaderField* FindHeaderField(absl::string_view name);

// "FIELD: VALUE is not allowed; allowed: an integer in ..".
absl::Status BadHeaderNumber(const HeaderField& field, absl::string_view value);

// kInvalidArgument naming the nearest field among all and `more`.
absl::Status UnknownHeaderField(absl::string_view name,
                                const std::vector<std::string>& more);

struct ScheduleHeader {
  std::map<std::string, int> numbers;
  std::string placement;  // a name; "" where none was stated
  std::optional<std::vector<int>> rank_of_stage;
  BackwardRule backward = BackwardRule::kChain;

  // The stated value, else the default, else 0.
  int Number(absl::string_view name) const;
  TokenSizes Sizes() const;

  // Error: kInvalidArgument when `name` is no placement.
  absl::Status SetPlacement(absl::string_view name);

  // Error: kInvalidArgument when `name` is no backward rule.
  absl::Status SetBackward(absl::string_view name);

  // Checks that the fields fit together. Error: kInvalidArgument with the
  // field, its value and what is allowed.
  absl::StatusOr<Placement> MakePlacement() const;
};

// All parts together, once each has been checked.
Schedule AssembleSchedule(const ScheduleHeader& header, Placement placement,
                          absl::string_view name, std::vector<RankOrder> orders,
                          std::vector<int> lines);

// The JSON form, as ParseSchedule (text.h).
absl::StatusOr<Schedule> ParseScheduleJson(absl::string_view content,
                                           absl::string_view source);

}  // namespace pipewright
