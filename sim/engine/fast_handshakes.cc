// Transfers that hold their ranks: rendez-vous and batches.
#include <algorithm>
#include <utility>

#include "sim/engine/fast_run.h"

namespace pipewright {

// Runs up to `stop`. False when the rank has to wait.
bool FastRun::RunHeld(Row& row, int rank, int64_t stop) {
  ReplayRank& replay = row.core.rank(rank);
  RankState& state = row.ranks[rank];
  while (replay.position < stop) {
    if (!state.steps.empty() && !FinishHandshakes(row, rank)) return false;
    const Pass pass = replay.order[replay.position];
    const bool ran = EntryOf(pass.kind()) == Entry::kBlock
                         ? RunHeldBlock(row, rank)
                         : RunSpecial(row, rank);
    if (!ran) return false;
  }
  return state.steps.empty() || FinishHandshakes(row, rank);
}

// A step of the block at the position: its inputs are planned, or it runs and
// its outputs are planned.
bool FastRun::RunHeldBlock(Row& row, int rank) {
  const RankProgram& rank_program = row.own->ranks[rank];
  ReplayRank& replay = row.core.rank(rank);
  RankState& state = row.ranks[rank];
  const Pass* const block = replay.order + replay.position;
  if (!state.received) {
    state.received = true;
    PostBefore(rank_program, program_.wait_rule, block, &state.steps);
    return true;
  }
  const bool hooked =
      state.sequence.NextAt(replay.position) == SideSequence::Next::kBlock;
  if (!(hooked ? RunHooked(row, rank) : RunBackward(row, rank, 0))) {
    return false;
  }
  PostBehind(rank_program, program_.wait_rule, block, replay.position,
             state.sequence, &state.received, &state.steps);
  return true;
}

// Posts and awaits the planned steps. False when a partner is missing.
bool FastRun::FinishHandshakes(Row& row, int rank) {
  RankState& state = row.ranks[rank];
  ReplayRank& replay = row.core.rank(rank);
  while (!state.steps.empty()) {
    std::vector<Handshake>& step = state.steps.front();
    if (!state.posted) {
      for (const Handshake& handshake : step) {
        Post(row, handshake, replay.clock_s);
      }
      state.posted = true;
    }
    while (!step.empty()) {
      const Handshake& handshake = step.back();
      MeetingPoint& point = row.points[handshake.channel];
      TokenQueue& done =
          handshake.send ? point.sender_done : point.receiver_done;
      double done_s = 0;
      if (!done.Pop(handshake.pass.key(), &done_s)) return false;
      state.received_s = std::max(state.received_s, done_s);
      step.pop_back();
    }
    replay.clock_s = std::max(replay.clock_s, state.received_s);
    state.received_s = 0;
    state.steps.erase(state.steps.begin());
    state.posted = false;
  }
  return true;
}

void FastRun::Post(Row& row, const Handshake& handshake, double now_s) {
  posted_ = true;
  MeetingPoint& point = row.points[handshake.channel];
  const uint64_t key = handshake.pass.key();
  TokenQueue& others = handshake.send ? point.receives : point.sends;
  double other_s = 0;
  if (!others.Pop(key, &other_s)) {
    (handshake.send ? point.sends : point.receives).Push(now_s, key);
    return;
  }
  const double start_s = std::max(now_s, other_s);
  const double end_s = start_s + row.times_alone->channel_s[handshake.channel];
  point.sender_done.Push(end_s, key);
  point.receiver_done.Push(end_s, key);
  if (writer_.active()) {
    writer_.OnTransfer(
        handshake.channel,
        TransferName(*row.own, handshake.channel, handshake.pass), start_s,
        end_s);
  }
}

}  // namespace pipewright
