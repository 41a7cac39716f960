// Streams beside compute: side operations, copies, meetings of groups.
#include <algorithm>

#include "sim/engine/fast_run.h"

namespace pipewright {
// The side operation that stands at the position of `rank`: runs it on the
// compute stream, or issues it to another. False when compute has to wait.
bool FastRun::RunItem(Row& row, int rank) {
  RankState& state = row.ranks[rank];
  ReplayRank& replay = row.core.rank(rank);
  const SideSequence::Item& item = *state.sequence.item();
  const Stream stream = row.own->ranks[rank].side_ops[item.side_op].stream;
  if (stream != Stream::kCompute) {
    state.queues[static_cast<int>(stream)].push_back(
        {.item = item, .ready_s = replay.clock_s});
    ++state.pending;
  } else if (!TrySideOp(row, rank, item, &state.item_ready_s,
                        &state.item_meeting, &replay.clock_s)) {
    return false;
  }
  state.item_ready_s = 0;
  state.item_meeting = 0;
  state.sequence.Taken();
  state.stop = state.sequence.stop();
  return true;
}

bool FastRun::DrainStreams(Row& row, int rank) {
  RankState& state = row.ranks[rank];
  if (state.pending == 0) return false;
  bool progress = false;
  for (int stream = 0; stream < kNumStreams; ++stream) {
    Fifo<Issued>& queue = state.queues[stream];
    if (!RunsInOrder(static_cast<Stream>(stream))) {
      progress |= DrainUnordered(row, rank, static_cast<Stream>(stream));
      continue;
    }
    double* const stream_s = &state.stream_s[stream];
    while (!queue.empty()) {
      Issued& issued = queue.front();
      const bool ran = issued.item.side_op < 0
                           ? TryCopy(row, rank, issued, stream_s)
                           : TrySideOp(row, rank, issued.item, &issued.ready_s,
                                       &issued.meeting, stream_s);
      if (!ran) break;
      queue.pop_front();
      --state.pending;
      progress = true;
    }
  }
  return progress;
}

bool FastRun::DrainUnordered(Row& row, int rank, Stream stream) {
  RankState& state = row.ranks[rank];
  Fifo<Issued>& queue = state.queues[static_cast<int>(stream)];
  double& last_s = state.stream_s[static_cast<int>(stream)];
  bool progress = false;
  for (size_t place = 0; place < queue.size(); ++place) {
    Issued& issued = queue[place];
    double end_s = 0;
    if (issued.done || !TrySideOp(row, rank, issued.item, &issued.ready_s,
                                  &issued.meeting, &end_s)) {
      continue;
    }
    last_s = std::max(last_s, end_s);
    issued.done = true;
    --state.pending;
    progress = true;
  }
  while (!queue.empty() && queue.front().done) queue.pop_front();
  return progress;
}

bool FastRun::TryCopy(Row& row, int rank, const Issued& issued,
                      double* stream_s) {
  RankState& state = row.ranks[rank];
  double start_s = std::max(issued.ready_s, *stream_s);
  if (!state.activations.AwaitData(issued.pass, &start_s)) return false;
  state.activations.Begin(issued.pass);
  const double end_s =
      start_s + row.times_alone->lane_s[rank][issued.pass.lane()];
  state.activations.End(issued.pass, end_s);
  *stream_s = end_s;
  writer_.OnCopy(rank, issued.pass, start_s, end_s);
  return true;
}

FastRun::Meeting& FastRun::MeetingOf(Row& row, int group) {
  const Group& meets = program_.groups[group];
  return meets.span == Group::Span::kRanks
             ? row.meetings[group]
             : meetings_[group][meets.InstanceOf(row.replica)];
}

bool FastRun::TrySideOp(Row& row, int rank, const SideSequence::Item& item,
                        double* ready_s, int64_t* meeting_number,
                        double* stream_s) {
  const SideOp& op = row.own->ranks[rank].side_ops[item.side_op];
  if (*meeting_number == 0) {
    for (const int32_t channel : op.inputs) {
      if (row.core.queue(channel).size() == 0) return false;
    }
    *ready_s = std::max(*ready_s, *stream_s);
    for (const int32_t channel : op.inputs) {
      double arrival_s = 0;
      row.core.queue(channel).Pop(kSideKey, &arrival_s);
      *ready_s = std::max(*ready_s, arrival_s);
    }
  }
  double start_s = *ready_s;
  const double seconds =
      op.kind == OpKind::kOptimizer
          ? program_.SideSeconds(iteration_, row.replica, rank, op)
          : row.times_alone->side_op_s[rank][item.side_op];
  double end_s = start_s + seconds;
  if (IsCollective(op.kind)) {
    Meeting& meeting = MeetingOf(row, op.group);
    if (*meeting_number == 0) {
      *meeting_number = meeting.completed + 1;
      posted_ = true;
      // A row arrives for all replicas that it stands for.
      meeting.arrived += program_.groups[op.group].span == Group::Span::kRanks
                             ? 1
                             : row.replicas;
      meeting.latest_s = std::max(meeting.latest_s, *ready_s);
      if (meeting.arrived == meeting.expected) {
        meeting.start_s = meeting.latest_s;
        meeting.end_s = meeting.start_s + seconds;
        meeting.arrived = 0;
        meeting.latest_s = 0;
        ++meeting.completed;
      }
    }
    // Nobody can end the next one before this member has come to it.
    if (meeting.completed < *meeting_number) return false;
    start_s = meeting.start_s;
    end_s = meeting.end_s;
  }
  *stream_s = end_s;
  for (const int32_t channel : op.outputs) {
    row.core.queue(channel).Push(end_s + row.times_alone->channel_s[channel],
                                 kSideKey);
  }
  if (item.output >= 0) row.core.queue(item.output).Push(end_s, kSideKey);
  // All streams are empty where a start begins.
  RankState& state = row.ranks[rank];
  state.hook_ends.Push(state.sequence, item, state.sequence.number(), end_s);
  writer_.OnSideOp(rank, item.side_op, start_s, end_s);
  return true;
}

}  // namespace pipewright
