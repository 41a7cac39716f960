// Lower bounds on the time of a step and on the memory of a rank, so cheap that
// a plan can order a million points by them. No bound exceeds what engine
// `fast` and the memory of Prepare say of the same point (but for rounding,
// kBoundRounding); docs/dev/plan.md has the argument.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "sim/analysis/search/plan_space.h"
#include "sim/memory/stage_memory.h"

namespace pipewright {

struct Wiring;

// Sums in another order differ by that much.
inline constexpr double kBoundRounding = 1e-9;

// Bounds of a stage: seconds of one microbatch, dense parameters of one device.
struct StageBound {
  double forward_s = 0;
  double backward_input_s = 0;
  double backward_weight_s = 0;
  // Seconds of both as one pass, if that is less than the two (the host's
  // launches); 0: their sum.
  double backward_full_s = 0;
  double parameters = 0;  // that are trained and of no expert
  double stepped = 0;     // experts included
  double joules = 0;      // of all three, above the idle power's
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

class PlanBounds {
 public:
  // `space` must live as long as this.
  explicit PlanBounds(PlanSpace* space);

  // Bound of every point of the group, in closed form: the pass time of the
  // busiest rank, least warm-up and cool-down, the optimizer.
  double StepSeconds(const PlanGroup& group);

  // The same with what the point alone has: gradients and parameters on their
  // way. At least that of its group.
  double StepSeconds(const PlanPoint& point);

  // The longest path through the order of the group's schedule, without
  // collectives and with the least time for hops, and what a point adds to it.
  // 0 of planners. What is above `most_s` may be less than that.
  double ReplaySeconds(const PlanPoint& point,
                       double most_s = std::numeric_limits<double>::infinity());

  // What a device of the neediest rank holds at least, [point] of points of one
  // group; 0 where nothing is known. Where copies to the host take activations
  // away, they have a step of `most_s` for it, and to bring them back;
  // `context` prepares runs then.
  std::vector<double> MemoryBytes(
      const std::vector<PlanPoint>& points,
      double most_s = std::numeric_limits<double>::infinity(),
      RunContext* context = nullptr);
  double MemoryBytes(const PlanPoint& point) {
    return MemoryBytes(std::vector<PlanPoint>{point})[0];
  }
  // [rank] what an order keeps with copies besides what is always there, by the
  // times that passes have in a plan of them. It may stop at what fits with no
  // sharding.
  std::map<OffloadMode, std::vector<double>> LeastLive(const PlanGroup& group,
                                                       bool stops,
                                                       RunContext* context);
  // Bytes of a point, [rank] of which keeps that much besides what is always
  // there.
  double BytesBeside(const PlanPoint& point, const std::vector<double>& live);
  // Least joules that passes of a step draw on all devices, above the idle
  // power's; 0 if nobody knows.
  double PassJoules(const PlanGroup& group);
  // Limit of a device; infinite if none is known.
  double memory_limit() const { return memory_limit_; }

  // The same for all groups whose ranks run the same passes in the same order;
  // null where the order is not known.
  const void* OrderKey(const PlanGroup& group) { return OrderOf(group)->first; }

  // [stage], of devices none of which is slow; empty where the times cannot be
  // told by stage.
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
    std::shared_ptr<const Wiring> wiring;
    const Order* first = nullptr;  // first known one of those that run alike
    bool offloads = false;         // if nobody says otherwise
    bool recomputes = false;       // in passes of its own
    std::vector<std::vector<Held>> held;      // [rank], a few moments each
    std::vector<std::vector<double>> passes;  // [rank], all of them
  };

