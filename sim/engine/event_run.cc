#include "sim/engine/event_run.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/check.h"
#include "sim/engine/isolated_times.h"

namespace pipewright {

void EventRun::IterationBuffer::OnOp(const TraceOp& op) {
  if (ops_.size() <= static_cast<size_t>(op.iteration)) {
    ops_.resize(op.iteration + 1);
  }
  ops_[op.iteration].push_back(op);
}

void EventRun::IterationBuffer::Flush(int iteration) {
  if (ops_.size() <= static_cast<size_t>(iteration)) return;
  for (const TraceOp& op : ops_[iteration]) sink_->OnOp(op);
  std::vector<TraceOp>().swap(ops_[iteration]);
}

EventRun::EventRun(const Program& program, const EngineOptions& options,
                   int spread_peers)
    : program_(program),
      buffer_(options.trace),
      writer_(program, options.trace == nullptr ? nullptr : &buffer_),
      holds_(program.wait_rule != WaitRule::kBuffered),
      time_lone_transfers_(options.time_lone_transfers),
      share_links_(options.share_links),
      run_ahead_(options.run_ahead && !holds_ && !program.copies_in_turn &&
                 program.interference == nullptr),
      progress_(options.progress) {
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
  summary_.times.assign(program.replicas, std::vector<RankTimes>(program.pp()));
  for (int replica = 0; replica < program.replicas; ++replica) {
    summary_.row_of_replica.push_back(replica);
  }
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
  const std::vector<int> replicas = program.ReplicasOfClasses();
  for (int index = 0; index < program.num_classes(); ++index) {
    all_ops_ += static_cast<double>(program.dp_class(index).num_ops()) *
                replicas[index] * program.iterations;
  }
  PlanTraffic();
  if (program.interference != nullptr) PlanBeside();
  const bool shares = std::any_of(
      plans_.begin(), plans_.end(),
      [](const SourcePlan& plan) { return plan.sharing != Sharing::kNone; });
  // On shared links the end of an iteration meets the start of the next. So
  // that the last one counted is like those before it, one more is begun.
  issued_iterations_ =
      program.iterations + (shares && program.iterations > 1 ? 1 : 0);
  left_.assign(issued_iterations_, static_cast<int64_t>(devices));
  end_s_.assign(issued_iterations_, 0);
  first_end_s_.assign(issued_iterations_,
                      std::numeric_limits<double>::infinity());
  PlanParts(options);
  // Bytes on shared links would be state that the ends do not show.
  if (program.until_steady && !shares && beside_ == nullptr &&
      EndsDecide(program)) {
    ends_s_.assign(program.iterations, std::vector<double>(devices));
  }
}

void EventRun::At(double date_s, Event event, uint64_t index,
                  uint32_t version) {
  ++summary_.timers;
  ++outstanding_;
  transport_->At(date_s, static_cast<uint64_t>(event) << kEventShift |
                             (version & kVersionMask) << 32 | index);
}

void EventRun::Launch(EventTransport* transport) {
  transport_ = transport;
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
  const auto index = static_cast<uint32_t>(code);
  switch (static_cast<Event>(code >> kEventShift)) {
    case Event::kComputeEnd:
    case Event::kExchange:
      return fetch(devices_[index]);
    case Event::kLatencyEnd:
    case Event::kTransferEnd:
    case Event::kLoneEnd:
      return fetch(transfers_[index]);
    case Event::kQueueEnd:
      return fetch(sharing_queues_[index]);
    default:
      return;
  }
}

void EventRun::OnTimer(uint64_t code) {
  --outstanding_;
  if (stopped_) return;
  if (progress_ != nullptr) Tell();
  Happen(code);
  ContinueAll();
}

void EventRun::Tell() {
  constexpr int64_t kEvery = 4096;
  if (++events_ % kEvery != 0) return;
  // One more iteration may be under way than is asked for.
  progress_->At(
      std::min(0.999, static_cast<double>(summary_.simulated_ops) / all_ops_));
}

void EventRun::Happen(uint64_t code) {
  const auto event = static_cast<Event>(code >> kEventShift);
  const auto index = static_cast<uint32_t>(code);
  switch (event) {
    case Event::kComputeEnd:
      EndBlock(static_cast<int>(index));
      return Continue(static_cast<int>(index));
    case Event::kStreamEnd: {
      const int device = static_cast<int>(index / kNumStreams);
      const auto stream = static_cast<Stream>(index % kNumStreams);
      const Issued& head =
          devices_[device].queues[static_cast<int>(stream)].front();
      return EndStreamOp(device, stream, head.ready_s, head.end_s);
    }
    case Event::kLatencyEnd: {
      const Transfer& transfer = transfers_[index];
      return Share(index, transfer.start_s + transfer.latency_s);
    }
    case Event::kTransferEnd: {
      const Transfer& transfer = transfers_[index];
      return EndTransfer(index, transfer.start_s + transfer.alone_s);
    }
    case Event::kMeetingEnd:
      return EndMeeting(static_cast<int>(index));
    case Event::kQueueEnd:
      return OnQueueTimer(static_cast<int>(index), VersionOf(code));
    case Event::kLoneEnd: {
      const Transfer& transfer = transfers_[index];
      if (!transfer.lone ||
          (transfer.version & kVersionMask) != VersionOf(code)) {
        return;  // it has become a flow
      }
      return EndTransfer(index, transfer.lone_end_s);
    }
    case Event::kBesideStart:
      return StartBeside(static_cast<Beside::Of>(VersionOf(code)), index);
    case Event::kBesideEnd:
      return EndBeside(index, VersionOf(code));
    case Event::kExchange:
      return StartExchange(static_cast<int>(index));
  }
}

void EventRun::OnFlowEnd(uint32_t transfer, double now_s) {
  --outstanding_;
  if (stopped_) return;
  if (progress_ != nullptr) Tell();
  EndTransfer(transfer, now_s);
  ContinueAll();
}

void EventRun::NoteEnd(int iteration, double end_s) {
  end_s_[iteration] = std::max(end_s_[iteration], end_s);
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
  first_end_s_[iteration] = std::min(first_end_s_[iteration], device.clock_s);
  if (!ends_s_.empty()) ends_s_[iteration][index] = device.clock_s;
  device.ended = device.iteration == issued_iterations_;
  if (!device.ended) {
    BeginStart(index, program_.StartsOf(device.iteration).front());
  }
  Done(iteration);
}

// Everybody ended this iteration and the one before at one date, when nothing
// was under way: this one began as the next does, and so it is the same. Ends
// need not show it, since with thousands of sources that share links rounding
// decides who comes first.
bool EventRun::BeginsAnew(int iteration) const {
  if (pools_.empty() || program_.jitter != nullptr || beside_ != nullptr ||
      iteration <= program_.settled()) {
    return false;
  }
  for (const int each : {iteration - 1, iteration}) {
    if (first_end_s_[each] != summary_.iteration_end_s[each]) return false;
  }
  return true;
}

// One device or operation less; the last one ends the iteration.
void EventRun::Done(int iteration) {
  if (--left_[iteration] > 0) return;
  PW_CHECK(iteration == summary_.iterations());
  summary_.iteration_end_s.push_back(
      std::max(end_s_[iteration],
               iteration == 0 ? 0.0 : summary_.iteration_end_s.back()));
  buffer_.Flush(iteration);
  summary_.steady = IsSteady(program_, summary_.iteration_end_s) ||
                    (iteration > program_.settled() && !ends_s_.empty() &&
                     EndAlike(ends_s_[iteration - 1], ends_s_[iteration])) ||
                    BeginsAnew(iteration);
  if (summary_.iterations() == program_.iterations ||
      (program_.until_steady && summary_.steady)) {
    stopped_ = true;
    transport_->Stop();
  }
}

absl::StatusOr<RunSummary> EventRun::Finish() {
  if (progress_ != nullptr) progress_->At(1);
  if (!stopped_ && outstanding_ > 0) {
    return absl::InternalError(
        absl::StrCat("the engine lost ", outstanding_, " timers and flows"));
  }
  if (!stopped_) return absl::FailedPreconditionError(Deadlock());
  summary_.passes = program_.num_passes();
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
      summary_.times[replica][rank].busy_s =
          busy_s[program_.ClassOf(replica)][rank];
    }
  }
  summary_.bytes_sent = CountBytesSent(program_);
  return summary_;
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
  return absl::StrCat("deadlock in iteration ", summary_.iterations(), " (",
                      WaitRuleName(program_.wait_rule), " transfers):\n",
                      BlockedGrid(program_, positions,
                                  program_.ClassOf(devices_[first].replica)),
                      waiting,
                      holds_ ? "\n(buffered transfers block no rank and may "
                               "run where these wait for each other)"
                             : "");
}

}  // namespace pipewright
