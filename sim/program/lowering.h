// The steps of Lower (lower.h), a class each, which owns what it has to know
// until Lower ends. Internal to program/. lower.cc adds the passes,
// lower_sync.cc and lower_shards.cc data parallelism, lower_layers.cc and
// lower_odc.cc that of layers, lower_beside.cc what it costs passes,
// lower_step.cc the optimizer, lower_offload.cc one on the host,
// lower_validation.cc the check of its step.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sim/program/lower.h"
#include "sim/program/network_time.h"
#include "sim/program/program.h"

namespace pipewright {

// A found-inf flag and a partial squared norm, as doubles (zero-bubble paper,
// sec. 4); also what the synchronised step reduces. [paper, bytes]
inline constexpr double kStateBytes = 16;

// What every step sees of the strategy, and how it adds to the Program, which
// outlives it. Copies add to the same Program.
class LoweringStep {
 public:
  LoweringStep(const Schedule& schedule, const LowerOptions& options,
               Program* program)
      : schedule_(schedule), options_(options), program_(*program) {}

  const DataParallelTraits& traits() const {
    return TraitsOf(options_.data_parallel);
  }
  // What holds the parameters of a rank: replicas, and parts of context
  // parallelism. Pulls and pushes are of replicas alone.
  int holders() const { return HoldersOf(options_); }
  bool reduces() const {
    return traits().reduces && (holders() > 1 || schedule_.directions > 1);
  }
  bool never_flushes() const { return schedule_.update_every > 0; }
  // The optimizer is sharded.
  bool shards_step() const { return traits().shards_step && holders() > 1; }
  // Gradients are, too.
  bool shards() const { return traits().shards_gradients && holders() > 1; }
  bool is_odc() const { return options_.data_parallel == DataParallel::kOdc; }
  // Layers are sharded one by one.
  bool layered() const { return GathersLayers(options_); }
  // The step is followed by a gather of what it has made.
  bool gathers() const { return shards_step() && !traits().shards_weights; }
  // Replicas over which a layer is sharded.
  int ShardedOver() const {
    return options_.layers.shard_group > 0 ? options_.layers.shard_group
                                           : options_.replicas;
  }
  // Gradients of `rank` go to the host.
  bool Flushes(int rank) const;

 protected:
  const RankOrder& order(int rank) const { return *program_.ranks[rank].order; }
  int64_t OrderSize(int rank) const {
    return static_cast<int64_t>(order(rank).size());
  }
  // The first position in the order of `rank` after the pass at `position` that
  // does not split a block.
  int64_t Behind(int rank, int64_t position) const {
    const bool joint = order(rank)[position].joint_with_next();
    return position + (joint ? 2 : 1);
  }
  // The first position of `rank` whose pass `matches`; the order's size when
  // there is none. A block counts as one.
  template <class Predicate>
  int64_t FirstPosition(int rank, Predicate matches) const {
    const RankOrder& passes = order(rank);
    for (int64_t position = 0; position < OrderSize(rank); ++position) {
      if (!matches(passes[position])) continue;
      const bool second =
          position > 0 && passes[position - 1].joint_with_next();
      return second ? position - 1 : position;
    }
    return OrderSize(rank);
  }

  int32_t AddChannel(ChannelKind kind, int from, int to, double bytes) {
    program_.channels.push_back(
        {.kind = kind, .from_rank = from, .to_rank = to, .bytes = bytes});
    return static_cast<int32_t>(program_.channels.size()) - 1;
  }
  int32_t AddEvent(int rank) {
    return AddChannel(ChannelKind::kEvent, rank, rank, 0);
  }
  // Returns its index among those of `rank`.
  int32_t AddSideOp(int rank, SideOp op) {
    std::vector<SideOp>& ops = program_.ranks[rank].side_ops;
    ops.push_back(std::move(op));
    return static_cast<int32_t>(ops.size()) - 1;
  }
  void Attach(int rank, int64_t position, SideOp op) {
    const int32_t added = AddSideOp(rank, std::move(op));
    program_.ranks[rank].attachments.push_back(
        {.position = position, .side_op = added});
  }
  int AddGroup(Group::Span span, std::vector<int> ranks) {
    program_.groups.push_back({.span = span, .ranks = std::move(ranks)});
    return static_cast<int>(program_.groups.size()) - 1;
  }
  // Adds a group of all that hold the same parameters.
  int AddHolders(Group::Span span, std::vector<int> ranks) {
    const int group = AddGroup(span, std::move(ranks));
    program_.groups[group].contexts = holders() > options_.replicas;
    return group;
  }

