// One rank whose optimizer is on its host, for tests.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/program/lower.h"
#include "sim/program/program.h"
#include "tests/support/plain_host.h"

namespace pipewright::testing {

// One device a node, hosts as given, `latency_s` of a PCIe link.
std::shared_ptr<const Cluster> HostCluster(const PlainHost& host, int devices,
                                           int per_switch = 1,
                                           double latency_s = 0);

// 0, 1, ... before `count`.
std::vector<int> DevicesTo(int count);

// The same step as `step` says, of `ranks` ranks. Passes take no time.
LowerOptions HostOptions(const PlainHost& host, const PlainStep& step,
                         int ranks = 1);
Program HostProgram(const PlainHost& host, const PlainStep& step);

// By the engine's name: "fast", "simgrid", "clock" (fluid_clock.h) or "queue"
// (queue_transport.h).
double RunSeconds(const Program& program, const std::string& engine);

}  // namespace pipewright::testing
