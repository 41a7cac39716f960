#include "sim/engine/event_run.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/check.h"
#include "sim/engine/isolated_times.h"

namespace pipewright {

EventRun::EventRun(const Program& program, const EngineOptions& options,
                   int spread_peers)
    : program_(program),
      record_(program, options.trace, options.progress),
      holds_(program.wait_rule != WaitRule::kBuffered),
      time_lone_transfers_(options.time_lone_transfers),
      share_links_(options.share_links),
      run_ahead_(options.run_ahead && !holds_ && !program.copies_in_turn &&
                 program.interference == nullptr) {
  if (program.network.cluster != nullptr && share_links_ &&
      !options.native_flows) {
    spread_.emplace(*program.network.cluster, spread_peers);
  }
  const size_t devices = static_cast<size_t>(program.pp()) * program.replicas;
  devices_.reserve(devices);
  for (size_t device = 0; device < devices; ++device) {
    const auto rank = static_cast<int32_t>(device % program.pp());
    const auto replica = static_cast<int32_t>(device / program.pp());
    devices_.emplace_back(program.OfReplica(replica), replica, rank);
  }
  for (int index = 0; index < program.num_classes(); ++index) {
    most_channels_ =
        std::max(most_channels_, program.dp_class(index).channels.size());
  }
  tokens_.resize(most_channels_ * program.replicas);
  if (holds_) points_.resize(tokens_.size());
  for (size_t group = 0; group < program.groups.size(); ++group) {
    first_meeting_.push_back(static_cast<int>(meetings_.size()));
    const Group& meets = program.groups[group];
    const int instances = meets.Instances(program.replicas);
    for (int instance = 0; instance < instances; ++instance) {
      Meeting& meeting = meetings_.emplace_back();
      meeting.group = static_cast<int>(group);
      meeting.replica = meets.FirstOf(instance);
      meeting.expected = static_cast<int>(meets.ranks.size()) *
                         meets.ReplicasOf(program.replicas);
    }
  }
  PlanTraffic();
  if (program.interference != nullptr) PlanBeside();
  const bool shares = std::any_of(
      plans_.begin(), plans_.end(),
      [](const SourcePlan& plan) { return plan.sharing != Sharing::kNone; });
  iterations_.emplace(program, shares, !pools_.empty(), &record_, &timers_);
  PlanParts(options);
}

void EventRun::Launch(EventTransport* transport) {
  timers_.Attach(transport);
  for (size_t device = 0; device < devices_.size(); ++device) {
    BeginStart(static_cast<int>(device), program_.StartsOf(0).front());
  }
  for (size_t device = 0; device < devices_.size(); ++device) {
    Continue(static_cast<int>(device));
  }
  ContinueAll();
}

void EventRun::Expect(uint64_t code) const {
  const auto fetch = [](const auto& object) {
    constexpr size_t kLine = 64;
    const char* const begin = reinterpret_cast<const char*>(&object);
    for (size_t at = 0; at < sizeof(object); at += kLine) {
      __builtin_prefetch(begin + at);
    }
  };
  const auto index = EventTimers::IndexOf(code);
  switch (EventTimers::KindOf(code)) {
    case EventKind::kComputeEnd:
    case EventKind::kExchange:
      return fetch(devices_[index]);
    case EventKind::kLatencyEnd:
    case EventKind::kTransferEnd:
    case EventKind::kLoneEnd:
      return fetch(transfers_[index]);
    case EventKind::kQueueEnd:
      return fetch(sharing_queues_[index]);
    default:
      return;
  }
}

void EventRun::OnTimer(uint64_t code) {
  if (!timers_.Take()) return;
  record_.Tell();
  Happen(code);
  ContinueAll();
}

void EventRun::Happen(uint64_t code) {
  const auto event = EventTimers::KindOf(code);
  const auto index = EventTimers::IndexOf(code);
  switch (event) {
    case EventKind::kComputeEnd:
      EndBlock(static_cast<int>(index));
      return Continue(static_cast<int>(index));
    case EventKind::kStreamEnd: {
      const int device = static_cast<int>(index / kNumStreams);
      const auto stream = static_cast<Stream>(index % kNumStreams);
      const Issued& head =
          devices_[device].queues[static_cast<int>(stream)].front();
      return EndStreamOp(device, stream, head.ready_s, head.end_s);
    }
    case EventKind::kLatencyEnd: {
      const Transfer& transfer = transfers_[index];
      return Share(index, transfer.start_s + transfer.latency_s);
    }
    case EventKind::kTransferEnd: {
      const Transfer& transfer = transfers_[index];
      return EndTransfer(index, transfer.start_s + transfer.alone_s);
    }
    case EventKind::kMeetingEnd:
      return EndMeeting(static_cast<int>(index));
    case EventKind::kQueueEnd:
      return OnQueueTimer(static_cast<int>(index),
                          EventTimers::VersionOf(code));
    case EventKind::kLoneEnd: {
      const Transfer& transfer = transfers_[index];
      if (!transfer.lone ||
          !EventTimers::IsVersion(transfer.version,
                                  EventTimers::VersionOf(code))) {
        return;  // it has become a flow
      }
      return EndTransfer(index, transfer.lone_end_s);
    }
    case EventKind::kBesideStart:
      return StartBeside(static_cast<Beside::Of>(EventTimers::VersionOf(code)),
                         index);
    case EventKind::kBesideEnd:
      return EndBeside(index, EventTimers::VersionOf(code));
    case EventKind::kExchange:
      return StartExchange(static_cast<int>(index));
  }
}

void EventRun::OnFlowEnd(uint32_t transfer, double now_s) {
  if (!timers_.Take()) return;
  record_.Tell();
  EndTransfer(transfer, now_s);
  ContinueAll();
}

void EventRun::BeginStart(int index, const Start& start) {
  Device& device = devices_[index];
  device.sequence.Begin(start);
  device.position = device.sequence.begin();
  device.hook_ends.Begin();
}

// The compute stream has come to the end of a start.
void EventRun::EndStart(int index) {
  Device& device = devices_[index];
  const int iteration = device.iteration;
  if (device.sequence.start().is_false) {
    return BeginStart(index, program_.StartsOf(iteration).back());
  }
  ++device.iteration;
  iterations_->EndDevice(iteration, index, device.clock_s);
  device.ended = device.iteration == iterations_->issued();
  if (!device.ended) {
    BeginStart(index, program_.StartsOf(device.iteration).front());
  }
  iterations_->End(iteration);
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
  }
  summary.iteration_end_s = iterations_->ends_s();
  summary.steady = iterations_->steady();
  summary.passes = program_.num_passes();
  summary.simulated_ops = record_.ops();
  summary.flows = timers_.flows();
  summary.timers = timers_.timers();
  summary.apart = apart_;
  // What each rank of a class takes, [class][rank]; where it may be longer it
  // has been added up.
  const bool known =
      program_.jitter == nullptr && beside_ == nullptr && !exchanges_.any;
  std::vector<std::vector<double>> busy_s(program_.num_classes());
  for (int index = 0; index < program_.num_classes() && known; ++index) {
    for (int rank = 0; rank < program_.pp(); ++rank) {
      busy_s[index].push_back(program_.BusySeconds(rank, index));
    }
  }
  for (int replica = 0; replica < program_.replicas && known; ++replica) {
    for (int rank = 0; rank < program_.pp(); ++rank) {
      summary.times[replica][rank].busy_s =
          busy_s[program_.ClassOf(replica)][rank];
    }
  }
  summary.bytes_sent = CountBytesSent(program_);
  return summary;
}

