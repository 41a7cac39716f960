// The passes of the fast engine: in bulk where nothing else is in the way, one
// block at a time where something is.
#include <algorithm>

#include "sim/engine/fast_run.h"

namespace pipewright {

// Runs passes up to `stop`. False when the rank has to wait.
bool FastRun::RunPasses(Row& row, int rank, int64_t stop) {
  if (holds_) return RunHeld(row, rank, stop);
  RankState& state = row.ranks[rank];
  ReplayRank& replay = row.core.rank(rank);
  const int64_t before = replay.position;
  // The first pass runs alone: its start is part of the result.
  const int64_t limit = state.started ? stop : before + 1;
  NullObserver nobody;
  const ReplayCore::Outcome outcome =
      writer_.active() ? row.core.Advance(rank, limit, writer_)
                       : row.core.Advance(rank, limit, nobody);
  if (replay.position != before) NotePasses(row, rank);
  if (outcome == ReplayCore::Outcome::kSpecial) return RunSpecial(row, rank);
  return outcome == ReplayCore::Outcome::kStopped;
}

// The pass at the position is no plain one: a copy is issued to its stream, a
// mark is passed over, a FREE waits for its copy, a backward asks for its
// loaded activations.
bool FastRun::RunSpecial(Row& row, int rank) {
  ReplayRank& replay = row.core.rank(rank);
  RankState& state = row.ranks[rank];
  const Pass pass = replay.order[replay.position];
  switch (EntryOf(pass.kind())) {
    case Entry::kBlock:
      return RunBackward(row, rank, 0);
    case Entry::kCopy:
      state.activations.Issue(pass);
      state.queues[static_cast<int>(CopyStream(pass.kind()))].push_back(
          {.pass = pass, .ready_s = replay.clock_s});
      ++state.pending;
      break;
    case Entry::kMark:
      break;
    case Entry::kFree:
      if (!RunFree(row, rank, pass)) return false;
      break;
  }
  ++replay.position;
  return true;
}

// False when the copy has not ended yet.
bool FastRun::RunFree(Row& row, int rank, Pass pass) {
  RankState& state = row.ranks[rank];
  ReplayRank& replay = row.core.rank(rank);
  double free_s = replay.clock_s;
  if (!state.activations.AwaitOffload(pass, &free_s)) return false;
  writer_.OnCopyWait(rank, pass, replay.clock_s, free_s);
  if (iteration_ == 0) state.late_free_s += free_s - replay.clock_s;
  replay.clock_s = free_s;
  return true;
}

// A block that may need activations from the host.
bool FastRun::RunBackward(Row& row, int rank, double earliest_s) {
  const ReplayRank& replay = row.core.rank(rank);
  RankState& state = row.ranks[rank];
  const Pass* const block = replay.order + replay.position;
  double loaded_s = earliest_s;
  for (int part = 0; part < PartsOf(*block); ++part) {
    if (!state.activations.Await(block[part], &loaded_s)) return false;
  }
  if (!RunBlock(row, rank, loaded_s)) return false;
  if (loaded_s > earliest_s) {
    const double ready_s = std::max(replay.last_ready_s, earliest_s);
    writer_.OnCopyWait(rank, *block, ready_s, replay.last_start_s);
    if (iteration_ == 0) state.late_load_s += replay.last_start_s - ready_s;
  }
  return true;
}

// The block at the stop, which waits for operations of hooks.
bool FastRun::RunHooked(Row& row, int rank) {
  RankState& state = row.ranks[rank];
  double earliest_s = 0;
  if (!state.hook_ends.Await(state.sequence, &earliest_s)) return false;
  if (!RunBackward(row, rank, earliest_s)) return false;
  state.sequence.Passed();
  state.stop = state.sequence.stop();
  return true;
}

// Takes the next token that a false start has left. False when it is not
// there.
bool FastRun::Drop(Row& row, int rank) {
  RankState& state = row.ranks[rank];
  const auto [channel, pass] = *state.sequence.drop();
  ReplayRank& replay = row.core.rank(rank);
  if (holds_) {
    state.steps.push_back({{.channel = channel, .pass = pass}});
  } else {
    double arrival_s = 0;
    if (!row.core.queue(channel).Pop(pass.key(), &arrival_s)) return false;
    replay.clock_s = std::max(replay.clock_s, arrival_s);
  }
  state.sequence.DropTaken();
  return true;
}

bool FastRun::RunBlock(Row& row, int rank, double earliest_s) {
  ReplayRank& replay = row.core.rank(rank);
  const int64_t before = replay.position;
  NullObserver nobody;
  const bool ran = writer_.active()
                       ? row.core.RunBlock(rank, earliest_s, writer_)
                       : row.core.RunBlock(rank, earliest_s, nobody);
  if (!ran) return false;
  for (int64_t index = before; index < replay.position; ++index) {
    row.ranks[rank].activations.Use(replay.order[index]);
  }
  NotePasses(row, rank);
  return true;
}

void FastRun::NotePasses(Row& row, int rank) {
  RankState& state = row.ranks[rank];
  const ReplayRank& replay = row.core.rank(rank);
  if (!state.started) {
    state.started = true;
    row.times[rank].first_start_s = replay.last_start_s;
  }
  state.pass_end_s = replay.clock_s;
}

}  // namespace pipewright
