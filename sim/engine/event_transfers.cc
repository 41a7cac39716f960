#include "sim/engine/event_transfers.h"

#include <algorithm>
#include <utility>

#include "sim/engine/event_beside.h"
#include "sim/program/network_time.h"

namespace pipewright {

SharedTransfers::SharedTransfers(const TrafficSources& sources,
                                 const Network& network, bool time_lone,
                                 EventTimers* timers)
    : sources_(sources), timers_(*timers), time_lone_(time_lone) {
  if (network.cluster == nullptr) return;
  const std::vector<Link>& links = network.cluster->links();
  link_use_.resize(links.size());
  // Nobody is ever alone where something is spread or meets what is.
  for (const SpreadPool& pool : sources.pools()) {
    for (const SpreadLoad& load : pool.loads)
      link_use_[load.link].transfers = 2;
  }
  for (const TrafficSource& source : sources.all()) {
    if (source.pool < 0) continue;
    for (const LinkLoad& load : source.flows.loads) {
      link_use_[load.link].transfers = 2;
    }
  }
  queue_of_source_.assign(sources.plans().size(), -1);
  if (sources.as_activities()) return;
  std::vector<int> queue_of_link(links.size(), -1);
  for (size_t source = 0; source < queue_of_source_.size(); ++source) {
    const SourcePlan& plan = sources.plans()[source];
    if (plan.sharing != Sharing::kQueue) continue;
    int& queue = queue_of_link[plan.link];
    if (queue < 0) {
      queue = num_queues();
      queues_.emplace_back(links[plan.link].bytes_per_s);
    }
    queue_of_source_[source] = queue;
  }
  queue_timers_.resize(queues_.size());
}

void SharedTransfers::Start(uint32_t transfer, int source, double bytes,
                            double now_s) {
  const SourcePlan& plan = sources_.plan(source);
  const int queue = queue_of_source_[source];
  if (queue >= 0) {
    queues_[queue].Start(now_s, bytes, transfer, plan.flows);
    return SetQueueTimer(queue);
  }
  if (time_lone_ && plan.pool < 0 &&
      StartAlone(transfer, source, bytes, now_s)) {
    return;
  }
  timers_.StartFlow(source, bytes, now_s, transfer);
}

// Puts the transfer on its links. Those that were alone there become flows
// for what is left of them. True when it is alone itself: then a timer does.
bool SharedTransfers::StartAlone(uint32_t transfer, int source, double bytes,
                                 double now_s) {
  if (lone_.size() <= transfer) lone_.resize(transfer + 1);
  Lone& own = lone_[transfer];
  own.is_lone = false;
  bool alone = true;
  for (const LinkLoad& load : sources_.plan(source).shared) {
    LinkUse& use = link_use_[load.link];
    alone &= use.transfers == 0;
    if (use.transfers == 1 && use.last != LinkUse::kNobody) {
      Lone& other = lone_[use.last];
      // One that is just ending needs no share any more.
      if (other.is_lone && other.end_s > now_s) {
        other.is_lone = false;
        const double left =
            (other.end_s - now_s) * sources_.plan(other.source).bytes_per_s;
        timers_.StartFlow(other.source, left, now_s, use.last);
      }
    }
    ++use.transfers;
    use.last = transfer;
  }
  if (!alone) return false;
  own.is_lone = true;
  own.source = source;
  ++own.version;
  own.end_s = now_s + bytes / sources_.plan(source).bytes_per_s;
  timers_.At(own.end_s, EventKind::kLoneEnd, transfer, own.version);
  return true;
}

// Who stays there has not been alone, and the number will be another's.
void SharedTransfers::Leave(uint32_t transfer, int source, double bytes) {
  if (!time_lone_ || source < 0 || bytes == 0) return;
  const SourcePlan& plan = sources_.plan(source);
  if (plan.sharing != Sharing::kFlow || plan.pool >= 0) return;
  for (const LinkLoad& load : plan.shared) {
    LinkUse& use = link_use_[load.link];
    --use.transfers;
    if (use.last == transfer) use.last = LinkUse::kNobody;
  }
}

std::optional<double> SharedTransfers::LoneEnd(uint32_t transfer,
                                               uint32_t version) const {
  const Lone& lone = lone_[transfer];
  if (!lone.is_lone || !EventTimers::IsVersion(lone.version, version)) {
    return std::nullopt;
  }
  return lone.end_s;
}

// A timer that comes too early stays: it sets the next one. Transfers that
// start together so need one.
void SharedTransfers::SetQueueTimer(int number) {
  const SharingQueue& queue = queues_[number];
  QueueTimer& timer = queue_timers_[number];
  if (queue.empty()) return;
  const double end_s = queue.NextEnd();
  if (timer.date_s <= end_s) return;
  timer.date_s = end_s;
  timers_.At(end_s, EventKind::kQueueEnd, static_cast<uint32_t>(number),
             ++timer.version);
}

std::optional<uint32_t> SharedTransfers::TakeEnded(int number, uint32_t version,
                                                   double* now_s) {
  QueueTimer& timer = queue_timers_[number];
  if (!EventTimers::IsVersion(timer.version, version)) return std::nullopt;
  SharingQueue& queue = queues_[number];
  *now_s = timer.date_s;
  timer.date_s = std::numeric_limits<double>::infinity();
  std::optional<uint32_t> ended;
  if (!queue.empty() && queue.NextEnd() <= *now_s) ended = queue.Finish(*now_s);
  SetQueueTimer(number);
  return ended;
}

EventTransfers::EventTransfers(const Program& program,
                               const TrafficSources& sources, bool time_lone,
                               EventChannels* channels, EventRecord* record,
                               EventTimers* timers)
    : program_(program),
      sources_(sources),
      channels_(*channels),
      record_(*record),
      timers_(*timers),
      sharing_(sources, program.network, time_lone, timers) {}

EventTransfer EventTransfers::OverChannel(const Sender& from, int32_t number,
                                          Pass pass, double start_s) const {
  const size_t slot = channels_.SlotOf(from.replica, number);
  const int source = channels_.SourceOf(slot);
  return {.of = EventTransfer::Of::kChannel,
          .index = number,
          .replica = from.replica,
          .source = source,
          .iteration = from.iteration,
          .pass = pass,
          .bytes = channels_.At(from.replica, number).bytes,
          .start_s = start_s,
          .latency_s = source < 0 ? 0 : sources_.plan(source).latency_s,
          .alone_s = channels_.SecondsOf(slot)};
}

bool EventTransfers::Send(const Sender& from, int32_t number, Pass pass,
                          double now_s) {
  const Channel& channel = channels_.At(from.replica, number);
  const size_t slot = channels_.SlotOf(from.replica, number);
  const double alone_s = channels_.SecondsOf(slot);
  const bool of_passes = channel.kind <= ChannelKind::kGradient;
  const uint64_t key =
      of_passes ? EventChannels::KeyOf(pass, from.false_start) : pass.key();
  const bool moves = channel.from_rank != channel.to_rank;
  if (moves) record_.AddOps(1);
  // What takes time runs beside the passes of both ends.
  const bool runs =
      moves && (sources_.as_activities() ||
                (program_.interference != nullptr && alone_s > 0));
  if (!runs &&
      (!sources_.Moves(channels_.SourceOf(slot)) || channel.bytes == 0)) {
    const double arrival_s = now_s + alone_s;
    TraceWriter* const trace =
        of_passes ? record_.Trace(from.replica, from.iteration) : nullptr;
    if (trace != nullptr) trace->OnTransfer(number, pass, now_s, arrival_s);
    channels_.Tokens(from.replica, number).Push(arrival_s, key);
    return true;
  }
  EventTransfer transfer = OverChannel(from, number, pass, now_s);
  transfer.key = key;
  Begin(transfer);
  return false;
}

void EventTransfers::BeginHeld(const Sender& from, int32_t channel, Pass pass,
                               double start_s) {
  Begin(OverChannel(from, channel, pass, start_s));
}

uint32_t EventTransfers::Add(const EventTransfer& transfer) {
  if (free_.empty()) {
    transfers_.push_back(transfer);
    return static_cast<uint32_t>(transfers_.size()) - 1;
  }
  const uint32_t number = free_.back();
  free_.pop_back();
  transfers_[number] = transfer;
  return number;
}

void EventTransfers::Begin(const EventTransfer& transfer) {
  const uint32_t number = Add(transfer);
  const bool timed = IsTimed(transfer);
  // A ring runs beside passes as its meeting.
  if (program_.interference != nullptr && transfer.beside.has_value() &&
      transfer.of != EventTransfer::Of::kMeeting && transfer.alone_s > 0) {
    timers_.At(transfer.start_s, EventKind::kBesideStart, number,
               static_cast<uint32_t>(BesideEvents::Of::kTransfer));
    if (timed) return;
  }
  if (timed) {
    timers_.At(transfer.start_s + transfer.alone_s, EventKind::kTransferEnd,
               number);
  } else {
    if (program_.network.paths != nullptr) AsMeasured(number);
    timers_.At(transfer.start_s + transfers_[number].latency_s,
               EventKind::kLatencyEnd, number);
  }
}

// What a transfer was measured to take beyond the bytes on its links is
// latency; one that is faster than its links has fewer bytes on them.
void EventTransfers::AsMeasured(uint32_t number) {
  EventTransfer& transfer = transfers_[number];
  const bool was_measured = transfer.of == EventTransfer::Of::kChannel ||
                            transfer.of == EventTransfer::Of::kCopy ||
                            transfer.of == EventTransfer::Of::kStreamOp;
  if (!was_measured || transfer.alone_s <= 0) return;
  const double rate = sources_.plan(transfer.source).bytes_per_s;
  transfer.latency_s = std::max(0.0, transfer.alone_s - transfer.bytes / rate);
  transfer.bytes = (transfer.alone_s - transfer.latency_s) * rate;
}

void EventTransfers::BeginSharing(const EventTransfer& transfer) {
  sharing_.Start(Add(transfer), transfer.source, transfer.bytes,
                 transfer.start_s);
}

// From here on the links are shared.
void EventTransfers::EndLatency(uint32_t number) {
  const EventTransfer& transfer = transfers_[number];
  sharing_.Start(number, transfer.source, transfer.bytes,
                 transfer.start_s + transfer.latency_s);
}

EventTransfer EventTransfers::End(uint32_t number) {
  const EventTransfer& ended = transfers_[number];
  sharing_.Leave(number, ended.source, ended.bytes);
  free_.push_back(number);
  return ended;
}

void EventTransfers::Tell(const EventTransfer& transfer, double end_s) {
  TraceWriter* const trace =
      record_.Trace(transfer.replica, transfer.iteration);
  if (trace == nullptr) return;
  trace->OnTransfer(transfer.index, transfer.pass, transfer.start_s, end_s);
}

CopyTurns::CopyTurns(const Program& program, bool share_links)
    : program_(program), in_turn_(program.copies_in_turn && share_links) {
  if (program.network.cluster == nullptr) return;
  if (in_turn_) taken_.resize(program.network.cluster->links().size());
}

const std::vector<LinkId>& CopyTurns::SwitchesOf(const EventTransfer& copy) {
  const auto [found, inserted] =
      switches_.try_emplace(copy.source, std::vector<LinkId>());
  if (inserted) {
    found->second =
        SwitchLinks(program_.network, copy.index / program_.pp(),
                    copy.index % program_.pp(), copy.stream == Stream::kD2H);
  }
  return found->second;
}

bool CopyTurns::Take(const EventTransfer& copy) {
  if (!TakesTurn(copy)) return true;
  const std::vector<LinkId>& switches = SwitchesOf(copy);
  const auto meets = [&](const EventTransfer& other) {
    const std::vector<LinkId>& others = SwitchesOf(other);
    return std::find_first_of(others.begin(), others.end(), switches.begin(),
                              switches.end()) != others.end();
  };
  if (std::any_of(switches.begin(), switches.end(),
                  [&](LinkId link) { return taken_[link]; }) ||
      std::any_of(waiting_.begin(), waiting_.end(), meets)) {
    waiting_.push_back(copy);
    return false;
  }
  for (const LinkId link : switches) taken_[link] = true;
  return true;
}

std::vector<EventTransfer> CopyTurns::End(const EventTransfer& copy,
                                          double now_s) {
  std::vector<EventTransfer> begin;
  if (!TakesTurn(copy)) return begin;
  for (const LinkId link : SwitchesOf(copy)) taken_[link] = false;
  for (EventTransfer& next : std::exchange(waiting_, {})) {
    next.start_s = std::max(next.start_s, now_s);
    if (Take(next)) begin.push_back(next);
  }
  return begin;
}

}  // namespace pipewright
