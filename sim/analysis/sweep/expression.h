// Conditions of a sweep: "strategy.tp * strategy.pp <= 64 and
// strategy.recompute
// == full". Names of fields and of flags without dashes ("pp"), numbers (with
// units too), texts ('zb-h1' in quotes, one word right of == and != also
// without), + - * / %, == != < <= > >=, and, or, not,
// brackets. A field that has no value makes every comparison false but !=, and
// every sum nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/analysis/sweep/cell.h"

namespace pipewright {

// What may stand for a value.
class ExpressionNames {
 public:
  virtual ~ExpressionNames() = default;
  // The field that a word names; "" for none.
  virtual std::string FieldOf(absl::string_view word) const = 0;
  // Is the word the field's own name, and no other for it?
  virtual bool IsField(absl::string_view word) const = 0;
  virtual std::vector<std::string> Known() const = 0;
};

class Expression {
 public:
  // Names in place of a configuration's fields and flags.
  static absl::StatusOr<Expression> Parse(absl::string_view text,
                                          const ExpressionNames& names);
  // Error: kInvalidArgument that quotes `text` and says where it is wrong; a
  // field that does not exist, with the nearest.
  static absl::StatusOr<Expression> Parse(absl::string_view text);

  // Fields that occur, each once.
  const std::vector<std::string>& fields() const { return fields_; }
  const std::string& text() const { return text_; }

  // `value_of(n)`: of fields()[n].
  bool IsTrue(const std::function<SweepCell(size_t)>& value_of) const;

 private:
  friend class ExpressionParser;
  enum class Op : uint8_t {
    kLiteral,
    kField,
    kNot,
    kNegate,
    kAnd,
    kOr,
    kEqual,
    kUnequal,
    kLess,
    kLessEqual,
    kGreater,
    kGreaterEqual,
    kAdd,
    kSubtract,
    kMultiply,
    kDivide,
    kRemainder,
  };
  struct Node {
    Op op = Op::kLiteral;
    SweepCell literal;
    size_t field = 0;
    int left = -1;
    int right = -1;
  };
  SweepCell Value(int node,
                  const std::function<SweepCell(size_t)>& value_of) const;

  std::string text_;
  std::vector<std::string> fields_;
  std::vector<Node> nodes_;
  int root_ = -1;
};

}  // namespace pipewright
