#include "sim/analysis/sweep/expression.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "sim/base/error_parts.h"
#include "sim/base/names.h"
#include "sim/base/status.h"
#include "sim/config/flags.h"
#include "sim/config/run_config.h"

namespace pipewright {
namespace {

constexpr int kMostDepth = 64;

bool IsTrueCell(const SweepCell& cell) {
  if (cell.kind == SweepCell::Kind::kNumber) return cell.number != 0;
  return cell.kind == SweepCell::Kind::kText && cell.text == "true";
}

SweepCell Truth(bool value) { return SweepCell::Number(value ? 1 : 0); }

bool IsWordLetter(char letter) {
  return absl::ascii_isalnum(letter) || letter == '_' || letter == '.';
}

// "1.5e" of 1.5e-4.
bool EndsInExponent(absl::string_view word) {
  const size_t letter = word.find_first_not_of("0123456789.");
  return letter > 0 && letter == word.size() - 1 &&
         absl::ascii_tolower(word[letter]) == 'e';
}

// Fields of a configuration, also by their flags without the dashes.
class ConfigNames : public ExpressionNames {
 public:
  bool IsField(absl::string_view word) const override {
    return std::find(paths_.begin(), paths_.end(), word) != paths_.end() ||
           absl::StartsWith(word, "schedule.params.") ||
           absl::StartsWith(word, "system.params.");
  }
  std::string FieldOf(absl::string_view word) const override {
    if (IsField(word)) return std::string(word);
    for (const ConfigFlag& flag : ConfigFlags()) {
      if (!flag.repeats && flag.flag.substr(2) == word) return flag.path;
    }
    return "";
  }
  std::vector<std::string> Known() const override {
    std::vector<std::string> known = paths_;
    for (const ConfigFlag& flag : ConfigFlags()) {
      if (!flag.repeats) known.push_back(flag.flag.substr(2));
    }
    return known;
  }

 private:
  std::vector<std::string> paths_ = ConfigPaths();
};

}  // namespace

class ExpressionParser {
 public:
  ExpressionParser(absl::string_view text, const ExpressionNames& names)
      : names_(names), rest_(text) {
    out_.text_ = std::string(text);
  }

  absl::StatusOr<Expression> Run() {
    PW_ASSIGN_OR_RETURN(out_.root_, Or(0));
    if (!Blank().empty()) return Bad("an operator");
    return std::move(out_);
  }

 private:
  using Op = Expression::Op;
  using NodeIndex = absl::StatusOr<int>;

  absl::string_view Blank() {
    rest_ = absl::StripLeadingAsciiWhitespace(rest_);
    return rest_;
  }
  absl::Status Bad(absl::string_view allowed) {
    const std::string found =
        rest_.empty() ? "its end" : absl::StrCat("'", rest_, "'");
    return WithValue(absl::InvalidArgumentError(
                         absl::StrCat("'", out_.text_, "': ", found,
                                      " is not allowed; allowed: ", allowed)),
                     out_.text_, allowed);
  }
  int Add(Expression::Node node) {
    out_.nodes_.push_back(std::move(node));
    return static_cast<int>(out_.nodes_.size()) - 1;
  }
  int Join(Op op, int left, int right) {
    Expression::Node node;
    node.op = op;
    node.left = left;
    node.right = right;
    return Add(std::move(node));
  }
  bool TakeWord(absl::string_view word) {
    Blank();
    if (!absl::StartsWith(rest_, word) ||
        (rest_.size() > word.size() && IsWordLetter(rest_[word.size()]))) {
      return false;
    }
    rest_.remove_prefix(word.size());
    return true;
  }
  bool Take(absl::string_view sign) {
    Blank();
    return absl::ConsumePrefix(&rest_, sign);
  }

