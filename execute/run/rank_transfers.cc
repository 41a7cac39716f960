// Messages between passes of different ranks, those that hold their ranks
// (rendez-vous, batches) included.
#include <algorithm>
#include <utility>

#include "execute/run/rank_run.h"
#include "sim/engine/trace_writer.h"

namespace pipewright {

// To another rank. Faults act here.
double RankRun::SendMessage(Address to, RankMessage message) {
  const int64_t number = sent_++;
  if (!clock_->network_given()) message.time_s = clock_->Now();
  for (const Faults::LateMessage& fault : options_.faults.late_messages) {
    if (fault.rank != self_.rank || fault.iteration != start_.iteration ||
        fault.number != number) {
      continue;
    }
    if (fault.seconds < 0) return -1;
    message.time_s += fault.seconds;
  }
  const double time_s = message.time_s;
  waits_.SendTo(to, std::move(message));
  return time_s;
}

void RankRun::Send(int32_t channel, Pass pass, double now_s) {
  const double arrival_s =
      SendMessage({self_.replica, own().channels[channel].to_rank},
                  {.index = channel,
                   .key = pass.key(),
                   .start_s = now_s,
                   .time_s = now_s + times_.channel_s[channel],
                   .payload = worker_.GiveOutput(pass, LaneOf(pass).stage)});
  // If time is real, only the receiver knows when it came.
  if (!clock_->network_given() || arrival_s < 0) return;
  TraceTransfer(channel, pass, now_s, arrival_s);
}

void RankRun::TraceTransfer(int32_t index, Pass either, double start_s,
                            double end_s) {
  if (!options_.trace) return;
  const Channel& channel = own().channels[index];
  TraceOp op = {.start_s = start_s,
                .end_s = end_s,
                .bytes = channel.bytes,
                .kind = OpKind::kSend,
                .stream = Stream::kSend,
                .rank = channel.from_rank,
                .stage = channel.stage,
                .channel = index,
                .pass = TransferName(own(), index, either)};
  Trace(start_, op);
  op.kind = OpKind::kReceive;
  op.stream = Stream::kReceive;
  op.rank = channel.to_rank;
  Trace(start_, op);
}

void RankRun::Plan(const HoldingSteps& steps) {
  for (const std::vector<Handshake>& sides : steps) {
    std::vector<Held>& posts = steps_.emplace_back();
    for (const Handshake& side : sides) posts.push_back({.side = side});
  }
}

// Posts and awaits the planned steps. False when a partner is missing.
bool RankRun::FinishHandshakes() {
  while (!steps_.empty()) {
    std::vector<Held>& step = steps_.front();
    if (!posted_) {
      for (Held& held : step) Post(held);
      posted_ = true;
    }
    while (!step.empty()) {
      double done_s = 0;
      if (!Finish(step.back(), &done_s)) return false;
      received_s_ = std::max(received_s_, done_s);
      step.pop_back();
    }
    compute_s_ = std::max(compute_s_, received_s_);
    received_s_ = 0;
    steps_.erase(steps_.begin());
    posted_ = false;
  }
  return true;
}

void RankRun::Post(Held& held) {
  const Handshake& handshake = held.side;
  const Channel& channel = own().channels[handshake.channel];
  held.ready_s = compute_s_;
  RankMessage message = {.kind = handshake.send ? RankMessage::Kind::kSendReady
                                                : RankMessage::Kind::kTakeReady,
                         .index = handshake.channel,
                         .key = handshake.pass.key(),
                         .time_s = held.ready_s};
  if (handshake.send) {
    message.payload =
        worker_.GiveOutput(handshake.pass, LaneOf(handshake.pass).stage);
  }
  SendMessage(
      {self_.replica, handshake.send ? channel.to_rank : channel.from_rank},
      std::move(message));
}

// True when the partner has come too.
bool RankRun::Finish(const Held& held, double* done_s) {
  const Handshake& handshake = held.side;
  Arrivals& theirs = handshake.send ? take_ready_ : send_ready_;
  const uint64_t key = handshake.pass.key();
  if (!theirs.Has(handshake.channel, key)) return false;
  Arrivals::Arrival arrived = theirs.Pop(handshake.channel, key);
  const double start_s = std::max(held.ready_s, arrived.time_s);
  *done_s = clock_->network_given()
                ? start_s + times_.channel_s[handshake.channel]
                : clock_->Now();
  if (handshake.send) return true;
  TraceTransfer(handshake.channel, handshake.pass, start_s, *done_s);
  if (!held.drop) {
    worker_.TakeInput(handshake.pass, LaneOf(handshake.pass).stage,
                      std::move(arrived.payload));
  }
  return true;
}

}  // namespace pipewright
