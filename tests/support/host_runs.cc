#include "tests/support/host_runs.h"

#include <catch2/catch.hpp>
#include <numeric>

#include "sim/engine/fast_engine.h"
#include "sim/engine/fluid_clock.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/topology/layout.h"
#include "tests/support/lowering.h"
#include "tests/support/queue_transport.h"

namespace pipewright::testing {

std::shared_ptr<const Cluster> HostCluster(const PlainHost& host, int devices,
                                           int per_switch, double latency_s) {
  ShapeParams params;
  params.name = "hosts";
  params.devices_per_node = devices;
  params.pcie_per_switch = per_switch;
  params.nvlink = {.bytes_per_s = 1e15};
  params.pcie = {.bytes_per_s = host.copy_bytes_per_s, .latency_s = latency_s};
  params.host.bytes_per_s = host.memory_bytes_per_s;
  return std::make_shared<const Cluster>(
      NodeLayout(params).Build(params, {}, nullptr));
}

std::vector<int> DevicesTo(int count) {
  std::vector<int> devices(count);
  std::iota(devices.begin(), devices.end(), 0);
  return devices;
}

LowerOptions HostOptions(const PlainHost& host, const PlainStep& step,
                         int ranks) {
  LowerOptions options;
  options.costs = PassCosts::Uniform(ranks, 1, {});
  options.network =
      NetworkOf(HostCluster(host, ranks), DevicesTo(ranks), ranks, 1);
  options.optimizer = OptimizerMode::kSynchronised;
  options.iterations = 1;
  OptimizerOffload& offload = options.offload;
  offload.placement = step.stride > 0 ? OptimizerPlacement::kDeepOptimizerStates
                                      : OptimizerPlacement::kTwinFlow;
  offload.flush = GradientFlush::kBlocking;
  offload.flush_rate = 1e300;
  offload.parameters.assign(ranks, step.parameters);
  offload.subgroup_size = step.parameters / step.subgroups;
  // Between two whole numbers of subgroups: no rounding decides.
  offload.ratio = step.on_host == step.subgroups
                      ? 1
                      : (step.on_host + 0.5) / step.subgroups;
  offload.stride = step.stride;
  offload.adam_bytes = host.adam_bytes;
  offload.cast_bytes = host.cast_bytes;
  offload.adam_rate = host.adam_rate < 1e300 ? host.adam_rate : 0;
  offload.cast_rate = host.cast_rate < 1e300 ? host.cast_rate : 0;
  offload.device_adam_rate = host.device_rate;
  offload.flush_last = step.flush_last;
  return options;
}

Program HostProgram(const PlainHost& host, const PlainStep& step) {
  return Lowered(Parsed("pp 1 vpp 1 microbatches 1 slices 1 replicas 1 "
                        "placement plain\n0: F0 BW0"),
                 HostOptions(host, step));
}

double RunSeconds(const Program& program, const std::string& engine) {
  absl::StatusOr<RunSummary> summary =
      engine == "clock"   ? RunOnFluidClock(program, {})
      : engine == "queue" ? RunOnQueue(program, nullptr)
      : engine == "fast"  ? RunFast(program, {})
                          : RunSimgrid(program, {});
  INFO(engine << ": " << summary.status());
  REQUIRE(summary.ok());
  return summary->iteration_end_s[0];
}

}  // namespace pipewright::testing
