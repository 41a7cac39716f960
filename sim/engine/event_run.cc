#include "sim/engine/event_run.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/check.h"
#include "sim/engine/isolated_times.h"

namespace pipewright {
namespace {

// Plans are spread only for links of our own.
std::optional<int> SpreadPeers(const EngineOptions& options, int peers) {
  if (options.as_activities) return std::nullopt;
  return peers;
}

const TrafficSources& Planned(TrafficSources* sources) {
  sources->Plan();
  return *sources;
}

}  // namespace

EventRun::EventRun(const Program& program, const EngineOptions& options,
                   const EventTrial& trial)
    : program_(program),
      as_activities_(options.as_activities),
      record_(program, options.trace, options.progress),
      sources_(program.network, options.share_links,
               SpreadPeers(options, trial.spread_peers), options.as_activities,
               program.interference != nullptr),
      channels_(program, &sources_),
      side_sources_(program, &sources_),
      meetings_(program, &sources_),
      exchange_sources_(program, options.share_links, &sources_),
      exchanges_(program, exchange_sources_, Planned(&sources_), &timers_),
      iterations_(program, sources_.AnyShared(), !sources_.pools().empty(),
                  &record_, &timers_),
      transfers_(program, sources_,
                 options.time_lone_transfers && !options.as_activities &&
                     exchanges_.time_lone_transfers(),
                 &channels_, &record_, &timers_),
      streams_(program, options.share_links, sources_, side_sources_,
               &channels_, &meetings_, &transfers_, &timers_),
      compute_(program, options, &channels_, &transfers_, &streams_,
               &exchanges_, &iterations_, &record_, &timers_),
      parts_(program, options, sources_, transfers_.sharing()) {
  if (trial.folds) {
    parts_.Fold({program, sources_, channels_, meetings_, exchanges_},
                &sources_);
    LeaveOutFolded();
  }
  if (program.interference != nullptr) {
    beside_ = std::make_unique<BesideEvents>(program, &timers_);
  }
}

// Replicas for which others run.
void EventRun::LeaveOutFolded() {
  int64_t devices = 0;
  for (int device = 0; device < compute_.size(); ++device) {
    if (parts_.Runs(compute_[device].replica)) continue;
    compute_.LeaveOut(device);
    ++devices;
  }
  if (devices == 0) return;
  meetings_.Expect([this](int replica) { return parts_.Runs(replica); });
  iterations_.LeaveOut(devices);
  record_.LeaveOut(devices, compute_.size());
}

double EventRun::LargestTransfer() const {
  double bytes = exchange_sources_.largest_bytes();
  for (int index = 0; index < program_.num_classes(); ++index) {
    const DpClass& own = program_.dp_class(index);
    for (const Channel& channel : own.channels) {
      bytes = std::max(bytes, channel.bytes);
    }
    for (const RankProgram& rank : own.ranks) {
      for (const Lane& lane : rank.lanes) bytes = std::max(bytes, lane.bytes);
      // An all-reduce sends up to twice its buffer over an edge; work of a host
      // counts parameters.
      for (const SideOp& op : rank.side_ops) {
        bytes = std::max({bytes, 2 * op.bytes, op.parameters});
      }
    }
  }
  return bytes;
}

void EventRun::Launch(EventTransport* transport) {
  timers_.Attach(transport);
  compute_.Begin();
}

void EventRun::OnTimer(uint64_t code, double now_s) {
  if (!timers_.Take()) {
    if (as_activities_) TellLate(code, now_s);
    return;
  }
  record_.Tell();
  Happen(code, now_s);
  compute_.ContinueAll();
}

// A pass of the next iteration would have waited for it; it is of one that has
// been asked for.
void EventRun::TellLate(const EventTransfer& transfer, double end_s) {
  if (transfer.of != EventTransfer::Of::kChannel ||
      transfer.iteration >= std::ssize(iterations_.ends_s()) ||
      channels_.At(transfer.replica, transfer.index).kind >
          ChannelKind::kGradient) {
    return;
  }
  transfers_.Tell(transfer, end_s);
}

void EventRun::TellLate(uint64_t code, double now_s) {
  const EventKind kind = EventTimers::KindOf(code);
  if (kind != EventKind::kTransferEnd && kind != EventKind::kLatencyEnd) return;
  const EventTransfer& transfer = transfers_[EventTimers::IndexOf(code)];
  // It would have met others of iterations that are not run.
  const bool starts = kind == EventKind::kLatencyEnd;
  TellLate(transfer, starts ? transfer.start_s + transfer.alone_s : now_s);
}

void EventRun::OnFlowEnd(uint32_t transfer, double now_s) {
  if (!timers_.Take()) {
    if (as_activities_) TellLate(transfers_[transfer], now_s);
    return;
  }
  record_.Tell();
  EndTransfer(transfer, now_s);
  compute_.ContinueAll();
}

void EventRun::Expect(uint64_t code) const {
  const auto fetch = [](const auto& object) {
    constexpr size_t kLine = 64;
    const char* const begin = reinterpret_cast<const char*>(&object);
    for (size_t at = 0; at < sizeof(object); at += kLine) {
      __builtin_prefetch(begin + at);
    }
  };
  const uint32_t index = EventTimers::IndexOf(code);
  switch (EventTimers::KindOf(code)) {
    case EventKind::kComputeEnd:
    case EventKind::kExchange:
      return fetch(compute_[static_cast<int>(index)]);
    case EventKind::kLatencyEnd:
    case EventKind::kTransferEnd:
    case EventKind::kLoneEnd:
      return fetch(transfers_[index]);
    case EventKind::kQueueEnd:
      return fetch(transfers_.sharing().queue(static_cast<int>(index)));
    default:
      return;
  }
}

void EventRun::Happen(uint64_t code, double now_s) {
  const uint32_t index = EventTimers::IndexOf(code);
  const uint32_t version = EventTimers::VersionOf(code);
  switch (EventTimers::KindOf(code)) {
    case EventKind::kComputeEnd:
      return compute_.EndBlock(static_cast<int>(index), now_s);
    case EventKind::kStreamEnd: {
      const int device = static_cast<int>(index / kNumStreams);
      const auto stream = static_cast<Stream>(index % kNumStreams);
      const IssuedOp& head = streams_.Head(device, stream);
      return EndStreamOp(device, stream, head.ready_s,
                         as_activities_ ? now_s : head.end_s);
    }
    case EventKind::kLatencyEnd:
      return transfers_.EndLatency(index);
    case EventKind::kTransferEnd: {
      const EventTransfer& transfer = transfers_[index];
      return EndTransfer(
          index, as_activities_ ? now_s : transfer.start_s + transfer.alone_s);
    }
    case EventKind::kMeetingEnd:
      if (as_activities_) meetings_.SetEnd(static_cast<int>(index), now_s);
      return EndMeeting(static_cast<int>(index));
    case EventKind::kQueueEnd: {
      double end_s = 0;
      const auto ended = transfers_.sharing().TakeEnded(static_cast<int>(index),
                                                        version, &end_s);
      if (ended) EndTransfer(*ended, end_s);
      return;
    }
    case EventKind::kLoneEnd: {
      const auto end_s = transfers_.sharing().LoneEnd(index, version);
      if (end_s) EndTransfer(index, *end_s);
      return;
    }
    case EventKind::kBesideStart:
      return StartBeside({static_cast<BesideEvents::Of>(version), index});
    case EventKind::kBesideEnd:
      return EndBeside(index, version);
    case EventKind::kExchange:
      return compute_.BeginFlow(static_cast<int>(index));
  }
}

EventRun::Activity EventRun::ActivityOf(uint64_t code) const {
  const auto index = static_cast<int>(EventTimers::IndexOf(code));
  const auto of_meeting = [&](int number) {
    const std::vector<int> devices = meetings_.DevicesOf(number);
    return Activity{Activity::Kind::kDelay, devices.front(), devices.back()};
  };
  switch (EventTimers::KindOf(code)) {
    case EventKind::kComputeEnd:
    case EventKind::kExchange:
      return {Activity::Kind::kExec, index, index};
    case EventKind::kStreamEnd: {
      const int device = index / kNumStreams;
      const int32_t op =
          streams_.Head(device, static_cast<Stream>(index % kNumStreams))
              .item.side_op;
      // A wait is no work.
      if (compute_[device].program().side_ops[op].kind == OpKind::kWait) break;
      return {Activity::Kind::kExec, device, device};
    }
    case EventKind::kTransferEnd:
      return ActivityOf(transfers_[EventTimers::IndexOf(code)]);
    case EventKind::kMeetingEnd:
      return of_meeting(index);
    case EventKind::kBesideEnd: {
      const BesideEvents::Owner owner = beside_->OwnerOf(index);
      const auto number = static_cast<int>(owner.index);
      switch (owner.of) {
        case BesideEvents::Of::kBlock:
          return {Activity::Kind::kExec, number, number};
        case BesideEvents::Of::kTransfer:
          return ActivityOf(transfers_[owner.index]);
        case BesideEvents::Of::kMeeting:
          return of_meeting(number);
      }
      break;
    }
    case EventKind::kLatencyEnd:
    case EventKind::kQueueEnd:
    case EventKind::kLoneEnd:
    case EventKind::kBesideStart:
      break;
  }
  return {};
}

// Several devices of a rank, and several members, do the same: the first stands
// for all of them, and the route is that of all.
EventRun::Activity EventRun::ActivityOf(const EventTransfer& transfer) const {
  Activity activity = {Activity::Kind::kDelay, transfer.index, transfer.index};
  switch (transfer.of) {
    case EventTransfer::Of::kChannel: {
      const Channel& channel = channels_.At(transfer.replica, transfer.index);
      activity.from = DeviceOf(transfer.replica, channel.from_rank);
      activity.to = DeviceOf(transfer.replica, channel.to_rank);
      break;
    }
    case EventTransfer::Of::kMeeting: {
      const std::vector<int> devices = meetings_.DevicesOf(transfer.index);
      activity.from = devices.front();
      activity.to = devices.back();
      break;
    }
    case EventTransfer::Of::kCopy:
      (transfer.stream == Stream::kD2H ? activity.to : activity.from) = -1;
      break;
    case EventTransfer::Of::kStreamOp: {
      const int32_t number =
          transfer.side_op >= 0
              ? transfer.side_op
              : streams_.Head(transfer.index, transfer.stream).item.side_op;
      const SideOp& op = compute_[transfer.index].program().side_ops[number];
      if (UsesHost(op.kind)) {
        (op.kind == OpKind::kCopyIn ? activity.from : activity.to) = -1;
      } else {
        const int replica = transfer.index / program_.pp();
        const int peer =
            DeviceOf((replica + op.peer_offset) % program_.replicas, op.peer);
        (op.kind == OpKind::kPull ? activity.from : activity.to) = peer;
      }
      break;
    }
    case EventTransfer::Of::kPeers:
    case EventTransfer::Of::kExchange:
      // To many: the next one stands for them.
      activity.to = (transfer.index + program_.pp()) % compute_.size();
      break;
  }
  return activity;
}

void EventRun::EndTransfer(uint32_t number, double end_s) {
  if (beside_ != nullptr) {
    beside_->Leave({BesideEvents::Of::kTransfer, number}, end_s);
  }
  const EventTransfer transfer = transfers_.End(number);
  switch (transfer.of) {
    case EventTransfer::Of::kChannel:
      return EndChannel(transfer, end_s);
    case EventTransfer::Of::kCopy:
      streams_.EndTurn(transfer, end_s);
      [[fallthrough]];
    case EventTransfer::Of::kStreamOp:
      return EndStreamOp(transfer.index, transfer.stream, transfer.start_s,
                         end_s, transfer.side_op);
    case EventTransfer::Of::kPeers:
      if (streams_.EndPeers(transfer.index, transfer.stream, end_s)) {
        EndStreamOp(transfer.index, transfer.stream,
                    streams_.Head(transfer.index, transfer.stream).ready_s,
                    end_s);
      }
      return;
    case EventTransfer::Of::kMeeting:
      if (meetings_.NextPhase(transfer.index)) {
        return transfers_.Begin(
            meetings_.Transfer(transfer.index, end_s, sources_));
      }
      meetings_.SetEnd(transfer.index, end_s);
      return EndMeeting(transfer.index);
    case EventTransfer::Of::kExchange:
      return compute_.EndFlow(transfer.index, end_s);
  }
}

void EventRun::EndChannel(const EventTransfer& transfer, double end_s) {
  const Channel& channel = channels_.At(transfer.replica, transfer.index);
  const bool of_passes = channel.kind <= ChannelKind::kGradient;
  if (of_passes) transfers_.Tell(transfer, end_s);
  if (!of_passes || compute_.held() == nullptr) {
    channels_.Tokens(transfer.replica, transfer.index)
        .Push(end_s, transfer.key);
    return Deliver(transfer.replica, transfer.index);
  }
  record_.AddOps(1);
  iterations_.NoteEnd(transfer.iteration, end_s);
  compute_.EndHold(DeviceOf(transfer.replica, channel.from_rank), end_s);
  compute_.EndHold(DeviceOf(transfer.replica, channel.to_rank), end_s);
}

// A token has come over a channel.
void EventRun::Deliver(int replica, int32_t number) {
  const Channel& channel = channels_.At(replica, number);
  const int consumer = DeviceOf(replica, channel.to_rank);
  if (channel.kind <= ChannelKind::kGradient) return compute_.Look(consumer);
  Wake(consumer);
}

// Looks again at everything that waits on a device.
void EventRun::Wake(int device) {
  for (int stream = 0; stream < kNumStreams; ++stream) {
    Try(device, static_cast<Stream>(stream));
  }
  compute_.Continue(device);
}

void EventRun::EndStreamOp(int device, Stream stream, double start_s,
                           double end_s, int32_t side_op) {
  const IssuedOp done = streams_.End(device, stream, side_op, end_s);
  iterations_.NoteEnd(done.iteration, end_s);
  record_.AddOps(1);
  if (stream == Stream::kCompute) compute_.EndAttached(device, end_s);
  const ComputeStreams::Device& own = compute_[device];
  TraceWriter* const trace = record_.Trace(own.replica, done.iteration);
  if (done.item.side_op < 0) {
    if (trace != nullptr) trace->OnCopy(own.rank, done.pass, start_s, end_s);
    Try(device, Stream::kH2D);
  } else {
    if (trace != nullptr) {
      trace->OnSideOp(own.rank, done.item.side_op, start_s, end_s);
    }
    const auto send = [&](int32_t channel) {
      if (transfers_.Send(compute_.SenderOf(device), channel, Pass(), end_s)) {
        Deliver(own.replica, channel);
      }
    };
    for (const int32_t channel :
         own.program().side_ops[done.item.side_op].outputs) {
      send(channel);
    }
    if (done.item.output >= 0) send(done.item.output);
    compute_.EndHooked(device, done, end_s);
  }
  Try(device, stream);
  iterations_.End(done.iteration);
  compute_.Continue(device);
}

void EventRun::EndMeeting(int number) {
  const double start_s = meetings_.StartOf(number);
  const double end_s = meetings_.EndOf(number);
  if (beside_ != nullptr) {
    beside_->Leave({BesideEvents::Of::kMeeting, static_cast<uint32_t>(number)},
                   end_s);
  }
  for (const auto& [device, stream] : meetings_.End(number)) {
    EndStreamOp(device, stream, start_s, end_s);
  }
}

void EventRun::StartBeside(BesideEvents::Owner owner) {
  const int index = static_cast<int>(owner.index);
  switch (owner.of) {
    case BesideEvents::Of::kBlock: {
      const ComputeStreams::Device& device = compute_[index];
      return beside_->StartBlock(index, device.block_start_s, device.program(),
                                 device.block(), device.block_s);
    }
    case BesideEvents::Of::kTransfer: {
      const EventTransfer& transfer = transfers_[owner.index];
      std::vector<int> devices = {transfer.index};
      if (transfer.of == EventTransfer::Of::kChannel) {
        const Channel& channel = channels_.At(transfer.replica, transfer.index);
        devices = {DeviceOf(transfer.replica, channel.from_rank),
                   DeviceOf(transfer.replica, channel.to_rank)};
      }
      return beside_->Start(owner, transfer.start_s, transfer.alone_s,
                            *transfer.beside, std::move(devices),
                            transfers_.IsTimed(transfer));
    }
    case BesideEvents::Of::kMeeting: {
      const double start_s = meetings_.StartOf(index);
      return beside_->Start(owner, start_s, meetings_.EndOf(index) - start_s,
                            Interference::Kind::kCollective,
                            meetings_.DevicesOf(index),
                            !meetings_.Shares(index));
    }
  }
}

void EventRun::EndBeside(uint32_t item, uint32_t version) {
  const auto ended = beside_->End(item, version);
  if (!ended) return;
  const auto [of, index] = ended->owner;
  switch (of) {
    case BesideEvents::Of::kBlock:
      return compute_.EndBlockAt(static_cast<int>(index), ended->end_s);
    case BesideEvents::Of::kTransfer:
      return EndTransfer(index, ended->end_s);
    case BesideEvents::Of::kMeeting:
      meetings_.SetEnd(static_cast<int>(index), ended->end_s);
      return EndMeeting(static_cast<int>(index));
  }
}

int EventRun::ReplicaOf(const EventTransfer& transfer) const {
  switch (transfer.of) {
    case EventTransfer::Of::kChannel:
      return transfer.replica;
    case EventTransfer::Of::kMeeting:
      return meetings_.ReplicaOf(transfer.index);
    default:
      return compute_[transfer.index].replica;
  }
}

int EventRun::PartOfSource(int source) const {
  const int replica = sources_.all()[source].replica;
  PW_CHECK(replica >= 0);
  return parts_.PartOf(replica);
}

// Some timers are stale and do nothing: those may be of any part.
int EventRun::PartOf(uint64_t code) const {
  const auto index = static_cast<int>(EventTimers::IndexOf(code));
  switch (EventTimers::KindOf(code)) {
    case EventKind::kComputeEnd:
    case EventKind::kExchange:
      return parts_.PartOf(compute_[index].replica);
    case EventKind::kStreamEnd:
      return parts_.PartOf(compute_[index / kNumStreams].replica);
    case EventKind::kLatencyEnd:
    case EventKind::kTransferEnd:
    case EventKind::kLoneEnd:
      return parts_.PartOf(ReplicaOf(transfers_[EventTimers::IndexOf(code)]));
    case EventKind::kMeetingEnd:
      return parts_.PartOf(meetings_.ReplicaOf(index));
    case EventKind::kQueueEnd:
      return parts_.PartOfQueue(index);
    case EventKind::kBesideStart:
    case EventKind::kBesideEnd:
      break;
  }
  PW_CHECK(false);
  return 0;
}

double EventRun::Horizon(double now_s) const {
  if (num_parts() == 1 || timers_.stopped() || meetings_.any_open()) {
    return now_s;
  }
  return parts_.Horizon(now_s, compute_.size(), [this](int index) {
    const ComputeStreams::Device& device = compute_[index];
    return ReplicaParts::Place{.replica = device.replica,
                               .rank = device.rank,
                               .iteration = device.iteration,
                               .position = device.position,
                               .end = device.sequence.end(),
                               .clock_s = device.clock_s,
                               .busy = device.busy,
                               .ended = device.ended,
                               .meets = streams_.WaitsForReplicas(index)};
  });
}

absl::StatusOr<RunSummary> EventRun::Finish() {
  record_.EndRun();
  if (!timers_.stopped() && timers_.outstanding() > 0) {
    return absl::InternalError(absl::StrCat(
        "the engine lost ", timers_.outstanding(), " timers and flows"));
  }
  if (!timers_.stopped()) return absl::FailedPreconditionError(Deadlock());
  RunSummary summary;
  summary.times = record_.times();
  for (int replica = 0; replica < program_.replicas; ++replica) {
    summary.row_of_replica.push_back(replica);
    if (parts_.Runs(replica)) continue;
    summary.times[replica] = summary.times[parts_.StandInOf(replica)];
    ++summary.folded;
  }
  summary.iteration_end_s = iterations_.ends_s();
  summary.steady = iterations_.steady();
  summary.passes = program_.num_passes();
  summary.simulated_ops = record_.ops();
  summary.flows = timers_.flows();
  summary.timers = timers_.timers();
  summary.apart = parts_.stretches();
  AddBusyTimes(&summary);
  summary.bytes_sent = CountBytesSent(program_);
  return summary;
}

// What each rank of a class takes; where it may be longer it has been added up.
void EventRun::AddBusyTimes(RunSummary* summary) const {
  if (program_.jitter != nullptr || beside_ != nullptr || exchanges_.any()) {
    return;
  }
  std::vector<std::vector<double>> busy_s(program_.num_classes());
  for (int index = 0; index < program_.num_classes(); ++index) {
    for (int rank = 0; rank < program_.pp(); ++rank) {
      busy_s[index].push_back(program_.BusySeconds(rank, index));
    }
  }
  for (int replica = 0; replica < program_.replicas; ++replica) {
    for (int rank = 0; rank < program_.pp(); ++rank) {
      summary->times[replica][rank].busy_s =
          busy_s[program_.ClassOf(replica)][rank];
    }
  }
}

// What the rank of a device waits for beside the inputs of passes, a line each.
std::string EventRun::WaitingOf(int device) const {
  const ComputeStreams::Device& own = compute_[device];
  std::string waiting;
  for (int stream = 0; stream < kNumStreams; ++stream) {
    const auto of = static_cast<Stream>(stream);
    if (streams_.IsIdle(device, of)) continue;
    const int32_t side_op = streams_.Head(device, of).item.side_op;
    if (side_op < 0) continue;
    absl::StrAppend(&waiting, "\nrank ", own.rank, " waits for ",
                    OpKindName(own.program().side_ops[side_op].kind));
  }
  const HeldTransfers* const held = compute_.held();
  if (held != nullptr && held->Holds(device)) {
    const Handshake& posted = held->LastOf(device);
    absl::StrAppend(&waiting, "\nrank ", own.rank, " is held by the ",
                    posted.send ? "send" : "receive", " of ",
                    PassToString(*own.own->schedule, posted.pass));
  }
  return waiting;
}

std::string EventRun::Deadlock() const {
  // Show a replica that has not ended.
  int first = 0;
  while (first + 1 < compute_.size() && compute_[first].ended) ++first;
  first -= first % program_.pp();
  std::vector<int64_t> positions;
  std::string waiting;
  for (int rank = 0; rank < program_.pp(); ++rank) {
    const ComputeStreams::Device& device = compute_[first + rank];
    positions.push_back(
        device.ended ? static_cast<int64_t>(device.program().order->size())
                     : device.position);
    absl::StrAppend(&waiting, WaitingOf(first + rank));
  }
  return absl::StrCat("deadlock in iteration ", iterations_.ends_s().size(),
                      " (", WaitRuleName(program_.wait_rule), " transfers):\n",
                      BlockedGrid(program_, positions,
                                  program_.ClassOf(compute_[first].replica)),
                      waiting,
                      compute_.held() != nullptr
                          ? "\n(buffered transfers block no rank and may "
                            "run where these wait for each other)"
                          : "");
}

}  // namespace pipewright
