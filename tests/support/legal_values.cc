#include "tests/support/legal_values.h"

#include <cstdint>
#include <map>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sim/base/check.h"

namespace pipewright::testing {
namespace {

constexpr int64_t kAllOf = 33;
constexpr int64_t kNoEnd = 1 << 20;
// A search takes as long as it is told to, and a seed is as good as another.
constexpr int64_t kMostOfSearch = 4;
constexpr char kTime[] = "TIME";

struct Range {
  int64_t low;
  std::optional<int64_t> high;
};

int64_t End(absl::string_view text, const ScheduleParams& sizes) {
  const std::map<absl::string_view, int> names = {
      {"pp", sizes.pp},
      {"vpp", sizes.vpp},
      {"microbatches", sizes.microbatches},
      {"slices", sizes.slices}};
  const auto name = names.find(text);
  if (name != names.end()) return name->second;
  int64_t number = 0;
  PW_CHECK(absl::SimpleAtoi(text, &number));
  return number;
}

// None of a choice.
std::optional<Range> RangeOf(const ParamInfo& param,
                             const ScheduleParams& sizes) {
  if (param.legal == kTime) return std::nullopt;
  const std::vector<std::string> ends = absl::StrSplit(param.legal, "..");
  if (ends.size() != 2) {
    PW_CHECK(absl::StrContains(param.legal, "|"));
    return std::nullopt;
  }
  Range range = {End(ends[0], sizes), std::nullopt};
  if (!ends[1].empty()) range.high = End(ends[1], sizes);
  return range;
}

}  // namespace

std::vector<std::string> LegalValuesOf(const ParamInfo& param,
                                       const ScheduleParams& sizes) {
  const std::optional<Range> range = RangeOf(param, sizes);
  if (param.legal == kTime) return {"1ns"};  // ends at once
  if (!range) return absl::StrSplit(param.legal, '|');
  const bool is_of_search = param.key == "steps" || param.key == "seed";
  const int64_t high =
      range->high.value_or(is_of_search ? kMostOfSearch : kNoEnd);
  std::vector<std::string> values;
  for (int64_t value = range->low; value <= high;) {
    values.push_back(absl::StrCat(value));
    if (high - range->low < kAllOf || value < 1) {
      ++value;
    } else {
      value = value < high && value * 2 > high ? high : value * 2;
    }
    if (values.back() == absl::StrCat(high)) break;
  }
  if (range->low == 0 && range->high == 1) {
    values.insert(values.end(), {"0.25", "0.999"});
  }
  return values;
}

std::vector<std::string> IllegalValuesOf(const ParamInfo& param,
                                         const ScheduleParams& sizes) {
  std::vector<std::string> values = {"", "no such value", "nan", "1x"};
  const std::optional<Range> range = RangeOf(param, sizes);
  if (!range) return values;
  values.push_back(absl::StrCat(range->low - 1));
  if (range->high) values.push_back(absl::StrCat(*range->high + 1));
  values.push_back("99999999999999999999");
  return values;
}

}  // namespace pipewright::testing
