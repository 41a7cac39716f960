#include "tests/support/lowering.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <utility>

#include "sim/program/program.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/text.h"
#include "sim/schedule/verify.h"
#include "sim/topology/mapping.h"

namespace pipewright {

PassCosts CostsOf(const Schedule& schedule, const PlanCosts& costs) {
  PassCosts out =
      PassCosts::Uniform(schedule.pp(), schedule.vpp(),
                         {.forward_s = costs.forward,
                          .backward_input_s = costs.backward_input,
                          .backward_weight_s = costs.backward_weight,
                          .recompute_s = costs.forward});
  out.held_until_weight = costs.held_until_weight;
  out.pair_factor = costs.pair_factor;
  return out;
}

std::shared_ptr<const Schedule> Parsed(const std::string& orders) {
  auto schedule = ParseSchedule("pipewright-schedule 1\n" + orders + "\n", "t");
  INFO(schedule.status());
  REQUIRE(schedule.ok());
  REQUIRE(VerifySchedule(*schedule) == absl::OkStatus());
  return std::make_shared<const Schedule>(std::move(*schedule));
}

std::shared_ptr<const Schedule> Registered(const std::string& name, int pp,
                                           int microbatches, int vpp) {
  ScheduleParams params;
  params.pp = pp;
  params.vpp = vpp;
  params.microbatches = microbatches;
  auto schedule = BuildSchedule(name, params);
  INFO(schedule.status());
  REQUIRE(schedule.ok());
  return std::make_shared<const Schedule>(std::move(*schedule));
}

Program Lowered(std::shared_ptr<const Schedule> schedule,
                const LowerOptions& options) {
  auto program = Lower(std::move(schedule), options);
  INFO(program.status());
  REQUIRE(program.ok());
  return *std::move(program);
}

void AttachOp(Program& program, int rank, int64_t position, SideOp op) {
  RankProgram& target = program.ranks[rank];
  target.side_ops.push_back(std::move(op));
  target.attachments.push_back(
      {.position = position,
       .side_op = static_cast<int32_t>(target.side_ops.size()) - 1});
}

int32_t AddSideChannel(Program& program, int from_rank, int to_rank,
                       double bytes) {
  program.channels.push_back({.kind = from_rank == to_rank
                                          ? ChannelKind::kEvent
                                          : ChannelKind::kMessage,
                              .from_rank = from_rank,
                              .to_rank = to_rank,
                              .bytes = bytes});
  return static_cast<int32_t>(program.channels.size()) - 1;
}

std::shared_ptr<const Cluster> ClusterOf(int devices, std::vector<Link> links,
                                         std::vector<RouteRow> routes) {
  const auto to_memory = [](int, std::vector<LinkId>*) {};
  return std::make_shared<Cluster>(
      "test", std::vector<Device>(devices), std::move(links),
      [routes](int from, int to, std::vector<LinkId>* route) {
        for (const RouteRow& row : routes) {
          if (row.from == from && row.to == to) *route = row.links;
        }
      },
      to_memory, to_memory);
}

Network NetworkOf(std::shared_ptr<const Cluster> cluster,
                  std::vector<int> devices, int pp, int dp,
                  int devices_per_rank) {
  auto mapping = RankMapping::FromList(
      std::move(devices), pp, dp, cluster->num_devices(), devices_per_rank);
  INFO(mapping.status());
  REQUIRE(mapping.ok());
  return {.cluster = std::move(cluster),
          .mapping = std::make_shared<RankMapping>(*std::move(mapping))};
}

double SpanPerRank(const RunSummary& summary) {
  double span_s = 0;
  for (const std::vector<RankTimes>& row : summary.times) {
    for (const RankTimes& rank : row) span_s = std::max(span_s, rank.span_s());
  }
  return span_s;
}

double SpanGlobal(const RunSummary& summary) {
  double first_s = summary.times[0][0].first_start_s;
  double last_s = 0;
  for (const std::vector<RankTimes>& row : summary.times) {
    for (const RankTimes& rank : row) {
      first_s = std::min(first_s, rank.first_start_s);
      last_s = std::max(last_s, rank.last_end_s);
    }
  }
  return last_s - first_s;
}

}  // namespace pipewright
