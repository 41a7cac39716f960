#include "sim/engine/event_traffic.h"

#include <algorithm>
#include <limits>
#include <map>

#include "sim/program/network_time.h"

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

TrafficSources::TrafficSources(const Network& network, bool share_links,
                               std::optional<int> spread_peers,
                               bool as_activities, bool slowed)
    : cluster_(network.cluster.get()),
      share_links_(share_links),
      as_activities_(as_activities),
      slowed_(slowed) {
  if (cluster_ != nullptr && share_links_ && spread_peers.has_value()) {
    spread_.emplace(*cluster_, *spread_peers);
  }
}

int TrafficSources::Add(TrafficSource source) {
  if (source.flows.loads.empty()) return -1;
  sources_.push_back(std::move(source));
  return static_cast<int>(sources_.size()) - 1;
}

int TrafficSources::AddSpread(const SpreadPlanner::Key& key,
                              const std::vector<std::pair<int, int>>& pairs) {
  sources_.push_back(spread_->Add(key, pairs));
  return static_cast<int>(sources_.size()) - 1;
}

void TrafficSources::Plan() {
  if (cluster_ == nullptr) return;
  std::vector<LinkId> pooled;
  if (spread_) {
    pools_ = spread_->Finish();
    for (const SpreadPool& pool : pools_) {
      for (const SpreadLoad& load : pool.loads) pooled.push_back(load.link);
    }
  }
  plans_ = PlanSharing(*cluster_, sources_, pooled);
  if (!share_links_) {
    for (SourcePlan& plan : plans_) plan.sharing = Sharing::kNone;
  }
}

void TrafficSources::Forget(int source, const std::vector<bool>& links) {
  std::erase_if(plans_[source].shared,
                [&](const LinkLoad& load) { return links[load.link]; });
}

bool TrafficSources::AnyShared() const {
  return std::any_of(plans_.begin(), plans_.end(), [](const SourcePlan& plan) {
    return plan.sharing != Sharing::kNone;
  });
}

// A channel overlaps itself when a transfer can take longer than the rank
// needs to produce the next one.
EventChannels::EventChannels(const Program& program, TrafficSources* sources)
    : program_(program) {
  std::vector<std::vector<double>> spacing_s;  // [class][channel]
  for (int index = 0; index < program.num_classes(); ++index) {
    const DpClass& own = program.dp_class(index);
    most_channels_ = std::max(most_channels_, own.channels.size());
    spacing_s.push_back(SpacingOf(own));
  }
  tokens_.resize(most_channels_ * program.replicas);
  seconds_.resize(tokens_.size(), 0);
  source_.resize(tokens_.size(), -1);
  const bool holds = program.wait_rule != WaitRule::kBuffered;
  for (int replica = 0; replica < program.replicas; ++replica) {
    const DpClass& own = program.OfReplica(replica);
    for (size_t index = 0; index < own.channels.size(); ++index) {
      const Channel& channel = own.channels[index];
      const size_t slot = SlotOf(replica, static_cast<int32_t>(index));
      const double alone_s = TransferSeconds(program, channel, replica);
      seconds_[slot] = alone_s;
      if (channel.from_rank == channel.to_rank) continue;
      source_[slot] = sources->Add(
          {.flows = FlowsBetween(program.network, replica, channel.from_rank,
                                 channel.to_rank),
           .overlaps_itself =
               !holds && alone_s > spacing_s[program.ClassOf(replica)][index],
           .replica = replica});
    }
  }
}

