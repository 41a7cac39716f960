#include "sim/topology/registry.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/check.h"
#include "sim/base/error_parts.h"
#include "sim/base/names.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// Keeps ids of devices and links well inside 32 bits.
constexpr int64_t kMaxDevices = int64_t{1} << 20;

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
  if (devices > kMaxDevices) {
    return BadValue("nodes * devices_per_node", absl::StrCat(devices),
                    absl::StrCat("1 to ", kMaxDevices));
  }
  if (params.nics_per_node != 0) {
    PW_RETURN_IF_ERROR(CheckDivides("nics_per_node", params.nics_per_node,
                                    params.devices_per_node));
  }
  PW_RETURN_IF_ERROR(CheckDivides("pcie_per_switch", params.pcie_per_switch,
                                  params.devices_per_node));
  if (!std::isfinite(params.oversubscription) || params.oversubscription < 1) {
    return BadValue("oversubscription", absl::StrCat(params.oversubscription),
                    "finite and at least 1");
  }
  if (params.nodes_per_leaf < 0) {
    return BadValue("nodes_per_leaf", absl::StrCat(params.nodes_per_leaf),
                    "1 or more (0 for shapes without leaf switches)");
  }
  if (params.devices_per_node > 1) {
    PW_RETURN_IF_ERROR(CheckLink("nvlink", params.nvlink));
  }
  if (params.nodes > 1) PW_RETURN_IF_ERROR(CheckLink("nic", params.nic));
  return params.has_pcie() ? CheckLink("pcie", params.pcie) : absl::OkStatus();
}

}  // namespace

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

absl::StatusOr<Cluster> BuildCluster(const ShapeParams& params) {
  std::vector<std::string> known;
  const ShapeInfo* shape = nullptr;
  for (const ShapeInfo* row : AllShapes()) {
    known.push_back(row->name);
    if (row->name == params.shape) shape = row;
  }
  if (shape == nullptr) return UnknownName("shape", params.shape, known);
  PW_RETURN_IF_ERROR(CheckParams(params));
  return shape->build(params);
}

}  // namespace pipewright
