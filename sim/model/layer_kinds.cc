#include "sim/model/layer_kinds.h"

#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// More than any model has; keeps numbers within each other from filling memory.
constexpr size_t kMostPatternLayers = 100000;
constexpr int kDeepestBrackets = 16;

class PatternReader {
 public:
  PatternReader(absl::string_view text, bool has_mla)
      : text_(text), has_mla_(has_mla) {}

  absl::StatusOr<std::vector<LayerKind>> Read() {
    PW_ASSIGN_OR_RETURN(std::vector<LayerKind> kinds, Units(0));
    if (at_ < text_.size()) return Error("a '[' before it");
    if (kinds.empty()) return Error("a letter at least");
    return kinds;
  }

 private:
  absl::Status Error(absl::string_view allowed) const {
    const std::string found = at_ < text_.size()
                                  ? absl::StrCat("'", text_.substr(at_, 1), "'")
                                  : "its end";
    return absl::InvalidArgumentError(
        absl::StrCat("'", text_, "', at position ", at_ + 1, ", ", found,
                     "; allowed: ", allowed));
  }

  // Letters that no layer here is.
  absl::Status WrongLetter() const {
    const char letter = at_ < text_.size() ? text_[at_] : 0;
    if (letter == 'D') return Error("no sparse attention (D): it has no field");
    if (letter == '|') return Error("no '|': strategy.layers has the stages");
    if (letter == '/') return Error("no '/': model.mtp_layers counts those");
    if (letter == '+' || letter == '*') {
      return Error(has_mla_ ? "+ with latent attention (model.kv_lora_rank)"
                            : "* without model.kv_lora_rank");
    }
    return Error(
        "M (Mamba-2), G (gated delta), * (attention), - (dense), E (experts), "
        "two in brackets for one layer (*E), a number in front of a letter, "
        "(...) or [...] to repeat it");
  }

  bool TakesMixer(LayerKind* kind) {
    const char letter = at_ < text_.size() ? text_[at_] : 0;
    if (letter == 'M') {
      kind->mixer = Mixer::kMamba;
    } else if (letter == 'G') {
      kind->mixer = Mixer::kDelta;
    } else if (letter == (has_mla_ ? '+' : '*')) {
      kind->mixer = Mixer::kAttention;
    } else {
      return false;
    }
    ++at_;
    return true;
  }

  bool TakesFeedForward(LayerKind* kind) {
    const char letter = at_ < text_.size() ? text_[at_] : 0;
    if (letter != '-' && letter != 'E') return false;
    kind->feed_forward =
        letter == 'E' ? FeedForward::kExperts : FeedForward::kDense;
    ++at_;
    return true;
  }

  absl::StatusOr<std::vector<LayerKind>> Units(int depth) {
    std::vector<LayerKind> kinds;
    while (at_ < text_.size() && text_[at_] != ']') {
      PW_ASSIGN_OR_RETURN(const size_t times, Times());
      PW_ASSIGN_OR_RETURN(const std::vector<LayerKind> unit, Unit(depth));
      if (unit.size() * times + kinds.size() > kMostPatternLayers) {
        return Error(absl::StrCat("at most ", kMostPatternLayers, " layers"));
      }
      for (size_t copy = 0; copy < times; ++copy) {
        kinds.insert(kinds.end(), unit.begin(), unit.end());
      }
    }
    return kinds;
  }

  absl::StatusOr<size_t> Times() {
    if (!absl::ascii_isdigit(text_[at_])) return size_t{1};
    size_t times = 0;
    while (at_ < text_.size() && absl::ascii_isdigit(text_[at_])) {
      times = times * 10 + static_cast<size_t>(text_[at_] - '0');
      if (times > kMostPatternLayers) {
        return Error(absl::StrCat("at most ", kMostPatternLayers));
      }
      ++at_;
    }
    if (times == 0) return Error("a number from 1 on");
    return times;
  }

  absl::StatusOr<std::vector<LayerKind>> Unit(int depth) {
    LayerKind kind = {Mixer::kNone, FeedForward::kNone};
    if (TakesMixer(&kind) || TakesFeedForward(&kind)) {
      return std::vector<LayerKind>{kind};
    }
    const char open = at_ < text_.size() ? text_[at_] : 0;
    if (open == '(') {
      ++at_;
      if (!TakesMixer(&kind) || !TakesFeedForward(&kind)) return WrongLetter();
      if (at_ == text_.size() || text_[at_] != ')') return Error("a ')'");
      ++at_;
      return std::vector<LayerKind>{kind};
    }
    if (open != '[') return WrongLetter();
    if (depth == kDeepestBrackets) return Error("fewer '[' within each other");
    ++at_;
    PW_ASSIGN_OR_RETURN(std::vector<LayerKind> inner, Units(depth + 1));
    if (at_ == text_.size()) return Error("a ']'");
    ++at_;
    return inner;
  }

  absl::string_view text_;
  bool has_mla_;
  size_t at_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<LayerKind>> LayerKindsOf(absl::string_view text,
                                                    bool has_mla) {
  return PatternReader(text, has_mla).Read();
}

std::string LettersOf(const std::vector<LayerKind>& kinds) {
  std::string text;
  for (const LayerKind& kind : kinds) {
    if (kind.parts() == 2) text += '(';
    if (kind.mixer == Mixer::kMamba) text += 'M';
    if (kind.mixer == Mixer::kDelta) text += 'G';
    if (kind.mixer == Mixer::kAttention) text += '*';
    if (kind.feed_forward == FeedForward::kDense) text += '-';
    if (kind.feed_forward == FeedForward::kExperts) text += 'E';
    if (kind.parts() == 2) text += ')';
  }
  return text;
}

}  // namespace pipewright
