#include "sim/program/lower.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/status.h"
#include "sim/replay/wiring.h"

namespace pipewright {
namespace {

// Iterations until the period is taken as it is (DESIGN section 4).
constexpr int kMostIterations = 8;
// A found-inf flag and a partial squared norm, as doubles (zero-bubble paper,
// sec. 4); also what the synchronised step reduces.
constexpr double kStateBytes = 16;

class Lowering {
 public:
  Lowering(std::shared_ptr<const Schedule> schedule,
           const LowerOptions& options)
      : schedule_(*schedule), options_(options) {
    program_.name = schedule->name;
    program_.schedule = std::move(schedule);
    synced_.resize(schedule_.pp());
  }

  absl::StatusOr<Program> Run() && {
    PW_RETURN_IF_ERROR(CheckOptions());
    AddGlobals();
    AddPasses();
    if (reduces()) AddGradientReduction();
    AddOptimizer();
    if (gathers()) AddParameterGather();
    for (RankProgram& rank : program_.ranks) {
      std::stable_sort(rank.attachments.begin(), rank.attachments.end(),
                       [](const Attachment& a, const Attachment& b) {
                         return a.position < b.position;
                       });
    }
    PW_RETURN_IF_ERROR(VerifyProgram(program_));
    return std::move(program_);
  }

 private:
  bool reduces() const {
    return options_.data_parallel != DataParallel::kNone &&
           options_.replicas > 1;
  }
  bool gathers() const {
    return options_.data_parallel == DataParallel::kZero1 &&
           options_.replicas > 1;
  }

  absl::Status CheckOptions() const;
  void AddGlobals();
  void AddPasses();
  void AddGradientReduction();
  void AddOptimizer();
  void AddSynchronisedStep();
  void AddPostValidatedStep();
  void AddParameterGather();

  int64_t OrderSize(int rank) const {
    return static_cast<int64_t>(schedule_.order(rank).size());
  }
  // Where in the order of `rank` something can stand behind the pass at
  // `position` without splitting a block.
  int64_t Behind(int rank, int64_t position) const {
    const bool joint = schedule_.order(rank)[position].joint_with_next();
    return position + (joint ? 2 : 1);
  }
  // The first position of `rank` whose pass `matches`; the order's size when
  // there is none. A block counts as one.
  template <class Predicate>
  int64_t FirstPosition(int rank, Predicate matches) const {
    const RankOrder& order = schedule_.order(rank);
    for (int64_t position = 0; position < OrderSize(rank); ++position) {
      if (!matches(order[position])) continue;
      const bool second = position > 0 && order[position - 1].joint_with_next();
      return second ? position - 1 : position;
    }
    return OrderSize(rank);
  }

  int32_t AddChannel(ChannelKind kind, int from, int to, double bytes) {
    program_.channels.push_back(
        {.kind = kind, .from_rank = from, .to_rank = to, .bytes = bytes});
    return static_cast<int32_t>(program_.channels.size()) - 1;
  }
  void Attach(int rank, int64_t position, SideOp op) {
    RankProgram& target = program_.ranks[rank];
    target.side_ops.push_back(std::move(op));
    target.attachments.push_back(
        {.position = position,
         .side_op = static_cast<int32_t>(target.side_ops.size()) - 1});
  }
  int GroupOfReplicas(int rank) {
    program_.groups.push_back(
        {.span = Group::Span::kReplicas, .ranks = {rank}});
    return static_cast<int>(program_.groups.size()) - 1;
  }

