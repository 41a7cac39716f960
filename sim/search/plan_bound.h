// Lower bounds on the time of a step and on the memory of a rank, so cheap that
// a plan can order a million points by them. No bound exceeds what engine
// `fast` and the memory of Prepare say of the same point (but for rounding,
// kBoundRounding); docs/plan.md has the argument.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sim/memory/stage_memory.h"
#include "sim/search/plan_space.h"

namespace pipewright {

// Sums in another order differ by that much.
inline constexpr double kBoundRounding = 1e-9;

// Of a stage: seconds of one microbatch, dense parameters of one device.
struct StageBound {
  double forward_s = 0;
  double backward_input_s = 0;
  double backward_weight_s = 0;
  // Of both as one pass, where that is less than the two (the host's launches);
  // 0: their sum.
  double backward_full_s = 0;
  double parameters = 0;  // that are trained and of no expert
  double stepped = 0;     // experts included
  double backward_s() const {
    return backward_full_s > 0 ? backward_full_s
                               : backward_input_s + backward_weight_s;
  }
  // 0 of what is no forward and no backward.
  double SecondsOf(PassKind kind) const {
    switch (kind) {
      case PassKind::kForward:
        return forward_s;
      case PassKind::kBackwardInput:
        return backward_input_s;
      case PassKind::kBackwardWeight:
        return backward_weight_s;
      case PassKind::kBackwardFull:
        return backward_s();
      default:
        return 0;
    }
  }
};

// Ends of all ranks by the longest path, with `hop_s` between ranks; empty
// where they wait for each other.
std::vector<double> EndsOf(const Schedule& schedule,
                           const std::vector<StageBound>& stages, double factor,
                           double hop_s, double pair_factor);

class PlanBounds {
 public:
  // `space` must live as long as this.
  explicit PlanBounds(PlanSpace* space);

  // Of every point of the group, in closed form: the pass time of the busiest
  // rank, least warm-up and cool-down, the optimizer.
  double StepSeconds(const PlanGroup& group);

  // The same with what the point alone has: gradients and parameters on their
  // way. At least that of its group.
  double StepSeconds(const PlanPoint& point);

  // The longest path through the order of the group's schedule, without
  // collectives and with the least time for hops, and what a point adds to it.
  // 0 of planners.
  double ReplaySeconds(const PlanPoint& point);

  // What a device of the neediest rank holds at least; 0 where nothing is
  // known.
  double MemoryBytes(const PlanPoint& point);
  // The same of points of one group with copies to the host, whose steps take
  // `most_s` at most: what their order keeps, but for what copies can have
  // taken away by then and can bring back. `context` prepares runs.
  std::vector<double> MemoryWithCopies(const std::vector<PlanPoint>& points,
                                       double most_s, RunContext* context);
  // The same by the times and copies that a plan would have, which takes a
  // thousand times as long.
  double PlannedBytes(const PlanPoint& point, RunContext* context);
  // Of a device; infinite where no limit is known.
  double memory_limit() const { return memory_limit_; }

  // [stage]; empty where the times cannot be told by stage.
  std::vector<StageBound> Stages(const PlanGroup& group);

 private:
  struct Block {
    StageBound bound;
  };
  // What the order of a schedule keeps on a rank, at its fullest.
  struct Held {
    std::vector<double> kept;    // [direction * vpp + chunk], microbatches
    std::vector<double> weight;  // behind a split B
    std::vector<double> passes;  // [PassKind, then as above] that have begun
  };
  struct Order {
    std::shared_ptr<const Schedule> schedule;  // null: it cannot be built
    bool recomputes = false;                   // in passes of its own
    std::vector<std::vector<Held>> held;       // [rank], a few moments each
    std::vector<std::vector<double>> passes;   // [rank], all of them
  };

  static int StageOf(const Order& order, int rank, size_t lane) {
    const int vpp = order.schedule->vpp();
    return order.schedule->placement.StageOf(rank, static_cast<int>(lane) % vpp,
                                             static_cast<int>(lane) / vpp);
  }
  // What copies a point may have.
  struct Copies {
    bool half = false;               // as OffloadChoice
    double most_s = 0;               // of a step
    double bytes_per_s = 0;          // one way
    std::vector<StageBound> passes;  // [stage]; empty: no time is known
  };
  struct StageMemories {
    std::vector<double> fixed;  // [rank]
    std::vector<std::shared_ptr<const StageMemory>> stages;
  };
  std::optional<StageMemories> StageMemoriesOf(const PlanPoint& point);
  // Of runs with the same degrees and microbatch size.
  struct Links {
    double hop_s = 0;  // the slowest
    // Bytes a second that a device copies one way at most.
    double copied_per_s = std::numeric_limits<double>::infinity();
  };
  const Links& LinksOf(const PlanGroup& group, RunContext* context);
  // What tells a group from others.
  static std::vector<int> KeyOf(const PlanGroup& group);
  double LiveBytes(
      const Order& order, int rank,
      const std::vector<std::shared_ptr<const StageMemory>>& stages,
      const Copies* copies) const;
  double MostAway(const Order& order, int rank, const Held& held,
                  const std::vector<std::shared_ptr<const StageMemory>>& stages,
                  const Copies& copies) const;

