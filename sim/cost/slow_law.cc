#include "sim/cost/slow_law.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sim/base/error_parts.h"
#include "sim/base/statistics.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// Limits of input. [numerics]
constexpr double kLeastSlow = 1e-3;
constexpr double kMostSlow = 1e3;

bool ReadNumber(absl::string_view text, double least, double most,
                double* out) {
  return absl::SimpleAtod(text, out) && *out >= least && *out <= most;
}

// "3%": above 0, up to 100.
bool ReadPercent(absl::string_view text, double* out) {
  if (!absl::ConsumeSuffix(&text, "%") || !ReadNumber(text, 0, 100, out)) {
    return false;
  }
  *out /= 100;
  return *out > 0;
}

bool ReadLaw(absl::string_view text, SlowLaw* law) {
  if (absl::ConsumePrefix(&text, "fixed:")) {
    law->kind = SlowLaw::Kind::kFixed;
    return ReadNumber(text, kLeastSlow, kMostSlow, &law->low);
  }
  if (absl::ConsumePrefix(&text, "uniform:")) {
    law->kind = SlowLaw::Kind::kUniform;
    const std::vector<absl::string_view> ends = absl::StrSplit(text, '-');
    return ends.size() == 2 &&
           ReadNumber(ends[0], kLeastSlow, kMostSlow, &law->low) &&
           ReadNumber(ends[1], law->low, kMostSlow, &law->high);
  }
  law->kind = SlowLaw::Kind::kLognormal;
  return absl::ConsumePrefix(&text, "lognormal:") &&
         ReadPercent(text, &law->sigma);
}

}  // namespace

double SlowLaw::Factor(uint64_t seed, uint64_t stream, uint64_t index) const {
  if (share < 1 && UniformDraw(seed, stream, index, 0) > share) return 1;
  if (kind == Kind::kFixed) return low;
  const double draw = UniformDraw(seed, stream, index, 1);
  return kind == Kind::kUniform ? low + draw * (high - low)
                                : std::exp(sigma * NormalQuantile(draw));
}

absl::StatusOr<SlowLaw> ParseSlowLaw(absl::string_view text) {
  SlowLaw law;
  law.text = std::string(text);
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '@');
  const bool read = parts.size() <= 2 && ReadLaw(parts[0], &law) &&
                    (parts.size() < 2 || ReadPercent(parts[1], &law.share));
  if (read) return law;
  return WithValue(
      absl::InvalidArgumentError(absl::StrCat(
          "'", text, "' is no law of slow devices; allowed: ", kSlowLaws)),
      text, kSlowLaws);
}

}  // namespace pipewright
