#include "sim/topology/shape_param.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sim/base/check.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// An integer with all its digits: StrCat gives a double six.
std::string Bound(const ShapeParam& param, double value) {
  return param.kind == ShapeParam::Kind::kInteger
             ? absl::StrCat(static_cast<int64_t>(value))
             : absl::StrCat(value);
}

constexpr char kAuto[] = "auto";
// Of a product of sizes; no cluster has more nodes.
constexpr int64_t kMostProduct = 1 << 20;

bool AreSizes(const ShapeParam& param, absl::string_view value) {
  if (value == kAuto) return true;
  const std::vector<std::string> parts = absl::StrSplit(value, 'x');
  int64_t product = 1;
  for (const std::string& part : parts) {
    int size = 0;
    if (!absl::SimpleAtoi(part, &size) || size < 1) return false;
    product *= size;
    if (product > kMostProduct) return false;
  }
  return static_cast<double>(parts.size()) <= param.most;
}

bool IsAmount(const ShapeParam& param, absl::string_view value, Unit unit) {
  const absl::StatusOr<double> amount = ParseQuantity(value, unit);
  return amount.ok() && CheckAmount(*amount, value, unit).ok() &&
         *amount >= param.least;
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
    case ShapeParam::Kind::kSizes:
      return AreSizes(param, value);
    case ShapeParam::Kind::kBandwidth:
      return IsAmount(param, value, Unit::kBandwidth);
    case ShapeParam::Kind::kTime:
      return IsAmount(param, value, Unit::kTime);
  }
  PW_CHECK(false);
}

}  // namespace

std::string LegalValues(const ShapeParam& param) {
  switch (param.kind) {
    case ShapeParam::Kind::kInteger:
    case ShapeParam::Kind::kNumber:
      return absl::StrCat(Bound(param, param.least), "..",
                          Bound(param, param.most));
    case ShapeParam::Kind::kChoice:
      return absl::StrJoin(param.choices, "|");
    case ShapeParam::Kind::kSizes:
      return "auto|AxBxC";
    case ShapeParam::Kind::kBandwidth:
      return "a bandwidth";
    case ShapeParam::Kind::kTime:
      return "a time";
  }
  PW_CHECK(false);
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
    case ShapeParam::Kind::kSizes:
      return absl::StrCat("auto, or 1 to ", param.most,
                          " integers of 1 or more joined by x, such as 4x4x2");
    case ShapeParam::Kind::kBandwidth:
      return param.least > 0
                 ? "a bandwidth above 0 with its unit, such as 400Gbps"
                 : "a bandwidth with its unit, such as 50GBps";
    case ShapeParam::Kind::kTime:
      return "a time with its unit, such as 5ms";
  }
  PW_CHECK(false);
}

absl::Status CheckShapeParam(const ShapeParam& param, absl::string_view field,
                             absl::string_view value) {
  return IsLegal(param, value) ? absl::OkStatus()
                               : BadValue(field, value, AllowedValues(param));
}

}  // namespace pipewright
