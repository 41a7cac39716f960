#include "sim/report/collective_report.h"

#include <map>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "sim/base/json.h"
#include "sim/base/quantity.h"
#include "sim/program/network_time.h"
#include "sim/report/format.h"
#include "sim/topology/mapping.h"

namespace pipewright {
namespace {

const char* AlgorithmOf(const CollectivePlan& plan) {
  if (plan.measured) return "measured";
  switch (plan.algorithm) {
    case CollectiveAlgorithm::kTree:
      return "tree";
    case CollectiveAlgorithm::kHierarchical:
      return "hierarchical";
    case CollectiveAlgorithm::kRing:
    case CollectiveAlgorithm::kFastest:  // no plan has it
      break;
  }
  return plan.ring ? "ring" : "recursive doubling";
}

bool SpansNodes(const Network& network, const std::vector<Member>& members) {
  std::set<int> nodes;
  for (const Member& member : members) {
    for (int index = 0; index < network.mapping->devices_per_rank(); ++index) {
      const int device =
          network.mapping->DeviceOf(member.replica, member.rank, index);
      nodes.insert(network.cluster->devices()[device].node);
    }
  }
  return nodes.size() > 1;
}

}  // namespace

std::vector<CollectiveReport> ReportCollectives(const Program& program) {
  std::vector<CollectiveReport> rows;
  // Does the choice of the user decide anything?
  bool chosen = false;
  if (program.network.cluster == nullptr ||
      program.network.collectives == CollectiveAlgorithm::kRing) {
    return rows;
  }
  for (size_t number = 0; number < program.groups.size(); ++number) {
    const Group& group = program.groups[number];
    using Row = std::tuple<OpKind, double, std::string, double>;
    std::set<Row> seen;
    const int instances = group.Instances(program.replicas);
    for (int instance = 0; instance < instances; ++instance) {
      const int replica = group.FirstOf(instance);
      const std::vector<Member> members = GroupMembers(program, group, replica);
      if (members.size() < 2) continue;
      std::set<CollectiveKey> planned;
      for (const SideOp& op :
           program.OfReplica(replica).ranks[group.ranks[0]].side_ops) {
        if (op.group != static_cast<int>(number) || !IsCollective(op.kind) ||
            op.bytes <= 0 || !planned.insert(CollectiveKeyOf(op)).second) {
          continue;
        }
        const CollectivePlan plan = PlanCollective(program, op, members);
        const std::string algorithm = AlgorithmOf(plan);
        chosen |=
            plan.algorithm != CollectiveAlgorithm::kRing ||
            (program.network.collectives == CollectiveAlgorithm::kFastest &&
             SpansNodes(program.network, members));
        if (!seen.emplace(op.kind, op.bytes, algorithm, plan.seconds).second) {
          continue;
        }
        rows.push_back({.group = static_cast<int>(number),
                        .ranks = {group.ranks.begin(), group.ranks.end()},
                        .members = static_cast<int>(members.size()),
                        .contexts = members[0].context >= 0,
                        .kind = std::string(OpKindName(op.kind)),
                        .bytes = op.bytes,
                        .algorithm = algorithm,
                        .seconds = plan.seconds});
      }
    }
  }
  if (!chosen) rows.clear();
  return rows;
}

std::string CollectivesToText(const std::vector<CollectiveReport>& report) {
  using Alike = std::tuple<std::string, double, int, bool, std::string, double>;
  std::map<Alike, std::set<int>> groups;
  std::vector<Alike> order;
  for (const CollectiveReport& row : report) {
    const Alike alike = {row.kind,     row.bytes,     row.members,
                         row.contexts, row.algorithm, row.seconds};
    std::set<int>& of = groups[alike];
    if (of.empty()) order.push_back(alike);
    of.insert(row.group);
  }
  std::string out;
  for (const Alike& alike : order) {
    const auto& [kind, bytes, members, contexts, algorithm, seconds] = alike;
    const char* const of = contexts ? "devices" : "ranks";
    const size_t count = groups[alike].size();
    out += ReportLine(
        out.empty() ? "collectives" : "", FormatSeconds(seconds),
        absl::StrCat(kind, " of ", FormatBytes(bytes), " over ", members, " ",
                     of, ": ", algorithm,
                     count > 1 ? absl::StrCat(", ", count, " groups") : ""));
  }
  return out;
}

Json CollectivesToJson(const std::vector<CollectiveReport>& report) {
  Json rows = Json::array();
  for (const CollectiveReport& row : report) {
    rows.push_back({{"group", row.group},
                    {"ranks", row.ranks},
                    {"members", row.members},
                    {"kind", row.kind},
                    {"bytes", row.bytes},
                    {"algorithm", row.algorithm},
                    {"seconds", row.seconds}});
  }
  return rows;
}

}  // namespace pipewright
