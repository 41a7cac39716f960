// The parts of a report that follow from the configuration, the model, the
// device and the price rather than from the run alone.
#pragma once

#include "sim/config/prepare.h"
#include "sim/report/report.h"

namespace pipewright {

// Fills in what was run: schedule parameters, model, system, network, the rules
// of synchronisation, copies of activations. The ranks must be known.
void DescribeRun(const PreparedRun& run, Report* report);

// Fills in throughput, costs, memory, whether it fits, and what estimated times
// leave out. iteration_s must be known.
void DescribeResults(const PreparedRun& run, Report* report);

}  // namespace pipewright
