#include "sim/engine/event_run.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/check.h"
#include "sim/engine/activation_key.h"
#include "sim/engine/isolated_times.h"
#include "sim/schedule/verify.h"

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

EventRun::EventRun(const Program& program, const EngineOptions& options)
    : program_(program),
      buffer_(options.trace),
      writer_(program, options.trace == nullptr ? nullptr : &buffer_),
      holds_(program.wait_rule != WaitRule::kBuffered),
      time_lone_transfers_(options.time_lone_transfers),
      share_links_(options.share_links) {
  const size_t devices = static_cast<size_t>(program.pp()) * program.replicas;
  devices_.resize(devices);
  for (size_t device = 0; device < devices; ++device) {
    devices_[device].replica = static_cast<int>(device / program.pp());
    devices_[device].rank = static_cast<int>(device % program.pp());
  }
  tokens_.resize(program.channels.size() * program.replicas);
  if (holds_) points_.resize(tokens_.size());
  summary_.times.assign(program.replicas, std::vector<RankTimes>(program.pp()));
  for (int replica = 0; replica < program.replicas; ++replica) {
    summary_.row_of_replica.push_back(replica);
  }
  for (size_t group = 0; group < program.groups.size(); ++group) {
    first_meeting_.push_back(static_cast<int>(meetings_.size()));
    const bool inside = program.groups[group].span == Group::Span::kRanks;
    for (int replica = 0; replica < (inside ? program.replicas : 1);
         ++replica) {
      Meeting& meeting = meetings_.emplace_back();
      meeting.group = static_cast<int>(group);
      meeting.replica = replica;
      meeting.expected = static_cast<int>(program.groups[group].ranks.size()) *
                         (inside ? 1 : program.replicas);
    }
  }
  PlanTraffic();
  const bool shares = std::any_of(
      plans_.begin(), plans_.end(),
      [](const SourcePlan& plan) { return plan.sharing != Sharing::kNone; });
  // On shared links the end of an iteration meets the start of the next. So
  // that the last one counted is like those before it, one more is begun.
  issued_iterations_ =
      program.iterations + (shares && program.iterations > 1 ? 1 : 0);
  left_.assign(issued_iterations_, static_cast<int64_t>(devices));
  end_s_.assign(issued_iterations_, 0);
  // Bytes on shared links would be state that the ends do not show.
  if (program.until_steady && !shares && EndsDecide(program)) {
    ends_s_.assign(program.iterations, std::vector<double>(devices));
  }
}

void EventRun::At(double date_s, Event event, uint64_t index,
                  uint32_t version) {
  ++summary_.timers;
  ++outstanding_;
  transport_->At(date_s, static_cast<uint64_t>(event) << 61 |
                             (version & kVersionMask) << 32 | index);
}

void EventRun::Start(EventTransport* transport) {
  transport_ = transport;
  for (size_t device = 0; device < devices_.size(); ++device) {
    Continue(static_cast<int>(device));
  }
}

void EventRun::OnTimer(uint64_t code) {
  --outstanding_;
  if (stopped_) return;
  const auto event = static_cast<Event>(code >> 61);
  const auto index = static_cast<uint32_t>(code);
  switch (event) {
    case Event::kComputeEnd:
      return BlockEnd(static_cast<int>(index));
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
    case Event::kRingStart:
      return StartRing(static_cast<int>(index));
    case Event::kMeetingEnd:
      return EndMeeting(static_cast<int>(index));
    case Event::kQueueEnd: {
      SharingQueue& queue = sharing_queues_[index];
      if (queue.empty() ||
          (queue.version() & kVersionMask) != VersionOf(code)) {
        return;  // something has started since: a later timer stands
      }
      const double end_s = queue.NextEnd();
      const uint32_t transfer = queue.Finish(end_s);
      SetQueueTimer(static_cast<int>(index));
      return EndTransfer(transfer, end_s);
    }
    case Event::kLoneEnd: {
      const Transfer& transfer = transfers_[index];
      if (!transfer.lone ||
          (transfer.version & kVersionMask) != VersionOf(code)) {
        return;  // it has become a flow
      }
      return EndTransfer(index, transfer.lone_end_s);
    }
  }
}

void EventRun::OnFlowEnd(uint32_t transfer, double now_s) {
  --outstanding_;
  if (!stopped_) EndTransfer(transfer, now_s);
}

