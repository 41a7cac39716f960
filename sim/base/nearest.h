// Sizes that would have worked, for messages about one that does not.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace pipewright {

// The largest number below `value` and the smallest above it, from 1 to
// `highest`, for which `works`; ascending. Looks no further than 2^16 away.
std::vector<int64_t> NearestWorking(int64_t value, int64_t highest,
                                    const std::function<bool(int64_t)>& works);

// "8192 or 8000" for "8k", as somebody writes a whole number who is not asked
// for all of its digits; "" for every other text.
std::string DigitsOf(absl::string_view text);
// `status` about the value `text`, with "; did you mean 8192 or 8000?" where
// DigitsOf has an answer.
absl::Status WithDigits(absl::string_view text, const absl::Status& status);

// "4, 8": the divisors of `number` next to `value`, which is none.
std::string NearestDivisors(int64_t number, int64_t value);

// kInvalidArgument "FIELD: VALUE is not allowed; allowed: 4 or 8, the nearest
// (WHY)": the largest value below and the smallest one above that `works`, of
// those in 1..8*value+64.
absl::Status BadSize(absl::string_view field, int value,
                     const std::function<bool(int)>& works,
                     absl::string_view why);

}  // namespace pipewright
