#include "sim/topology/shape_param.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/check.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// An integer with all its digits: StrCat gives a double six.
std::string Bound(const ShapeParam& param, double value) {
  return param.kind == ShapeParam::Kind::kInteger
             ? absl::StrCat(static_cast<int64_t>(value))
             : absl::StrCat(value);
}

bool IsLegal(const ShapeParam& param, absl::string_view value) {
  switch (param.kind) {
    case ShapeParam::Kind::kInteger: {
      int number = 0;
      return absl::SimpleAtoi(value, &number) && number >= param.least &&
             number <= param.most;
    }
    case ShapeParam::Kind::kNumber: {
      double number = 0;
      return absl::SimpleAtod(value, &number) && number >= param.least &&
             number <= param.most;
    }
    case ShapeParam::Kind::kChoice:
      return std::find(param.choices.begin(), param.choices.end(), value) !=
             param.choices.end();
  }
  PW_CHECK(false);
}

}  // namespace

std::string LegalValues(const ShapeParam& param) {
  return param.kind == ShapeParam::Kind::kChoice
             ? absl::StrJoin(param.choices, "|")
             : absl::StrCat(Bound(param, param.least), "..",
                            Bound(param, param.most));
}

std::string AllowedValues(const ShapeParam& param) {
  switch (param.kind) {
    case ShapeParam::Kind::kInteger:
      return absl::StrCat("an integer from ", Bound(param, param.least), " to ",
                          Bound(param, param.most));
    case ShapeParam::Kind::kNumber:
      return absl::StrCat("a number from ", Bound(param, param.least), " to ",
                          Bound(param, param.most));
    case ShapeParam::Kind::kChoice:
      return absl::StrJoin(param.choices, ", ");
  }
  PW_CHECK(false);
}

absl::Status CheckShapeParam(const ShapeParam& param, absl::string_view field,
                             absl::string_view value) {
  return IsLegal(param, value) ? absl::OkStatus()
                               : BadValue(field, value, AllowedValues(param));
}

}  // namespace pipewright
