// Streams beside the passes: side operations, copies, meetings of groups.
#include <algorithm>
#include <utility>

#include "sim/base/check.h"
#include "sim/engine/event_run.h"

namespace pipewright {
void EventRun::Issue(int index, Stream stream, Issued issued) {
  ++left_[issued.iteration];
  Fifo<Issued>& queue = devices_[index].queues[static_cast<int>(stream)];
  queue.push_back(issued);
  if (queue.size() == 1 || !RunsInOrder(stream)) TryStream(index, stream);
}

// Starts the operation at the head of a stream when its inputs are there.
void EventRun::TryStream(int index, Stream stream) {
  Device& device = devices_[index];
  Fifo<Issued>& queue = device.queues[static_cast<int>(stream)];
  if (queue.empty() || stopped_) return;
  if (!RunsInOrder(stream)) return TryUnordered(index, stream);
  if (queue.front().running) return;
  Issued& head = queue.front();
  if (!TakeInputs(device, stream, head)) return;
  head.running = true;
  if (stream == Stream::kCompute) device.busy = true;
  if (head.item.side_op < 0) return BeginCopy(index, stream, head);
  const SideOp& op = device.program().side_ops[head.item.side_op];
  if (IsCollective(op.kind)) return Arrive(index, stream, head);
  if (IsOneSided(op.kind)) return BeginOneSided(index, stream, head);
  if (UsesHost(op.kind)) return BeginHostOp(index, stream, head);
  head.end_s =
      head.ready_s +
      program_.SideSeconds(head.iteration, device.replica, device.rank, op);
  At(head.end_s, Event::kStreamEnd,
     static_cast<uint64_t>(index) * kNumStreams + static_cast<int>(stream));
}

// Starts all of a stream that can start. Only hosts have such a stream.
void EventRun::TryUnordered(int index, Stream stream) {
  Device& device = devices_[index];
  Fifo<Issued>& queue = device.queues[static_cast<int>(stream)];
  for (size_t place = 0; place < queue.size(); ++place) {
    Issued& issued = queue[place];
    if (issued.running || !TakeInputs(device, stream, issued)) continue;
    issued.running = true;
    BeginHostOp(index, stream, issued);
  }
}

// Takes what has ended out of its queue.
EventRun::Issued EventRun::TakeEnded(int index, Stream stream,
                                     int32_t side_op) {
  Fifo<Issued>& queue = devices_[index].queues[static_cast<int>(stream)];
  size_t place = 0;
  while (!RunsInOrder(stream) && (!queue[place].running || queue[place].done ||
                                  queue[place].item.side_op != side_op)) {
    ++place;
  }
  const Issued ended = queue[place];
  queue[place].done = true;
  while (!queue.empty() && queue.front().done) queue.pop_front();
  return ended;
}

// Looks again at everything that waits on a device.
void EventRun::Wake(int index) {
  for (int stream = 0; stream < kNumStreams; ++stream) {
    TryStream(index, static_cast<Stream>(stream));
  }
  Continue(index);
}

// When all inputs are there: takes them and sets ready_s to the start.
bool EventRun::TakeInputs(Device& device, Stream stream, Issued& issued) {
  const double free_s = stream == Stream::kCompute ? device.clock_s
                        : RunsInOrder(stream)
                            ? device.stream_s[static_cast<int>(stream)]
                            : 0;
  if (issued.item.side_op < 0) {
    issued.ready_s = std::max(issued.ready_s, free_s);
    if (!device.activations.AwaitData(issued.pass, &issued.ready_s)) {
      return false;
    }
    device.activations.Begin(issued.pass);
    return true;
  }
  const SideOp& op = device.program().side_ops[issued.item.side_op];
  for (const int32_t channel : op.inputs) {
    if (Tokens(device.replica, channel).size() == 0) return false;
  }
  issued.ready_s = std::max(issued.ready_s, free_s);
  for (const int32_t channel : op.inputs) {
    double arrival_s = 0;
    Tokens(device.replica, channel).Pop(kSideKey, &arrival_s);
    issued.ready_s = std::max(issued.ready_s, arrival_s);
  }
  return true;
}

void EventRun::BeginCopy(int index, Stream stream, const Issued& issued) {
  const Device& device = devices_[index];
  const Lane& lane = device.program().lanes[issued.pass.lane()];
  Transfer transfer = {.of = Transfer::Of::kStream,
                       .index = index,
                       .stream = stream,
                       .bytes = lane.bytes,
                       .start_s = issued.ready_s,
                       .alone_s = lane.seconds,
                       .takes_turn = true,
                       .beside = stream == Stream::kD2H
                                     ? Transfer::Beside::kD2H
                                     : Transfer::Beside::kH2D};
  if (program_.network.cluster != nullptr && lane.bytes > 0) {
    transfer.source =
        side_source_.at(SideKey(index, -1 - static_cast<int>(stream)));
    // What CopySeconds says, whose links need not be looked for again.
    const SourcePlan& plan = plans_[transfer.source];
    transfer.latency_s = plan.latency_s;
    transfer.alone_s = std::max(
        0.0, plan.latency_s + lane.bytes / plan.bytes_per_s +
                 BeyondLinks(program_.network,
                             stream == Stream::kD2H ? PathEnds::kToHost
                                                    : PathEnds::kToDevice,
                             lane.bytes));
  }
  if (TakeTurn(transfer)) Begin(transfer);
}

// Takes the PCIe switches of a copy that has them to itself while it runs; what
// lies behind a switch, such as a root or the host's memory, is shared. False:
// it waits for them.
bool EventRun::TakeTurn(const Transfer& copy) {
  if (!program_.copies_in_turn || copy.source < 0 || !share_links_) return true;
  const std::vector<LinkId>& switches = SwitchesOf(copy);
  link_taken_.resize(program_.network.cluster->links().size());
  // Who came first to one of these links goes first.
  const auto meets = [&](const Transfer& other) {
    const std::vector<LinkId>& others = SwitchesOf(other);
    return std::find_first_of(others.begin(), others.end(), switches.begin(),
                              switches.end()) != others.end();
  };
  if (std::any_of(switches.begin(), switches.end(),
                  [&](LinkId link) { return link_taken_[link]; }) ||
      std::any_of(waiting_copies_.begin(), waiting_copies_.end(), meets)) {
    waiting_copies_.push_back(copy);
    return false;
  }
  for (const LinkId link : switches) link_taken_[link] = true;
  return true;
}

const std::vector<LinkId>& EventRun::SwitchesOf(const Transfer& copy) {
  const auto [found, inserted] =
      switches_of_.try_emplace(copy.source, std::vector<LinkId>());
  if (inserted) {
    const Device& device = devices_[copy.index];
    found->second = SwitchLinks(program_.network, device.replica, device.rank,
                                copy.stream == Stream::kD2H);
  }
  return found->second;
}

void EventRun::EndTurn(const Transfer& copy, double now_s) {
  if (!program_.copies_in_turn || !share_links_ || copy.source < 0 ||
      !copy.takes_turn) {
    return;
  }
  for (const LinkId link : SwitchesOf(copy)) link_taken_[link] = false;
  std::vector<Transfer> waiting = std::move(waiting_copies_);
  waiting_copies_.clear();
  for (Transfer& next : waiting) {
    next.start_s = std::max(next.start_s, now_s);
    if (TakeTurn(next)) Begin(next);
  }
}

void EventRun::BeginOneSided(int index, Stream stream, const Issued& issued) {
  const Device& device = devices_[index];
  const SideOp& op = device.program().side_ops[issued.item.side_op];
  if (op.peers != nullptr) return BeginPeerStep(index, stream, issued.ready_s);
  Transfer transfer = {
      .of = Transfer::Of::kStream,
      .index = index,
      .stream = stream,
      .bytes = op.bytes,
      .start_s = issued.ready_s,
      .alone_s = OneSidedSeconds(program_, op, device.replica, device.rank)};
  const auto source = side_source_.find(SideKey(index, issued.item.side_op));
  if (source != side_source_.end()) {
    transfer.source = source->second;
    transfer.latency_s = plans_[transfer.source].latency_s;
  }
  Begin(transfer);
}

void EventRun::BeginHostOp(int index, Stream stream, const Issued& issued) {
  const Device& device = devices_[index];
  const SideOp& op = device.program().side_ops[issued.item.side_op];
  Transfer transfer = {
      .of = Transfer::Of::kStream,
      .index = index,
      .stream = stream,
      .side_op = issued.item.side_op,
      .bytes = HostWork(op),
      .start_s = issued.ready_s,
      .alone_s = HostOpSeconds(program_, op, device.replica, device.rank),
      .beside = op.kind == OpKind::kCopyOut  ? Transfer::Beside::kD2H
                : op.kind == OpKind::kCopyIn ? Transfer::Beside::kH2D
                                             : Transfer::Beside::kNone};
  const auto source = side_source_.find(SideKey(index, issued.item.side_op));
  if (source != side_source_.end()) {
    transfer.source = source->second;
    transfer.latency_s = plans_[transfer.source].latency_s;
  }
  Begin(transfer);
}

void EventRun::EndStreamOp(int index, Stream stream, double start_s,
                           double end_s, int32_t side_op) {
  Device& device = devices_[index];
  const Issued done = TakeEnded(index, stream, side_op);
  NoteEnd(done.iteration, end_s);
  ++summary_.simulated_ops;
  writer_.replica = device.replica;
  writer_.iteration = done.iteration;
  if (stream == Stream::kCompute) {
    device.busy = false;
    device.clock_s = end_s;
    device.sequence.Taken();
  } else {
    device.stream_s[static_cast<int>(stream)] = end_s;
  }
  if (done.item.side_op < 0) {
    device.activations.End(done.pass, end_s);
    writer_.OnCopy(device.rank, done.pass, start_s, end_s);
    TryStream(index, Stream::kH2D);
  } else {
    writer_.OnSideOp(device.rank, done.item.side_op, start_s, end_s);
    for (const int32_t channel :
         device.program().side_ops[done.item.side_op].outputs) {
      Send(index, channel, Pass(), end_s);
    }
    const SideSequence::Item& item = done.item;
    if (item.output >= 0) Send(index, item.output, Pass(), end_s);
    device.hook_ends.Push(device.sequence, item, done.start, end_s);
  }
  TryStream(index, stream);
  Done(done.iteration);
  Continue(index);
}

// A member has come to its group's meeting; the last one starts it.
void EventRun::Arrive(int index, Stream stream, const Issued& issued) {
  const Device& device = devices_[index];
  const SideOp& op = device.program().side_ops[issued.item.side_op];
  const int number = first_meeting_[op.group] +
                     program_.groups[op.group].InstanceOf(device.replica);
  Meeting& meeting = meetings_[number];
  if (meeting.arrived.empty() && SpansReplicas(op)) {
    PW_CHECK(issued.ready_s >= apart_until_s_);
    ++open_meetings_;
  }
  meeting.arrived.emplace_back(index, stream);
  meeting.latest_s = std::max(meeting.latest_s, issued.ready_s);
  if (static_cast<int>(meeting.arrived.size()) < meeting.expected) return;
  const Meeting::Plan& plan = meeting.plans.at(CollectiveKeyOf(op));
  meeting.start_s = meeting.latest_s;
  meeting.end_s = meeting.start_s + plan.seconds;
  meeting.latest_s = 0;
  const bool shares =
      (plan.ring && plan.bytes_per_edge > 0 && Shared(meeting.source)) ||
      std::any_of(plan.sources.begin(), plan.sources.end(),
                  [this](int source) { return Shared(source); });
  meeting.shares = shares;
  if (beside_ != nullptr && plan.seconds > 0) {
    StartAt(meeting.start_s, Beside::Of::kMeeting,
            static_cast<uint32_t>(number));
    if (!shares) return;
  }
  if (!shares) return At(meeting.end_s, Event::kMeetingEnd, number);
  meeting.in_phases = plan.phases.empty() ? nullptr : &plan;
  meeting.phase = 0;
  if (!plan.phases.empty()) return BeginPhase(number, meeting.start_s);
  // Once the latencies of its steps are over the edges carry their shares.
  Begin({.of = Transfer::Of::kRing,
         .index = number,
         .source = meeting.source,
         .bytes = plan.bytes_per_edge,
         .start_s = meeting.start_s,
         .latency_s = plan.latency_s,
         .alone_s = plan.seconds});
}

// The phase that a meeting has come to.
void EventRun::BeginPhase(int number, double start_s) {
  const Meeting& meeting = meetings_[number];
  const CollectivePhase& phase = meeting.in_phases->phases[meeting.phase];
  const int source = meeting.in_phases->sources[meeting.phase];
  Transfer transfer = {.of = Transfer::Of::kRing,
                       .index = number,
                       .source = source,
                       .bytes = phase.bytes,
                       .start_s = start_s,
                       .latency_s = phase.latency_s,
                       .alone_s = phase.latency_s};
  if (source >= 0) transfer.alone_s += phase.bytes / plans_[source].bytes_per_s;
  Begin(transfer);
}

void EventRun::EndMeeting(int number) {
  std::vector<std::pair<int32_t, Stream>> members;
  if (beside_ != nullptr) {
    LeaveBeside(&meetings_[number].item, meetings_[number].end_s);
  }
  if (program_.groups[meetings_[number].group].span != Group::Span::kRanks) {
    --open_meetings_;
  }
  // Members may come to the next meeting while this one is wound up.
  members.swap(meetings_[number].arrived);
  const double start_s = meetings_[number].start_s;
  const double end_s = meetings_[number].end_s;
  for (const auto& [device, stream] : members) {
    EndStreamOp(device, stream, start_s, end_s);
  }
}

}  // namespace pipewright
