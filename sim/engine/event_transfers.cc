// Bytes on their way: which can contend, and how each of them travels.
#include <algorithm>
#include <limits>
#include <utility>

#include "sim/base/check.h"
#include "sim/engine/event_run.h"

namespace pipewright {

int EventRun::AddSource(std::vector<LinkId> links, bool overlaps_itself) {
  if (links.empty()) return -1;
  sources_.push_back(
      {.links = std::move(links), .overlaps_itself = overlaps_itself});
  return static_cast<int>(sources_.size()) - 1;
}

double EventRun::LargestTransfer() const {
  double bytes = 0;
  for (const Channel& channel : program_.channels) {
    bytes = std::max(bytes, channel.bytes);
  }
  for (const RankProgram& rank : program_.ranks) {
    for (const Lane& lane : rank.lanes) bytes = std::max(bytes, lane.bytes);
    // An all-reduce sends up to twice its buffer over an edge.
    for (const SideOp& op : rank.side_ops) {
      bytes = std::max(bytes, 2 * op.bytes);
    }
  }
  return bytes;
}

void EventRun::PlanTraffic() {
  PlanChannels();
  PlanSideOps();
  if (program_.network.cluster == nullptr) return;
  const Cluster& cluster = *program_.network.cluster;
  plans_ = PlanSharing(cluster, sources_);
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
}

// A channel overlaps itself when a transfer can take longer than the rank
// needs to produce the next one.
void EventRun::PlanChannels() {
  std::vector<double> spacing_s(program_.channels.size(),
                                std::numeric_limits<double>::infinity());
  double least_factor = 1;
  for (const double factor : program_.microbatch_factor) {
    least_factor = std::min(least_factor, factor);
  }
  for (const RankProgram& rank : program_.ranks) {
    for (const Lane& lane : rank.lanes) {
      if (lane.passes == 0 || lane.output < 0) continue;
      spacing_s[lane.output] =
          std::min(spacing_s[lane.output], lane.seconds * least_factor);
    }
  }
  for (int replica = 0; replica < program_.replicas; ++replica) {
    for (size_t index = 0; index < program_.channels.size(); ++index) {
      const Channel& channel = program_.channels[index];
      const double alone_s = TransferSeconds(program_, channel, replica);
      channel_s_.push_back(alone_s);
      channel_source_.push_back(
          channel.from_rank == channel.to_rank
              ? -1
              : AddSource(LinksBetween(program_.network, replica,
                                       channel.from_rank, channel.to_rank),
                          !holds_ && alone_s > spacing_s[index]));
    }
  }
}

void EventRun::PlanSideOps() {
  for (size_t index = 0; index < devices_.size(); ++index) {
    const Device& device = devices_[index];
    const RankProgram& rank = program_.ranks[device.rank];
    bool copies = false;
    for (const Lane& lane : rank.lanes) copies |= lane.bytes > 0;
    for (const bool to_host : {true, false}) {
      if (!copies) break;
      const Stream stream = to_host ? Stream::kD2H : Stream::kH2D;
      const int source = AddSource(
          HostLinks(program_.network, device.replica, device.rank, to_host),
          false);
      if (source < 0) continue;
      side_source_[SideKey(static_cast<int>(index),
                           -1 - static_cast<int>(stream))] = source;
    }
    for (size_t side_op = 0; side_op < rank.side_ops.size(); ++side_op) {
      const SideOp& op = rank.side_ops[side_op];
      if (!IsOneSided(op.kind)) continue;
      const bool pull = op.kind == OpKind::kPull;
      const int source =
          AddSource(LinksBetween(program_.network, device.replica,
                                 pull ? op.peer : device.rank,
                                 pull ? device.rank : op.peer),
                    false);
      if (source < 0) continue;
      side_source_[SideKey(static_cast<int>(index),
                           static_cast<int>(side_op))] = source;
    }
  }
  for (Meeting& meeting : meetings_) {
    const Group& group = program_.groups[meeting.group];
    const std::vector<Member> members =
        GroupMembers(program_, group, meeting.replica);
    for (const SideOp& op : program_.ranks[group.ranks[0]].side_ops) {
      if (op.group != meeting.group) continue;
      const CollectivePlan& plan =
          meeting.plans
              .try_emplace({op.kind, op.bytes},
                           PlanCollective(program_, op.kind, op.bytes, members))
              .first->second;
      if (!plan.ring || plan.bytes_per_edge == 0 || !meeting.sources.empty()) {
        continue;
      }
      for (const auto& [from, to] : plan.edges) {
        meeting.sources.push_back(
            AddSource(program_.network.cluster->Route(from, to), false));
      }
    }
  }
}

// From the end of the producing operation. Where nobody can be met the token
// carries its arrival and the consumer's own timer does the waiting.
void EventRun::Send(int index, int32_t number, Pass pass, double now_s) {
  const Device& device = devices_[index];
  const Channel& channel = program_.channels[number];
  const size_t slot =
      device.replica * program_.channels.size() + static_cast<size_t>(number);
  const int source = channel_source_[slot];
  if (channel.from_rank != channel.to_rank) ++summary_.simulated_ops;
  if (!Shared(source) || channel.bytes == 0) {
    const double arrival_s = now_s + channel_s_[slot];
    if (channel.kind <= ChannelKind::kGradient && writer_.active()) {
      writer_.replica = device.replica;
      writer_.iteration = device.iteration;
      writer_.OnTransfer(number, pass, now_s, arrival_s);
    }
    return Deliver(device.replica, number, pass.key(), arrival_s);
  }
  Begin({.of = Transfer::Of::kChannel,
         .index = number,
         .replica = device.replica,
         .source = source,
         .iteration = device.iteration,
         .pass = pass,
         .bytes = channel.bytes,
         .start_s = now_s,
         .latency_s = plans_[source].latency_s,
         .alone_s = channel_s_[slot]});
}

void EventRun::Deliver(int replica, int32_t number, uint64_t key,
                       double arrival_s) {
  const Channel& channel = program_.channels[number];
  Tokens(replica, number).Push(arrival_s, key);
  const int consumer = DeviceOf(replica, channel.to_rank);
  if (channel.kind <= ChannelKind::kGradient) {
    if (!devices_[consumer].busy) Continue(consumer);
  } else {
    Wake(consumer);
  }
}

// Adds what the block receives or sends to what holds the rank. A batch also
// takes what the next block receives, unless something that is not a pass
// stands between.
void EventRun::PlanHolds(int index, const Pass* block, int parts, bool send) {
  Device& device = devices_[index];
  const RankProgram& rank = program_.ranks[device.rank];
  for (int part = 0; part < parts; ++part) {
    const Lane& lane = rank.lanes[block[part].lane()];
    const int32_t channel = send ? lane.output : lane.input;
    if (channel >= 0) device.holds.push_back({channel, send, block[part]});
  }
  const Pass* const next = rank.order->data() + device.position;
  if (send && program_.wait_rule == WaitRule::kBatched &&
      !device.holds.empty() && device.position < NextAttached(device) &&
      IsComputePass(next->kind())) {
    device.received = true;
    PlanHolds(index, next, next->joint_with_next() ? 2 : 1, /*send=*/false);
  }
}

// Where the next operation is attached that takes part in this iteration.
int64_t EventRun::NextAttached(const Device& device) const {
  const RankProgram& rank = program_.ranks[device.rank];
  for (size_t next = device.attachment; next < rank.attachments.size();
       ++next) {
    const Attachment& attachment = rank.attachments[next];
    if (rank.side_ops[attachment.side_op].first_iteration <= device.iteration) {
      return attachment.position;
    }
  }
  return static_cast<int64_t>(rank.order->size());
}

void EventRun::PostHolds(int index) {
  Device& device = devices_[index];
  const bool batched = program_.wait_rule == WaitRule::kBatched;
  while (!device.holds.empty() && (batched || device.awaited == 0)) {
    const Handshake handshake = device.holds.front();
    device.holds.erase(device.holds.begin());
    ++device.awaited;
    Post(index, handshake);
  }
}

void EventRun::Post(int index, const Handshake& handshake) {
  const Device& device = devices_[index];
  const size_t slot = device.replica * program_.channels.size() +
                      static_cast<size_t>(handshake.channel);
  MeetingPoint& point = points_[slot];
  const uint64_t key = handshake.pass.key();
  TokenQueue& others = handshake.send ? point.receives : point.sends;
  double other_s = 0;
  if (!others.Pop(key, &other_s)) {
    (handshake.send ? point.sends : point.receives).Push(device.clock_s, key);
    return;
  }
  const Channel& channel = program_.channels[handshake.channel];
  const int source = channel_source_[slot];
  const PassKind kind = channel.kind == ChannelKind::kActivation
                            ? PassKind::kForward
                            : handshake.pass.kind();
  Begin({.of = Transfer::Of::kChannel,
         .index = handshake.channel,
         .replica = device.replica,
         .source = source,
         .iteration = device.iteration,
         // Under the name of the pass that produced it: same key, its chunk.
         .pass = Pass(kind, handshake.pass.microbatch(),
                      program_.schedule->placement.ChunkOf(channel.stage),
                      handshake.pass.slice(), channel.replica),
         .bytes = channel.bytes,
         .start_s = std::max(device.clock_s, other_s),
         .latency_s = source < 0 ? 0 : plans_[source].latency_s,
         .alone_s = channel_s_[slot]});
}

void EventRun::Begin(Transfer transfer) {
  uint32_t number;
  if (free_transfers_.empty()) {
    number = static_cast<uint32_t>(transfers_.size());
    transfers_.push_back(transfer);
  } else {
    number = free_transfers_.back();
    free_transfers_.pop_back();
    transfers_[number] = transfer;
  }
  if (!Shared(transfer.source) || transfer.bytes == 0) {
    At(transfer.start_s + transfer.alone_s, Event::kTransferEnd, number);
  } else {
    At(transfer.start_s + transfer.latency_s, Event::kLatencyEnd, number);
  }
}

// The latency is over: from here on the links are shared.
void EventRun::Share(uint32_t number, double now_s) {
  const Transfer& transfer = transfers_[number];
  if (plans_[transfer.source].sharing == Sharing::kFlow) {
    ++summary_.flows;
    return transport_->StartFlow(transfer.source, transfer.bytes, number);
  }
  const int queue = queue_of_source_[transfer.source];
  sharing_queues_[queue].Start(now_s, transfer.bytes, number);
  SetQueueTimer(queue);
}

void EventRun::SetQueueTimer(int number) {
  const SharingQueue& queue = sharing_queues_[number];
  if (queue.empty()) return;
  const uint64_t version = queue.version() & 0x1fffffff;
  At(queue.NextEnd(), Event::kQueueEnd,
     version << 32 | static_cast<uint32_t>(number));
}

void EventRun::EndTransfer(uint32_t number, double end_s) {
  const Transfer transfer = transfers_[number];
  free_transfers_.push_back(number);
  switch (transfer.of) {
    case Transfer::Of::kStream:
      return EndStreamOp(transfer.index, transfer.stream, transfer.start_s,
                         end_s);
    case Transfer::Of::kRing: {
      Meeting& meeting = meetings_[transfer.index];
      meeting.end_s = std::max(meeting.end_s, end_s);
      if (--meeting.edges_left == 0) EndMeeting(transfer.index);
      return;
    }
    case Transfer::Of::kChannel:
      break;
  }
  const Channel& channel = program_.channels[transfer.index];
  NoteEnd(transfer.iteration, end_s);
  const bool of_passes = channel.kind <= ChannelKind::kGradient;
  if (of_passes && writer_.active()) {
    writer_.replica = transfer.replica;
    writer_.iteration = transfer.iteration;
    writer_.OnTransfer(transfer.index, transfer.pass, transfer.start_s, end_s);
  }
  if (!of_passes || !holds_) {
    return Deliver(transfer.replica, transfer.index, transfer.pass.key(),
                   end_s);
  }
  ++summary_.simulated_ops;
  EndHold(DeviceOf(transfer.replica, channel.from_rank), end_s);
  EndHold(DeviceOf(transfer.replica, channel.to_rank), end_s);
}

void EventRun::EndHold(int index, double end_s) {
  Device& device = devices_[index];
  device.clock_s = std::max(device.clock_s, end_s);
  if (--device.awaited > 0) return;
  PostHolds(index);
  if (device.awaited == 0) Continue(index);
}

// The steps' latencies are over: every edge of the ring carries its share.
void EventRun::StartRing(int number) {
  Meeting& meeting = meetings_[number];
  const double now_s = meeting.start_s + meeting.latency_s;
  meeting.end_s = now_s;
  meeting.edges_left = static_cast<int>(meeting.sources.size());
  for (const int source : meeting.sources) {
    PW_CHECK(source >= 0);
    Begin({.of = Transfer::Of::kRing,
           .index = number,
           .source = source,
           .bytes = meeting.bytes_per_edge,
           .start_s = now_s,
           .alone_s = meeting.bytes_per_edge / plans_[source].bytes_per_s});
  }
}

}  // namespace pipewright
