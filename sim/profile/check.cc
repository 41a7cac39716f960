#include "sim/profile/check.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace pipewright {
namespace {

std::string Micros(double seconds) {
  return absl::StrFormat("%.9g", seconds * 1e6);
}

}  // namespace

Wrong WhatIsWrong(const Distribution& time) {
  const auto most = [](const char* field, double value, double limit) -> Wrong {
    if (value <= limit) return {};
    return {field, Micros(value), absl::StrCat("at most ", Micros(limit))};
  };
  const auto least = [](const char* field, double value,
                        double limit) -> Wrong {
    if (value == 0 || value >= limit) return {};
    return {field, Micros(value), absl::StrCat("at least ", Micros(limit))};
  };
  const double median = time.median_s;
  if (median <= 0) return {"median_us", Micros(median), "more than 0"};
  if (time.outliers > time.count) {
    return {"outliers", absl::StrCat(time.outliers),
            absl::StrCat("at most ", time.count)};
  }
  for (const Wrong& wrong :
       {most("p10_us", time.p10_s, median), most("min_us", time.min_s, median),
        least("p90_us", time.p90_s, median),
        least("max_us", time.max_s, median),
        most("confidence_low_us", time.confidence_low_s, median),
        least("confidence_high_us", time.confidence_high_s, median),
        most("prediction_low_us", time.prediction_low_s,
             time.prediction_high_s)}) {
    if (wrong.field != nullptr) return wrong;
  }
  if (time.quantiles_s.size() == 1) {
    return {"quantiles_us", Micros(time.quantiles_s[0]),
            "none, or two or more"};
  }
  for (size_t index = 1; index < time.quantiles_s.size(); ++index) {
    if (time.quantiles_s[index] < time.quantiles_s[index - 1]) {
      return {"quantiles_us", Micros(time.quantiles_s[index]),
              "numbers that do not fall"};
    }
  }
  return {};
}

Wrong WhatIsWrong(const InterferenceEntry& entry) {
  const auto number = [](double value) { return absl::StrCat(value); };
  if (entry.pass_slowdown <= 0) {
    return {"pass_slowdown", number(entry.pass_slowdown), "more than 0"};
  }
  if (entry.beside_slowdown <= 0) {
    return {"beside_slowdown", number(entry.beside_slowdown), "more than 0"};
  }
  if (entry.pass_high < entry.pass_low) {
    return {"pass_high", number(entry.pass_high), "pass_low or more"};
  }
  if (entry.beside_high < entry.beside_low) {
    return {"beside_high", number(entry.beside_high), "beside_low or more"};
  }
  return {};
}

}  // namespace pipewright
