// Holds a trace against its schedule without looking at the Program: what the
// placement and the order alone say about a run with a pure delay per hop.
#pragma once

#include <string>
#include <vector>

#include "sim/schedule/params.h"
#include "sim/schedule/schedule.h"
#include "sim/trace/trace.h"

namespace pipewright {

// Checks one iteration of one replica with buffered transfers and nothing but
// passes: every pass once, in order, as long as it should be, as soon as the
// rank is free and its inputs are there and no sooner; every transfer between
// ranks told once by the sender and once by the receiver, from the end of the
// producer on. Returns "" or the first errors.
std::string TraceErrors(const Schedule& schedule, const PlanCosts& costs,
                        const std::vector<TraceOp>& ops);

}  // namespace pipewright