  const Schedule& schedule_;
  const LowerOptions& options_;
  Program& program_;
};

// Options that no step could lower. kInvalidArgument.
class LoweringCheck : LoweringStep {
 public:
  explicit LoweringCheck(const LoweringStep& step) : LoweringStep(step) {}
  absl::Status Run() const;

 private:
  absl::Status CheckFailingSteps() const;
  absl::Status CheckOffload() const;  // lower_offload.cc
  absl::Status CheckUpdates() const;  // lower_unflushed.cc
  absl::Status CheckLayers() const;   // lower_layers.cc
};

// Orders, lanes and the channels between them.
class PassLowering : LoweringStep {
 public:
  explicit PassLowering(const LoweringStep& step) : LoweringStep(step) {}
  absl::Status Run();

 private:
  void AddGlobals();
  void AddPasses();
  void AddLaneExchanges();
  absl::Status OverlapIterations();  // lower_unflushed.cc
};

// [rank]: events that its optimizer waits for.
using RankEvents = std::vector<std::vector<int32_t>>;

// Tied embeddings: gradients of a table that two ranks hold copies of.
class TableSum : LoweringStep {
 public:
  explicit TableSum(const LoweringStep& step);

  // Two stages that are sharded as they are do not shard a table alike, so that
  // its gradients are summed before they are scattered, as DeepSpeed does
  // (deepspeed/runtime/pipe/schedule.py: ReduceTiedGrads, ReduceGrads).
  bool comes_first() const {
    return SumsTable(schedule_, options_) && shards_step() && !shards();
  }
  bool HasTable(int rank) const { return group_.count(rank) > 0; }
  // Adds the sum, and its event to those of the rank.
  void Add(int rank, int64_t position, RankEvents* events);
  // Adds all that do not come first.
  void AddBehind(RankEvents* events);

 private:
  std::map<int, int> group_;  // of ranks with a copy
};

// Where in the order of a rank the gradients of one of its stages can be
// reduced.
struct Reduction {
  int64_t position;
  int chunk;
  int stage;
};

// Data parallelism once an iteration.
class GradientReduction : LoweringStep {
 public:
  GradientReduction(const LoweringStep& step, TableSum* table)
      : LoweringStep(step), table_(*table), reduced_(schedule_.pp()) {}

  // Events are appended. Error: kFailedPrecondition for a SYNC that stands too
  // early.
  absl::Status Add(RankEvents* events);
  absl::StatusOr<std::vector<Reduction>> ReductionsOf(int rank) const;

  // [rank] of the replicas of a rank; none of bidirectional schedules.
  const std::vector<int>& groups() const { return groups_; }
  // stage -> the event of its reduction that its flush waits for.
  const std::map<int, int32_t>& reduced(int rank) const {
    return reduced_[rank];
  }

 private:
  void ReduceRank(int rank, const std::vector<Reduction>& reductions,
                  RankEvents* events);
  void ReducePair(int rank, const std::vector<std::vector<Reduction>>& all,
                  RankEvents* events);
  void Reduce(int rank, int group, const Reduction& where, RankEvents* events);

  TableSum& table_;
  std::vector<int> groups_;
  std::vector<std::map<int, int32_t>> reduced_;
};

// Gradients, or weights too, that are sharded over the replicas and gathered
// and reduced with blocks of passes.
class BlockShards : LoweringStep {
 public:
  explicit BlockShards(const LoweringStep& step) : LoweringStep(step) {}
  void Add(RankEvents* events);
  const std::vector<int>& groups() const { return groups_; }  // [rank]

 private:
  int32_t AddHookOp(int rank, OpKind kind, double bytes, int chunk);
  void HookChunks(int rank, OpKind kind, LaneHook hook,
                  const std::vector<PassKind>& kinds);
  double PartForBackward(int stage) const;

  std::vector<int> groups_;
};

// The same with layers as the unit: passes are cut into their layers.
class LayerShards : LoweringStep {
 public:
  explicit LayerShards(const LoweringStep& step) : LoweringStep(step) {}
  void Add(RankEvents* events);
  // Nobody pulls before all have stepped (odc).
  void AddEnd();

  // What a layer has of its stage's bytes; `chunk` counts layers.
  double BytesOf(const std::vector<double>& stages, double LayerShare::*number,
                 int rank, int chunk) const;
  SideOp GatherOf(int rank, int chunk, bool backward) const;
  SideOp ReductionOf(int rank, int chunk) const;

