// What comes once an iteration: gradient reduction, optimizer, parameter
// gather.
#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/program/lowering.h"

namespace pipewright {
namespace {

// A found-inf flag and a partial squared norm, as doubles (zero-bubble paper,
// sec. 4); also what the synchronised step reduces.
constexpr double kStateBytes = 16;

}  // namespace

// One reduction a stage, at its SYNC or as soon as its last weight gradient is
// there; it overlaps whatever the rank does after that. The two replicas of a
// bidirectional schedule hold each stage on two ranks, which reduce it
// together.
absl::Status Lowering::AddGradientReduction() {
  std::vector<std::vector<Reduction>> all;
  for (int rank = 0; rank < schedule_.pp(); ++rank) {
    PW_ASSIGN_OR_RETURN(all.emplace_back(), ReductionsOf(rank));
  }
  for (int rank = 0; rank < schedule_.pp(); ++rank) {
    if (schedule_.replicas == 1) {
      ReduceRank(rank, all[rank]);
    } else if (rank <= schedule_.pp() - 1 - rank) {
      ReducePair(rank, all);
    }
  }
  return absl::OkStatus();
}

// In the order of the rank's passes.
absl::StatusOr<std::vector<Lowering::Reduction>> Lowering::ReductionsOf(
    int rank) const {
  const RankOrder& order = schedule_.order(rank);
  const int lanes = schedule_.vpp() * schedule_.replicas;
  const auto lane_of = [](Pass pass) {
    return pass.chunk() * 2 + pass.replica();
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
    for (int replica = 0; replica < schedule_.replicas; ++replica) {
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

void Lowering::Reduce(int rank, int64_t position, int group, int chunk,
                      int stage) {
  const int32_t event = AddChannel(ChannelKind::kEvent, rank, rank, 0);
  synced_[rank].push_back(event);
  Attach(rank, position,
         {.kind = gathers() ? OpKind::kReduceScatter : OpKind::kAllReduce,
          .stream = Stream::kCollective,
          .bytes = options_.gradient_bytes[stage],
          .group = group,
          .chunk = chunk,
          .outputs = {event}});
}

void Lowering::ReduceRank(int rank, const std::vector<Reduction>& reductions) {
  replica_group_.push_back(AddGroup(Group::Span::kReplicas, {rank}));
  for (const Reduction& each : reductions) {
    Reduce(rank, each.position, replica_group_[rank], each.chunk, each.stage);
  }
}

// Both ranks of a pair reduce their stages in one order, or they would wait
// for each other: the order in which both are ready.
void Lowering::ReducePair(int rank,
                          const std::vector<std::vector<Reduction>>& all) {
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
  const int group = AddGroup(Group::Span::kAll, members);
  int64_t mine = 0;
  int64_t theirs = 0;
  for (const Shared& each : shared) {
    mine = std::max(mine, each.mine.position);
    theirs = std::max(theirs, each.theirs.position);
    Reduce(rank, mine, group, each.mine.chunk, each.mine.stage);
    if (partner == rank) continue;
    Reduce(partner, theirs, group, each.theirs.chunk, each.theirs.stage);
  }
}

void Lowering::AddOptimizer() {
  for (int rank = 0; rank < schedule_.pp(); ++rank) {
    if (!synced_[rank].empty()) {
      Attach(rank, OrderSize(rank),
             {.kind = OpKind::kWait, .inputs = synced_[rank]});
    }
  }
  switch (options_.optimizer) {
    case OptimizerMode::kNone:
      return;
    case OptimizerMode::kSynchronised:
      return AddSynchronisedStep();
    case OptimizerMode::kPostValidated:
      return AddPostValidatedStep();
  }
}

// The norm of all gradients decides about clipping and infinities, so every
// rank waits for the slowest before it steps.
void Lowering::AddSynchronisedStep() {
  std::vector<int> everybody(schedule_.pp());
  std::iota(everybody.begin(), everybody.end(), 0);
  // After an all-reduce the replicas hold the same gradients.
  const int group =
      AddGroup(gathers() ? Group::Span::kAll : Group::Span::kRanks, everybody);
  for (int rank = 0; rank < schedule_.pp(); ++rank) {
    const int32_t event = AddChannel(ChannelKind::kEvent, rank, rank, 0);
    Attach(rank, OrderSize(rank),
           {.kind = OpKind::kAllReduce,
            .stream = Stream::kCollective,
            .bytes = kStateBytes,
            .group = group,
            .outputs = {event}});
    Attach(rank, OrderSize(rank),
           {.kind = OpKind::kOptimizer,
            .seconds = options_.costs.optimizer_s,
            .inputs = {event}});
  }
}

// Before which pass each rank checks its step. At the latest before the first
// that is no forward of chunk 0, which a failed step would have spoilt. The
// message comes down the ranks, and rank r runs its k-th forward about r + k
// forwards after rank 0 began: a rank that checks later in that count than
// one below it would make that one wait.
std::vector<int64_t> Lowering::ValidationPositions() const {
  std::vector<int64_t> positions;
  int64_t latest = std::numeric_limits<int64_t>::max();
  for (int rank = 0; rank < schedule_.pp(); ++rank) {
    const int64_t deadline = FirstPosition(rank, [](Pass pass) {
      return pass.kind() != PassKind::kForward || pass.chunk() != 0;
    });
    latest = std::min(latest, rank + deadline);
    positions.push_back(std::max<int64_t>(0, latest - rank));
  }
  return positions;
}

// Rank by rank the partial state travels to the last rank; each steps on what
// it has seen. In the next warm-up the full state travels back and every rank
// checks its step.
void Lowering::AddPostValidatedStep() {
  const int last = schedule_.pp() - 1;
  const std::vector<int64_t> positions = ValidationPositions();
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
    Attach(rank, OrderSize(rank),
           {.kind = OpKind::kOptimizer, .seconds = options_.costs.optimizer_s});
    SideOp validate = {.kind = OpKind::kValidate,
                       .seconds = options_.costs.validation_s,
                       .first_iteration = 1};
    if (rank < last) validate.inputs.push_back(full[rank]);
    if (rank > 0) validate.outputs.push_back(full[rank - 1]);
    Attach(rank, positions[rank], std::move(validate));
  }
}

// Sharded optimizer: every chunk's parameters are gathered behind the step, in
// the order of their use, and awaited before their first forward.
void Lowering::AddParameterGather() {
  for (int rank = 0; rank < schedule_.pp(); ++rank) {
    std::vector<std::pair<int64_t, Pass>> first_use;
    for (int replica = 0; replica < schedule_.replicas; ++replica) {
      for (int chunk = 0; chunk < schedule_.vpp(); ++chunk) {
        const auto is_first = [&](Pass pass) {
          return pass.kind() == PassKind::kForward && pass.chunk() == chunk &&
                 pass.replica() == replica;
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
          schedule_.placement.StageOf(rank, pass.chunk(), pass.replica());
      const int32_t event = AddChannel(ChannelKind::kEvent, rank, rank, 0);
      Attach(rank, OrderSize(rank),
             {.kind = OpKind::kAllGather,
              .stream = Stream::kCollective,
              .bytes = options_.parameter_bytes[stage],
              .group = replica_group_[rank],
              .chunk = pass.chunk(),
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