  const StageBound& BlockOf(const PlanGroup& group, BlockKind kind,
                            int64_t layer);
  std::shared_ptr<const StageLayout> LayoutOf(const PlanGroup& group);
  std::shared_ptr<const Order> OrderOf(const PlanGroup& group);
  std::shared_ptr<const StageMemory> MemoryOf(
      const TrainingSpec& training, const std::vector<StageBlock>& blocks);
  // Least seconds of a collective of `bytes` over `holders` of the same
  // parameters.
  double CollectiveSeconds(const PlanGroup& group, int holders,
                           double bytes) const;
  // Are weights sharded layer by layer, as given or as a framework may have it?
  bool MayGoByLayer(const PlanPoint& point) const;
  struct Extra {
    double before_s = 0;  // in front of the first pass
    double after_s = 0;   // behind the last one of the rank with stage 0
    std::vector<double> rank_after_s;  // behind the last one of each rank
    double stream_s = 0;  // collectives of one rank, one after the other
  };
  // Least seconds on the network of what a stage has for its replicas.
  struct Traffic {
    double reduce_s = 0;  // gradients
    double gather_s = 0;  // weights
  };
  // What a point has beside its group: collectives, and passes that are longer
  // beside them.
  struct Own {
    std::vector<StageBound> stages;
    Extra extra;
    double step_s = 0;  // of the optimizer
    bool is_longer = false;
  };
  Own OwnOf(const PlanPoint& point, const ScheduleFacts& facts);
  // Are gradients, or weights too, on their way with every pass?
  bool GoesByPass(const PlanPoint& point, const ScheduleFacts& facts) const;
  // [stage]; empty where nothing counts.
  std::vector<Traffic> TrafficOf(const PlanPoint& point,
                                 const std::vector<StageBound>& stages,
                                 const ScheduleFacts& facts) const;
  Extra ExtraOf(const PlanPoint& point, const std::vector<Traffic>& traffic,
                const ScheduleFacts& facts) const;
  bool Lengthen(const PlanPoint& point, const std::vector<Traffic>& traffic,
                const ScheduleFacts& facts,
                std::vector<StageBound>* stages) const;
  double ClosedSeconds(const PlanGroup& group, const ScheduleFacts& facts,
                       const Own& own) const;
  double OptimizerSeconds(const PlanGroup& group,
                          const std::vector<StageBound>& stages,
                          const ScheduleFacts& facts, double shards) const;
  double Passes(const PlanGroup& group, const std::vector<StageBound>& stages,
                const ScheduleFacts& facts, const Extra& extra) const;
  double LeastHop(const PlanGroup& group) const;
  const ScheduleFacts& FactsOf(const PlanGroup& group) {
    return space_->Facts(group.schedule, group.pp, group.vpp,
                         group.microbatches);
  }

  PlanSpace* space_;
  bool synchronised_ = false;
  double memory_limit_ = 0;
  double least_factor_ = 1;  // of a pass, whatever its microbatch
  bool is_exact_ = false;    // passes take what Stages says, no more
  std::mutex mutex_;
  using BlockKey =
      std::tuple<int64_t, int, int, int, int, int, int, int, int, bool>;
  absl::flat_hash_map<BlockKey, std::unique_ptr<StageBound>> blocks_;
  absl::flat_hash_map<std::tuple<int, int, int>,
                      std::shared_ptr<const StageLayout>>
      layouts_;
  absl::flat_hash_map<std::tuple<int, int, int, int>,
                      std::shared_ptr<const Order>>
      orders_;
  absl::flat_hash_map<std::vector<double>, std::shared_ptr<const StageMemory>>
      memories_;
  absl::flat_hash_map<std::vector<int>, std::unique_ptr<const Links>> links_;
  // By KeyOf and what else it follows from.
  absl::flat_hash_map<std::vector<int>,
                      std::shared_ptr<const std::vector<double>>>
      planned_;
  absl::flat_hash_map<std::vector<int>,
                      std::shared_ptr<const std::vector<double>>>
      replays_;
};

}  // namespace pipewright
