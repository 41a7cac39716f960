// The input of a generator: sizes, a planner's costs, its own parameters.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pipewright {

// Times of one microbatch through a stage.
struct StageTimes {
  double forward = 0;
  double backward_input = 0;
  double backward_weight = 0;

  friend bool operator==(const StageTimes&, const StageTimes&) = default;
};

// Costs for planners and closed forms. Any unit, the same everywhere. F, B, W
// are those of one microbatch through all stages of a rank; a chunk takes
// 1/vpp of them. One hop between ranks takes `hop`.
struct PlanCosts {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
  double hop = 0;
  // Part of a pass's activations that a split B leaves until its W.
  double held_until_weight = 1;
  // Time of a block (X&Y) over that of X and Y one after the other.
  double pair_factor = 1;
  // False when the caller gave no costs and the defaults above stand.
  bool given = false;
  // Factor on every pass of a slice; empty: 1 for all.
  std::vector<double> slice_factor;
  // [stage], where they differ; F, B and W above are then the means. Empty: all
  // stages are alike.
  std::vector<StageTimes> stages;
  // Time of R, [stage]; empty: that of F.
  std::vector<double> recompute;
  // Each backward runs its forward again in any case (strategy.recompute).
  bool backward_recomputes = false;
  // All ranks step together, so that the whole span counts and not the longest
  // of a rank.
  bool steps_together = false;
  // Activations of a microbatch and what of them a split B leaves to W,
  // [stage], and what a rank has room for, [rank], bytes; for schedules that
  // ask for it (ScheduleInfo::asks_for_room), if it is known.
  std::vector<double> kept;
  std::vector<double> left;
  std::vector<double> room;
  // The part of `kept` that goes with the end of F if an R makes it again,
  // [stage]; empty: all of it.
  std::vector<double> dropped;
  // Copy of a microbatch's activations to the host and back, [stage], and the
  // part of `kept` that goes, bytes; for schedules that plan copies. Empty:
  // nobody knows what copies take, or all of it goes.
  std::vector<double> copy_out;
  std::vector<double> copy_in;
  std::vector<double> moved;

  double work() const { return forward + backward_input + backward_weight; }
  // F = B = W and no hops: what slots mean in the papers.
  bool equal_without_hop() const {
    return forward == backward_input && forward == backward_weight && hop == 0;
  }
};

// A limit of activations may be exceeded by this part of itself, for rounding.
inline constexpr double kLimitRounding = 1e-9;

// What slices are cut from.
struct SequenceShape {
  int64_t tokens = 0;  // 0: unknown
  // Part of a microbatch's work that is causal attention, growing with the
  // tokens in front; 0: every token costs the same.
  double attention = 0;
};

struct ScheduleParams {
  int pp = 1;
  int vpp = 1;
  int microbatches = 1;
  int slices = 1;
  PlanCosts costs;
  // Limit per rank in units of peak_activations; planners only.
  std::optional<double> max_activations;
  SequenceShape sequence;
  // Asked by searches again and again: true ends them with their best so far.
  // May be null.
  std::function<bool()> stops;
  // The schedule's own parameters, as given (--param key=value).
  std::map<std::string, std::string> own;
};

// The integer value of own parameter `key`, or `fallback` where it is not
// given. Error: kInvalidArgument when it is no integer or is outside
// [minimum, maximum].
absl::StatusOr<int> IntParam(const ScheduleParams& params,
                             absl::string_view key, int fallback, int minimum,
                             int maximum);

// The same for a number.
absl::StatusOr<double> RealParam(const ScheduleParams& params,
                                 absl::string_view key, double fallback,
                                 double minimum, double maximum);

// The value of own parameter `key`, or `fallback`; must be one of `choices`.
absl::StatusOr<std::string> ChoiceParam(
    const ScheduleParams& params, absl::string_view key,
    absl::string_view fallback, const std::vector<std::string>& choices);

// OK when `value` is `only`, the one value that `schedule` can have for
// `field` ("strategy.vpp"); else kInvalidArgument saying so.
absl::Status RequireOnly(absl::string_view schedule, absl::string_view field,
                         int value, int only);

// What a slice of a sequence costs relative to the others: with causal
// attention a later token attends to more, so that slices of equal length get
// dearer. schedules/slice_plan.h says how a sequence is best cut.
//
// Work is that of a forward, or of a full backward, of one microbatch through
// any stage; 1 is the whole sequence. A split B or W does not follow it
// (attention has no W): slices go with full backwards.

// The work of the first `part` (0..1) of a sequence; `attention` as of
// SequenceShape.
constexpr double PrefixWork(double attention, double part) {
  return part * (1 - attention + attention * part);
}

// Part of the work of the whole sequence that tokens [begin, end) make up.
double SliceWork(const SequenceShape& sequence, int64_t begin, int64_t end);

// Time of each slice over that of slices which cost the same: work times the
// number of slices, around 1. Of `lengths` tokens each, which add up to the
// sequence's.
std::vector<double> SliceFactors(const SequenceShape& sequence,
                                 const std::vector<int64_t>& lengths);
// The same of slice number `slice` of `slices` of equal length.
double EqualSliceFactor(double attention, int slice, int slices);

}  // namespace pipewright
