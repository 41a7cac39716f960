#include "sim/topology/registry.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sim/base/check.h"
#include "sim/base/error_parts.h"
#include "sim/base/names.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"
#include "sim/topology/node_params.h"

namespace pipewright {
namespace {

std::vector<const ShapeInfo*>& Rows() {
  static std::vector<const ShapeInfo*> rows;
  return rows;
}

absl::Status CheckAtLeastOne(absl::string_view field, int value) {
  return value >= 1 ? absl::OkStatus()
                    : BadValue(field, absl::StrCat(value), "1 or more");
}

absl::Status CheckDivides(absl::string_view field, int value, int devices) {
  if (value >= 1 && value <= devices && devices % value == 0) {
    return absl::OkStatus();
  }
  return BadValue(
      field, absl::StrCat(value),
      absl::StrCat("1 to ", devices, ", a divisor of devices_per_node (",
                   devices, ")"));
}

absl::Status CheckLink(absl::string_view name, const LinkClass& link) {
  if (link.bytes_per_s == 0) {
    return WithValue(FieldError(absl::StrCat(name, ".bandwidth"),
                                "missing or 0; allowed: finite and above 0"),
                     "", "finite and above 0");
  }
  if (!std::isfinite(link.bytes_per_s) || link.bytes_per_s <= 0) {
    return BadValue(absl::StrCat(name, ".bandwidth"),
                    absl::StrCat(link.bytes_per_s, " bytes/s"),
                    "finite and above 0");
  }
  if (!std::isfinite(link.latency_s) || link.latency_s < 0) {
    return BadValue(absl::StrCat(name, ".latency"),
                    absl::StrCat(link.latency_s, " s"),
                    "finite and at least 0");
  }
  return absl::OkStatus();
}

absl::Status CheckParams(const ShapeParams& params) {
  PW_RETURN_IF_ERROR(CheckAtLeastOne("nodes", params.nodes));
  PW_RETURN_IF_ERROR(
      CheckAtLeastOne("devices_per_node", params.devices_per_node));
  const int64_t devices =
      static_cast<int64_t>(params.nodes) * params.devices_per_node;
  if (devices > kMostClusterDevices) {
    return BadValue("nodes * devices_per_node", absl::StrCat(devices),
                    absl::StrCat("1 to ", kMostClusterDevices));
  }
  if (params.nics_per_node != 0) {
    PW_RETURN_IF_ERROR(CheckDivides("nics_per_node", params.nics_per_node,
                                    params.devices_per_node));
  }
  PW_RETURN_IF_ERROR(CheckDivides("pcie_per_switch", params.pcie_per_switch,
                                  params.devices_per_node));
  const bool needs_nvlink = params.devices_per_node > 1 && !params.has_pcie();
  if (needs_nvlink || params.has_nvlink()) {
    PW_RETURN_IF_ERROR(CheckLink("nvlink", params.nvlink));
  }
  if (params.nodes > 1) PW_RETURN_IF_ERROR(CheckLink("nic", params.nic));
  if (!(params.host.bytes_per_s >= 0) ||
      !std::isfinite(params.host.bytes_per_s)) {
    return BadValue("host.memory_bandwidth",
                    absl::StrCat(params.host.bytes_per_s, " bytes/s"),
                    "finite and above 0");
  }
  return params.has_pcie() ? CheckLink("pcie", params.pcie) : absl::OkStatus();
}

std::string OwnField(absl::string_view key) {
  return absl::StrCat("params.", key);
}

// The given values and the defaults of the others.
absl::StatusOr<ShapeParamValues> CompleteOwnParams(
    const ShapeInfo& shape, const ShapeParamValues& given) {
  PW_RETURN_IF_ERROR(CheckOwnParams(shape, given));
  ShapeParamValues values = given;
  for (const ShapeParam& param : shape.params) {
    if (values.count(param.key) > 0) continue;
    if (param.fallback.empty()) {
      return MissingValue(
          OwnField(param.key),
          absl::StrCat(AllowedValues(param), " (shape ", shape.name, ")"));
    }
    values[param.key] = param.fallback;
  }
  for (const ShapeParam& param : NodeParams()) {
    values.emplace(param.key, param.fallback);
  }
  return values;
}

// A shape that asks for what its row does not have is our own bug. Parameters
// of the node have defaults also where nothing has completed them.
const std::string& OwnValue(const ShapeParams& params, absl::string_view key) {
  const auto found = params.own.find(std::string(key));
  if (found != params.own.end()) return found->second;
  for (const ShapeParam& param : NodeParams()) {
    if (param.key == key) return param.fallback;
  }
  PW_CHECK(false);
}

}  // namespace

int ShapeParams::OwnInt(absl::string_view key) const {
  int value = 0;
  PW_CHECK(absl::SimpleAtoi(OwnValue(*this, key), &value));
  return value;
}

double ShapeParams::OwnReal(absl::string_view key) const {
  double value = 0;
  PW_CHECK(absl::SimpleAtod(OwnValue(*this, key), &value));
  return value;
}

const std::string& ShapeParams::OwnChoice(absl::string_view key) const {
  return OwnValue(*this, key);
}

std::vector<int> ShapeParams::OwnSizes(absl::string_view key) const {
  const std::string& text = OwnValue(*this, key);
  std::vector<int> sizes;
  if (text == "auto") return sizes;
  for (const absl::string_view part : absl::StrSplit(text, 'x')) {
    sizes.emplace_back();
    PW_CHECK(absl::SimpleAtoi(part, &sizes.back()));
  }
  return sizes;
}

double ShapeParams::OwnBandwidth(absl::string_view key) const {
  const absl::StatusOr<double> value =
      ParseQuantity(OwnValue(*this, key), Unit::kBandwidth);
  PW_CHECK(value.ok());
  return *value;
}

double ShapeParams::OwnSeconds(absl::string_view key) const {
  const absl::StatusOr<double> value =
      ParseQuantity(OwnValue(*this, key), Unit::kTime);
  PW_CHECK(value.ok());
  return *value;
}

RegisterShape::RegisterShape(ShapeInfo info) {
  std::vector<const ShapeInfo*>& rows = Rows();
  const auto place =
      std::lower_bound(rows.begin(), rows.end(), info.name,
                       [](const ShapeInfo* row, const std::string& name) {
                         return row->name < name;
                       });
  PW_CHECK(place == rows.end() || (*place)->name != info.name);
  // Lives as long as the program: rows hand out pointers.
  rows.insert(place, new ShapeInfo(std::move(info)));
}

const std::vector<const ShapeInfo*>& AllShapes() { return Rows(); }

const ShapeInfo* FindShape(absl::string_view name) {
  for (const ShapeInfo* row : AllShapes()) {
    if (row->name == name) return row;
  }
  return nullptr;
}

const ShapeParam* FindShapeParam(const ShapeInfo& shape,
                                 absl::string_view key) {
  for (const ShapeParam& param : shape.params) {
    if (param.key == key) return &param;
  }
  for (const ShapeParam& param : NodeParams()) {
    if (param.key == key) return &param;
  }
  return nullptr;
}

absl::Status CheckOwnParams(const ShapeInfo& shape,
                            const ShapeParamValues& values) {
  std::vector<std::string> known;
  for (const ShapeParam& param : shape.params) known.push_back(param.key);
  for (const ShapeParam& param : NodeParams()) known.push_back(param.key);
  for (const auto& [key, value] : values) {
    if (const ShapeParam* param = FindShapeParam(shape, key)) {
      PW_RETURN_IF_ERROR(CheckShapeParam(*param, OwnField(key), value));
      continue;
    }
    return InField("params",
                   UnknownName(absl::StrCat("parameter of shape ", shape.name),
                               key, known));
  }
  return absl::OkStatus();
}

absl::StatusOr<ShapeParams> CompleteParams(const ShapeParams& params) {
  const ShapeInfo* shape = FindShape(params.shape);
  if (shape == nullptr) {
    std::vector<std::string> known;
    for (const ShapeInfo* row : AllShapes()) known.push_back(row->name);
    return UnknownName("shape", params.shape, known);
  }
  PW_RETURN_IF_ERROR(CheckParams(params));
  ShapeParams complete = params;
  PW_ASSIGN_OR_RETURN(complete.own, CompleteOwnParams(*shape, params.own));
  PW_RETURN_IF_ERROR(CheckHostTree(complete));
  return complete;
}

absl::StatusOr<Cluster> BuildCluster(const ShapeParams& params) {
  PW_ASSIGN_OR_RETURN(const ShapeParams complete, CompleteParams(params));
  return FindShape(complete.shape)->build(complete);
}

namespace {

// An integer with all its digits: StrCat gives a double six.
std::string Bound(const ShapeParam& param, double value) {
  return param.kind == ShapeParam::Kind::kInteger
             ? absl::StrCat(static_cast<int64_t>(value))
             : absl::StrCat(value);
}

constexpr char kAuto[] = "auto";
// Largest product of sizes; no cluster has more nodes.
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
