// A law by which devices or links of a run are slower than they should be. What
// a seed draws for one of them does not depend on the others.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pipewright {

struct SlowLaw {
  enum class Kind : uint8_t { kFixed, kUniform, kLognormal };

  Kind kind = Kind::kFixed;
  double low = 1;    // for kFixed the factor itself
  double high = 1;   // for kUniform
  double sigma = 0;  // for kLognormal: deviation of the logarithm, median 1
  double share = 1;  // share of all that are drawn; the others have factor 1
  std::string text;  // as given

  // Factor on the time of number `index`, an increasing function of one uniform
  // number for each index. `stream` keeps devices and links apart.
  double Factor(uint64_t seed, uint64_t stream, uint64_t index) const;
};

inline constexpr char kSlowLaws[] =
    "fixed:FACTOR, uniform:LOW-HIGH or lognormal:SIGMA%, with @SHARE% behind "
    "it for a part of them (fixed:1.44@1%), factors from 0.001 to 1000, a "
    "sigma above 0 and up to 100 %, a share above 0 and up to 100 %";

// Error: kInvalidArgument without a field, where `text` is none of kSlowLaws.
absl::StatusOr<SlowLaw> ParseSlowLaw(absl::string_view text);

}  // namespace pipewright
