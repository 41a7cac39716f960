#include "tests/support/shapes.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/check.h"
#include "sim/base/quantity.h"

namespace pipewright::testing {
namespace {

std::string Digits(double value) { return absl::StrFormat("%.17g", value); }

}  // namespace

ShapeParams SampleParams(absl::string_view shape, int nodes, int devices) {
  ShapeParams params;
  params.name = "test";
  params.shape = std::string(shape);
  params.nodes = nodes;
  params.devices_per_node = devices;
  params.nvlink = {300e9, 1e-6, ""};
  params.nic = {25e9, 2e-6, ""};
  params.pcie = {32e9, 3e-6, ""};
  const ShapeInfo* info = FindShape(shape);
  PW_CHECK(info != nullptr);
  for (const ShapeParam& param : info->params) {
    if (!param.fallback.empty()) continue;
    params.own[param.key] = LegalValuesOf(param).front();
  }
  return params;
}

std::vector<ShapeParams> Bases(const ShapeInfo& shape, int nodes, int devices) {
  std::vector<ShapeParams> bases = {SampleParams(shape.name, nodes, devices)};
  if (!shape.example.empty()) {
    bases.push_back(bases[0]);
    bases.back().own = shape.example;
  }
  return bases;
}

Cluster AnyCluster(int nodes, int devices) {
  for (const ShapeInfo* shape : AllShapes()) {
    absl::StatusOr<Cluster> cluster =
        BuildCluster(SampleParams(shape->name, nodes, devices));
    if (cluster.ok()) return *std::move(cluster);
  }
  PW_CHECK(false);
}

ShapeParams TimesAsFast(ShapeParams params, double factor) {
  for (LinkClass* link : {&params.nvlink, &params.nic, &params.pcie}) {
    link->bytes_per_s *= factor;
    link->latency_s /= factor;
  }
  const ShapeInfo* info = FindShape(params.shape);
  for (auto& [key, value] : params.own) {
    const ShapeParam* param = FindShapeParam(*info, key);
    if (param->kind == ShapeParam::Kind::kBandwidth) {
      value = absl::StrFormat(
          "%.17gGBps",
          ParseQuantity(value, Unit::kBandwidth).value() * factor / 1e9);
    } else if (param->kind == ShapeParam::Kind::kTime) {
      value = absl::StrFormat(
          "%.17gs", ParseQuantity(value, Unit::kTime).value() / factor);
    }
  }
  return params;
}

std::vector<std::string> LegalValuesOf(const ShapeParam& param) {
  switch (param.kind) {
    case ShapeParam::Kind::kChoice:
      return param.choices;
    case ShapeParam::Kind::kSizes:
      return {"auto", "1", "2", "3x1", "1x5x1", "8", "2x4", "2x2x2"};
    case ShapeParam::Kind::kBandwidth: {
      std::vector<std::string> values = {"10Gbps", "800Gbps", "3.5GBps"};
      if (param.least <= 0) values.push_back("0GBps");
      return values;
    }
    case ShapeParam::Kind::kTime:
      return {"5ms", "1us", "0s"};
    case ShapeParam::Kind::kInteger:
    case ShapeParam::Kind::kNumber:
      break;
  }
  const bool whole = param.kind == ShapeParam::Kind::kInteger;
  std::vector<std::string> values = {Digits(param.least)};
  for (const double step : {1.0, 2.0, 3.0, 7.0, 0.5, 1e-3}) {
    const double value = param.least + step;
    const bool fits =
        value < param.most && (!whole || value == static_cast<int64_t>(value));
    if (fits) values.push_back(Digits(value));
  }
  if (param.most > param.least) values.push_back(Digits(param.most));
  return values;
}

std::vector<std::string> IllegalValuesOf(const ShapeParam& param) {
  std::vector<std::string> values = {"", "no such value", "1 or so"};
  switch (param.kind) {
    case ShapeParam::Kind::kChoice:
      return values;
    case ShapeParam::Kind::kSizes:
      values.insert(values.end(),
                    {"0", "2x0", "2x-1", "2xx2", "x2", "2x", "2*2", "1.5",
                     "2x2x2x2", "4294967297", "1048576x2"});
      return values;
    case ShapeParam::Kind::kBandwidth:
      values.insert(values.end(), {"5", "-1GBps", "5ms", "nan", "infGBps",
                                   "1e300GBps", "400Gbp"});
      if (param.least > 0) values.push_back("0GBps");
      return values;
    case ShapeParam::Kind::kTime:
      values.insert(values.end(),
                    {"5", "-1ms", "5GBps", "nan", "infs", "1e300s", "5mss"});
      return values;
    case ShapeParam::Kind::kInteger:
    case ShapeParam::Kind::kNumber:
      break;
  }
  values.insert(values.end(),
                {"nan", "inf", "-inf", "1e300", Digits(param.least - 1),
                 Digits(param.most + 1), Digits(param.most * 2 + 1)});
  if (param.kind == ShapeParam::Kind::kInteger) {
    values.insert(values.end(),
                  {absl::StrCat(Digits(param.least), ".5"),
                   absl::StrCat(Digits(param.least), "x"), "4294967297"});
  }
  return values;
}

std::vector<std::string> LinkNames(const Cluster& cluster,
                                   const std::vector<LinkId>& links) {
  std::vector<std::string> names;
  for (const LinkId link : links) names.push_back(cluster.links()[link].name);
  return names;
}

}  // namespace pipewright::testing
