// What the passes of a lane exchange inside groups of tensor, context and
// expert parallelism, and which links that is on. Times of passes have it in
// them; engines that share links make traffic of it.
#pragma once

#include <vector>

#include "sim/cost/pass_costs.h"
#include "sim/program/program.h"

namespace pipewright {

// Flows of one device of the pipeline, a rank of a replica, at one rate.
struct ExchangeFlows {
  std::vector<LinkLoad> loads;
  double parts = 1;  // parts of PassExchange::bytes; a flow has one each
};

// Flows of all devices of the rank at once: the rings of its tensor or context
// groups, or what each of its devices sends to the others of its group of
// experts. Those are next to each other: the parts of a context, then replicas.
// Empty without a cluster, and if members are not the run's.
ExchangeFlows FlowsOfExchange(const Program& program,
                              const PassExchange& exchange, int replica,
                              int rank);

// Devices of the pipeline, of one rank, that exchange nothing but with each
// other: the first replica of them. `widest`: members of a group of experts.
int FirstOfExchange(const Program& program, int widest, int replica);

// Exchanges of a pass of `kind`, for each second of it, if it takes `seconds` a
// microbatch.
LaneExchanges LaneExchangesOf(const StageExchanges& stage, PassKind kind,
                              double seconds);

}  // namespace pipewright
