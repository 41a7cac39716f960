// A step that is checked in the next warm-up, and what happens when the check
// fails (zero-bubble paper, arXiv 2401.10241, sec. 4 and app. C).
#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/program/lowering.h"
#include "sim/program/network_time.h"
#include "sim/schedule/core.h"
#include "sim/schedule/rank_visits.h"

namespace pipewright {
namespace {

struct PassTime {
  double start_s;
  double end_s;
};

// Notes when the passes of each rank run.
struct PassTimes {
  static constexpr bool kActive = true;
  std::vector<std::vector<PassTime>> ranks;

  void OnPass(int rank, int64_t, Pass, double start_s, double end_s, bool) {
    ranks[rank].push_back({start_s, end_s});
  }
  void OnTransfer(int, Pass, double, double) {}
};

}  // namespace

// The first pass of each rank that is no forward of chunk 0, which a failed
// step would have spoilt.
std::vector<int64_t> PostValidatedStep::ValidationDeadlines() const {
  std::vector<int64_t> deadlines;
  for (int rank = 0; rank < schedule_.pp(); ++rank) {
    deadlines.push_back(FirstPosition(rank, [](Pass pass) {
      return pass.kind() != PassKind::kForward || pass.chunk() != 0;
    }));
  }
  return deadlines;
}

// The message comes down the ranks, and rank r runs its k-th forward about
// r + k forwards after rank 0 began: a rank that checks later in that count
// than one below it would make that one wait.
std::vector<int64_t> PostValidatedStep::PositionsWithoutWaiting() const {
  std::vector<int64_t> positions = ValidationDeadlines();
  int64_t latest = std::numeric_limits<int64_t>::max();
  for (int rank = 0; rank < schedule_.pp(); ++rank) {
    latest = std::min(latest, rank + positions[rank]);
    positions[rank] = std::max<int64_t>(0, latest - rank);
  }
  return positions;
}

// The rule of the paper's released code: from the last rank on, before the
// first pass that starts after the rank above has checked, at the latest
// before the deadline. Times are those of a first iteration.
std::vector<int64_t> PostValidatedStep::PositionsAsReleased() const {
  const std::vector<int64_t> deadlines = ValidationDeadlines();
  const int pp = schedule_.pp();
  std::vector<std::vector<ReplayLane>> lanes(pp);
  std::vector<ReplayRank> ranks(pp);
  for (int rank = 0; rank < pp; ++rank) {
    for (const Lane& lane : program_.ranks[rank].lanes) {
      const int32_t out = lane.output;
      lanes[rank].push_back(
          {.seconds = lane.seconds,
           .output_delay_s =
               out < 0 ? 0
                       : TransferSeconds(program_, program_.channels[out], 0),
           .input = lane.input,
           .output = out});
    }
    ranks[rank].order = program_.ranks[rank].order->data();
    ranks[rank].lanes = lanes[rank].data();
  }
  ReplayCore core(
      std::move(ranks), static_cast<int>(program_.channels.size()),
      program_.microbatch_factor.empty() ? nullptr
                                         : program_.microbatch_factor.data(),
      program_.pair_factor,
      program_.slice_factor.empty() ? nullptr : program_.slice_factor.data());
  PassTimes times;
  times.ranks.resize(pp);
  // One pass more than the deadline: the next one, at the head of a list.
  RankVisits::Along(pp, program_.channels).Run([&](int rank) {
    const int64_t before = core.rank(rank).position;
    core.Advance(rank, std::max<int64_t>(1, deadlines[rank]), times);
    return core.rank(rank).position != before;
  });
  std::vector<int64_t> positions(pp, 0);
  double checked_s = 0;
  for (int rank = pp - 1; rank >= 0; --rank) {
    const std::vector<PassTime>& passes = times.ranks[rank];
    int64_t position = 0;
    while (position < deadlines[rank] &&
           position < static_cast<int64_t>(passes.size()) &&
           passes[position].start_s <= checked_s) {
      ++position;
    }
    positions[rank] = position;
    if (passes.empty()) continue;
    checked_s = std::max(checked_s, position > 0 ? passes[position - 1].end_s
                                                 : passes[0].start_s);
  }
  return positions;
}

// Rank by rank the partial state travels to the last rank; each steps on what
// it has seen. In the next warm-up the full state travels back and every rank
// checks its step, after it has passed the state on.
absl::Status PostValidatedStep::Add() {
  const int last = schedule_.pp() - 1;
  positions_ = options_.validation == ValidationPlace::kReleased
                   ? PositionsAsReleased()
                   : PositionsWithoutWaiting();
  std::vector<int32_t> partial(schedule_.pp(), -1);  // into this rank
  std::vector<int32_t> full(schedule_.pp(), -1);
  for (int rank = 1; rank <= last; ++rank) {
    partial[rank] =
        AddChannel(ChannelKind::kMessage, rank - 1, rank, kStateBytes);
    full[rank - 1] =
        AddChannel(ChannelKind::kMessage, rank, rank - 1, kStateBytes);
  }
  for (int rank = 0; rank <= last; ++rank) {
    SideOp reduce = {.kind = OpKind::kWait};
    if (rank > 0) reduce.inputs.push_back(partial[rank]);
    if (rank < last) reduce.outputs.push_back(partial[rank + 1]);
    Attach(rank, OrderSize(rank), std::move(reduce));
    // The norm passes the limit with the part of the last rank at the latest,
    // so that one never steps in vain.
    Attach(rank, OrderSize(rank),
           {.kind = OpKind::kOptimizer,
            .seconds = options_.costs.optimizer_s,
            .unless_fails = rank == last});
    SideOp validate = {.kind = OpKind::kValidate,
                       .seconds = options_.costs.validation_s,
                       .first_iteration = 1};
    if (rank > 0) {
      SideOp pass_on = {.kind = OpKind::kWait, .first_iteration = 1};
      if (rank < last) pass_on.inputs.push_back(full[rank]);
      pass_on.outputs.push_back(full[rank - 1]);
      Attach(rank, positions_[rank], std::move(pass_on));
    } else if (last > 0) {
      validate.inputs.push_back(full[rank]);
    }
    Attach(rank, positions_[rank], std::move(validate));
  }
  if (options_.failing_steps.empty()) return absl::OkStatus();
  return AddFalseStarts();
}

// The step of an iteration fails: every rank undoes it, if it has taken it,
// steps again with gradients that are clipped now, and runs its warm-up again.
absl::Status PostValidatedStep::AddFalseStarts() {
  for (const int iteration : options_.failing_steps) {
    program_.false_starts.push_back(iteration + 1);
  }
  for (int rank = 0; rank < schedule_.pp(); ++rank) {
    const auto add = [&](OpKind kind, double seconds) {
      Attach(
          rank, positions_[rank],
          {.kind = kind, .seconds = seconds, .starts = SideOp::Starts::kFalse});
    };
    if (rank + 1 < schedule_.pp()) {
      add(OpKind::kRollback, options_.costs.rollback_s);
    }
    add(OpKind::kOptimizer, options_.costs.optimizer_s);
    ends_false_start_.push_back(program_.ranks[rank].side_ops.size() - 1);
  }
  return AddDropped();
}

// What the false start of one rank sends and that of the next does not take.
absl::Status PostValidatedStep::AddDropped() {
  std::vector<std::vector<Pass>> sent(program_.channels.size());
  std::vector<std::set<uint64_t>> taken(program_.channels.size());
  for (int rank = 0; rank < schedule_.pp(); ++rank) {
    for (int64_t position = 0; position < positions_[rank]; ++position) {
      const Pass pass = schedule_.order(rank)[position];
      const Lane& lane = program_.ranks[rank].lanes[pass.lane()];
      if (lane.output >= 0) sent[lane.output].push_back(pass);
      if (lane.input >= 0) taken[lane.input].insert(pass.key());
    }
  }
  for (size_t index = 0; index < sent.size(); ++index) {
    const Channel& channel = program_.channels[index];
    for (const Pass pass : sent[index]) {
      if (taken[index].erase(pass.key()) > 0) continue;
      const Pass consumer(PassKind::kForward, pass.microbatch(),
                          schedule_.placement.ChunkOf(channel.stage + 1),
                          pass.slice(), pass.direction());
      program_.ranks[channel.to_rank].dropped.push_back(
          {.channel = static_cast<int32_t>(index), .pass = consumer});
    }
    if (taken[index].empty()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "strategy.rollback_iterations: in the warm-up of schedule ",
        schedule_.name, " rank ", channel.to_rank, " needs what rank ",
        channel.from_rank,
        " makes only after its check, so it cannot be thrown away alone; "
        "allowed: none with this schedule"));
  }
  return absl::OkStatus();
}