// [channel] the least time between two passes that feed it.
std::vector<double> EventChannels::SpacingOf(const DpClass& own) const {
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

SideSources::SideSources(const Program& program, TrafficSources* sources)
    : program_(program) {
  const int devices = program.pp() * program.replicas;
  for (int device = 0; device < devices; ++device) {
    AddCopies(device, sources);
    AddHostOps(device, sources);
    AddOneSided(device, sources);
  }
}

void SideSources::AddCopies(int device, TrafficSources* sources) {
  const RankProgram& rank = RankProgramOf(device);
  const bool copies =
      std::any_of(rank.lanes.begin(), rank.lanes.end(),
                  [](const Lane& lane) { return lane.bytes > 0; });
  if (!copies) return;
  for (const bool to_host : {true, false}) {
    const int source =
        sources->Add({.flows = HostFlows(program_.network, ReplicaOf(device),
                                         RankOf(device), to_host),
                      .overlaps_itself = CopiesBeside(rank, to_host),
                      .of_host = UsesHostToo(rank),
                      .replica = ReplicaOf(device)});
    if (source < 0) continue;
    const Stream stream = to_host ? Stream::kD2H : Stream::kH2D;
    side_source_[SideKey(device, CopyIndex(stream))] = source;
  }
}

// What a host does for a device: one source for the copies of each direction,
// those of passes included, which several streams make at once, and one for
// each kind of work.
void SideSources::AddHostOps(int device, TrafficSources* sources) {
  if (program_.network.cluster == nullptr) return;
  const std::vector<SideOp>& side_ops = RankProgramOf(device).side_ops;
  std::map<std::tuple<OpKind, double, double>, int> known;
  for (size_t number = 0; number < side_ops.size(); ++number) {
    const SideOp& op = side_ops[number];
    if (!UsesHost(op.kind)) continue;
    const auto [entry, is_new] =
        known.try_emplace({op.kind, op.host_bytes_each, op.most_per_s}, -1);
    int& source = entry->second;
    if (is_new && IsHostCopy(op.kind)) {
      source = OfCopies(
          device, op.kind == OpKind::kCopyOut ? Stream::kD2H : Stream::kH2D);
    }
    if (is_new && source < 0) {
      source =
          sources->Add({.flows = HostOpFlows(program_, op, ReplicaOf(device),
                                             RankOf(device)),
                        .overlaps_itself = IsHostCopy(op.kind),
                        .most_per_s = HostLimit(op),
                        .of_host = true,
                        .replica = ReplicaOf(device)});
    }
    if (source < 0) continue;
    side_source_[SideKey(device, static_cast<int>(number))] = source;
  }
}

void SideSources::AddOneSided(int device, TrafficSources* sources) {
  const std::vector<SideOp>& side_ops = RankProgramOf(device).side_ops;
  for (size_t number = 0; number < side_ops.size(); ++number) {
    const SideOp& op = side_ops[number];
    if (!IsOneSided(op.kind)) continue;
    if (op.peers != nullptr) {
      AddPeers(device, op, sources);
      continue;
    }
    const int source =
        sources->Add({.flows = OneSidedFlows(program_, op, ReplicaOf(device),
                                             RankOf(device)),
                      .replica = ReplicaOf(device)});
    if (source < 0) continue;
    side_source_[SideKey(device, static_cast<int>(number))] = source;
  }
}

void SideSources::AddPeers(int device, const SideOp& op,
                           TrafficSources* sources) {
  if (program_.network.cluster == nullptr) return;
  const auto [known, is_new] = peer_sources_.try_emplace(PeerKeyOf(device, op));
  if (!is_new) return;
  const auto add = [&](int step, int peer) {
    return sources->Add(
        {.flows = PeerFlows(program_, op, step, peer, ReplicaOf(device),
                            RankOf(device))});
  };
  const auto steps = static_cast<int>(op.peers->steps.size());
  for (int step = 0; step < steps; ++step) {
    std::vector<int>& of_step = known->second.emplace_back();
    const size_t peers = op.peers->steps[step].peers.size();
    if (!op.peers->steps[step].apart) {
      of_step.push_back(sources->Spreads(peers)
                            ? AddSpread(device, op, step, sources)
                            : add(step, -1));
      continue;
    }
    for (size_t peer = 0; peer < peers; ++peer) {
      of_step.push_back(add(step, static_cast<int>(peer)));
    }
  }
}

int SideSources::AddSpread(int device, const SideOp& op, int step,
                           TrafficSources* sources) const {
  const PeerPlan& plan = *op.peers;
  const int part = plan.node_size * plan.nodes;  // 0: all replicas
  const int replica = ReplicaOf(device);
  return sources->AddSpread(
      {op.kind == OpKind::kPull, RankOf(device), part == 0 ? 0 : replica / part,
       plan.steps[step].peers.size()},
      PeerPairs(program_, op, step, -1, replica, RankOf(device)));
}

const std::vector<std::vector<int>>* SideSources::OfPeers(
    int device, const SideOp& op) const {
  const auto found = peer_sources_.find(PeerKeyOf(device, op));
  return found == peer_sources_.end() ? nullptr : &found->second;
}

}  // namespace pipewright
