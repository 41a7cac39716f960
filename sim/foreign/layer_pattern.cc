#include "sim/foreign/layer_pattern.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace pipewright {
namespace {

constexpr size_t kMostLayers = size_t{1} << 20;

class PatternReader {
 public:
  explicit PatternReader(absl::string_view text) : rest_(text) {}

  std::optional<std::vector<int64_t>> Read() {
    std::vector<int64_t> all = Sum(0);
    if (!valid_ || Next() != 0) return std::nullopt;
    return all;
  }

 private:
  char Next() {
    rest_ = absl::StripLeadingAsciiWhitespace(rest_);
    return rest_.empty() ? 0 : rest_[0];
  }
  bool Take(char letter) {
    if (Next() != letter) return false;
    rest_.remove_prefix(1);
    return true;
  }
  std::vector<int64_t> Sum(int depth) {
    std::vector<int64_t> all = Product(depth);
    while (valid_ && Take('+')) {
      const std::vector<int64_t> more = Product(depth);
      all.insert(all.end(), more.begin(), more.end());
      valid_ &= all.size() <= kMostLayers;
    }
    return all;
  }
  std::vector<int64_t> Product(int depth) {
    std::vector<int64_t> one = Atom(depth);
    while (valid_ && Take('*')) {
      const int64_t times = Number();
      valid_ &=
          times >= 0 && one.size() * static_cast<size_t>(times) <= kMostLayers;
      if (!valid_) break;
      std::vector<int64_t> all;
      for (int64_t each = 0; each < times; ++each) {
        all.insert(all.end(), one.begin(), one.end());
      }
      one = std::move(all);
    }
    return one;
  }
  std::vector<int64_t> Atom(int depth) {
    std::vector<int64_t> all;
    if (depth > 32) {
      valid_ = false;
    } else if (Take('(')) {
      all = Sum(depth + 1);
      valid_ &= Take(')');
    } else if (Take('[')) {
      do {
        all.push_back(Number());
      } while (valid_ && Take(','));
      valid_ &= Take(']');
    } else {
      valid_ = false;
    }
    return all;
  }
  int64_t Number() {
    Next();
    size_t end = 0;
    while (end < rest_.size() && absl::ascii_isdigit(rest_[end])) ++end;
    int64_t value = 0;
    valid_ &= absl::SimpleAtoi(rest_.substr(0, end), &value) &&
              value <= static_cast<int64_t>(kMostLayers);
    rest_.remove_prefix(end);
    return value;
  }

  absl::string_view rest_;
  bool valid_ = true;
};

}  // namespace

std::optional<std::vector<int64_t>> ReadLayerPattern(absl::string_view text,
                                                     int64_t layers) {
  int64_t every = 0;
  std::vector<int64_t> pattern;
  if (absl::SimpleAtoi(text, &every)) {
    if (every < 1 || layers > static_cast<int64_t>(kMostLayers)) return {};
    for (int64_t layer = 0; layer < layers; ++layer) {
      pattern.push_back(layer % every == 0 ? 1 : 0);
    }
    return pattern;
  }
  if (text.find_first_of("[(") != absl::string_view::npos) {
    return PatternReader(text).Read();
  }
  for (const absl::string_view part :
       absl::StrSplit(text, absl::ByAnyChar(", "), absl::SkipEmpty())) {
    int64_t value = 0;
    if (!absl::SimpleAtoi(part, &value)) return {};
    pattern.push_back(value);
  }
  return pattern;
}

}  // namespace pipewright
