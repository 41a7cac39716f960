// Data parallelism once an iteration: gradient reduction, the sum of a table
// that two stages hold, parameter gather.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/status.h"
#include "sim/program/lowering.h"
#include "sim/program/program.h"

namespace pipewright {

bool SumsTable(const Schedule& schedule, const LowerOptions& options) {
  if (options.tied_bytes <= 0 || schedule.backward == BackwardRule::kNone) {
    return false;
  }
  const Placement& placement = schedule.placement;
  const bool apart =
      placement.RankOf(0, 0) != placement.RankOf(schedule.stages() - 1, 0);
  if (schedule.update_every > 0) {
    return apart && schedule.update_every == schedule.microbatches;
  }
  const bool reduces = TraitsOf(options.data_parallel).reduces &&
                       (HoldersOf(options) > 1 || schedule.directions > 1);
  return apart && (reduces || options.optimizer != OptimizerMode::kNone);
}

// If a bidirectional schedule mirrors its stages, a rank with an embedding of
// one direction has the head of the other, and the reduction over both
// directions leaves nothing to send.
TableSum::TableSum(const LoweringStep& step) : LoweringStep(step) {
  if (!SumsTable(schedule_, options_)) return;
  const Placement& placement = schedule_.placement;
  const std::vector<int> holders = {
      placement.RankOf(0, 0), placement.RankOf(schedule_.stages() - 1, 0)};
  if (schedule_.directions == 1) {
    const int group = AddGroup(Group::Span::kRanks, holders);
    for (const int rank : holders) group_[rank] = group;
    return;
  }
  for (const int rank : holders) {
    group_[rank] = AddGroup(Group::Span::kRanks, {rank});
  }
}

void TableSum::Add(int rank, int64_t position, RankEvents* events) {
  const bool first = schedule_.placement.RankOf(0, 0) == rank;
  const int stage = first ? 0 : schedule_.stages() - 1;
  const int32_t event = AddEvent(rank);
  (*events)[rank].push_back(event);
  // Every holder has its part of sharded gradients.
  const double bytes =
      shards() ? options_.tied_bytes / holders() : options_.tied_bytes;
  Attach(rank, position,
         {.kind = OpKind::kAllReduce,
          .stream = Stream::kCollective,
          .bytes = bytes,
          .group = group_.at(rank),
          .chunk = schedule_.placement.ChunkOf(stage),
          .stage = stage,
          .tied = true,
          .outputs = {event}});
}

void TableSum::AddBehind(RankEvents* events) {
  if (comes_first()) return;
  for (const auto& [rank, group] : group_) {
    Add(rank, OrderSize(rank), events);
  }
}

// One reduction a stage, at its SYNC or as soon as its last weight gradient is
// there; it overlaps whatever the rank does after that. The two replicas of a
// bidirectional schedule hold each stage on two ranks, which reduce it
// together.
absl::Status GradientReduction::Add(RankEvents* events) {
  std::vector<std::vector<Reduction>> all;
  for (int rank = 0; rank < schedule_.pp(); ++rank) {
    PW_ASSIGN_OR_RETURN(all.emplace_back(), ReductionsOf(rank));
  }
  for (int rank = 0; rank < schedule_.pp(); ++rank) {
    if (schedule_.directions == 1) {
      ReduceRank(rank, all[rank], events);
    } else if (rank <= schedule_.pp() - 1 - rank) {
      ReducePair(rank, all, events);
    }
  }
  return absl::OkStatus();
}

// In the order of the rank's passes.
absl::StatusOr<std::vector<Reduction>> GradientReduction::ReductionsOf(
    int rank) const {
  const RankOrder& order = this->order(rank);
  const int lanes = schedule_.vpp() * schedule_.directions;
  const auto lane_of = [](Pass pass) {
    return pass.chunk() * 2 + pass.direction();
  };
  std::vector<int64_t> last(2 * schedule_.vpp(), -1);
  std::vector<int64_t> sync(2 * schedule_.vpp(), -1);
  int missing = lanes;
  for (int64_t position = OrderSize(rank) - 1; position >= 0 && missing > 0;
       --position) {
    const Pass pass = order[position];
    if (pass.kind() == PassKind::kSync && last[lane_of(pass)] < 0) {
      sync[lane_of(pass)] = position;
    }
    if (pass.kind() != PassKind::kBackwardFull &&
        pass.kind() != PassKind::kBackwardWeight) {
      continue;
    }
    if (last[lane_of(pass)] >= 0) continue;
    last[lane_of(pass)] = position;
    --missing;
  }
  std::vector<Reduction> reductions;
  for (int chunk = 0; chunk < schedule_.vpp(); ++chunk) {
    for (int replica = 0; replica < schedule_.directions; ++replica) {
      const int lane = chunk * 2 + replica;
      const Lane& marks =
          program_.ranks[rank]
              .lanes[Pass::LaneOf(PassKind::kSync, chunk, replica)];
      if (marks.passes > 0 && sync[lane] < 0) {
        return absl::FailedPreconditionError(absl::StrCat(
            "rank ", rank, ": SYNC of chunk ", chunk,
            " stands before the last weight gradient of that chunk"));
      }
      reductions.push_back(
          {sync[lane] >= 0 ? sync[lane] : Behind(rank, last[lane]), chunk,
           schedule_.placement.StageOf(rank, chunk, replica)});
    }
  }
  // The head adds to the table of an embedding on its own rank.
  const Placement& placement = schedule_.placement;
  const bool one_table =
      options_.tied_bytes > 0 &&
      placement.RankOf(0, 0) == placement.RankOf(schedule_.stages() - 1, 0);
  for (Reduction& each : reductions) {
    if (!one_table || each.stage != 0) continue;
    for (const Reduction& other : reductions) {
      if (other.stage + 1 != schedule_.stages()) continue;
      each.position = std::max(each.position, other.position);
    }
  }
  std::stable_sort(reductions.begin(), reductions.end(),
                   [](const Reduction& a, const Reduction& b) {
                     return a.position < b.position;
                   });
  if (options_.overlap_gradients) return reductions;
  for (Reduction& each : reductions) {
    const int lane = each.chunk * 2;
    const bool is_fixed =
        sync[lane] == each.position || sync[lane + 1] == each.position;
    if (!is_fixed) each.position = OrderSize(rank);
  }
  return reductions;
}

void GradientReduction::Reduce(int rank, int group, const Reduction& where,
                               RankEvents* events) {
  const int32_t event = AddEvent(rank);
  (*events)[rank].push_back(event);
  std::vector<int32_t> outputs = {event};
  if (Flushes(rank)) {
    outputs.push_back(AddEvent(rank));
    reduced_[rank][where.stage] = outputs.back();
  }
  Attach(rank, where.position,
         {.kind = shards_step() ? OpKind::kReduceScatter : OpKind::kAllReduce,
          .stream = Stream::kCollective,
          .bytes = options_.gradient_bytes[where.stage],
          .group = group,
          .chunk = where.chunk,
          .stage = where.stage,
          .outputs = std::move(outputs)});
}

void GradientReduction::ReduceRank(int rank,
                                   const std::vector<Reduction>& reductions,
                                   RankEvents* events) {
  groups_.push_back(AddHolders(Group::Span::kReplicas, {rank}));
  for (const Reduction& each : reductions) {
    const bool end = each.stage == 0 || each.stage + 1 == schedule_.stages();
    if (end && table_.comes_first()) table_.Add(rank, each.position, events);
    Reduce(rank, groups_[rank], each, events);
  }
}

// Both ranks of a pair reduce their stages in one order, or they would wait
// for each other: the order in which both are ready.
void GradientReduction::ReducePair(
    int rank, const std::vector<std::vector<Reduction>>& all,
    RankEvents* events) {
  const int partner = schedule_.pp() - 1 - rank;
  struct Shared {
    Reduction mine;
    Reduction theirs;
  };
  std::vector<Shared> shared;
  for (const Reduction& mine : all[rank]) {
    // A middle rank holds both copies itself: the later one counts.
    const auto theirs = std::find_if(
        all[partner].rbegin(), all[partner].rend(),
        [&](const Reduction& other) { return other.stage == mine.stage; });
    if (rank == partner && theirs->position > mine.position) continue;
    shared.push_back({mine, *theirs});
  }
  std::stable_sort(shared.begin(), shared.end(),
                   [](const Shared& a, const Shared& b) {
                     return a.mine.position + a.theirs.position <
                            b.mine.position + b.theirs.position;
                   });
  std::vector<int> members = {rank};
  if (partner != rank) members.push_back(partner);
  const int group = AddHolders(Group::Span::kAll, members);
  int64_t mine = 0;
  int64_t theirs = 0;
  for (Shared& each : shared) {
    mine = std::max(mine, each.mine.position);
    theirs = std::max(theirs, each.theirs.position);
    each.mine.position = mine;
    each.theirs.position = theirs;
    Reduce(rank, group, each.mine, events);
    if (partner != rank) Reduce(partner, group, each.theirs, events);
  }
}

void ParameterGather::Add(const std::vector<int>& groups,
                          PostValidatedStep* validated) {
  for (int rank = 0; rank < schedule_.pp(); ++rank) {
    validated->GatherAgain(rank, groups[rank]);
    std::vector<std::pair<int64_t, Pass>> first_use;
    for (int replica = 0; replica < schedule_.directions; ++replica) {
      for (int chunk = 0; chunk < schedule_.vpp(); ++chunk) {
        const auto is_first = [&](Pass pass) {
          return pass.kind() == PassKind::kForward && pass.chunk() == chunk &&
                 pass.direction() == replica;
        };
        first_use.emplace_back(FirstPosition(rank, is_first),
                               Pass(PassKind::kForward, 0, chunk, 0, replica));
      }
    }
    std::stable_sort(
        first_use.begin(), first_use.end(),
        [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [position, pass] : first_use) {
      const int stage =
          schedule_.placement.StageOf(rank, pass.chunk(), pass.direction());
      const int32_t event = AddEvent(rank);
      Attach(rank, OrderSize(rank),
             {.kind = OpKind::kAllGather,
              .stream = Stream::kCollective,
              .bytes = options_.parameter_bytes[stage],
              .group = groups[rank],
              .chunk = pass.chunk(),
              .stage = stage,
              .outputs = {event}});
      Attach(rank, position,
             {.kind = OpKind::kWait,
              .chunk = pass.chunk(),
              .first_iteration = 1,
              .inputs = {event}});
    }
  }
}

}  // namespace pipewright
