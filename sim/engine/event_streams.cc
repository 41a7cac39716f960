#include "sim/engine/event_streams.h"

#include <algorithm>

#include "sim/engine/event_beside.h"
#include "sim/program/network_time.h"

namespace pipewright {

SideStreams::SideStreams(const Program& program, bool share_links,
                         const TrafficSources& sources,
                         const SideSources& side_sources,
                         EventChannels* channels, EventMeetings* meetings,
                         EventTransfers* transfers, EventTimers* timers)
    : program_(program),
      sources_(sources),
      side_sources_(side_sources),
      channels_(*channels),
      meetings_(*meetings),
      transfers_(*transfers),
      timers_(*timers),
      peers_(program, share_links, sources, side_sources, transfers),
      turns_(program, share_links),
      devices_(static_cast<size_t>(program.pp()) * program.replicas) {
  for (size_t index = 0; index < devices_.size(); ++index) {
    Device& device = devices_[index];
    device.replica = static_cast<int32_t>(index) / program.pp();
    device.rank = static_cast<int32_t>(index) % program.pp();
    device.program = &program.OfReplica(device.replica).ranks[device.rank];
  }
}

bool SideStreams::Issue(int device, Stream stream, const IssuedOp& issued) {
  Fifo<IssuedOp>& queue = QueueOf(device, stream);
  queue.push_back(issued);
  if (queue.size() > 1 && RunsInOrder(stream)) return false;
  return Try(device, stream);
}

bool SideStreams::Try(int device, Stream stream) {
  Fifo<IssuedOp>& queue = QueueOf(device, stream);
  if (queue.empty() || timers_.stopped()) return false;
  if (!RunsInOrder(stream)) {
    TryUnordered(device, stream);
    return false;
  }
  IssuedOp& head = queue.front();
  if (head.running || !TakeInputs(device, stream, &head)) return false;
  head.running = true;
  Begin(device, stream, &head);
  return stream == Stream::kCompute;
}

// Starts all of a stream that can start. Only hosts have such a stream.
void SideStreams::TryUnordered(int device, Stream stream) {
  Fifo<IssuedOp>& queue = QueueOf(device, stream);
  for (size_t place = 0; place < queue.size(); ++place) {
    IssuedOp& issued = queue[place];
    if (issued.running || !TakeInputs(device, stream, &issued)) continue;
    issued.running = true;
    BeginHostOp(device, stream, issued);
  }
}

// When all inputs are there: takes them and sets ready_s to the start. What is
// attached to the compute stream was issued when that was free.
bool SideStreams::TakeInputs(int device, Stream stream, IssuedOp* issued) {
  Device& own = devices_[device];
  const double free_s = stream != Stream::kCompute && RunsInOrder(stream)
                            ? own.free_s[static_cast<int>(stream)]
                            : 0;
  if (issued->item.side_op < 0) {
    issued->ready_s = std::max(issued->ready_s, free_s);
    if (!own.activations.AwaitData(issued->pass, &issued->ready_s)) {
      return false;
    }
    own.activations.Begin(issued->pass);
    return true;
  }
  const SideOp& op = OpOf(device, *issued);
  const int replica = own.replica;
  for (const int32_t channel : op.inputs) {
    if (channels_.Tokens(replica, channel).size() == 0) return false;
  }
  issued->ready_s = std::max(issued->ready_s, free_s);
  for (const int32_t channel : op.inputs) {
    double arrival_s = 0;
    channels_.Tokens(replica, channel).Pop(kSideKey, &arrival_s);
    issued->ready_s = std::max(issued->ready_s, arrival_s);
  }
  return true;
}

void SideStreams::Begin(int device, Stream stream, IssuedOp* issued) {
  if (issued->item.side_op < 0) return BeginCopy(device, stream, *issued);
  const SideOp& op = OpOf(device, *issued);
  if (IsCollective(op.kind)) return Arrive(device, stream, *issued);
  if (IsOneSided(op.kind)) return BeginOneSided(device, stream, *issued);
  if (UsesHost(op.kind)) return BeginHostOp(device, stream, *issued);
  const Device& own = devices_[device];
  issued->end_s =
      issued->ready_s +
      program_.SideSeconds(issued->iteration, own.replica, own.rank, op);
  timers_.At(
      issued->end_s, EventKind::kStreamEnd,
      static_cast<uint64_t>(device) * kNumStreams + static_cast<int>(stream));
}

void SideStreams::SetSource(int source, EventTransfer* transfer) const {
  if (source < 0) return;
  transfer->source = source;
  transfer->latency_s = sources_.plan(source).latency_s;
}

void SideStreams::BeginCopy(int device, Stream stream, const IssuedOp& issued) {
  const Lane& lane = devices_[device].program->lanes[issued.pass.lane()];
  EventTransfer transfer = {.of = EventTransfer::Of::kCopy,
                            .index = device,
                            .stream = stream,
                            .bytes = lane.bytes,
                            .start_s = issued.ready_s,
                            .alone_s = lane.seconds,
                            .beside = stream == Stream::kD2H
                                          ? Interference::Kind::kD2H
                                          : Interference::Kind::kH2D};
  const int source = program_.network.cluster != nullptr && lane.bytes > 0
                         ? side_sources_.OfCopies(device, stream)
                         : -1;
  if (source >= 0) {
    SetSource(source, &transfer);
    // What CopySeconds says, whose links need not be looked for again.
    const PathEnds ends =
        stream == Stream::kD2H ? PathEnds::kToHost : PathEnds::kToDevice;
    transfer.alone_s =
        std::max(0.0, sources_.AloneSeconds(source, lane.bytes) +
                          BeyondLinks(program_.network, ends, lane.bytes));
  }
  if (turns_.Take(transfer)) transfers_.Begin(transfer);
}

void SideStreams::BeginOneSided(int device, Stream stream,
                                const IssuedOp& issued) {
  const Device& own = devices_[device];
  const SideOp& op = OpOf(device, issued);
  if (op.peers != nullptr) {
    return peers_.Begin(device, stream, op, issued.ready_s);
  }
  EventTransfer transfer = {
      .of = EventTransfer::Of::kStreamOp,
      .index = device,
      .stream = stream,
      .bytes = op.bytes,
      .start_s = issued.ready_s,
      .alone_s = OneSidedSeconds(program_, op, own.replica, own.rank)};
  SetSource(side_sources_.OfSideOp(device, issued.item.side_op), &transfer);
  transfers_.Begin(transfer);
}

void SideStreams::BeginHostOp(int device, Stream stream,
                              const IssuedOp& issued) {
  const Device& own = devices_[device];
  const SideOp& op = OpOf(device, issued);
  EventTransfer transfer = {
      .of = EventTransfer::Of::kStreamOp,
      .index = device,
      .stream = stream,
      .side_op = issued.item.side_op,
      .bytes = HostWork(op),
      .start_s = issued.ready_s,
      .alone_s = HostOpSeconds(program_, op, own.replica, own.rank)};
  if (!IsHostCopy(op.kind)) {
    transfer.beside.reset();
  } else {
    transfer.beside = op.kind == OpKind::kCopyOut ? Interference::Kind::kD2H
                                                  : Interference::Kind::kH2D;
  }
  SetSource(side_sources_.OfSideOp(device, issued.item.side_op), &transfer);
  transfers_.Begin(transfer);
}

// A member has come to its group's meeting; the last one starts it.
void SideStreams::Arrive(int device, Stream stream, const IssuedOp& issued) {
  const int number = meetings_.Arrive(device, stream, OpOf(device, issued),
                                      issued.ready_s, sources_);
  if (number < 0) return;
  const double start_s = meetings_.StartOf(number);
  const bool beside =
      program_.interference != nullptr && meetings_.AloneSeconds(number) > 0;
  if (beside) {
    timers_.At(start_s, EventKind::kBesideStart, number,
               static_cast<uint32_t>(BesideEvents::Of::kMeeting));
  }
  if (meetings_.Shares(number)) {
    transfers_.Begin(meetings_.Transfer(number, start_s, sources_));
  } else if (!beside) {
    timers_.At(meetings_.EndOf(number), EventKind::kMeetingEnd, number);
  }
}

IssuedOp SideStreams::End(int device, Stream stream, int32_t side_op,
                          double end_s) {
  Device& own = devices_[device];
  Fifo<IssuedOp>& queue = QueueOf(device, stream);
  size_t place = 0;
  while (!RunsInOrder(stream) && (!queue[place].running || queue[place].done ||
                                  queue[place].item.side_op != side_op)) {
    ++place;
  }
  const IssuedOp ended = queue[place];
  queue[place].done = true;
  while (!queue.empty() && queue.front().done) queue.pop_front();
  own.free_s[static_cast<int>(stream)] = end_s;
  if (ended.item.side_op < 0) own.activations.End(ended.pass, end_s);
  return ended;
}

bool SideStreams::EndPeers(int device, Stream stream, double end_s) {
  const int32_t side_op = Head(device, stream).item.side_op;
  return peers_.End(device, stream, devices_[device].program->side_ops[side_op],
                    end_s);
}

void SideStreams::EndTurn(const EventTransfer& copy, double now_s) {
  for (const EventTransfer& next : turns_.End(copy, now_s)) {
    transfers_.Begin(next);
  }
}

bool SideStreams::WaitsForReplicas(int device) const {
  for (const Fifo<IssuedOp>& queue : devices_[device].queues) {
    for (size_t place = 0; place < queue.size(); ++place) {
      const int32_t op = queue[place].item.side_op;
      if (op >= 0 &&
          SpansReplicas(program_, devices_[device].program->side_ops[op])) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace pipewright
