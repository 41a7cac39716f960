// Throughput and estimated times of operations in the HTML report.
#pragma once

#include <string>

#include "sim/report/cost_report.h"
#include "sim/report/throughput.h"

namespace pipewright {

// A card of the headline.
std::string ThroughputCard(const Throughput& throughput);

// A section: the operations that take longest, with FLOPs, bytes, time, share.
std::string CostSection(const CostReport& report);

}  // namespace pipewright
