#include "sim/engine/fast_engine.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/engine/fast_run.h"
#include "sim/engine/fluid_clock.h"
#include "sim/engine/known_times.h"
#include "sim/schedule/verify.h"

namespace pipewright {
namespace {

// Passes that one visit of a rank runs at most, so that no queue between two
// ranks grows with the number of microbatches.
constexpr int64_t kVisit = 512;

// What holds a rank may be the receiver too.
RankVisits VisitsOf(const DpClass& own, bool holds) {
  std::vector<std::pair<int, int>> links;
  for (const Channel& channel : own.channels) {
    links.emplace_back(channel.from_rank, channel.to_rank);
    if (holds) links.emplace_back(channel.to_rank, channel.from_rank);
  }
  return RankVisits(static_cast<int>(own.ranks.size()), std::move(links));
}

}  // namespace

FastRun::FastRun(const Program& program, const EngineOptions& options,
                 KnownTimes* known)
    : program_(program),
      writer_(program, options.trace),
      rows_(SortReplicas(program, known)),
      holds_(program.wait_rule != WaitRule::kBuffered),
      progress_(options.progress) {
  kinds_.reserve(rows_.times.size());
  for (const IsolatedTimes& times : rows_.times) {
    kinds_.push_back(KindOf(times));
  }
  if (program.jitter != nullptr) {
    state_.reserve(program.replicas);
    for (int replica = 0; replica < program.replicas; ++replica) {
      AddRow(rows_.row_of_replica[replica], replica, 1);
    }
  } else {
    state_.reserve(kinds_.size());
    for (size_t kind = 0; kind < kinds_.size(); ++kind) {
      AddRow(static_cast<int>(kind), rows_.first_replica[kind],
             rows_.replicas[kind]);
    }
  }
  for (const Row& row : state_) {
    for (const RankProgram& rank : row.own->ranks) {
      all_ += static_cast<int64_t>(rank.order->size()) * program.iterations;
    }
  }
  meetings_.resize(program.groups.size());
  for (size_t group = 0; group < program.groups.size(); ++group) {
    const Group& meets = program.groups[group];
    if (meets.span == Group::Span::kRanks) continue;
    meetings_[group].resize(meets.Instances(program.replicas));
    for (Meeting& meeting : meetings_[group]) {
      meeting.expected = static_cast<int>(meets.ranks.size()) *
                         meets.ReplicasOf(program.replicas);
    }
  }
}

FastRun::Kind FastRun::KindOf(const IsolatedTimes& times) const {
  Kind kind;
  const DpClass& own = program_.dp_class(times.dp_class);
  kind.lanes.resize(program_.pp());
  kind.lane_factors.resize(program_.pp());
  for (int rank = 0; rank < program_.pp(); ++rank) {
    const RankProgram& rank_program = own.ranks[rank];
    std::vector<ReplayLane>& lanes = kind.lanes[rank];
    for (size_t index = 0; index < rank_program.lanes.size(); ++index) {
      const Lane& lane = rank_program.lanes[index];
      const auto of_pass = Pass::KindOf(index);
      // Holding transfers are not the core's: it sees no channels then.
      lanes.push_back(
          {.seconds = times.lane_s[rank][index],
           .output_delay_s = lane.output < 0 ? 0 : times.channel_s[lane.output],
           .input = holds_ ? -1 : lane.input,
           .output = holds_ ? -1 : lane.output,
           .special = IsComputePass(of_pass) ? 0u : 1u});
    }
    // A pass whose activations may be on the host asks before it runs.
    for (size_t index = 0; index < lanes.size(); ++index) {
      const size_t load = Pass::LaneBeside(index, PassKind::kLoad);
      const auto of_pass = Pass::KindOf(index);
      if (rank_program.lanes[load].passes > 0 && ReadsActivations(of_pass)) {
        lanes[index].special = 1;
      }
    }
    if (own.lane_factors.empty()) continue;
    for (const Lane& lane : rank_program.lanes) {
      kind.lane_factors[rank].push_back(
          lane.factors < 0 ? nullptr : own.lane_factors[lane.factors].data());
    }
  }
  return kind;
}

void FastRun::AddRow(int kind, int replica, int replicas) {
  const IsolatedTimes& times = rows_.times[kind];
  const DpClass& own = program_.dp_class(times.dp_class);
  std::vector<ReplayRank> ranks(program_.pp());
  for (int rank = 0; rank < program_.pp(); ++rank) {
    ranks[rank].order = own.ranks[rank].order->data();
    ranks[rank].lanes = kinds_[kind].lanes[rank].data();
    if (own.lane_factors.empty()) continue;
    ranks[rank].lane_factors = kinds_[kind].lane_factors[rank].data();
  }
  Row& added = state_.emplace_back(
      &times, own,
      ReplayCore(std::move(ranks), static_cast<int>(own.channels.size()),
                 own.microbatch_factor.empty() ? nullptr
                                               : own.microbatch_factor.data(),
                 program_.pair_factor,
                 own.slice_factor.empty() ? nullptr : own.slice_factor.data()),
      VisitsOf(own, holds_));
  added.replica = replica;
  added.replicas = replicas;
  if (program_.jitter != nullptr) {
    added.drawn =
        std::make_unique<ReplicaTimes>(&program_, &iteration_, replica);
    added.core.Draw(added.drawn.get());
  }
  added.ranks.reserve(program_.pp());
  for (const RankProgram& rank : own.ranks) added.ranks.emplace_back(rank);
  added.times.resize(program_.pp());
  added.meetings.resize(program_.groups.size());
  for (size_t group = 0; group < program_.groups.size(); ++group) {
    added.meetings[group].expected =
        static_cast<int>(program_.groups[group].ranks.size());
  }
  if (holds_) added.points.resize(own.channels.size());
}

// Replicas that differ all end an iteration at this date, when nothing is under
// way any more: the next one is what this one is if it began so too.
bool FastRun::BeginsAnew(double end_s) {
  if (program_.num_classes() == 1 || program_.jitter != nullptr) return false;
  for (Row& row : state_) {
    for (int rank = 0; rank < program_.pp(); ++rank) {
      if (row.core.rank(rank).clock_s != end_s) return false;
    }
  }
  return true;
}

absl::StatusOr<RunSummary> FastRun::Run() {
  RunSummary summary;
  summary.row_of_replica = rows_.row_of_replica;
  if (program_.jitter != nullptr) {
    std::iota(summary.row_of_replica.begin(), summary.row_of_replica.end(), 0);
  }
  summary.passes = program_.num_passes();
  summary.bytes_sent = CountBytesSent(program_);
  const bool ends_decide = EndsDecide(program_);
  std::vector<double> last_ends_s;
  bool last_anew = false;
  for (iteration_ = 0; iteration_ < program_.iterations; ++iteration_) {
    writer_.iteration = iteration_;
    for (const Start& start : program_.StartsOf(iteration_)) {
      if (!RunStart(start)) return absl::FailedPreconditionError(Deadlock());
    }
    double end_s = 0;
    for (Row& row : state_) end_s = std::max(end_s, EndOf(row));
    summary.iteration_end_s.push_back(end_s);
    if (iteration_ == 0) {
      for (const Row& row : state_) summary.times.push_back(row.times);
    }
    std::vector<double> ends_s;
    for (Row& row : state_) {
      for (int rank = 0; ends_decide && rank < program_.pp(); ++rank) {
        ends_s.push_back(row.core.rank(rank).clock_s);
      }
    }
    const bool settled = iteration_ > program_.settled();
    const bool anew = BeginsAnew(end_s);
    summary.steady = IsSteady(program_, summary.iteration_end_s) ||
                     (settled && EndAlike(last_ends_s, ends_s)) ||
                     (settled && anew && last_anew);
    last_ends_s = std::move(ends_s);
    last_anew = anew;
    if (program_.until_steady && summary.steady) break;
  }
  for (const Row& row : state_) {
    summary.simulated_ops += row.own->num_ops() * summary.iterations();
  }
  if (progress_ != nullptr) progress_->At(1);
  return summary;
}

bool FastRun::RunStart(const Start& start) {
  for (Row& row : state_) {
    for (int rank = 0; rank < program_.pp(); ++rank) {
      RankState& state = row.ranks[rank];
      state.sequence.Begin(start);
      state.stop = state.sequence.stop();
      state.hook_ends.Begin();
      row.core.rank(rank).position = state.sequence.begin();
    }
  }
  for (bool progress = true; progress;) {
    progress = false;
    for (Row& row : state_) progress |= Sweep(row);
  }
  for (Row& row : state_) {
    if (!Ended(row)) return false;
    if (iteration_ > 0) continue;
    for (int rank = 0; rank < program_.pp(); ++rank) {
      row.times[rank].last_end_s = row.ranks[rank].pass_end_s;
      row.times[rank].busy_s =
          row.drawn != nullptr
              ? row.core.rank(rank).drawn_s
              : program_.BusySeconds(rank, row.times_alone->dp_class);
      row.times[rank].late_load_s = row.ranks[rank].late_load_s;
      row.times[rank].late_free_s = row.ranks[rank].late_free_s;
    }
  }
  return true;
}

// Runs a row as far as it comes without others: what it needs stays in the
// cache. True when anything ran or was posted.
bool FastRun::Sweep(Row& row) {
  writer_.replica = row.replica;
  bool progress = false;
  row.visits.Run([&](int rank) {
    const int64_t before = row.core.rank(rank).position;
    posted_ = false;
    const bool moved = Visit(row, rank) || posted_;
    done_ += row.core.rank(rank).position - before;
    progress |= moved;
    if (progress_ != nullptr && rank == 0) Tell();
    return moved;
  });
  return progress;
}

int64_t FastRun::visits() const {
  int64_t visits = 0;
  for (const Row& row : state_) visits += row.visits.visits();
  return visits;
}

// By the passes of all rows: each goes as far as it comes, and rows that meet
// take turns. False starts repeat passes.
void FastRun::Tell() {
  progress_->At(
      std::min(0.999, static_cast<double>(done_) / static_cast<double>(all_)));
}

bool FastRun::Ended(Row& row) {
  for (int rank = 0; rank < program_.pp(); ++rank) {
    const RankState& state = row.ranks[rank];
    if (state.sequence.NextAt(row.core.rank(rank).position) !=
            SideSequence::Next::kEnd ||
        !state.steps.empty() || state.pending > 0) {
      return false;
    }
  }
  return true;
}

// Runs what it can of one rank, within a limit. True when anything ran.
bool FastRun::Visit(Row& row, int rank) {
  ReplayRank& replay = row.core.rank(rank);
  RankState& state = row.ranks[rank];
  const int64_t most = std::min(state.stop, replay.position + kVisit);
  const int64_t before = replay.position;
  // By far the most visits: a few passes, and the next input is missing.
  if (state.plain && before < most) {
    NullObserver nobody;
    const ReplayCore::Outcome outcome = row.core.Advance(rank, most, nobody);
    state.pass_end_s = replay.clock_s;
    if (outcome == ReplayCore::Outcome::kBlocked) {
      return replay.position != before;
    }
  }
  const bool ran = replay.position != before;
  return VisitSlowly(row, rank) || ran;
}

// The same for a rank that has reached something attached, has operations on
// other streams, is held by transfers or traced.
bool FastRun::VisitSlowly(Row& row, int rank) {
  ReplayRank& replay = row.core.rank(rank);
  RankState& state = row.ranks[rank];
  const int64_t most = replay.position + kVisit;
  state.plain = false;
  bool progress = false;
  while (true) {
    progress |= DrainStreams(row, rank);
    if (!state.steps.empty()) {
      if (!FinishHandshakes(row, rank)) return progress;
      progress = true;
    }
    const SideSequence::Next next = state.sequence.NextAt(replay.position);
    if (next == SideSequence::Next::kEnd) break;
    if (next != SideSequence::Next::kEntry) {
      if (!RunAtStop(row, rank, next)) return progress;
      progress = true;
      continue;
    }
    if (replay.position >= most) break;
    const int64_t before = replay.position;
    const bool more = RunPasses(row, rank, std::min(state.stop, most));
    progress |= replay.position != before;
    if (!more) break;
  }
  state.plain =
      state.started && state.pending == 0 && !holds_ && !writer_.active();
  return progress;
}

// False when the rank has to wait.
bool FastRun::RunAtStop(Row& row, int rank, SideSequence::Next next) {
  if (next == SideSequence::Next::kItem) return RunItem(row, rank);
  if (next == SideSequence::Next::kDrop) return Drop(row, rank);
  return holds_ ? RunHeldBlock(row, rank) : RunHooked(row, rank);
}

double FastRun::EndOf(Row& row) {
  double end_s = 0;
  for (int rank = 0; rank < program_.pp(); ++rank) {
    end_s = std::max(end_s, row.core.rank(rank).clock_s);
    for (const double stream_s : row.ranks[rank].stream_s) {
      end_s = std::max(end_s, stream_s);
    }
  }
  return end_s;
}

std::string FastRun::Deadlock() {
  std::vector<int64_t> positions;
  std::string waiting;
  Row& row = *std::find_if(state_.begin(), state_.end(), [&](Row& each) {
    return !Ended(each) || &each == &state_.back();
  });
  for (int rank = 0; rank < program_.pp(); ++rank) {
    const RankProgram& rank_program = row.own->ranks[rank];
    const RankState& state = row.ranks[rank];
    positions.push_back(row.core.rank(rank).position);
    const auto add = [&](int32_t side_op) {
      absl::StrAppend(&waiting, "\nrank ", rank, " waits for ",
                      OpKindName(rank_program.side_ops[side_op].kind));
    };
    for (const Fifo<Issued>& queue : state.queues) {
      if (!queue.empty() && queue.front().item.side_op >= 0) {
        add(queue.front().item.side_op);
      }
    }
    if (state.sequence.item() != nullptr && state.stop == positions.back()) {
      add(state.sequence.item()->side_op);
    }
    if (!state.steps.empty()) {
      const Handshake& held = state.steps[0][0];
      absl::StrAppend(&waiting, "\nrank ", rank, " is held by the ",
                      held.send ? "send" : "receive", " of ",
                      PassToString(*row.own->schedule, held.pass));
    }
  }
  return absl::StrCat(
      "deadlock in iteration ", iteration_, " (",
      WaitRuleName(program_.wait_rule), " transfers):\n",
      BlockedGrid(program_, positions, row.times_alone->dp_class), waiting,
      holds_ ? "\n(buffered transfers block no rank and may "
               "run where these wait for each other)"
             : "");
}

absl::StatusOr<RunSummary> RunFastKnowing(const Program& program,
                                          const EngineOptions& options,
                                          KnownTimes* known) {
  if (program.interference != nullptr) return RunTimed(program, options);
  return FastRun(program, options, known).Run();
}

absl::StatusOr<RunSummary> RunFast(const Program& program,
                                   const EngineOptions& options) {
  return RunFastKnowing(program, options, nullptr);
}

}  // namespace pipewright
