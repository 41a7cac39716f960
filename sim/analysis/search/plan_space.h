// What a plan may choose: every legal combination of degrees of parallelism,
// schedule, chunks, layout, microbatch size, recomputation, sharding and
// offload, at one global batch. docs/plan.md has the rules. No times here.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "sim/analysis/search/plan_layouts.h"
#include "sim/config/prepare.h"
#include "sim/config/run_config.h"
#include "sim/config/run_context.h"
#include "sim/schedule/schedule.h"

namespace pipewright {

struct PlanGroup;

enum class PlanObjective { kTokensPerSecond, kCost, kEnergy };

struct PlanRequest {
  // What the plan does not choose. An axis that it sets is fixed.
  RunConfig base;
  int64_t global_batch = 0;  // samples
  PlanObjective objective = PlanObjective::kTokensPerSecond;
  // Axis -> values that are allowed; see PlanAxes.
  std::map<std::string, std::vector<std::string>> fixed;
  // Leaves out variants that the system cannot run, unless it can run none.
  bool drops_variants = false;
};

// Names that --fix takes, with what each means; without the variants'.
struct PlanAxis {
  const char* name;
  const char* path;  // path in the configuration; "" for the layout
  const char* rule;
};
const std::vector<PlanAxis>& PlanAxes();

// Fields that become axes by being named in a request with several values; each
// combination of them is a variant, which has a space of its own.
struct PlanVariantAxis {
  PlanAxis axis;
  // Can its value make a difference to the group? Else only the first is tried.
  bool (*matters)(const PlanGroup& group);
};
const std::vector<PlanVariantAxis>& PlanVariantAxes();

struct PlanLeftOut {
  std::vector<std::pair<std::string, std::string>> chosen;  // axis, value
  absl::Status status;
};

// Points that differ in sharding and offload alone.
struct PlanGroup {
  int32_t nodes = 1;
  int32_t dp = 1;
  int32_t microbatches = 1;
  int32_t microbatch_size = 1;
  int16_t tp = 1;
  int16_t cp = 1;
  int16_t ep = 1;
  int16_t pp = 1;
  int16_t vpp = 1;
  int16_t schedule = 0;  // index of PlanSpace::schedules()
  int16_t layout = 0;    // index of PlanSpace::Layouts(pp, vpp)
  Recompute recompute = Recompute::kNone;
  // Number of PlanSpace::shardings that its points have.
  uint8_t num_shardings = 1;
  int16_t variant = 0;  // see PlanSpace::Of
  friend bool operator==(const PlanGroup&, const PlanGroup&) = default;
};

struct PlanPoint {
  PlanGroup group;
  DataParallel data_parallel = DataParallel::kNone;
  OffloadMode offload = OffloadMode::kNone;
  friend bool operator==(const PlanPoint&, const PlanPoint&) = default;
};

// Do both run the same passes in the same order, whatever they are called?
bool RunAlike(const Schedule& one, const Schedule& other);

// What a schedule is at one size.
struct ScheduleFacts {
  bool legal = false;
  int directions = 1;
  int unit = 0;
  bool full_backward = false;  // no pass is split: the last one ends a chain
  bool flushes = true;         // between steps
  bool recomputes = false;     // in passes of its own
  // Empty where backwards do not follow each other from the last stage on.
  std::vector<int> rank_of_stage;
};

class PlanSpace {
 public:
  // `context` must live as long as this. Errors: those of Prepare for the
  // request without its axes; an axis or a value that is unknown; a global
  // batch, model or system that is missing.
  static absl::StatusOr<std::unique_ptr<PlanSpace>> Make(PlanRequest request,
                                                         RunContext* context);

