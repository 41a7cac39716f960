// Programs for tests in a line or two. A failure is a failed REQUIRE.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/program/lower.h"
#include "sim/program/program.h"
#include "sim/schedule/params.h"
#include "sim/schedule/schedule.h"

namespace pipewright {

// The costs of a planner as those of every stage; R takes what F takes.
PassCosts CostsOf(const Schedule& schedule, const PlanCosts& costs);

// `orders` is the text form without its first line.
std::shared_ptr<const Schedule> Parsed(const std::string& orders);
// A registered schedule with vpp 1, or `vpp`.
std::shared_ptr<const Schedule> Registered(const std::string& name, int pp,
                                           int microbatches, int vpp = 1);

Program Lowered(std::shared_ptr<const Schedule> schedule,
                const LowerOptions& options);

// Adds a side operation; call in the order of positions.
void AttachOp(Program& program, int rank, int64_t position, SideOp op);
// Adds a channel that is not between passes; kEvent inside a rank.
int32_t AddSideChannel(Program& program, int from_rank, int to_rank,
                       double bytes = 0);

struct RouteRow {
  int from;
  int to;
  std::vector<LinkId> links;
};
// A cluster of devices on one node with nothing but these links and routes;
// other pairs reach each other for free. Host routes are empty.
std::shared_ptr<const Cluster> ClusterOf(int devices, std::vector<Link> links,
                                         std::vector<RouteRow> routes);
// devices[replica * pp + rank], the first of each rank.
Network NetworkOf(std::shared_ptr<const Cluster> cluster,
                  std::vector<int> devices, int pp, int dp,
                  int devices_per_rank = 1);

// The longest of the ranks' own spans, and first start to last end of passes.
double SpanPerRank(const RunSummary& summary);
double SpanGlobal(const RunSummary& summary);

}  // namespace pipewright