  const Schedule& schedule_;
  const LowerOptions& options_;
  Program program_;
  std::vector<int> replica_group_;            // [rank]
  std::vector<std::vector<int32_t>> synced_;  // [rank] events to wait for
};

absl::Status Lowering::CheckOptions() const {
  const auto stages = static_cast<size_t>(schedule_.stages());
  if (options_.costs.stages.size() != stages) {
    return BadValue("costs",
                    absl::StrCat(options_.costs.stages.size(), " stages"),
                    absl::StrCat("pp * vpp = ", stages));
  }
  const auto microbatches =
      static_cast<size_t>(schedule_.microbatches_per_replica());
  const size_t factors = options_.costs.microbatch_factor.size();
  if (factors != 0 && factors != microbatches) {
    return BadValue("costs.microbatch_factor", absl::StrCat(factors, " values"),
                    absl::StrCat("one a microbatch: ", microbatches));
  }
  if (options_.replicas < 1) {
    return BadValue("strategy.dp", absl::StrCat(options_.replicas),
                    "1 or more");
  }
  if (reduces() && options_.gradient_bytes.size() != stages) {
    return BadValue("gradient bytes",
                    absl::StrCat(options_.gradient_bytes.size(), " stages"),
                    absl::StrCat("pp * vpp = ", stages));
  }
  if (gathers() && options_.parameter_bytes.size() != stages) {
    return BadValue("parameter bytes",
                    absl::StrCat(options_.parameter_bytes.size(), " stages"),
                    absl::StrCat("pp * vpp = ", stages));
  }
  if (!options_.activation_bytes.empty() &&
      options_.activation_bytes.size() != stages) {
    return BadValue("activation bytes",
                    absl::StrCat(options_.activation_bytes.size(), " stages"),
                    absl::StrCat("pp * vpp = ", stages));
  }
  const Network& network = options_.network;
  if (network.cluster != nullptr &&
      (network.mapping == nullptr || network.mapping->pp() != schedule_.pp() ||
       network.mapping->dp() != options_.replicas)) {
    return absl::InvalidArgumentError(
        absl::StrCat("strategy.mapping: does not place ", schedule_.pp(),
                     " ranks times ", options_.replicas, " replicas"));
  }
  return absl::OkStatus();
}

void Lowering::AddGlobals() {
  program_.network = options_.network;
  program_.wait_rule = options_.wait_rule;
  program_.replicas = options_.replicas;
  program_.until_steady = options_.iterations == 0;
  program_.iterations =
      options_.iterations == 0 ? kMostIterations : options_.iterations;
  program_.microbatch_factor = options_.costs.microbatch_factor;
}

// Orders, lanes and the channels between them.
void Lowering::AddPasses() {
  const Wiring wiring = WireSchedule(schedule_);
  for (const WiredChannel& wired : wiring.channels) {
    program_.channels.push_back({.kind = wired.gradient
                                             ? ChannelKind::kGradient
                                             : ChannelKind::kActivation,
                                 .from_rank = wired.from_rank,
                                 .to_rank = wired.to_rank,
                                 .bytes = options_.hop_bytes / schedule_.slices,
                                 .stage = wired.stage,
                                 .replica = wired.replica});
  }
  program_.ranks.resize(schedule_.pp());
  for (int rank = 0; rank < schedule_.pp(); ++rank) {
    RankProgram& target = program_.ranks[rank];
    target.order = schedule_.orders[rank];
    const std::vector<WiredLane>& wired = wiring.lanes[rank];
    target.lanes.resize(wired.size());
    for (size_t index = 0; index < wired.size(); ++index) {
      if (wired[index].stage < 0) continue;
      const auto kind = static_cast<PassKind>(index % kNumPassKinds);
      const int stage = wired[index].stage;
      const bool copy = kind == PassKind::kOffload || kind == PassKind::kLoad;
      target.lanes[index] = {
          .seconds = options_.costs.Seconds(kind, stage, schedule_.slices),
          .stage = stage,
          .input = wired[index].input,
          .output = wired[index].output,
          .bytes = copy && !options_.activation_bytes.empty()
                       ? options_.activation_bytes[stage] / schedule_.slices
                       : 0};
    }
    for (const Pass pass : *target.order) ++target.lanes[pass.lane()].passes;
  }
}

// One reduction a chunk, as soon as its last weight gradient is there; it
// overlaps whatever the rank does after that.
void Lowering::AddGradientReduction() {
  for (int rank = 0; rank < schedule_.pp(); ++rank) {
    replica_group_.push_back(GroupOfReplicas(rank));
    const RankOrder& order = schedule_.order(rank);
    std::vector<bool> found(Pass::LaneCount(schedule_.vpp()), false);
    int missing = schedule_.vpp() * schedule_.replicas;
    for (int64_t position = OrderSize(rank) - 1; position >= 0 && missing > 0;
         --position) {
      const Pass pass = order[position];
      if (pass.kind() != PassKind::kBackwardFull &&
          pass.kind() != PassKind::kBackwardWeight) {
        continue;
      }
      const uint32_t lane =
          Pass::LaneOf(PassKind::kBackwardFull, pass.chunk(), pass.replica());
      if (found[lane]) continue;
      found[lane] = true;
      --missing;
      const int stage =
          schedule_.placement.StageOf(rank, pass.chunk(), pass.replica());
      const int32_t event = AddChannel(ChannelKind::kEvent, rank, rank, 0);
      synced_[rank].push_back(event);
      Attach(rank, Behind(rank, position),
             {.kind = gathers() ? OpKind::kReduceScatter : OpKind::kAllReduce,
              .stream = Stream::kCollective,
              .bytes = options_.gradient_bytes[stage],
              .group = replica_group_[rank],
              .chunk = pass.chunk(),
              .outputs = {event}});
    }
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
  Group everybody;
  // After an all-reduce the replicas hold the same gradients.
  everybody.span = gathers() ? Group::Span::kAll : Group::Span::kRanks;
  for (int rank = 0; rank < schedule_.pp(); ++rank) {
    everybody.ranks.push_back(rank);
  }
  program_.groups.push_back(std::move(everybody));
  const int group = static_cast<int>(program_.groups.size()) - 1;
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

// Rank by rank the partial state travels to the last rank; each steps on what
// it has seen. In the next warm-up the full state travels back and every rank
// checks its step before the first pass that is no forward of chunk 0.
void Lowering::AddPostValidatedStep() {
  const int last = schedule_.pp() - 1;
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
    Attach(rank,
           FirstPosition(rank,
                         [](Pass pass) {
                           return pass.kind() != PassKind::kForward ||
                                  pass.chunk() != 0;
                         }),
           std::move(validate));
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

}  // namespace

absl::StatusOr<Program> Lower(std::shared_ptr<const Schedule> schedule,
                              const LowerOptions& options) {
  return Lowering(std::move(schedule), options).Run();
}

}  // namespace pipewright
