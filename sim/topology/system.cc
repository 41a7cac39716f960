#include "sim/topology/system.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/quantity.h"

namespace pipewright {
namespace {

struct Line {
  std::string name;
  std::string value;
  std::string source;
};

std::string SourceOf(const ShapeParams& params, const std::string& field) {
  const auto found = params.sources.find(field);
  return found == params.sources.end() ? "" : found->second;
}

void AddLink(const std::string& name, const LinkClass& link,
             std::vector<Line>* lines) {
  if (link.bytes_per_s == 0) return;  // not given
  lines->push_back({name,
                    absl::StrCat(FormatBandwidth(link.bytes_per_s), ", ",
                                 FormatSeconds(link.latency_s)),
                    link.source});
}

}  // namespace

std::string ToString(const ShapeParams& params) {
  std::vector<Line> lines;
  const auto add = [&](const std::string& name, std::string value) {
    lines.push_back({name, std::move(value), SourceOf(params, name)});
  };
  add("shape", params.shape);
  add("nodes", absl::StrCat(params.nodes));
  add("devices_per_node", absl::StrCat(params.devices_per_node));
  if (params.nics_per_node != 0) {
    add("nics_per_node", absl::StrCat(params.nics_per_node));
  }
  add("pcie_per_switch", absl::StrCat(params.pcie_per_switch));
  for (const auto& [key, value] : params.own) {
    add(absl::StrCat("params.", key), value);
  }
  if (!params.device_name.empty()) add("device_name", params.device_name);
  if (params.memory_bytes != 0) {
    add("memory", FormatBytes(params.memory_bytes));
  }
  if (params.host_memory_bytes != 0) {
    add("host_memory", FormatBytes(params.host_memory_bytes));
  }
  if (params.host.bytes_per_s != 0) {
    add("host_memory_bandwidth", FormatBandwidth(params.host.bytes_per_s));
  }
  if (params.host.flush_rate != 0) {
    add("host_flush_rate",
        absl::StrCat(params.host.flush_rate, " parameters/s"));
  }
  if (params.has_nvlink()) AddLink("nvlink", params.nvlink, &lines);
  AddLink("nic", params.nic, &lines);
  AddLink("pcie", params.pcie, &lines);

  int name_width = 0;
  int value_width = 0;
  for (const Line& line : lines) {
    name_width = std::max(name_width, static_cast<int>(line.name.size()));
    if (line.source.empty()) continue;
    value_width = std::max(value_width, static_cast<int>(line.value.size()));
  }
  std::string out = absl::StrCat(
      params.name, params.summary.empty() ? "" : ": ", params.summary, "\n");
  for (const Line& line : lines) {
    if (line.source.empty()) {
      absl::StrAppendFormat(&out, "  %-*s  %s\n", name_width, line.name,
                            line.value);
    } else {
      absl::StrAppendFormat(&out, "  %-*s  %-*s  (%s)\n", name_width, line.name,
                            value_width, line.value, line.source);
    }
  }
  return out;
}

}  // namespace pipewright
