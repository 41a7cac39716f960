// Megatron-LM's layout strings (Megatron Core user guide, "Custom Pipeline
// Model Parallel Layout").
#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "sim/base/status.h"
#include "sim/model/stages.h"

namespace pipewright {
namespace {

// Far more than any model has; keeps "((t*999)*999)*999" from filling memory.
constexpr size_t kLongest = 1 << 20;
constexpr int kDeepest = 16;

class LayoutReader {
 public:
  explicit LayoutReader(absl::string_view text) : text_(text) {}

  // The text without repetitions, groups and commas.
  absl::StatusOr<std::string> Expand() {
    PW_ASSIGN_OR_RETURN(std::string expanded, Sequence(0));
    if (at_ < text_.size()) return Error("a '(' before it");
    return expanded;
  }

 private:
  absl::Status Error(absl::string_view allowed) const {
    const std::string found = at_ < text_.size()
                                  ? absl::StrCat("'", text_.substr(at_, 1), "'")
                                  : "its end";
    return BadValue(
        "strategy.layout",
        absl::StrCat("'", text_, "', at position ", at_ + 1, ", ", found),
        allowed);
  }

  absl::StatusOr<std::string> Sequence(int depth) {
    std::string expanded;
    while (at_ < text_.size() && text_[at_] != ')') {
      if (text_[at_] == ',' || absl::ascii_isspace(text_[at_])) {
        ++at_;
        continue;
      }
      PW_ASSIGN_OR_RETURN(const std::string unit, Unit(depth));
      PW_ASSIGN_OR_RETURN(const size_t count, Count());
      if (unit.size() * count + expanded.size() > kLongest) {
        return Error(absl::StrCat("at most ", kLongest, " letters in all"));
      }
      for (size_t copy = 0; copy < count; ++copy) expanded += unit;
    }
    return expanded;
  }

  absl::StatusOr<std::string> Unit(int depth) {
    const char letter = text_[at_];
    if (absl::string_view("EtmL|").find(letter) != absl::string_view::npos) {
      ++at_;
      return std::string(1, letter);
    }
    if (letter != '(') {
      return Error(
          "E (embedding), t (layer), m (multi-token prediction), L (loss), | "
          "between stages, *N after a letter or (...)");
    }
    if (depth == kDeepest) return Error("fewer '(' within each other");
    ++at_;
    PW_ASSIGN_OR_RETURN(std::string inner, Sequence(depth + 1));
    if (at_ == text_.size()) return Error("a ')'");
    ++at_;
    return inner;
  }

  absl::StatusOr<size_t> Count() {
    if (at_ == text_.size() || text_[at_] != '*') return size_t{1};
    ++at_;
    const size_t start = at_;
    size_t count = 0;
    while (at_ < text_.size() && absl::ascii_isdigit(text_[at_])) {
      count = count * 10 + static_cast<size_t>(text_[at_] - '0');
      if (count > kLongest) return Error(absl::StrCat("at most ", kLongest));
      ++at_;
    }
    if (at_ == start) return Error("a number after '*'");
    return count;
  }

  absl::string_view text_;
  size_t at_ = 0;
};

absl::Status WrongNumber(absl::string_view text, absl::string_view letter,
                         int64_t found, absl::string_view allowed) {
  return BadValue("strategy.layout", absl::StrCat("'", text, "'"),
                  absl::StrCat(allowed, "; it has ", letter, " ", found,
                               found == 1 ? " time" : " times"));
}

absl::Status CheckLetters(const ModelSpec& model, absl::string_view text,
                          const std::string& letters, int stages) {
  const auto count = [&](char letter) {
    return std::count(letters.begin(), letters.end(), letter);
  };
  if (count('|') != stages - 1) {
    return BadValue("strategy.layout", absl::StrCat("'", text, "'"),
                    absl::StrCat("pp * vpp = ", stages,
                                 " stages with '|' between them; it "
                                 "has ",
                                 count('|') + 1));
  }
  if (count('t') != model.layers) {
    return WrongNumber(
        text, "t", count('t'),
        absl::StrCat("t for each of the model's ", model.layers, " layers"));
  }
  if (count('m') != model.mtp_layers) {
    return WrongNumber(
        text, "m", count('m'),
        absl::StrCat("m for each of the model's ", model.mtp_layers,
                     " multi-token-prediction layers"));
  }
  if (count('E') != 1 || letters.empty() || letters[0] != 'E') {
    return WrongNumber(text, "E", count('E'), "one E, at the beginning");
  }
  if (count('L') != 1 || letters.back() != 'L') {
    return WrongNumber(text, "L", count('L'), "one L, at the end");
  }
  const size_t first_m = letters.find('m');
  if (first_m != std::string::npos &&
      letters.find('t', first_m) != std::string::npos) {
    return BadValue("strategy.layout", absl::StrCat("'", text, "'"),
                    "every m after the last t");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StageLayout> ParseLayout(const ModelSpec& model,
                                        const TrainingSpec& training,
                                        absl::string_view text, int stages) {
  PW_ASSIGN_OR_RETURN(const std::string letters, LayoutReader(text).Expand());
  PW_RETURN_IF_ERROR(CheckLetters(model, text, letters, stages));
  StageLayoutBuilder builder(model, training, stages);
  int stage = 0;
  for (size_t at = 0; at < letters.size();) {
    const char letter = letters[at];
    size_t end = letters.find_first_not_of(letter, at);
    if (end == std::string::npos) end = letters.size();
    const auto count = static_cast<int64_t>(end - at);
    at = end;
    switch (letter) {
      case '|':
        stage += static_cast<int>(count);
        break;
      case 'E':
        builder.AddEmbedding(stage);
        break;
      case 't':
        builder.AddLayers(stage, count);
        break;
      case 'm':
        builder.AddMtp(stage, count);
        break;
      default:
        builder.AddHead(stage);
    }
  }
  return builder.Finish();
}

}  // namespace pipewright
