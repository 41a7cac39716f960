#include "sim/analysis/plot/report_path.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sim/base/error_parts.h"
#include "sim/base/json.h"

namespace pipewright {
namespace {

constexpr const char* kListWords[] = {"max", "min", "mean", "sum"};
// Indexes of longer lists are not named one by one.
constexpr size_t kMostNamed = 4;

bool AllNumbers(const Json& list) {
  return !list.empty() &&
         std::all_of(list.begin(), list.end(),
                     [](const Json& each) { return each.is_number(); });
}

Json OfList(const Json& list, absl::string_view word) {
  double sum = 0;
  double most = list[0].get<double>();
  double least = most;
  for (const Json& each : list) {
    const double value = each.get<double>();
    sum += value;
    most = std::max(most, value);
    least = std::min(least, value);
  }
  if (word == "max") return most;
  if (word == "min") return least;
  return word == "sum" ? sum : sum / static_cast<double>(list.size());
}

void Collect(const Json& value, const std::string& path,
             std::vector<std::string>* out) {
  const auto below = [&path](absl::string_view name) {
    return path.empty() ? std::string(name) : absl::StrCat(path, ".", name);
  };
  if (value.is_object()) {
    for (const auto& [key, each] : value.items()) {
      Collect(each, below(key), out);
    }
  } else if (value.is_array()) {
    if (AllNumbers(value)) {
      for (const char* word : kListWords) out->push_back(below(word));
    }
    for (size_t index = 0; index < std::min(value.size(), kMostNamed);
         ++index) {
      Collect(value[index], below(absl::StrCat(index)), out);
    }
  } else if (!value.is_null()) {
    out->push_back(path);
  }
}

}  // namespace

absl::StatusOr<Json> ValueAt(const Json& report, absl::string_view path) {
  const Json* at = &report;
  for (const absl::string_view part : absl::StrSplit(path, '.')) {
    if (at->is_object()) {
      at = at->find(part);
      if (at == nullptr) return Json();
    } else if (at->is_array()) {
      int64_t index = 0;
      if (absl::SimpleAtoi(part, &index) && index >= 0) {
        if (index >= static_cast<int64_t>(at->size())) return Json();
        at = &(*at)[index];
        continue;
      }
      const bool word =
          std::any_of(std::begin(kListWords), std::end(kListWords),
                      [part](const char* each) { return part == each; });
      if (!word || part.data() + part.size() != path.data() + path.size()) {
        return Json();
      }
      if (!AllNumbers(*at)) return Json();
      return OfList(*at, part);
    } else {
      return Json();
    }
  }
  if (at->is_structured()) {
    return FieldError(path, at->is_array()
                                ? "a list; allowed: .max, .min, .mean, .sum or "
                                  "an index behind it"
                                : "several values; allowed: one of them, as "
                                  "PATH.KEY");
  }
  return *at;
}

std::vector<std::string> PathsOf(const Json& report) {
  std::vector<std::string> out;
  Collect(report, "", &out);
  return out;
}

}  // namespace pipewright