  static int StageOf(const Order& order, int rank, size_t lane) {
    const int vpp = order.schedule->vpp();
    return order.schedule->placement.StageOf(rank, static_cast<int>(lane) % vpp,
                                             static_cast<int>(lane) / vpp);
  }
  // What copies a point may have.
  struct Copies {
    bool half = false;               // as OffloadChoice
    double most_s = 0;               // length of a step at most
    double bytes_per_s = 0;          // one way
    std::vector<StageBound> passes;  // [stage]; empty: no time is known
  };
  using MemoryOfStages = std::vector<const StageMemory*>;
  // Stages of one way to split the model.
  struct KnownStages {
    std::mutex mutex;
    std::vector<
        std::pair<std::vector<StageBlock>, std::unique_ptr<const StageMemory>>>
        stages;
  };
  struct StageMemories {
    std::vector<double> fixed;   // [rank], of a process too
    std::vector<double> summed;  // part of `fixed` for its stages
    MemoryOfStages stages;
  };
  std::optional<StageMemories> StageMemoriesOf(const PlanPoint& point);
  // Links of runs with the same degrees and microbatch size.
  struct Links {
    // A message of the first replica to the next rank, and from there; [rank].
    std::vector<double> next_s;
    std::vector<double> back_s;
    // Passes take what bounds say.
    bool is_exact = false;
    // Bytes a second that a device copies one way at most.
    double copied_per_s = std::numeric_limits<double>::infinity();
  };
  const Links& LinksOf(const PlanGroup& group, RunContext* context);
  // [rank][position], start and end without copies and collectives.
  using Times = std::vector<std::vector<std::pair<double, double>>>;
  static std::optional<Times> TimesOf(const Order& order,
                                      const std::vector<StageBound>& stages,
                                      const Links& links);
  double TimedLive(const Order& order, int rank,
                   const std::vector<std::pair<double, double>>& times,
                   const MemoryOfStages& stages, bool half, double copied_per_s,
                   double enough) const;
  static double MostChosen(const Schedule& schedule,
                           std::vector<double> of_chunk, double largest,
                           bool half);
  bool IsHalf(const PlanPoint& point) const;
  // Buffers too.
  void TakeFixed(const PlanPoint& point, const Schedule& schedule,
                 StageMemories* memories);
  // [point]; `live_of` is asked once for each kind of copies and each rank, and
  // where it `stops`, for nothing behind what is too much with any sharding.
  // With `schedule` all that a rank has all the time counts.
  template <typename LiveOf>
  std::vector<double> BytesOf(const std::vector<PlanPoint>& points,
                              const Schedule* schedule, bool stops,
                              const LiveOf& live_of);
  double LiveBytes(const Order& order, int rank, const MemoryOfStages& stages,
                   const Copies* copies) const;
  double MostAway(const Order& order, int rank, const Held& held,
                  const MemoryOfStages& stages, const Copies& copies) const;

  const StageBound& BlockOf(const PlanGroup& group, BlockKind kind,
                            int64_t layer);
  std::shared_ptr<const StageLayout> LayoutOf(const PlanGroup& group);
  std::shared_ptr<const Order> OrderOf(const PlanGroup& group);
  const StageMemory* MemoryOf(const TrainingSpec& training,
                              const std::vector<StageBlock>& blocks,
                              KnownStages* known) const;
  // Least seconds of a collective of `bytes` over `holders` of the same
  // parameters.
  double CollectiveSeconds(const PlanGroup& group, int holders,
                           double bytes) const;
  // Are weights sharded layer by layer, as given or as a framework may have it?
  bool MayGoByLayer(const PlanPoint& point) const;
  template <class Observer>
  static std::vector<double> Replayed(const Order& order,
                                      const std::vector<StageBound>& stages,
                                      double factor,
                                      const std::vector<double>* delays,
                                      double hop_s, double pair_factor,
                                      Observer& observer);
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
    double step_s = 0;  // step of the optimizer
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
                          const ScheduleFacts& facts, bool is_sharded) const;
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
  double least_factor_ = 1;  // factor of a pass, whatever its microbatch
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
  // Those of a size that do not run alike, of `orders_`.
  absl::flat_hash_map<std::tuple<int, int, int>, std::vector<const Order*>>
      firsts_;
  absl::flat_hash_map<std::array<int, 7>, std::unique_ptr<KnownStages>>
      memories_;
  absl::flat_hash_map<std::vector<int>, std::unique_ptr<const Links>> links_;
  absl::flat_hash_map<std::vector<int>,
                      std::shared_ptr<const std::vector<double>>>
      replays_;
};

}  // namespace pipewright
