#include "tests/support/shapes.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/check.h"

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

Cluster AnyCluster(int nodes, int devices) {
  for (const ShapeInfo* shape : AllShapes()) {
    absl::StatusOr<Cluster> cluster =
        BuildCluster(SampleParams(shape->name, nodes, devices));
    if (cluster.ok()) return *std::move(cluster);
  }
  PW_CHECK(false);
}

std::vector<std::string> LegalValuesOf(const ShapeParam& param) {
  if (param.kind == ShapeParam::Kind::kChoice) return param.choices;
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
  if (param.kind == ShapeParam::Kind::kChoice) return values;
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