// Starts what can start on the compute stream of `index`.
void EventRun::Continue(int index) {
  Device& device = devices_[index];
  const RankProgram& rank = program_.ranks[device.rank];
  const auto size = static_cast<int64_t>(rank.order->size());
  while (!device.busy && !device.ended && device.awaited == 0 && !stopped_) {
    if (device.attachment < rank.attachments.size() &&
        rank.attachments[device.attachment].position == device.position) {
      if (!RunAttached(index)) return;
    } else if (device.position == size) {
      EndIteration(index);
    } else if (!RunBlock(index)) {
      return;
    }
  }
}

bool EventRun::RunAttached(int index) {
  Device& device = devices_[index];
  const RankProgram& rank = program_.ranks[device.rank];
  const int32_t side_op = rank.attachments[device.attachment].side_op;
  const SideOp& op = rank.side_ops[side_op];
  if (device.iteration < op.first_iteration) {
    ++device.attachment;
    return true;
  }
  const Issued issued = {.side_op = side_op,
                         .iteration = device.iteration,
                         .ready_s = device.clock_s};
  if (op.stream != Stream::kCompute) {
    ++device.attachment;
    Issue(index, op.stream, issued);
    return true;
  }
  if (device.queues[0].empty()) {
    Issue(index, op.stream, issued);
  } else {
    TryStream(index, op.stream);
  }
  return false;
}

// Takes the tokens of a block when all are there.
bool EventRun::TakeBlockInputs(Device& device, const Pass* block, int parts,
                               double* start_s) {
  const std::vector<Lane>& lanes = program_.ranks[device.rank].lanes;
  for (int part = 0; part < parts; ++part) {
    const Pass pass = block[part];
    const int32_t input = lanes[pass.lane()].input;
    if (!holds_ && input >= 0 &&
        !Tokens(device.replica, input).Contains(pass.key())) {
      return false;
    }
    if (IsBackward(pass.kind()) && !device.loading.empty() &&
        device.loading.contains(ActivationKey(pass)) &&
        !device.loaded_s.contains(ActivationKey(pass))) {
      return false;
    }
  }
  for (int part = 0; part < parts; ++part) {
    const Pass pass = block[part];
    const int32_t input = lanes[pass.lane()].input;
    double arrival_s = 0;
    if (!holds_ && input >= 0 &&
        Tokens(device.replica, input).Pop(pass.key(), &arrival_s)) {
      *start_s = std::max(*start_s, arrival_s);
    }
    if (!IsBackward(pass.kind()) || device.loading.empty()) continue;
    const auto loaded = device.loaded_s.find(ActivationKey(pass));
    if (loaded == device.loaded_s.end()) continue;
    *start_s = std::max(*start_s, loaded->second);
    device.loading.erase(loaded->first);
    device.loaded_s.erase(loaded);
  }
  return true;
}

// The pass, or the block (X&Y), at the position of the device. False when it
// has to wait or has been started.
bool EventRun::RunBlock(int index) {
  Device& device = devices_[index];
  const RankProgram& rank = program_.ranks[device.rank];
  const Pass* const block = rank.order->data() + device.position;
  if (!IsComputePass(block->kind())) {
    ++device.position;
    if (block->kind() == PassKind::kSync) return true;
    const bool out = block->kind() == PassKind::kOffload;
    if (!out) device.loading.insert(ActivationKey(*block));
    Issue(index, out ? Stream::kD2H : Stream::kH2D,
          {.pass = *block,
           .iteration = device.iteration,
           .ready_s = device.clock_s});
    return true;
  }
  const int parts = block->joint_with_next() ? 2 : 1;
  if (holds_ && !device.received) {
    device.received = true;
    PlanHolds(index, block, parts, /*send=*/false);
    PostHolds(index);
    return true;  // Continue asks whether it is held
  }
  double start_s = device.clock_s;
  if (!TakeBlockInputs(device, block, parts, &start_s)) return false;
  double seconds[2] = {};
  for (int part = 0; part < parts; ++part) {
    seconds[part] = program_.PassSeconds(device.iteration, device.replica,
                                         device.rank, block[part]) *
                    (parts == 2 ? program_.pair_factor : 1);
  }
  const double end_s = start_s + (seconds[0] + seconds[1]);
  device.busy = true;
  device.clock_s = end_s;
  if (device.iteration == 0) {
    RankTimes& times = summary_.times[device.replica][device.rank];
    if (!device.started) times.first_start_s = start_s;
    device.started = true;
    times.last_end_s = end_s;
    if (program_.jitter != nullptr) times.busy_s += seconds[0] + seconds[1];
  }
  if (writer_.active()) {
    writer_.replica = device.replica;
    writer_.iteration = device.iteration;
    const bool joint = parts == 2;
    const double middle_s = joint ? start_s + seconds[0] : end_s;
    writer_.OnPass(device.rank, device.position, block[0], start_s, middle_s,
                   joint);
    if (joint) {
      writer_.OnPass(device.rank, device.position + 1, block[1], middle_s,
                     end_s, true);
    }
  }
  At(end_s, Event::kComputeEnd, index);
  return false;
}