  NodeIndex Or(int depth) {
    if (depth > kMostDepth) return Bad("fewer brackets");
    PW_ASSIGN_OR_RETURN(int left, And(depth));
    while (TakeWord("or")) {
      PW_ASSIGN_OR_RETURN(const int right, And(depth));
      left = Join(Op::kOr, left, right);
    }
    return left;
  }
  NodeIndex And(int depth) {
    PW_ASSIGN_OR_RETURN(int left, Not(depth));
    while (TakeWord("and")) {
      PW_ASSIGN_OR_RETURN(const int right, Not(depth));
      left = Join(Op::kAnd, left, right);
    }
    return left;
  }
  NodeIndex Not(int depth) {
    if (depth > kMostDepth) return Bad("fewer brackets");
    if (!TakeWord("not")) return Compare(depth);
    PW_ASSIGN_OR_RETURN(const int inner, Not(depth + 1));
    return Join(Op::kNot, inner, -1);
  }
  NodeIndex Compare(int depth) {
    takes_text_ = false;
    PW_ASSIGN_OR_RETURN(const int left, Sum(depth));
    static constexpr std::pair<absl::string_view, Op> kSigns[] = {
        {"==", Op::kEqual},        {"!=", Op::kUnequal}, {"<=", Op::kLessEqual},
        {">=", Op::kGreaterEqual}, {"<", Op::kLess},     {">", Op::kGreater}};
    for (const auto& [sign, op] : kSigns) {
      if (!Take(sign)) continue;
      takes_text_ = op == Op::kEqual || op == Op::kUnequal;
      PW_ASSIGN_OR_RETURN(const int right, Sum(depth));
      takes_text_ = false;
      return Join(op, left, right);
    }
    return left;
  }
  NodeIndex Sum(int depth) {
    PW_ASSIGN_OR_RETURN(int left, Product(depth));
    while (true) {
      const Op op = Take("+")   ? Op::kAdd
                    : Take("-") ? Op::kSubtract
                                : Op::kLiteral;
      if (op == Op::kLiteral) return left;
      PW_ASSIGN_OR_RETURN(const int right, Product(depth));
      left = Join(op, left, right);
    }
  }
  NodeIndex Product(int depth) {
    PW_ASSIGN_OR_RETURN(int left, Atom(depth));
    while (true) {
      const Op op = Take("*")   ? Op::kMultiply
                    : Take("/") ? Op::kDivide
                    : Take("%") ? Op::kRemainder
                                : Op::kLiteral;
      if (op == Op::kLiteral) return left;
      PW_ASSIGN_OR_RETURN(const int right, Atom(depth));
      left = Join(op, left, right);
    }
  }
  NodeIndex Atom(int depth) {
    if (depth > kMostDepth) return Bad("fewer brackets");
    if (Take("-")) {
      PW_ASSIGN_OR_RETURN(const int inner, Atom(depth + 1));
      return Join(Op::kNegate, inner, -1);
    }
    if (Take("(")) {
      PW_ASSIGN_OR_RETURN(const int inner, Or(depth + 1));
      if (!Take(")")) return Bad("')'");
      return inner;
    }
    if (Blank().empty()) return Bad("a field, a number or a text");
    if (rest_[0] == '\'' || rest_[0] == '"') return Quoted();
    size_t end = 0;
    while (end < rest_.size() && IsWordLetter(rest_[end])) ++end;
    if (end == 0) return Bad("a field, a number or a text");
    if (EndsInExponent(rest_.substr(0, end)) && end + 1 < rest_.size() &&
        (rest_[end] == '-' || rest_[end] == '+') &&
        absl::ascii_isdigit(rest_[end + 1])) {
      ++end;
      while (end < rest_.size() && IsWordLetter(rest_[end])) ++end;
    }
    const absl::string_view word = rest_.substr(0, end);
    const bool digit = absl::ascii_isdigit(word[0]) || word[0] == '.';
    const bool names = !names_.FieldOf(word).empty();
    const bool number =
        CellOfValue(word).kind == SweepCell::Kind::kNumber && digit;
    if (takes_text_ && !names && !number) {
      const absl::string_view whole = Dashed(end);
      if (!names_.FieldOf(whole).empty()) return Word(whole);  // is refused
      if (digit || whole != word) return Text(whole);
    }
    return digit ? Number(word) : Word(word);
  }
  // The word of rest_ up to `end`, with what dashes without blanks join to it:
  // "zb-h1" is a name, and no text can be subtracted from.
  absl::string_view Dashed(size_t end) const {
    while (end + 1 < rest_.size() && rest_[end] == '-' &&
           IsWordLetter(rest_[end + 1])) {
      ++end;
      while (end < rest_.size() && IsWordLetter(rest_[end])) ++end;
    }
    return rest_.substr(0, end);
  }
  NodeIndex Text(absl::string_view word) {
    Expression::Node node;
    node.literal = SweepCell::Text(word);
    rest_.remove_prefix(word.size());
    return Add(std::move(node));
  }
  NodeIndex Quoted() {
    const size_t end = rest_.find(rest_[0], 1);
    if (end == absl::string_view::npos) return Bad("a closed quotation");
    Expression::Node node;
    node.literal = SweepCell::Text(rest_.substr(1, end - 1));
    rest_.remove_prefix(end + 1);
    return Add(std::move(node));
  }
  NodeIndex Number(absl::string_view word) {
    Expression::Node node;
    node.literal = CellOfValue(word);
    if (node.literal.kind != SweepCell::Kind::kNumber) {
      return Bad("a number, with or without a unit");
    }
    rest_.remove_prefix(word.size());
    return Add(std::move(node));
  }
  NodeIndex Word(absl::string_view word) {
    Expression::Node node;
    const std::string path = names_.FieldOf(word);
    if (takes_text_ && !names_.IsField(word) && !path.empty()) {
      // "optimizer" is a value and a flag.
      return Bad(absl::StrCat(path, " for the field, '", word,
                              "' in quotes for the text"));
    }
    if (!path.empty()) {
      node.op = Op::kField;
      auto& fields = out_.fields_;
      const auto known = std::find(fields.begin(), fields.end(), path);
      node.field = static_cast<size_t>(known - fields.begin());
      if (known == fields.end()) fields.push_back(path);
    } else if (!takes_text_ || absl::StrContains(word, ".")) {
      return Prefix(absl::StrCat("'", out_.text_, "'"),
                    UnknownName("field", word, names_.Known()));
    } else {
      node.literal = SweepCell::Text(word);
    }
    rest_.remove_prefix(word.size());
    return Add(std::move(node));
  }

