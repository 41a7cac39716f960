// The steps of Lower (lower.h) and what they share. Internal to program/.
// lower.cc adds the passes, lower_sync.cc and lower_shards.cc data
// parallelism, lower_step.cc the optimizer, lower_offload.cc one on the host,
// lower_validation.cc the check of its step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sim/base/status.h"
#include "sim/program/lower.h"
#include "sim/program/network_time.h"
#include "sim/program/program.h"

namespace pipewright {

// A found-inf flag and a partial squared norm, as doubles (zero-bubble paper,
// sec. 4); also what the synchronised step reduces. [paper, bytes]
inline constexpr double kStateBytes = 16;

class Lowering {
 public:
  Lowering(std::shared_ptr<const Schedule> schedule,
           const LowerOptions& options)
      : schedule_(*schedule), options_(options) {
    program_.name = schedule->name;
    program_.schedule = std::move(schedule);
    synced_.resize(schedule_.pp());
    reduced_.resize(schedule_.pp());
    early_.resize(schedule_.pp());
  }

  absl::StatusOr<Program> Run() && {
    PW_RETURN_IF_ERROR(CheckOptions());
    AddGlobals();
    AddPasses();
    if (never_flushes()) PW_RETURN_IF_ERROR(OverlapIterations());
    GroupTables();
    if (layered()) {
      SplitLayers();
      AddLayerShards();
      LengthenLayers();
    } else if (shards()) {
      AddShards();
      LengthenPasses();
    } else if (reduces()) {
      PW_RETURN_IF_ERROR(AddGradientReduction());
    }
    AddTableSum();
    if (options_.offload.active()) PW_RETURN_IF_ERROR(AddGradientFlush());
    PW_RETURN_IF_ERROR(AddOptimizer());
    if (gathers()) AddParameterGather();
    if (layered() && is_odc()) AddOdcEnd();
    for (RankProgram& rank : program_.ranks) {
      std::stable_sort(rank.attachments.begin(), rank.attachments.end(),
                       [](const Attachment& a, const Attachment& b) {
                         return a.position < b.position;
                       });
    }
    FinishFalseStarts();
    if (WalksSteps()) PW_RETURN_IF_ERROR(AddTimeSteps());
    PW_RETURN_IF_ERROR(VerifyProgram(program_));
    return std::move(program_);
  }

 private:
  // Where in the order of a rank the gradients of one of its stages can be
  // reduced.
  struct Reduction {
    int64_t position;
    int chunk;
    int stage;
  };

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

  absl::Status CheckOptions() const;
  absl::Status CheckFailingSteps() const;
  absl::Status CheckOffload() const;
  absl::Status CheckUpdates() const;
  void AddGlobals();
  void AddPasses();
  void AddLaneExchanges();
  absl::Status AddGradientReduction();
  absl::StatusOr<std::vector<Reduction>> ReductionsOf(int rank) const;
  void ReduceRank(int rank, const std::vector<Reduction>& reductions);
  void ReducePair(int rank, const std::vector<std::vector<Reduction>>& all);
  void Reduce(int rank, int64_t position, int group, int chunk, int stage);
  // Two stages that are sharded as they are do not shard a table alike, so that
  // its gradients are summed before they are scattered, as DeepSpeed does
  // (deepspeed/runtime/pipe/schedule.py: ReduceTiedGrads, ReduceGrads).
  bool SumsTableFirst() const {
    return SumsTable(schedule_, options_) && shards_step() && !shards();
  }
  // Gradients of a table that two ranks hold copies of.
  void GroupTables();
  void AddTableSum();
  void SumTable(int rank, int64_t position);
  absl::Status AddOptimizer();
  void AddSynchronisedStep();
  // lower_offload.cc
  absl::Status AddGradientFlush();
  bool Flushes(int rank) const;
  void FlushStage(int rank, int64_t position, int chunk, int stage);
  void StepEarly(int rank, int64_t position, int chunk, int stage,
                 std::vector<int32_t> inputs);
  void AddHostStep(int rank, int32_t norm);
  void AddCheckedStep(int rank, int32_t norm);
  absl::Status OverlapIterations();
  void AddStepsWithoutFlush();
  absl::Status AddPostValidatedStep();
  std::vector<int64_t> ValidationDeadlines() const;
  std::vector<int64_t> PositionsWithoutWaiting() const;
  std::vector<int64_t> PositionsAsReleased() const;
  absl::Status AddFalseStarts();
  absl::Status AddDropped();
  // Ranks exchange at the ends of time steps.
  bool WalksSteps() const;
  absl::Status AddTimeSteps();
  void FinishFalseStarts();
  void AddShards();
  // lower_layers.cc, lower_odc.cc
  absl::Status CheckLayers() const;
  void SplitLayers();
  int ShardedOver() const;
  double BytesOf(const std::vector<double>& stages, double LayerShare::*number,
                 int rank, int chunk) const;
  SideOp LayerOp(int rank, OpKind kind, int chunk, int group) const;
  int32_t AddSideOp(int rank, SideOp op);
  void AddLayerShards();
  void HookGathers(int rank);
  void HookReductions(int rank);
  void HookLastReductions(int rank);
  SideOp GatherOf(int rank, int chunk, bool backward);
  SideOp ReductionOf(int rank, int chunk);
  struct LayerGroups {
    int gather = -1;
    int near = -1;
    int reduce = -1;
    int across = -1;  // for HSDP
    std::shared_ptr<const PeerPlan> pulls;
    std::shared_ptr<const PeerPlan> pushes;
  };
  LayerGroups GroupsOf(int rank);
  int NodeSizeOf(int rank) const;
  std::shared_ptr<const PeerPlan> PeersOf(int rank, int over, bool push) const;
  // lower_beside.cc
  void Lengthen(double seconds, Lane* lane);
  double CollectiveSeconds(const SideOp& op);
  double LayerCopySeconds(int rank, int chunk, PassKind kind);
  void LengthenLayers();
  void LengthenPasses();
  void AddOdcBegin(int rank);
  void AddOdcDrain(int rank);
  void AddOdcEnd();
  int32_t AddHookOp(int rank, OpKind kind, double bytes, int chunk);
  void HookChunks(int rank, OpKind kind, LaneHook hook,
                  const std::vector<PassKind>& kinds);
  double PartForBackward(int stage) const;
  void AddParameterGather();
  void GatherAgain(int rank);

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
  void Attach(int rank, int64_t position, SideOp op) {
    RankProgram& target = program_.ranks[rank];
    target.side_ops.push_back(std::move(op));
    target.attachments.push_back(
        {.position = position,
         .side_op = static_cast<int32_t>(target.side_ops.size()) - 1});
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
  Program program_;
  std::vector<int> replica_group_;                                // [rank]
  std::vector<LayerGroups> layer_groups_;                         // [rank]
  std::map<std::pair<int, CollectiveKey>, double> collective_s_;  // by group
  // Scaled exchanges, by the exchanges and the factor.
  std::map<std::pair<int32_t, double>, int32_t> lengthened_;
  std::map<int, int> table_group_;            // for ranks with a copy
  std::vector<std::vector<int32_t>> synced_;  // [rank] events to wait for
  // [rank]: stage -> the event of its reduction that its flush waits for.
  std::vector<std::map<int, int32_t>> reduced_;
  // [rank]: copies of weights of a step that is not checked yet, and of how
  // many parameters.
  std::vector<std::vector<std::pair<int, double>>> early_;
  std::vector<int64_t> validation_positions_;  // [rank]
  std::vector<size_t> ends_false_start_;       // [rank] its last side operation
};

}  // namespace pipewright