void PostValidatedStep::GatherAgain(int rank, int group) {
  if (ends_false_start_.empty()) return;
  SideOp wait = {.kind = OpKind::kWait, .starts = SideOp::Starts::kFalse};
  for (int chunk = 0; chunk < schedule_.vpp(); ++chunk) {
    const int stage = schedule_.placement.StageOf(rank, chunk, 0);
    wait.inputs.push_back(AddEvent(rank));
    Attach(rank, positions_[rank],
           {.kind = OpKind::kAllGather,
            .stream = Stream::kCollective,
            .bytes = options_.parameter_bytes[stage],
            .group = group,
            .chunk = chunk,
            .stage = stage,
            .starts = SideOp::Starts::kFalse,
            .outputs = {wait.inputs.back()}});
  }
  Attach(rank, positions_[rank], std::move(wait));
  ends_false_start_[rank] = program_.ranks[rank].side_ops.size() - 1;
}

void PostValidatedStep::Finish() {
  for (size_t number = 0; number < ends_false_start_.size(); ++number) {
    RankProgram& rank = program_.ranks[number];
    const auto last = static_cast<int32_t>(ends_false_start_[number]);
    for (const Attachment& attachment : rank.attachments) {
      ++rank.false_start_end;
      SideOp& op = rank.side_ops[attachment.side_op];
      if (op.first_iteration > 0) op.starts = SideOp::Starts::kFirst;
      if (attachment.side_op == last) break;
    }
  }
}

}  // namespace pipewright
