// Sizes that would have worked, for messages about one that does not.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace pipewright {

// The largest number below `value` and the smallest above it, from 1 to
// `highest`, for which `works`; ascending. Looks no further than 2^16 away.
std::vector<int64_t> NearestWorking(int64_t value, int64_t highest,
                                    const std::function<bool(int64_t)>& works);

// "4, 8": the divisors of `number` next to `value`, which is none.
std::string NearestDivisors(int64_t number, int64_t value);

}  // namespace pipewright
