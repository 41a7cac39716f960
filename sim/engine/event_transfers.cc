// Bytes on their way, between passes, streams and the members of a ring.
#include <algorithm>
#include <limits>
#include <utility>

#include "sim/engine/event_run.h"

namespace pipewright {

// From the end of the producing operation. Where nobody can be met the token
// carries its arrival and the consumer's own timer does the waiting.
void EventRun::Send(int index, int32_t number, Pass pass, double now_s) {
  const Device& device = devices_[index];
  const Channel& channel = device.own->channels[number];
  const size_t slot = SlotOf(device.replica, number);
  const int source = channel_source_[slot];
  const bool of_passes = channel.kind <= ChannelKind::kGradient;
  const uint64_t key = of_passes ? KeyOf(device, pass) : pass.key();
  if (channel.from_rank != channel.to_rank) ++summary_.simulated_ops;
  // What takes time runs beside the passes of both ends.
  const bool runs = beside_ != nullptr &&
                    channel.from_rank != channel.to_rank &&
                    channel_s_[slot] > 0;
  if (!runs && (!Shared(source) || channel.bytes == 0)) {
    const double arrival_s = now_s + channel_s_[slot];
    if (of_passes && writer_.active()) {
      writer_.replica = device.replica;
      writer_.iteration = device.iteration;
      writer_.OnTransfer(number, pass, now_s, arrival_s);
    }
    return Deliver(device.replica, number, key, arrival_s);
  }
  Begin({.of = Transfer::Of::kChannel,
         .index = number,
         .replica = device.replica,
         .source = source,
         .iteration = device.iteration,
         .pass = pass,
         .key = key,
         .bytes = channel.bytes,
         .start_s = now_s,
         .latency_s = source < 0 ? 0 : plans_[source].latency_s,
         .alone_s = channel_s_[slot]});
}

void EventRun::Deliver(int replica, int32_t number, uint64_t key,
                       double arrival_s) {
  const Channel& channel = ChannelOf(replica, number);
  Tokens(replica, number).Push(arrival_s, key);
  const int consumer = DeviceOf(replica, channel.to_rank);
  if (channel.kind <= ChannelKind::kGradient) {
    Device& device = devices_[consumer];
    if (device.busy || device.looked) return;
    device.looked = true;
    to_continue_.push_back(consumer);
  } else {
    Wake(consumer);
  }
}

void EventRun::PostHolds(int index) {
  Device& device = devices_[index];
  if (device.holds.empty() || device.awaited > 0) return;
  const std::vector<Handshake> step = std::move(device.holds.front());
  device.holds.erase(device.holds.begin());
  for (const Handshake& handshake : step) {
    ++device.awaited;
    device.posted = handshake;
    Post(index, handshake);
  }
}

void EventRun::Post(int index, const Handshake& handshake) {
  const Device& device = devices_[index];
  const size_t slot = SlotOf(device.replica, handshake.channel);
  MeetingPoint& point = points_[slot];
  const uint64_t key = KeyOf(device, handshake.pass);
  TokenQueue& others = handshake.send ? point.receives : point.sends;
  double other_s = 0;
  if (!others.Pop(key, &other_s)) {
    (handshake.send ? point.sends : point.receives).Push(device.clock_s, key);
    return;
  }
  const Channel& channel = device.own->channels[handshake.channel];
  const int source = channel_source_[slot];
  Begin({.of = Transfer::Of::kChannel,
         .index = handshake.channel,
         .replica = device.replica,
         .source = source,
         .iteration = device.iteration,
         .pass = TransferName(*device.own, handshake.channel, handshake.pass),
         .bytes = channel.bytes,
         .start_s = std::max(device.clock_s, other_s),
         .latency_s = source < 0 ? 0 : plans_[source].latency_s,
         .alone_s = channel_s_[slot]});
}

uint32_t EventRun::NewTransfer(Transfer transfer) {
  if (free_transfers_.empty()) {
    transfers_.push_back(transfer);
    return static_cast<uint32_t>(transfers_.size()) - 1;
  }
  const uint32_t number = free_transfers_.back();
  free_transfers_.pop_back();
  transfer.version = transfers_[number].version;
  transfers_[number] = transfer;
  return number;
}

void EventRun::Begin(const Transfer& transfer) {
  const uint32_t number = NewTransfer(transfer);
  const bool timed = !Shared(transfer.source) || transfer.bytes == 0;
  // A ring runs beside passes as its meeting.
  if (beside_ != nullptr && transfer.of != Transfer::Of::kRing &&
      transfer.beside != Transfer::Beside::kNone && transfer.alone_s > 0) {
    StartAt(transfer.start_s, Beside::Of::kTransfer, number);
    if (timed) return;
  }
  if (timed) {
    At(transfer.start_s + transfer.alone_s, Event::kTransferEnd, number);
  } else {
    if (program_.network.paths != nullptr) AsMeasured(number);
    At(transfer.start_s + transfers_[number].latency_s, Event::kLatencyEnd,
       number);
  }
}

// What a transfer was measured to take beyond the bytes on its links is
// latency; one that is faster than its links has fewer bytes on them.
void EventRun::AsMeasured(uint32_t number) {
  Transfer& transfer = transfers_[number];
  const bool was_measured =
      transfer.of == Transfer::Of::kChannel ||
      (transfer.of == Transfer::Of::kStream && !transfer.of_peers);
  if (!was_measured || transfer.alone_s <= 0) return;
  const double rate = plans_[transfer.source].bytes_per_s;
  transfer.latency_s = std::max(0.0, transfer.alone_s - transfer.bytes / rate);
  transfer.bytes = (transfer.alone_s - transfer.latency_s) * rate;
}

// The latency is over: from here on the links are shared.
void EventRun::Share(uint32_t number, double now_s) {
  const Transfer& transfer = transfers_[number];
  if (plans_[transfer.source].sharing == Sharing::kQueue) {
    const int queue = queue_of_source_[transfer.source];
    sharing_queues_[queue].Start(now_s, transfer.bytes, number,
                                 plans_[transfer.source].flows);
    return SetQueueTimer(queue);
  }
  const bool pooled = plans_[transfer.source].pool >= 0;
  if (time_lone_transfers_ && !pooled && StartAlone(number, now_s)) return;
  ++summary_.flows;
  ++outstanding_;
  transport_->StartFlow(transfer.source, transfer.bytes, now_s, number);
}

// Puts the transfer on its links. Those that were alone there become flows
// for what is left of them. True when it is alone itself: then a timer does.
bool EventRun::StartAlone(uint32_t number, double now_s) {
  Transfer& transfer = transfers_[number];
  bool alone = true;
  for (const LinkLoad& load : plans_[transfer.source].shared) {
    LinkUse& use = link_use_[load.link];
    alone &= use.transfers == 0;
    if (use.transfers == 1 && use.last != LinkUse::kNobody) {
      Transfer& other = transfers_[use.last];
      // One that is just ending needs no share any more.
      if (other.lone && other.lone_end_s > now_s) {
        other.lone = false;
        ++summary_.flows;
        ++outstanding_;
        transport_->StartFlow(
            other.source,
            (other.lone_end_s - now_s) * plans_[other.source].bytes_per_s,
            now_s, use.last);
      }
    }
    ++use.transfers;
    use.last = number;
  }
  if (!alone) return false;
  transfer.lone = true;
  ++transfer.version;
  transfer.lone_end_s =
      now_s + transfer.bytes / plans_[transfer.source].bytes_per_s;
  At(transfer.lone_end_s, Event::kLoneEnd, number, transfer.version);
  return true;
}

// Who stays there has not been alone, and the number will be another's.
void EventRun::LeaveLinks(uint32_t number, const Transfer& transfer) {
  if (!time_lone_transfers_ || transfer.source < 0 || transfer.bytes == 0 ||
      plans_[transfer.source].sharing != Sharing::kFlow ||
      plans_[transfer.source].pool >= 0) {
    return;
  }
  for (const LinkLoad& load : plans_[transfer.source].shared) {
    LinkUse& use = link_use_[load.link];
    --use.transfers;
    if (use.last == number) use.last = LinkUse::kNobody;
  }
}

// A timer that comes too early stays: it sets the next one. Transfers that
// start together so need one.
void EventRun::SetQueueTimer(int number) {
  const SharingQueue& queue = sharing_queues_[number];
  QueueTimer& timer = queue_timers_[number];
  if (queue.empty()) return;
  const double end_s = queue.NextEnd();
  if (timer.date_s <= end_s) return;
  timer.date_s = end_s;
  At(end_s, Event::kQueueEnd, static_cast<uint32_t>(number), ++timer.version);
}

void EventRun::OnQueueTimer(int number, uint32_t version) {
  QueueTimer& timer = queue_timers_[number];
  if ((timer.version & kVersionMask) != version) return;
  SharingQueue& queue = sharing_queues_[number];
  const double now_s = timer.date_s;
  timer.date_s = std::numeric_limits<double>::infinity();
  if (!queue.empty() && queue.NextEnd() <= now_s) {
    const uint32_t transfer = queue.Finish(now_s);
    SetQueueTimer(number);
    return EndTransfer(transfer, now_s);
  }
  SetQueueTimer(number);
}

void EventRun::EndTransfer(uint32_t number, double end_s) {
  if (beside_ != nullptr) LeaveBeside(&transfers_[number].item, end_s);
  const Transfer transfer = transfers_[number];
  LeaveLinks(number, transfer);
  free_transfers_.push_back(number);
  EndTurn(transfer, end_s);
  switch (transfer.of) {
    case Transfer::Of::kStream:
      if (transfer.of_peers) {
        return EndPeerTransfer(transfer.index, transfer.stream, end_s);
      }
      return EndStreamOp(transfer.index, transfer.stream, transfer.start_s,
                         end_s, transfer.side_op);
    case Transfer::Of::kRing: {
      Meeting& meeting = meetings_[transfer.index];
      if (meeting.in_phases != nullptr &&
          ++meeting.phase < meeting.in_phases->phases.size()) {
        return BeginPhase(transfer.index, end_s);
      }
      meeting.end_s = end_s;
      return EndMeeting(transfer.index);
    }
    case Transfer::Of::kExchange:
      return EndExchange(transfer.index, end_s);
    case Transfer::Of::kChannel:
      break;
  }
  const Channel& channel = ChannelOf(transfer.replica, transfer.index);
  const bool of_passes = channel.kind <= ChannelKind::kGradient;
  if (of_passes && writer_.active()) {
    writer_.replica = transfer.replica;
    writer_.iteration = transfer.iteration;
    writer_.OnTransfer(transfer.index, transfer.pass, transfer.start_s, end_s);
  }
  if (!of_passes || !holds_) {
    return Deliver(transfer.replica, transfer.index, transfer.key, end_s);
  }
  ++summary_.simulated_ops;
  NoteEnd(transfer.iteration, end_s);
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

}  // namespace pipewright
