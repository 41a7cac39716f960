#include "sim/config/run_facts.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "sim/memory/activations.h"
#include "sim/model/stages.h"
#include "sim/program/network_time.h"

namespace pipewright {
namespace {

// A message so short may take recursive doubling, which shares no links
// (PlanCollective); a norm or a flag is.
constexpr double kMostDoubled = 1024;

// Tells whether links of a kind are crossed.
class LinkSearch {
 public:
  LinkSearch(const Program& program, absl::string_view part)
      : network_(program.network), part_(part) {}

  bool AreCrossed(const std::vector<LinkLoad>& loads) const {
    return std::any_of(loads.begin(), loads.end(), [&](const LinkLoad& load) {
      return absl::StrContains(network_.cluster->links()[load.link].name,
                               part_);
    });
  }

 private:
  const Network& network_;
  absl::string_view part_;
};

bool TransfersCross(const Program& program, const LinkSearch& search,
                    bool bytes) {
  for (const Channel& channel : program.channels) {
    if (channel.from_rank == channel.to_rank) continue;
    if (bytes && channel.bytes <= 0) continue;
    for (int replica = 0; replica < program.replicas; ++replica) {
      if (search.AreCrossed(FlowsBetween(program.network, replica,
                                         channel.from_rank, channel.to_rank)
                                .loads)) {
        return true;
      }
    }
  }
  return false;
}

bool GroupCrosses(const Program& program, const LinkSearch& search,
                  const SideOp& op) {
  const Group& group = program.groups[op.group];
  const bool apart = group.span == Group::Span::kRanks;
  for (int replica = 0; replica < (apart ? program.replicas : 1); ++replica) {
    // No all-reduce: recursive doubling tells no edges.
    const CollectivePlan plan =
        PlanCollective(program, OpKind::kAllGather, op.bytes,
                       GroupMembers(program, group, replica));
    if (search.AreCrossed(plan.loads)) return true;
    for (const CollectivePhase& phase : plan.phases) {
      if (search.AreCrossed(phase.loads)) return true;
    }
  }
  return false;
}

// Only buffers of more than `least` bytes. Without `shares`, an engine that
// shares links, no link has a part in what was measured.
bool CollectivesCross(const Program& program, const LinkSearch& search,
                      double least, bool shares) {
  std::vector<bool> seen(program.groups.size(), false);
  for (const RankProgram& rank : program.ranks) {
    for (const SideOp& op : rank.side_ops) {
      if (op.group < 0 || seen[op.group] || op.bytes <= least) continue;
      if (!shares && MeasuredCollective(
                         program.network, op,
                         GroupMembers(program, program.groups[op.group], 0))) {
        continue;
      }
      seen[op.group] = true;
      if (GroupCrosses(program, search, op)) return true;
    }
  }
  return false;
}

bool AtSamePlaces(const Program& one, const Program& other) {
  for (int rank = 0; rank < one.pp(); ++rank) {
    const auto same = [](const Attachment& a, const Attachment& b) {
      return a.position == b.position && a.side_op == b.side_op;
    };
    const std::vector<Attachment>& left = one.ranks[rank].attachments;
    const std::vector<Attachment>& right = other.ranks[rank].attachments;
    if (!std::equal(left.begin(), left.end(), right.begin(), right.end(),
                    same)) {
      return false;
    }
  }
  return true;
}

// Looks at one of each kind of groups that have the same plan.
bool AnyCollective(const Program& program,
                   const std::function<bool(const SideOp&)>& test) {
  std::set<std::pair<int, CollectiveKey>> seen;
  for (const RankProgram& rank : program.ranks) {
    for (const SideOp& op : rank.side_ops) {
      if (!IsCollective(op.kind)) continue;
      const bool is_new = seen.emplace(op.group, CollectiveKeyOf(op)).second;
      if (is_new && test(op)) return true;
    }
  }
  return false;
}

}  // namespace

bool RunFacts::HasPair() const {
  const auto is_pair = [](Pass pass) { return pass.joint_with_next(); };
  return std::any_of(
      run_.schedule.written->orders.begin(),
      run_.schedule.written->orders.end(), [&](const auto& order) {
        return std::any_of(order->begin(), order->end(), is_pair);
      });
}

bool RunFacts::SpansNodes() const {
  if (shape_ == nullptr) return false;
  const Cluster* cluster = run_.network.links.cluster.get();
  const RankMapping* mapping = run_.network.links.mapping.get();
  for (int replica = 0; replica < sizes_.dp; ++replica) {
    for (int rank = 0; rank < sizes_.pp; ++rank) {
      for (int index = 0; index < mapping->devices_per_rank(); ++index) {
        const int each = mapping->DeviceOf(replica, rank, index);
        if (cluster->devices()[each].node !=
            cluster->devices()[mapping->DeviceOf(0, 0)].node) {
          return true;
        }
      }
    }
  }
  return false;
}

bool RunFacts::EstimateCrosses(absl::string_view part) const {
  if (!times_follow_model() || shape_ == nullptr) return false;
  const TrainingSpec& spec = *training();
  const bool exchanges = spec.tp * spec.cp * spec.ep > 1;
  if (absl::StrContains(part, "nvlink")) {
    return exchanges && shape_->devices_per_node > 1;
  }
  if (run_.costs.analytic) {
    const auto& nodes = run_.costs.analytic->network.nodes_of_group;
    if (*std::max_element(nodes.begin(), nodes.end()) > 1) {
      if (absl::StrContains(part, "nic")) return exchanges;
    }
  }
  if (!absl::StrContains(part, "nic")) return ExchangesCross(part);
  const int spread = std::max(spec.tp * spec.cp, spec.etp() * spec.ep);
  return exchanges && spread > shape_->devices_per_node;
}

bool RunFacts::ExchangesCross(absl::string_view part) const {
  const Network& links = run_.network.links;
  if (links.cluster == nullptr || run_.costs.passes.exchanges.empty()) {
    return false;
  }
  const std::vector<bool> crossed =
      LinksOfGroups(links, MembersOf(*training()));
  for (size_t link = 0; link < crossed.size(); ++link) {
    if (crossed[link] &&
        absl::StrContains(links.cluster->links()[link].name, part)) {
      return true;
    }
  }
  return false;
}

bool RunFacts::Crosses(absl::string_view part, Load load) const {
  if (shape_ == nullptr) return false;
  if (load != Load::kMessages && EstimateCrosses(part)) return true;
  if (!program()) return true;
  const LinkSearch search(*program(), part);
  const bool bytes = load == Load::kBytes;
  return TransfersCross(*program(), search, bytes) ||
         CollectivesCross(*program(), search, bytes ? 0 : -1,
                          run_.engine != "fast");
}

// A transfer has a card to itself there, unless a rank has several devices.
bool RunFacts::SharesCards() const {
  if (!program() || sizes_.tp * sizes_.cp > 1) return true;
  return EstimateCrosses("/nic") ||
         CollectivesCross(*program(), LinkSearch(*program(), "/nic"),
                          kMostDoubled, run_.engine != "fast");
}

bool RunFacts::HeldMatters() const {
  return PeakActivations(*run_.schedule.lowered, 0) !=
         PeakActivations(*run_.schedule.lowered, 1);
}

bool RunFacts::TableIsShared() const {
  const auto has = [&](int rank, BlockKind kind) {
    const auto& stages = run_.prepared_model->layout.stages;
    for (size_t stage = 0; stage < stages.size(); ++stage) {
      if (run_.prepared_model->rank_of_stage[stage] != rank) continue;
      for (const StageBlock& block : stages[stage]) {
        if (block.kind == kind) return true;
      }
    }
    return false;
  };
  for (int rank = 0; rank < sizes_.pp; ++rank) {
    if (has(rank, BlockKind::kEmbedding) && has(rank, BlockKind::kHead)) {
      return true;
    }
  }
  if (!program()) return true;
  return std::any_of(program()->ranks.begin(), program()->ranks.end(),
                     [](const RankProgram& rank) {
                       return std::any_of(
                           rank.side_ops.begin(), rank.side_ops.end(),
                           [](const SideOp& op) { return op.tied; });
                     });
}

bool RunFacts::LeavesRings() const {
  if (!program()) return true;
  return AnyCollective(*program(), [this](const SideOp& op) {
    const Group& group = program()->groups[op.group];
    return PlanCollective(*program(), op, GroupMembers(*program(), group, 0))
               .algorithm != CollectiveAlgorithm::kRing;
  });
}

bool RunFacts::CollectivesSpanNodes() const {
  if (!program()) return true;
  const Network& network = program()->network;
  if (network.cluster == nullptr) return false;
  return AnyCollective(*program(), [&](const SideOp& op) {
    const Group& group = program()->groups[op.group];
    std::set<int> nodes;
    for (const Member& member : GroupMembers(*program(), group, 0)) {
      const int each = network.mapping->devices_per_rank();
      for (int index = 0; index < each; ++index) {
        const int device =
            network.mapping->DeviceOf(member.replica, member.rank, index);
        nodes.insert(network.cluster->devices()[device].node);
      }
    }
    return nodes.size() > 1;
  });
}

bool RunFacts::SplitMatters() const {
  const absl::StatusOr<StageLayout> even =
      EvenLayout(*model(), *training(), sizes_.pp, sizes_.vpp);
  return !even.ok() ||
         even->ToString() != run_.prepared_model->layout.ToString();
}

bool RunFacts::OverlapMatters() const {
  if (!program()) return true;
  LowerOptions other = run_.lower;
  other.overlap_gradients = !other.overlap_gradients;
  const absl::StatusOr<Program> changed = Lower(run_.schedule.lowered, other);
  return !changed.ok() || !AtSamePlaces(*program(), *changed);
}

bool RunFacts::MappingMatters() const {
  const Cluster* cluster = run_.network.links.cluster.get();
  const RankMapping* mapping = run_.network.links.mapping.get();
  const absl::StatusOr<RankMapping> usual =
      RankMapping::FromOrder("dp-pp", sizes_.pp, sizes_.dp,
                             cluster->num_devices(), sizes_.tp * sizes_.cp);
  if (!usual.ok() || !mapping->is_plain()) return true;
  for (int replica = 0; replica < sizes_.dp; ++replica) {
    for (int rank = 0; rank < sizes_.pp; ++rank) {
      if (usual->DeviceOf(replica, rank) != mapping->DeviceOf(replica, rank)) {
        return true;
      }
    }
  }
  return false;
}

const Program* RunFacts::program() const {
  if (lowered_) return program_.get();
  lowered_ = true;
  absl::StatusOr<Program> program = Lower(run_.schedule.lowered, run_.lower);
  // What is wrong with it is told by whoever runs it.
  if (program.ok()) {
    program_ = std::make_shared<const Program>(*std::move(program));
  }
  return program_.get();
}

bool RunFacts::StepsSo(SubgroupStep step) const {
  if (offload() == nullptr) return false;
  const Schedule& schedule = *run_.schedule.lowered;
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    if (PlanOf(schedule, *offload(), rank).Count(step) > 0) return true;
  }
  return false;
}

}  // namespace pipewright
