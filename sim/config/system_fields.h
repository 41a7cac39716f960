// The fields of section `system`, as VisitFields (run_config_fields.h) has the
// others.
#pragma once

#include "sim/base/quantity.h"
#include "sim/topology/registry.h"

namespace pipewright {

template <typename Config, typename Visitor>
void VisitSystem(Config& config, Visitor& visit) {
  // Of host memory, for each parameter.
  constexpr double kMostHostBytes = 1024;
  auto& system = config.system;
  visit.Text("system.preset", system.preset);
  visit.Text("system.file", system.file);
  visit.Int("system.nodes", system.nodes, 1, kMostClusterDevices);
  visit.Text("system.shape", system.shape);
  visit.Int("system.devices_per_node", system.devices_per_node, 1,
            kMostClusterDevices);
  visit.Int("system.nics_per_node", system.nics_per_node, 0,
            kMostClusterDevices);
  visit.Int("system.pcie_per_switch", system.pcie_per_switch, 1,
            kMostClusterDevices);
  visit.Pairs("system.params", system.params);
  visit.Quantity("system.nvlink.bandwidth", system.nvlink.bytes_per_s,
                 Unit::kBandwidth);
  visit.Quantity("system.nvlink.latency", system.nvlink.latency_s, Unit::kTime);
  visit.Quantity("system.nic.bandwidth", system.nic.bytes_per_s,
                 Unit::kBandwidth);
  visit.Quantity("system.nic.latency", system.nic.latency_s, Unit::kTime);
  visit.Quantity("system.pcie.bandwidth", system.pcie.bytes_per_s,
                 Unit::kBandwidth);
  visit.Quantity("system.pcie.latency", system.pcie.latency_s, Unit::kTime);
  visit.Quantity("system.host.memory_bandwidth", system.host.bytes_per_s,
                 Unit::kBandwidth);
  visit.Real("system.host.adam_bytes_per_parameter", system.host.adam_bytes, 0,
             kMostHostBytes);
  visit.Real("system.host.cast_bytes_per_parameter", system.host.cast_bytes, 0,
             kMostHostBytes);
  visit.Real("system.host.adam_rate", system.host.adam_rate, 1, kMostHostRate);
  visit.Real("system.host.cast_rate", system.host.cast_rate, 1, kMostHostRate);
  visit.Real("system.host.flush_rate", system.host.flush_rate, 1,
             kMostHostRate);
  visit.Int("system.host.slots", system.host.slots, 1, 2);
  visit.Real("system.host.device_adam_rate", system.host.device_adam_rate, 1,
             kMostHostRate);
  visit.Text("system.device_name", system.device_name);
  visit.Quantity("system.memory", system.memory_bytes, Unit::kBytes);
  visit.Quantity("system.host_memory", system.host_memory_bytes, Unit::kBytes);
}

}  // namespace pipewright
