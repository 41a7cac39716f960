// What can send over which links: the sources of traffic of a run, and how
// each of them is to travel.
#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "sim/engine/event_run.h"

namespace pipewright {

namespace {

// Several streams copy in this direction.
bool CopiesBeside(const RankProgram& rank, bool to_host) {
  const OpKind kind = to_host ? OpKind::kCopyOut : OpKind::kCopyIn;
  return std::any_of(rank.side_ops.begin(), rank.side_ops.end(),
                     [&](const SideOp& op) { return op.kind == kind; });
}

bool UsesHostToo(const RankProgram& rank) {
  return std::any_of(rank.side_ops.begin(), rank.side_ops.end(),
                     [](const SideOp& op) { return UsesHost(op.kind); });
}

}  // namespace

int EventRun::AddSource(FlowBundle flows, bool overlaps_itself) {
  if (flows.loads.empty()) return -1;
  sources_.push_back(
      {.flows = std::move(flows), .overlaps_itself = overlaps_itself});
  return static_cast<int>(sources_.size()) - 1;
}

double EventRun::LargestTransfer() const {
  double bytes = exchanges_.largest_bytes;
  for (int index = 0; index < program_.num_classes(); ++index) {
    const DpClass& own = program_.dp_class(index);
    for (const Channel& channel : own.channels) {
      bytes = std::max(bytes, channel.bytes);
    }
    for (const RankProgram& rank : own.ranks) {
      for (const Lane& lane : rank.lanes) bytes = std::max(bytes, lane.bytes);
      // An all-reduce sends up to twice its buffer over an edge.
      for (const SideOp& op : rank.side_ops) {
        bytes = std::max(bytes, 2 * op.bytes);
      }
    }
  }
  return bytes;
}

void EventRun::PlanTraffic() {
  PlanChannels();
  PlanSideOps();
  PlanExchangeSources();
  if (program_.network.cluster == nullptr) return;
  const Cluster& cluster = *program_.network.cluster;
  std::vector<LinkId> pooled;
  if (spread_) {
    pools_ = spread_->Finish();
    for (const SpreadPool& pool : pools_) {
      for (const SpreadLoad& load : pool.loads) pooled.push_back(load.link);
    }
  }
  plans_ = PlanSharing(cluster, sources_, pooled);
  if (!share_links_) {
    for (SourcePlan& plan : plans_) plan.sharing = Sharing::kNone;
  }
  link_use_.resize(cluster.links().size());
  // Nobody is ever alone where something is spread or meets what is.
  for (const LinkId link : pooled) link_use_[link].transfers = 2;
  for (const TrafficSource& source : sources_) {
    if (source.pool < 0) continue;
    for (const LinkLoad& load : source.flows.loads) {
      link_use_[load.link].transfers = 2;
    }
  }
  queue_of_source_.assign(sources_.size(), -1);
  std::vector<int> queue_of_link(cluster.links().size(), -1);
  for (size_t source = 0; source < plans_.size(); ++source) {
    if (plans_[source].sharing != Sharing::kQueue) continue;
    int& queue = queue_of_link[plans_[source].link];
    if (queue < 0) {
      queue = static_cast<int>(sharing_queues_.size());
      sharing_queues_.emplace_back(
          cluster.links()[plans_[source].link].bytes_per_s);
    }
    queue_of_source_[source] = queue;
  }
  queue_timers_.resize(sharing_queues_.size());
  PlanExchangeSteps();
}

// [channel] the least time between two passes that feed it.
std::vector<double> EventRun::SpacingOf(const DpClass& own) const {
  std::vector<double> spacing_s(own.channels.size(),
                                std::numeric_limits<double>::infinity());
  // With noise or interference nothing is known beforehand.
  double least_factor =
      program_.jitter == nullptr && program_.interference == nullptr ? 1 : 0;
  const auto take = [&](const std::vector<double>& factors) {
    if (factors.empty()) return;
    least_factor *=
        std::min(1.0, *std::min_element(factors.begin(), factors.end()));
  };
  take(own.microbatch_factor);
  take(own.slice_factor);
  for (const std::vector<double>& factors : own.lane_factors) take(factors);
  for (const RankProgram& rank : own.ranks) {
    for (const Lane& lane : rank.lanes) {
      if (lane.passes == 0 || lane.output < 0) continue;
      spacing_s[lane.output] =
          std::min(spacing_s[lane.output], lane.seconds * least_factor);
    }
  }
  return spacing_s;
}

// A channel overlaps itself when a transfer can take longer than the rank
// needs to produce the next one.
void EventRun::PlanChannels() {
  std::vector<std::vector<double>> spacing_s;  // [class][channel]
  for (int index = 0; index < program_.num_classes(); ++index) {
    spacing_s.push_back(SpacingOf(program_.dp_class(index)));
  }
  channel_s_.resize(tokens_.size(), 0);
  channel_source_.resize(tokens_.size(), -1);
  for (int replica = 0; replica < program_.replicas; ++replica) {
    const DpClass& own = program_.OfReplica(replica);
    for (size_t index = 0; index < own.channels.size(); ++index) {
      const Channel& channel = own.channels[index];
      const size_t slot = SlotOf(replica, static_cast<int32_t>(index));
      const double alone_s = TransferSeconds(program_, channel, replica);
      channel_s_[slot] = alone_s;
      if (channel.from_rank == channel.to_rank) continue;
      channel_source_[slot] = AddSource(
          FlowsBetween(program_.network, replica, channel.from_rank,
                       channel.to_rank),
          !holds_ && alone_s > spacing_s[program_.ClassOf(replica)][index]);
    }
  }
}

// What a host does for a device: one source for the copies of each direction,
// those of passes included, which several streams make at once, and one for
// each kind of work.
void EventRun::PlanHostOps(int index) {
  const Device& device = devices_[index];
  const std::vector<SideOp>& side_ops = device.program().side_ops;
  if (program_.network.cluster == nullptr) return;
  std::map<std::tuple<OpKind, double, double>, int> known;
  for (size_t number = 0; number < side_ops.size(); ++number) {
    const SideOp& op = side_ops[number];
    if (!UsesHost(op.kind)) continue;
    const auto [entry, is_new] =
        known.try_emplace({op.kind, op.host_bytes_each, op.most_per_s}, -1);
    int& source = entry->second;
    if (is_new && IsHostCopy(op.kind)) {
      const Stream stream =
          op.kind == OpKind::kCopyOut ? Stream::kD2H : Stream::kH2D;
      const auto of_passes =
          side_source_.find(SideKey(index, -1 - static_cast<int>(stream)));
      if (of_passes != side_source_.end()) source = of_passes->second;
    }
    if (is_new && source < 0) {
      source = AddSource(HostOpFlows(program_, op, device.replica, device.rank),
                         IsHostCopy(op.kind));
      if (source >= 0) {
        sources_[source].most_per_s = HostLimit(op);
        sources_[source].of_host = true;
      }
    }
    if (source < 0) continue;
    side_source_[SideKey(index, static_cast<int>(number))] = source;
  }
}

// One that the meeting has already; -1: none.
int EventRun::SourceOfPhase(const Meeting& meeting,
                            const std::vector<LinkLoad>& loads) const {
  for (const auto& [key, plan] : meeting.plans) {
    for (const int source : plan.sources) {
      if (source >= 0 && sources_[source].flows.loads == loads) return source;
    }
  }
  return -1;
}

void EventRun::PlanSideOps() {
  for (size_t index = 0; index < devices_.size(); ++index) {
    const Device& device = devices_[index];
    const RankProgram& rank = device.program();
    bool copies = false;
    for (const Lane& lane : rank.lanes) copies |= lane.bytes > 0;
    for (const bool to_host : {true, false}) {
      if (!copies) break;
      const Stream stream = to_host ? Stream::kD2H : Stream::kH2D;
      const int source = AddSource(
          HostFlows(program_.network, device.replica, device.rank, to_host),
          CopiesBeside(rank, to_host));
      if (source < 0) continue;
      sources_[source].of_host = UsesHostToo(rank);
      side_source_[SideKey(static_cast<int>(index),
                           -1 - static_cast<int>(stream))] = source;
    }
    PlanHostOps(static_cast<int>(index));
    for (size_t side_op = 0; side_op < rank.side_ops.size(); ++side_op) {
      const SideOp& op = rank.side_ops[side_op];
      if (!IsOneSided(op.kind)) continue;
      if (op.peers != nullptr) {
        PlanPeers(static_cast<int>(index), op);
        continue;
      }
      const int source = AddSource(
          OneSidedFlows(program_, op, device.replica, device.rank), false);
      if (source < 0) continue;
      side_source_[SideKey(static_cast<int>(index),
                           static_cast<int>(side_op))] = source;
    }
  }
  for (Meeting& meeting : meetings_) {
    const Group& group = program_.groups[meeting.group];
    const std::vector<Member> members =
        GroupMembers(program_, group, meeting.replica);
    // If it spans replicas, those of all classes meet alike.
    for (const SideOp& op :
         program_.OfReplica(meeting.replica).ranks[group.ranks[0]].side_ops) {
      if (op.group != meeting.group) continue;
      const auto [known, is_new] =
          meeting.plans.try_emplace(CollectiveKeyOf(op));
      if (!is_new) continue;
      Meeting::Plan& plan = known->second;
      static_cast<CollectivePlan&>(plan) =
          PlanCollective(program_, op, members);
      // Phases over the same links are one source, whatever they carry: those
      // of one meeting never meet.
      for (const CollectivePhase& phase : plan.phases) {
        int source = SourceOfPhase(meeting, phase.loads);
        if (source < 0) source = AddSource({.loads = phase.loads}, false);
        plan.sources.push_back(source);
      }
      const bool sends = plan.ring && plan.bytes_per_edge > 0;
      // All rings of a group use the same links.
      FlowBundle flows = {.loads = std::move(plan.loads)};
      plan.loads.clear();
      if (sends && meeting.source < 0) {
        meeting.source = AddSource(std::move(flows), false);
      }
    }
  }
}

}  // namespace pipewright