std::string EventRun::Deadlock() const {
  // Show a replica that has not ended.
  size_t first = 0;
  while (first + 1 < devices_.size() && devices_[first].ended) ++first;
  first -= first % program_.pp();
  std::vector<int64_t> positions;
  std::string waiting;
  for (int rank = 0; rank < program_.pp(); ++rank) {
    const Device& device = devices_[first + rank];
    positions.push_back(
        device.ended ? static_cast<int64_t>(device.program().order->size())
                     : device.position);
    for (const Fifo<Issued>& queue : device.queues) {
      if (queue.empty() || queue.front().item.side_op < 0) continue;
      absl::StrAppend(
          &waiting, "\nrank ", rank, " waits for ",
          OpKindName(
              device.program().side_ops[queue.front().item.side_op].kind));
    }
    if (device.awaited > 0) {
      absl::StrAppend(&waiting, "\nrank ", rank, " is held by the ",
                      device.posted.send ? "send" : "receive", " of ",
                      PassToString(*device.own->schedule, device.posted.pass));
    }
  }
  return absl::StrCat("deadlock in iteration ", iterations_->ends_s().size(),
                      " (", WaitRuleName(program_.wait_rule), " transfers):\n",
                      BlockedGrid(program_, positions,
                                  program_.ClassOf(devices_[first].replica)),
                      waiting,
                      holds_ ? "\n(buffered transfers block no rank and may "
                               "run where these wait for each other)"
                             : "");
}

}  // namespace pipewright