void EventRun::BlockEnd(int index) {
  Device& device = devices_[index];
  const RankProgram& rank = program_.ranks[device.rank];
  const Pass* const block = rank.order->data() + device.position;
  const int parts = block->joint_with_next() ? 2 : 1;
  device.busy = false;
  device.position += parts;
  device.received = false;
  NoteEnd(device.iteration, device.clock_s);
  summary_.simulated_ops += parts;
  if (holds_) {
    PlanHolds(index, block, parts, /*send=*/true);
    PostHolds(index);
  } else {
    for (int part = 0; part < parts; ++part) {
      const int32_t output = rank.lanes[block[part].lane()].output;
      if (output >= 0) Send(index, output, block[part], device.clock_s);
    }
  }
  Continue(index);
}

void EventRun::NoteEnd(int iteration, double end_s) {
  end_s_[iteration] = std::max(end_s_[iteration], end_s);
}

void EventRun::EndIteration(int index) {
  Device& device = devices_[index];
  const int iteration = device.iteration++;
  if (!ends_s_.empty()) ends_s_[iteration][index] = device.clock_s;
  device.position = 0;
  device.attachment = 0;
  device.ended = device.iteration == issued_iterations_;
  Done(iteration);
}

// One device or operation less; the last one ends the iteration.
void EventRun::Done(int iteration) {
  if (--left_[iteration] > 0) return;
  PW_CHECK(iteration == summary_.iterations());
  summary_.iteration_end_s.push_back(
      std::max(end_s_[iteration],
               iteration == 0 ? 0.0 : summary_.iteration_end_s.back()));
  buffer_.Flush(iteration);
  summary_.steady = IsSteady(summary_.iteration_end_s) ||
                    (iteration > 0 && !ends_s_.empty() &&
                     EndAlike(ends_s_[iteration - 1], ends_s_[iteration]));
  if (summary_.iterations() == program_.iterations ||
      (program_.until_steady && summary_.steady)) {
    stopped_ = true;
    transport_->Stop();
  }
}

absl::StatusOr<RunSummary> EventRun::Finish() {
  if (!stopped_ && outstanding_ > 0) {
    return absl::InternalError(
        absl::StrCat("the engine lost ", outstanding_, " timers and flows"));
  }
  if (!stopped_) return absl::FailedPreconditionError(Deadlock());
  summary_.passes = program_.num_passes();
  for (std::vector<RankTimes>& replica : summary_.times) {
    for (int rank = 0; rank < program_.pp() && program_.jitter == nullptr;
         ++rank) {
      replica[rank].busy_s = program_.BusySeconds(rank);
    }
  }
  summary_.bytes_sent = CountBytesSent(program_);
  return summary_;
}

std::string EventRun::Deadlock() const {
  // Every replica runs the same order: show one that has not ended.
  size_t first = 0;
  while (first + 1 < devices_.size() && devices_[first].ended) ++first;
  first -= first % program_.pp();
  std::vector<int64_t> positions;
  std::string waiting;
  for (int rank = 0; rank < program_.pp(); ++rank) {
    const Device& device = devices_[first + rank];
    positions.push_back(
        device.ended ? static_cast<int64_t>(program_.ranks[rank].order->size())
                     : device.position);
    for (const Fifo<Issued>& queue : device.queues) {
      if (queue.empty() || queue.front().side_op < 0) continue;
      absl::StrAppend(
          &waiting, "\nrank ", rank, " waits for ",
          OpKindName(
              program_.ranks[rank].side_ops[queue.front().side_op].kind));
    }
    if (device.awaited > 0) {
      absl::StrAppend(&waiting, "\nrank ", rank, " is held by the ",
                      device.posted.send ? "send" : "receive", " of ",
                      PassToString(*program_.schedule, device.posted.pass));
    }
  }
  return absl::StrCat("deadlock in iteration ", summary_.iterations(), " (",
                      WaitRuleName(program_.wait_rule), " transfers):\n",
                      BlockedGrid(*program_.schedule, positions), waiting,
                      holds_ ? "\n(buffered transfers hold nobody and may run "
                               "where these wait for each other)"
                             : "");
}

}  // namespace pipewright