  const PlanRequest& request() const { return request_; }
  // The smallest run: what all points share.
  const PreparedRun& probe() const { return probe_; }
  const ModelSpec* model() const {
    return probe_.prepared_model ? &probe_.prepared_model->spec : nullptr;
  }
  int devices_per_node() const { return devices_per_node_; }
  const std::vector<std::string>& schedules() const { return schedules_; }
  // Does its order depend on the costs? Then no order stands for all costs.
  bool is_planner(int schedule) const { return is_planner_[schedule]; }
  const std::vector<OffloadMode>& offloads() const { return offloads_; }
  // Spaces of this and all other variants, by their numbers.
  std::vector<PlanSpace*> Variants();
  // The one that the group is of; each knows the groups of its own alone, but
  // what this class says of a point or names it does of all.
  const PlanSpace& Of(const PlanGroup& group) const {
    return group.variant == variant_ ? *this : *others_[group.variant - 1];
  }
  // Variants that the system cannot run and that are not searched.
  const std::vector<PlanLeftOut>& left_out() const { return left_out_; }
  // Names and values of what makes this variant another one than others.
  const std::vector<std::pair<std::string, std::string>>& chosen() const {
    return chosen_;
  }
  // Watts of a device that does nothing; 0 unless joules are minimised.
  double idle_watts() const { return idle_watts_; }

  // All groups of this variant, or those with plain points, in a fixed order.
  std::vector<PlanGroup> Groups(bool plain = false);
  // Plain is what every framework runs: 1F1B or interleaved 1F1B, layers as
  // even as they can be, no copies; of an axis that allows none of these, all.
  bool IsPlain(const PlanGroup& group) const;
  bool IsPlain(const PlanPoint& point) const;
  // The points of a group, none-offloaded ones of a sharding first.
  std::vector<PlanPoint> PointsOf(const PlanGroup& group) const;
  int64_t NumPoints(const PlanGroup& group) const {
    return int64_t{group.num_shardings} *
           static_cast<int64_t>(offloads_.size());
  }

  const std::vector<PlanLayout>& Layouts(int pp, int vpp) const;
  const ScheduleFacts& Facts(int schedule, int pp, int vpp, int microbatches);
  TrainingSpec TrainingOf(const PlanGroup& group) const;
  RunConfig ConfigOf(const PlanPoint& point) const;
  // The same of one among many, which is not told what has no effect there:
  // that takes as long as the run.
  RunConfig CandidateOf(const PlanPoint& point) const;
  // "tp 8, pp 4, dp 16, interleaved-1f1b, vpp 5, ...".
  std::string NameOf(const PlanPoint& point) const;

 private:
  PlanSpace() = default;
  absl::Status Fill(RunContext* context);
  absl::Status MakeVariants(RunContext* context);
  absl::Status TakeEnergy(RunContext* context);
  // Is the group another variant's too, in which nothing is different?
  bool IsRepeated(const PlanGroup& group) const;
  absl::Status ChooseSchedules();
  bool Allows(const std::string& axis, const std::string& value) const;
  bool Allows(const std::string& axis, int64_t value) const;
  bool IsFixed(const std::string& axis) const {
    return request_.fixed.count(axis) > 0;
  }
  std::vector<int> Values(const std::string& axis, int64_t most,
                          const std::function<bool(int64_t)>& legal) const;
  std::vector<int> ChunksOf(int schedule) const;
  int NumShardings(const PlanGroup& group, int directions) const;
  void MakeLayouts(int pp, int vpp);
  // Layers balanced by the speed of devices that are slow by name.
  std::optional<PlanLayout> SlowLayout(int pp, int vpp);
  void AddGroups(const PlanGroup& degrees, bool plain,
                 std::vector<PlanGroup>* groups);

  PlanRequest request_;
  PreparedRun probe_;
  int devices_per_node_ = 1;
  int nodes_ = 1;
  std::vector<std::string> schedules_;
  std::vector<bool> is_planner_;
  std::vector<bool> is_plain_;  // [schedule]
  std::vector<int> default_vpp_;
  std::vector<DataParallel> shardings_;
  std::vector<OffloadMode> offloads_;
  std::vector<Recompute> recomputes_;
  std::map<std::pair<int, int>, std::vector<PlanLayout>> layouts_;
  std::map<std::tuple<int, int, int, int>, ScheduleFacts> facts_;
  RunContext* context_ = nullptr;
  double idle_watts_ = 0;
  int16_t variant_ = 0;
  std::vector<std::pair<std::string, std::string>> chosen_;
  // Axes without which an earlier variant is the same.
  std::vector<const PlanVariantAxis*> later_;
  std::vector<PlanLeftOut> left_out_;
  std::vector<std::unique_ptr<PlanSpace>> others_;  // of the first variant
};

}  // namespace pipewright
