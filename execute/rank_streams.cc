// Streams beside compute: side operations, copies, meetings of groups.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "execute/rank_run.h"
#include "sim/base/status.h"
#include "sim/engine/activation_key.h"

namespace pipewright {
namespace {

// Tokens between side operations of one channel come in order.
constexpr uint64_t kSideKey = 0;

}  // namespace

// The side operation that stands at the position: runs it on the compute
// stream, or issues it to another. False when compute has to wait.
absl::StatusOr<bool> RankRun::RunItem() {
  const SideSequence::Item& item = *sequence_.item();
  const Stream stream = rank().side_ops[item.side_op].stream;
  if (stream != Stream::kCompute) {
    queues_[static_cast<int>(stream)].push_back(
        {.item = item, .ready_s = compute_s_});
    ++pending_;
  } else {
    at_stop_.item = item;
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

// Copies go to the worker's copy engine where time is real, and else take the
// link's time while the data moves at once.
absl::StatusOr<bool> RankRun::TryCopy(Issued& issued, double* stream_s) {
  const Pass pass = issued.pass;
  const uint64_t key = ActivationKey(pass);
  const bool loads = pass.kind() == PassKind::kLoad;
  const auto stream = static_cast<int32_t>(loads ? Stream::kH2D : Stream::kD2H);
  const Lane& lane = LaneOf(pass);
  if (!issued.started) {
    issued.start_s = std::max(issued.ready_s, *stream_s);
    if (loads) {
      const auto offloaded = offloaded_s_.find(key);
      if (offloaded == offloaded_s_.end()) return false;
      issued.start_s = std::max(issued.start_s, offloaded->second);
      offloaded_s_.erase(offloaded);
    }
    issued.started = true;
    if (!clock_.computed()) {
      issued.start_s = clock_.Now();
      endpoint_.Pending(1);
      worker_.StartCopy(pass, lane.stage, [this, stream](absl::Status ended) {
        RankMessage message = {.kind = RankMessage::Kind::kCopied,
                               .index = stream};
        if (!ended.ok()) {
          auto text = std::make_shared<std::string>(ended.message());
          message.payload.bytes = text->size();
          message.payload.data = std::shared_ptr<void>(text, text->data());
        }
        endpoint_.Send(self_, std::move(message));
        endpoint_.Pending(-1);
      });
    }
  }
  double end_s = 0;
  if (clock_.computed()) {
    PW_RETURN_IF_ERROR(worker_.RunCopy(pass, lane.stage).status());
    end_s = issued.start_s + times_.lane_s[self_.rank][pass.lane()];
  } else {
    std::deque<absl::Status>& ended = copied_[stream];
    if (ended.empty()) return false;
    PW_RETURN_IF_ERROR(ended.front());
    ended.pop_front();
    end_s = clock_.Now();
  }
  (loads ? loaded_s_ : offloaded_s_)[key] = end_s;
  *stream_s = end_s;
  Trace({.start_s = issued.start_s,
         .end_s = end_s,
         .bytes = lane.bytes,
         .kind = loads ? OpKind::kLoad : OpKind::kOffload,
         .stream = loads ? Stream::kH2D : Stream::kD2H,
         .rank = self_.rank,
         .stage = lane.stage,
         .pass = pass});
  return true;
}

bool RankRun::TakeSideInputs(const SideOp& op, Issued& issued,
                             double stream_s) {
  for (const int32_t channel : op.inputs) {
    if (!Has(tokens_, channel, kSideKey)) return false;
  }
  issued.ready_s = std::max(issued.ready_s, stream_s);
  for (const int32_t channel : op.inputs) {
    Arrived arrived = Pop(tokens_, channel, kSideKey);
    issued.ready_s = std::max(issued.ready_s, arrived.time_s);
    worker_.TakeSideInput(issued.item.side_op, channel,
                          std::move(arrived.payload));
  }
  return true;
}

// Runs it when its inputs, and its group, are there. False until then.
absl::StatusOr<bool> RankRun::TrySideOp(Issued& issued, double* stream_s) {
  const int32_t index = issued.item.side_op;
  const SideOp& op = rank().side_ops[index];
  const bool begins = !issued.started;
  if (begins) {
    if (!TakeSideInputs(op, issued, *stream_s)) return false;
    issued.started = true;
    issued.start_s = clock_.Begin(issued.ready_s);
  }
  double seconds = times_.side_op_s[self_.rank][index];
  double end_s = 0;
  if (IsCollective(op.kind)) {
    PW_ASSIGN_OR_RETURN(const bool met, TryCollective(op, issued));
    if (!met) return false;
    end_s = clock_.computed() ? issued.start_s + seconds : clock_.Now();
  } else if (IsOneSided(op.kind)) {
    const Address peer = {(self_.replica + op.peer_offset) % program_.replicas,
                          op.peer};
    if (begins && op.kind == OpKind::kPush) {
      endpoint_.Send(peer, {.kind = RankMessage::Kind::kPush,
                            .index = index,
                            .payload = worker_.GivePush(index)});
    } else if (op.kind == OpKind::kPull) {
      if (begins) {
        endpoint_.Send(peer,
                       {.kind = RankMessage::Kind::kPull, .index = index});
      }
      std::deque<Payload>& pulled = pulled_[index];
      if (pulled.empty()) return false;
      worker_.TakePulled(index, std::move(pulled.front()));
      pulled.pop_front();
    }
    end_s = clock_.computed() ? issued.start_s + seconds : clock_.Now();
  } else {
    PW_ASSIGN_OR_RETURN(const double measured_s,
                        worker_.RunSideOp(index, start_));
    if (!clock_.takes_given()) seconds = measured_s;
    end_s = op.stream == Stream::kCompute ? clock_.End(issued.start_s, seconds)
            : clock_.computed()           ? issued.start_s + seconds
                                          : clock_.Now();
  }
  *stream_s = end_s;
  for (const int32_t channel : op.outputs) {
    RankMessage message = {.index = channel,
                           .key = kSideKey,
                           .start_s = end_s,
                           .time_s = end_s + times_.channel_s[channel]};
    const int to = program_.channels[channel].to_rank;
    if (to == self_.rank) {
      tokens_[{channel, kSideKey}].push_back({end_s, message.time_s, {}});
    } else {
      message.payload = worker_.GiveSideOutput(index, channel);
      SendMessage({self_.replica, to}, std::move(message));
    }
  }
  if (issued.item.output >= 0) {
    tokens_[{issued.item.output, kSideKey}].push_back({end_s, end_s, {}});
  }
  if (issued.item.hook >= 0 && sequence_.Waits(issued.item.hook)) {
    hook_ends_[issued.item.hook].Push(end_s);
  }
  Trace({.start_s = issued.start_s,
         .end_s = end_s,
         .bytes = op.bytes,
         .kind = op.kind,
         .stream = op.stream,
         .rank = self_.rank,
         .side_op = index});
  return true;
}

// Every member gives every other its part and makes of all parts the same, so
// that nobody is needed in the middle. Or the transport does, once all members
// have met: none of them waits on its device for another.
absl::StatusOr<bool> RankRun::TryCollective(const SideOp& op, Issued& issued) {
  if (endpoint_.combines() && IsCombined(program_, op)) {
    return TryCombined(op, issued);
  }
  const std::vector<Member>& members = members_[op.group];
  const int count = static_cast<int>(members.size());
  const int self = self_in_group_[op.group];
  if (issued.meeting == 0) {
    issued.meeting = ++met_[op.group];
    for (int member = 0; member < count; ++member) {
      Part part = {.time_s = issued.start_s,
                   .payload = worker_.GivePart(issued.item.side_op, self,
                                               member, count)};
      if (member == self) {
        meetings_[{op.group, issued.meeting}].parts[self] = std::move(part);
        continue;
      }
      endpoint_.Send({members[member].replica, members[member].rank},
                     {.kind = RankMessage::Kind::kArrive,
                      .index = op.group,
                      .number = issued.meeting,
                      .time_s = part.time_s,
                      .payload = std::move(part.payload)});
    }
  }
  const auto meeting = meetings_.find({op.group, issued.meeting});
  if (static_cast<int>(meeting->second.parts.size()) < count) return false;
  std::vector<Payload> parts;
  for (auto& [member, part] : meeting->second.parts) {
    issued.start_s = std::max(issued.start_s, part.time_s);
    parts.push_back(std::move(part.payload));
  }
  meetings_.erase(meeting);
  PW_RETURN_IF_ERROR(worker_.TakeParts(issued.item.side_op, self, parts));
  return true;
}

absl::StatusOr<bool> RankRun::TryCombined(const SideOp& op, Issued& issued) {
  const std::vector<Member>& members = members_[op.group];
  const int count = static_cast<int>(members.size());
  const int self = self_in_group_[op.group];
  const auto give = [&](int to) {
    return worker_.GivePart(issued.item.side_op, self, to, count);
  };
  if (issued.meeting == 0) {
    issued.meeting = ++met_[op.group];
    auto collective = std::make_shared<Collective>();
    collective->kind = op.kind;
    collective->group = op.group;
    collective->meeting = issued.meeting;
    collective->self = self;
    for (int to = 0; to < count; ++to) {
      if (op.kind == OpKind::kReduceScatter || to == self) {
        collective->give.push_back(give(to));
      }
    }
    const uint64_t bytes = collective->give.front().bytes;
    for (int member = 0; member < count; ++member) {
      if (member == self) continue;
      endpoint_.Send({members[member].replica, members[member].rank},
                     {.kind = RankMessage::Kind::kArrive,
                      .index = op.group,
                      .key = bytes,
                      .number = issued.meeting,
                      .time_s = issued.start_s});
    }
    meetings_[{op.group, issued.meeting}].parts[self] = {
        .time_s = issued.start_s, .bytes = bytes};
    combined_[{op.group, issued.meeting}].collective = std::move(collective);
  }
  const std::pair<int, int64_t> key = {op.group, issued.meeting};
  Combined& combined = combined_.at(key);
  if (!combined.begun) {
    const Meeting& meeting = meetings_.at(key);
    if (static_cast<int>(meeting.parts.size()) < count) return false;
    for (const auto& [member, part] : meeting.parts) {
      issued.start_s = std::max(issued.start_s, part.time_s);
      combined.collective->bytes.push_back(part.bytes);
    }
    meetings_.erase(key);
    combined.begun = true;
    endpoint_.Combine(combined.collective);
  }
  if (!combined.ended) return false;
  PW_RETURN_IF_ERROR(
      worker_.TakeParts(issued.item.side_op, self, combined.collective->parts));
  combined_.erase(key);
  return true;
}

}  // namespace pipewright
