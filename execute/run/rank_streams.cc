// Streams beside compute: side operations and copies.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "execute/run/rank_run.h"
#include "sim/base/status.h"

namespace pipewright {

// The side operation that stands at the position: runs it on the compute
// stream, or issues it to another. False when compute has to wait.
absl::StatusOr<bool> RankRun::RunItem() {
  const SideSequence::Item& item = *sequence_.item();
  const Stream stream = rank().side_ops[item.side_op].stream;
  Issued issued = {
      .start = start_, .start_number = sequence_.number(), .item = item};
  if (stream != Stream::kCompute) {
    issued.ready_s = compute_s_;
    queues_[static_cast<int>(stream)].push_back(std::move(issued));
    ++pending_;
  } else {
    if (at_stop_.item.side_op < 0) at_stop_ = std::move(issued);
    PW_ASSIGN_OR_RETURN(const bool ran, TrySideOp(at_stop_, &compute_s_));
    if (!ran) return false;
  }
  at_stop_ = {};
  sequence_.Taken();
  return true;
}

absl::StatusOr<bool> RankRun::DrainStreams() {
  if (pending_ == 0) return false;
  bool progress = false;
  for (int stream = 0; stream < kNumStreams; ++stream) {
    if (!RunsInOrder(static_cast<Stream>(stream))) {
      PW_ASSIGN_OR_RETURN(const bool any,
                          DrainUnordered(static_cast<Stream>(stream)));
      progress |= any;
      continue;
    }
    while (!queues_[stream].empty()) {
      Issued& head = queues_[stream].front();
      PW_ASSIGN_OR_RETURN(const bool ran,
                          head.item.side_op < 0
                              ? TryCopy(head, &stream_s_[stream])
                              : TrySideOp(head, &stream_s_[stream]));
      if (!ran) break;
      queues_[stream].pop_front();
      --pending_;
      progress = true;
    }
  }
  return progress;
}

// Whatever has its inputs begins.
absl::StatusOr<bool> RankRun::DrainUnordered(Stream stream) {
  Fifo<Issued>& queue = queues_[static_cast<int>(stream)];
  bool progress = false;
  for (size_t place = 0; place < queue.size(); ++place) {
    Issued& issued = queue[place];
    if (issued.done) continue;
    double end_s = 0;
    PW_ASSIGN_OR_RETURN(issued.done, TrySideOp(issued, &end_s));
    if (!issued.done) continue;
    --pending_;
    progress = true;
  }
  while (!queue.empty() && queue.front().done) queue.pop_front();
  return progress;
}

const RankRecord::Block* RankRun::TakenBlock() {
  if (options_.takes == nullptr) return nullptr;
  return &options_.takes->compute[blocks_taken_++];
}

const double* RankRun::TakenBeside(Stream stream) {
  if (options_.takes == nullptr) return nullptr;
  const auto index = static_cast<size_t>(stream);
  return &options_.takes->beside[index][beside_taken_[index]++];
}

// Raises *start_s to when the copy can begin. False when that is not known, or
// later.
bool RankRun::MayCopy(const Issued& issued, double* start_s) {
  if (!activations_.AwaitData(issued.pass, start_s)) return false;
  if (!Due(*start_s)) return false;
  activations_.Begin(issued.pass);
  return true;
}

// If time is real, copies go to the worker's copy engine, which keeps their
// order: not only the first of the queue.
void RankRun::StartCopies(Stream stream) {
  const auto index = static_cast<int32_t>(stream);
  Fifo<Issued>& queue = queues_[index];
  while (copying_[index] < queue.size()) {
    Issued& issued = queue[copying_[index]];
    if (issued.item.side_op >= 0) return;
    issued.start_s = issued.ready_s;
    if (!MayCopy(issued, &issued.start_s)) return;
    issued.start_s = clock_->Now();
    ++copying_[index];
    worker_.StartCopy(issued.pass, LaneOf(issued.pass).stage,
                      BeginBeside(issued));
  }
}

// A thread beside the rank's own gets what is issued; what it calls when its
// work is over.
std::function<void(absl::Status)> RankRun::BeginBeside(Issued& issued) {
  issued.beside = ++beside_;
  endpoint_.Pending(1);
  waits_.BeginOwn();
  // The run may be over before the thread: nothing of it here.
  return [endpoint = &endpoint_, clock = clock_, self = self_,
          number = issued.beside](absl::Status ended) {
    RankMessage message = {.kind = RankMessage::Kind::kCopied,
                           .number = number,
                           .time_s = clock->Now()};
    if (!ended.ok()) message.payload = HostPayload(ended.message());
    endpoint->Send(self, std::move(message));
    endpoint->Pending(-1);
  };
}

absl::StatusOr<bool> RankRun::HasEnded(const Issued& issued, double* end_s) {
  const auto ended = ended_beside_.find(issued.beside);
  if (ended == ended_beside_.end()) return false;
  PW_RETURN_IF_ERROR(ended->second.first);
  *end_s = ended->second.second;
  ended_beside_.erase(ended);
  return true;
}

// A thread does it: the host's work where time is real, and what goes to
// owners, so that the rank hears others meanwhile. False until it has.
absl::StatusOr<bool> RankRun::TryBeside(const SideOp& op, Issued& issued,
                                        double* end_s) {
  if (issued.beside == 0) {
    const auto ended = BeginBeside(issued);
    if (IsOneSided(op.kind)) {
      worker_.StartReach(issued.item.side_op, ended);
    } else {
      worker_.StartSideOp(issued.item.side_op, issued.start, ended);
    }
  }
  PW_ASSIGN_OR_RETURN(const bool ended, HasEnded(issued, end_s));
  if (!ended || IsOneSided(op.kind)) return ended;
  if (options_.record != nullptr) {
    options_.record->beside[static_cast<size_t>(op.stream)].push_back(
        *end_s - issued.start_s);
  }
  return true;
}

// If time is computed, copies take the link's time while the data moves at
// once.
absl::StatusOr<bool> RankRun::TryCopy(Issued& issued, double* stream_s) {
  const Pass pass = issued.pass;
  const bool loads = pass.kind() == PassKind::kLoad;
  const Stream stream = CopyStream(pass.kind());
  const auto index = static_cast<size_t>(stream);
  const Lane& lane = LaneOf(pass);
  double seconds = times_.lane_s[self_.rank][pass.lane()];
  double end_s = 0;
  if (clock_->computed()) {
    issued.start_s = std::max(issued.ready_s, *stream_s);
    if (!MayCopy(issued, &issued.start_s)) return false;
    PW_RETURN_IF_ERROR(worker_.RunCopy(pass, lane.stage).status());
    if (const double* const taken = TakenBeside(stream)) seconds = *taken;
    end_s = issued.start_s + seconds;
  } else {
    StartCopies(stream);
    PW_ASSIGN_OR_RETURN(const bool ended, HasEnded(issued, &end_s));
    if (!ended) return false;
    --copying_[index];
    issued.start_s = std::max(issued.start_s, *stream_s);
    seconds = end_s - issued.start_s;
  }
  if (options_.record != nullptr) {
    options_.record->beside[index].push_back(seconds);
  }
  activations_.End(pass, end_s);
  if (!loads && !frees_) {
    PW_RETURN_IF_ERROR(worker_.FreeOffloaded(pass, lane.stage));
  }
  *stream_s = end_s;
  EndedAt(issued.start.iteration, end_s);
  Trace(issued.start, {.start_s = issued.start_s,
                       .end_s = end_s,
                       .bytes = lane.bytes,
                       .kind = loads ? OpKind::kLoad : OpKind::kOffload,
                       .stream = stream,
                       .rank = self_.rank,
                       .stage = lane.stage,
                       .pass = pass});
  return true;
}

bool RankRun::TakeSideInputs(const SideOp& op, Issued& issued,
                             double stream_s) {
  double ready_s = std::max(issued.ready_s, stream_s);
  for (const int32_t channel : op.inputs) {
    if (!tokens_.Has(channel, kSideKey)) return false;
    ready_s = std::max(ready_s, tokens_.TimeOf(channel, kSideKey));
  }
  if (!Due(ready_s)) return false;
  issued.ready_s = ready_s;
  for (const int32_t channel : op.inputs) {
    Arrivals::Arrival arrived = tokens_.Pop(channel, kSideKey);
    worker_.TakeSideInput(issued.item.side_op, channel,
                          std::move(arrived.payload));
  }
  return true;
}

// Runs what needs nobody else. Its end.
absl::StatusOr<double> RankRun::RunOwn(const SideOp& op, Issued& issued) {
  const int32_t index = issued.item.side_op;
  const bool computes = op.stream == Stream::kCompute;
  double late_s = 0;
  double seconds = times_.side_op_s[self_.rank][index];
  const bool taken = options_.takes != nullptr;
  if (taken && computes) {
    const RankRecord::Block& block = *TakenBlock();
    late_s = block.late_s;
    seconds = block.first_s;
  } else if (taken) {
    seconds = *TakenBeside(op.stream);
  }
  issued.start_s = clock_->Begin(issued.ready_s + late_s);
  PW_ASSIGN_OR_RETURN(const double measured_s,
                      worker_.RunSideOp(index, issued.start));
  // What moves data takes the link's time, as copies of activations do.
  const bool moves = IsHostCopy(op.kind) || op.kind == OpKind::kFlush;
  if (!clock_->takes_given() && !taken && !(moves && clock_->computed())) {
    seconds = measured_s;
  }
  const double end_s = computes ? clock_->End(issued.start_s, seconds)
                       : clock_->computed() ? issued.start_s + seconds
                                            : clock_->Now();
  if (options_.record != nullptr) {
    if (!clock_->computed()) seconds = end_s - issued.start_s;
    if (computes) {
      options_.record->compute.push_back(
          {.late_s = issued.start_s - issued.ready_s, .first_s = seconds});
    } else {
      options_.record->beside[static_cast<size_t>(op.stream)].push_back(
          seconds);
    }
  }
  return end_s;
}

// Runs it when its inputs, and its group, are there. False until then.
absl::StatusOr<bool> RankRun::TrySideOp(Issued& issued, double* stream_s) {
  const int32_t index = issued.item.side_op;
  const SideOp& op = rank().side_ops[index];
  if (!issued.started) {
    if (!TakeSideInputs(op, issued, *stream_s)) return false;
    issued.started = true;
    // What others do has the time that it has for them.
    issued.start_s = clock_->network_given() ? issued.ready_s
                                             : clock_->Begin(issued.ready_s);
  }
  const double seconds = times_.side_op_s[self_.rank][index];
  double end_s = 0;
  if (IsCollective(op.kind)) {
    PW_ASSIGN_OR_RETURN(const bool met, TryCollective(op, issued));
    if (!met) return false;
    end_s = clock_->network_given() ? issued.start_s + seconds : clock_->Now();
  } else if (IsOneSided(op.kind) && op.peers != nullptr) {
    PW_ASSIGN_OR_RETURN(const bool reached, TryBeside(op, issued, &end_s));
    if (!reached) return false;
    if (clock_->network_given()) end_s = issued.start_s + seconds;
  } else if (IsOneSided(op.kind)) {
    // Lower() makes none of these: they take time and move no data.
    end_s = clock_->network_given() ? issued.start_s + seconds : clock_->Now();
  } else if (UsesHost(op.kind) && !clock_->computed()) {
    PW_ASSIGN_OR_RETURN(const bool ended, TryBeside(op, issued, &end_s));
    if (!ended) return false;
  } else {
    PW_ASSIGN_OR_RETURN(end_s, RunOwn(op, issued));
  }
  *stream_s = end_s;
  EndedAt(issued.start.iteration, end_s);
  for (const int32_t channel : op.outputs) {
    RankMessage message = {.index = channel,
                           .key = kSideKey,
                           .start_s = end_s,
                           .time_s = end_s + times_.channel_s[channel]};
    const int to = own().channels[channel].to_rank;
    if (to == self_.rank) {
      tokens_.Push(channel, kSideKey, {end_s, message.time_s, {}});
    } else {
      message.payload = worker_.GiveSideOutput(index, channel);
      SendMessage({self_.replica, to}, std::move(message));
    }
  }
  if (issued.item.output >= 0) {
    tokens_.Push(issued.item.output, kSideKey, {end_s, end_s, {}});
  }
  hook_ends_.Push(sequence_, issued.item, issued.start_number, end_s);
  Trace(issued.start, {.start_s = issued.start_s,
                       .end_s = end_s,
                       .bytes = op.bytes,
                       .kind = op.kind,
                       .stream = op.stream,
                       .rank = self_.rank,
                       .side_op = index});
  return true;
}

}  // namespace pipewright
