// Pulls and pushes with several peers: step after step, and in a step the
// flows of all peers at once.
#include <algorithm>

#include "sim/engine/event_run.h"
#include "sim/program/network_time.h"

namespace pipewright {

void EventRun::PlanPeers(int index, const SideOp& op) {
  if (program_.network.cluster == nullptr) return;
  const Device& device = devices_[index];
  const auto [known, is_new] = peer_sources_.try_emplace(
      PeerKey{index, op.peers.get(), op.kind == OpKind::kPull});
  if (!is_new) return;
  const auto add = [&](int step, int peer) {
    return AddSource(
        PeerFlows(program_, op, step, peer, device.replica, device.rank),
        /*overlaps_itself=*/false);
  };
  const auto steps = static_cast<int>(op.peers->steps.size());
  for (int step = 0; step < steps; ++step) {
    std::vector<int>& sources = known->second.emplace_back();
    if (!op.peers->steps[step].apart) {
      const size_t peers = op.peers->steps[step].peers.size();
      sources.push_back(spread_ && spread_->Spreads(peers)
                            ? AddSpread(device, op, step)
                            : add(step, -1));
      continue;
    }
    const auto peers = static_cast<int>(op.peers->steps[step].peers.size());
    for (int peer = 0; peer < peers; ++peer) sources.push_back(add(step, peer));
  }
}

int EventRun::AddSpread(const Device& device, const SideOp& op, int step) {
  const PeerPlan& plan = *op.peers;
  const size_t peers = plan.steps[step].peers.size();
  const int part = plan.node_size * plan.nodes;  // 0: all replicas
  const bool pulls = op.kind == OpKind::kPull;
  sources_.push_back(spread_->Add(
      {pulls, device.rank, part == 0 ? 0 : device.replica / part, peers},
      PeerPairs(program_, op, step, -1, device.replica, device.rank)));
  return static_cast<int>(sources_.size()) - 1;
}

// When owners have added what they see from `seen_s` on. One does it for one
// client after the other, and a client sends all owners of its part as much at
// once: they have the same to do all the time.
double EventRun::AddAtOwners(const Device& device, const SideOp& op,
                             double seen_s) {
  const int owners = ClientsOf(op, program_.replicas);
  double& free_s =
      owners_free_s_[DeviceOf(device.replica / owners * owners, device.rank)];
  free_s = std::max(free_s, seen_s) + AddSeconds(op);
  return free_s;
}

// The step that the head of the stream has come to, or what it takes besides.
void EventRun::BeginPeerStep(int index, Stream stream, double start_s) {
  Device& device = devices_[index];
  Issued& head = device.queues[static_cast<int>(stream)].front();
  const SideOp& op = device.program().side_ops[head.item.side_op];
  Transfer transfer = {.of = Transfer::Of::kStream,
                       .index = index,
                       .stream = stream,
                       .start_s = start_s,
                       .of_peers = true};
  head.flying = 1;
  const auto steps = static_cast<int32_t>(op.peers->steps.size());
  if (head.step >= steps) {
    // Owners take turns by when they have seen a request, which is not the
    // order in which requests come: a timer runs until then.
    transfer.alone_s =
        head.step > steps ? AddAtOwners(device, op, start_s) - start_s
        : share_links_    ? op.seconds
                          : op.seconds + AddAllSeconds(op, program_.replicas);
    transfer.beside = Transfer::Beside::kNone;
    return Begin(transfer);
  }
  const auto planned = peer_sources_.find(
      PeerKey{index, op.peers.get(), op.kind == OpKind::kPull});
  const bool all_at_once = planned == peer_sources_.end() || !share_links_ ||
                           planned->second[head.step].size() == 1;
  if (all_at_once) {
    transfer.bytes = op.bytes;
    if (planned != peer_sources_.end() &&
        planned->second[head.step].size() == 1) {
      transfer.source = planned->second[head.step][0];
    }
    if (transfer.source >= 0) {
      const SourcePlan& plan = plans_[transfer.source];
      transfer.latency_s = plan.latency_s;
      transfer.alone_s = plan.latency_s + op.bytes / plan.bytes_per_s;
    } else {
      transfer.alone_s =
          PeerStepSeconds(program_, op, head.step, device.replica, device.rank);
    }
    return Begin(transfer);
  }
  const std::vector<int>& sources = planned->second[head.step];
  head.flying = static_cast<int32_t>(sources.size());
  for (size_t peer = 0; peer < sources.size(); ++peer) {
    transfer.bytes = op.bytes;
    transfer.source = sources[peer];
    transfer.alone_s = 0;
    if (transfer.source >= 0) {
      const SourcePlan& plan = plans_[transfer.source];
      transfer.latency_s = plan.latency_s;
      transfer.alone_s = plan.latency_s + op.bytes / plan.bytes_per_s;
    }
    Begin(transfer);
  }
}

void EventRun::EndPeerTransfer(int index, Stream stream, double end_s) {
  Device& device = devices_[index];
  Issued& head = device.queues[static_cast<int>(stream)].front();
  if (--head.flying > 0) return;
  const SideOp& op = device.program().side_ops[head.item.side_op];
  const auto steps = static_cast<int32_t>(op.peers->steps.size());
  ++head.step;
  const bool adds = AddSeconds(op) > 0;
  if (head.step < steps || (head.step == steps && (op.seconds > 0 || adds)) ||
      (head.step == steps + 1 && share_links_ && adds)) {
    return BeginPeerStep(index, stream, end_s);
  }
  EndStreamOp(index, stream, head.ready_s, end_s);
}

}  // namespace pipewright