 private:
  struct Groups {
    int all = -1;  // replicas of the rank
    int gather = -1;
    int near = -1;
    int reduce = -1;
    int across = -1;  // for HSDP
    std::shared_ptr<const PeerPlan> pulls;
    std::shared_ptr<const PeerPlan> pushes;
  };

  void SplitLayers();
  Groups GroupsOf(int rank);
  SideOp LayerOp(int rank, OpKind kind, int chunk, int group) const;
  void HookGathers(int rank);
  void HookReductions(int rank, RankEvents* events);
  void HookLastReductions(int rank, RankEvents* events);
  // lower_odc.cc
  int NodeSizeOf(int rank) const;
  std::shared_ptr<const PeerPlan> PeersOf(int rank, int over, bool push) const;
  void AddOdcBegin(int rank);
  void AddOdcDrain(int rank, RankEvents* events);

  std::vector<Groups> groups_;  // [rank]
};

// What sharded weights cost the passes beside them.
class PassLengthening : LoweringStep {
 public:
  explicit PassLengthening(const LoweringStep& step) : LoweringStep(step) {}
  void LengthenLayers(const LayerShards& shards);
  void LengthenPasses();

 private:
  void Lengthen(double seconds, Lane* lane);
  double CollectiveSeconds(const SideOp& op);
  double LayerCopySeconds(const LayerShards& shards, int rank, int chunk,
                          PassKind kind) const;

  std::map<std::pair<int, CollectiveKey>, double> collective_s_;  // by group
  // Scaled exchanges, by the exchanges and the factor.
  std::map<std::pair<int32_t, double>, int32_t> lengthened_;
};

// An optimizer whose states are in the memory of the host.
class OffloadedStep : LoweringStep {
 public:
  explicit OffloadedStep(const LoweringStep& step)
      : LoweringStep(step), early_(schedule_.pp()) {}

  // Gradients to the host, once an iteration.
  absl::Status AddFlush(const GradientReduction& reduction,
                        const TableSum& table, RankEvents* events);
  // Behind the event of the norm.
  void AddStep(int rank, int32_t norm);

 private:
  void FlushStage(int rank, const Reduction& where,
                  const GradientReduction& reduction, RankEvents* events);
  void StepEarly(int rank, const Reduction& where, std::vector<int32_t> inputs);
  void AddCheckedStep(int rank, int32_t norm);
  void AddPlannedStep(int rank, int32_t norm);

  // [rank]: copies of weights of a step that is not checked yet, and of how
  // many parameters.
  std::vector<std::vector<std::pair<int, double>>> early_;
};

// A step that is checked in the next warm-up, and false starts.
class PostValidatedStep : LoweringStep {
 public:
  explicit PostValidatedStep(const LoweringStep& step) : LoweringStep(step) {}

  absl::Status Add();
  // What was gathered for a false start came from a step that is undone: once
  // more, over `group`.
  void GatherAgain(int rank, int group);
  // Once all attachments are in order: where false starts end, and what takes
  // part in the second start. What an iteration before has sent comes once.
  void Finish();

 private:
  std::vector<int64_t> ValidationDeadlines() const;
  std::vector<int64_t> PositionsWithoutWaiting() const;
  std::vector<int64_t> PositionsAsReleased() const;
  absl::Status AddFalseStarts();
  absl::Status AddDropped();

  std::vector<int64_t> positions_;        // [rank]
  std::vector<size_t> ends_false_start_;  // [rank] its last side operation
};

// The optimizer step: with the norm of all ranks first, rank by rank and
// checked afterwards, or by ranks that never meet.
class OptimizerStep : LoweringStep {
 public:
  OptimizerStep(const LoweringStep& step, OffloadedStep* host,
                PostValidatedStep* validated)
      : LoweringStep(step), host_(*host), validated_(*validated) {}
  absl::Status Add(const RankEvents& events);

 private:
  void AddSynchronised();
  std::vector<int32_t> GatherUpdates(int rank, int32_t event);
  void AddWithoutFlush();  // lower_unflushed.cc

  OffloadedStep& host_;
  PostValidatedStep& validated_;
};

// Sharded optimizer: every chunk's parameters are gathered behind the step, in
// the order of their use, and awaited before their first forward.
class ParameterGather : LoweringStep {
 public:
  explicit ParameterGather(const LoweringStep& step) : LoweringStep(step) {}
  // `groups`: [rank] of those that hold its parts.
  void Add(const std::vector<int>& groups, PostValidatedStep* validated);
};

}  // namespace pipewright