  const ExpressionNames& names_;
  absl::string_view rest_;
  bool takes_text_ = false;  // on the right of == and !=
  Expression out_;
};

absl::StatusOr<Expression> Expression::Parse(absl::string_view text) {
  static const auto* const names = new ConfigNames;
  return Parse(text, *names);
}

absl::StatusOr<Expression> Expression::Parse(absl::string_view text,
                                             const ExpressionNames& names) {
  return ExpressionParser(text, names).Run();
}

SweepCell Expression::Value(
    int index, const std::function<SweepCell(size_t)>& value_of) const {
  const Node& node = nodes_[index];
  switch (node.op) {
    case Op::kLiteral:
      return node.literal;
    case Op::kField:
      return value_of(node.field);
    case Op::kNot:
      return Truth(!IsTrueCell(Value(node.left, value_of)));
    case Op::kAnd:
      return Truth(IsTrueCell(Value(node.left, value_of)) &&
                   IsTrueCell(Value(node.right, value_of)));
    case Op::kOr:
      return Truth(IsTrueCell(Value(node.left, value_of)) ||
                   IsTrueCell(Value(node.right, value_of)));
    default:
      break;
  }
  const SweepCell left = Value(node.left, value_of);
  if (node.op == Op::kNegate) {
    return left.kind == SweepCell::Kind::kNumber
               ? SweepCell::Number(-left.number)
               : SweepCell();
  }
  const SweepCell right = Value(node.right, value_of);
  const bool equal = left == right && left.kind != SweepCell::Kind::kNone;
  if (node.op == Op::kEqual) return Truth(equal);
  if (node.op == Op::kUnequal) return Truth(!equal);
  const bool numbers = left.kind == SweepCell::Kind::kNumber &&
                       right.kind == SweepCell::Kind::kNumber;
  const double one = left.number;
  const double other = right.number;
  switch (node.op) {
    case Op::kLess:
      return Truth(numbers && one < other);
    case Op::kLessEqual:
      return Truth(numbers && one <= other);
    case Op::kGreater:
      return Truth(numbers && one > other);
    case Op::kGreaterEqual:
      return Truth(numbers && one >= other);
    default:
      break;
  }
  double result = 0;
  switch (node.op) {
    case Op::kAdd:
      result = one + other;
      break;
    case Op::kSubtract:
      result = one - other;
      break;
    case Op::kMultiply:
      result = one * other;
      break;
    case Op::kDivide:
      result = one / other;
      break;
    default:
      result = std::fmod(one, other);
  }
  return numbers && std::isfinite(result) ? SweepCell::Number(result)
                                          : SweepCell();
}

bool Expression::IsTrue(
    const std::function<SweepCell(size_t)>& value_of) const {
  return IsTrueCell(Value(root_, value_of));
}

}  // namespace pipewright
