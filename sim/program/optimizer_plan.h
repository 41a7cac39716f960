// Where the optimizer's states live and who steps: the decisions of the systems
// that keep them in the memory of the host. Pure: no times, no streams; those
// are lower_offload.cc's and the engines'.
//
// A rank's parameters are dealt out to subgroups of equal size, which are
// stepped one after the other.
//
// Sources: ZeRO-Offload, arXiv 2101.06840; TwinFlow, DeepSpeed's
// blogs/deepspeed-offloadpp; Deep Optimizer States, arXiv 2410.21316, as its
// code does it (DataStates/DeepSpeed, stage3.py); SuperOffload, arXiv
// 2509.21271.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pipewright {

enum class OptimizerPlacement : uint8_t {
  kGpu,          // the states are on the device, and the step is one operation
  kZeroOffload,  // on the host, which steps
  kTwinFlow,     // the first subgroups so, the others as kGpu
  kDeepOptimizerStates,  // on the host; every k-th subgroup is stepped by the
                         // device, which its states visit meanwhile
  kSuperOffload,         // on the host, which steps before the gradients are
                         // checked; the device casts
};

enum class GradientFlush : uint8_t {
  kBlocking,      // the device waits while gradients go to the host
  kAsynchronous,  // they go beside later passes
};

struct PlacementTraits {
  OptimizerPlacement placement;
  const char* name;     // in strategy.optimizer_placement
  GradientFlush flush;  // unless strategy.gradient_flush says otherwise
  bool has_ratio;       // a part of the subgroups may stay on the device
  bool has_stride;
};

inline constexpr std::array<PlacementTraits, 5> kOptimizerPlacements = {{
    {OptimizerPlacement::kGpu, "gpu", GradientFlush::kAsynchronous, false,
     false},
    {OptimizerPlacement::kZeroOffload, "zero-offload", GradientFlush::kBlocking,
     false, false},
    {OptimizerPlacement::kTwinFlow, "twinflow", GradientFlush::kBlocking, true,
     false},
    {OptimizerPlacement::kDeepOptimizerStates, "deep-optimizer-states",
     GradientFlush::kAsynchronous, true, true},
    {OptimizerPlacement::kSuperOffload, "superoffload",
     GradientFlush::kAsynchronous, false, false},
}};

constexpr const PlacementTraits& TraitsOf(OptimizerPlacement placement) {
  return kOptimizerPlacements[static_cast<std::size_t>(placement)];
}

// As many as a rank may have: more would say nothing that these do not, and
// each is a handful of operations.
inline constexpr int kMostSubgroups = 1 << 12;

// Number of subgroups of `size` at most for `parameters`; at least 1.
int64_t NumSubgroups(double parameters, double size);

enum class SubgroupStep : uint8_t {
  kHost,          // stepped by the host
  kHostTriggers,  // the same; before it, states are moved
  kDevice,        // stepped by the device, states fetched for it
  kResident,      // stepped by the device, where its states stay
};

// What moves before a subgroup of kHostTriggers; -1: nothing.
struct SubgroupTransfer {
  int at = 0;
  int flush = -1;     // the device's last subgroup so far, to the host
  int prefetch = -1;  // the device's next one, from the host
  friend bool operator==(const SubgroupTransfer&,
                         const SubgroupTransfer&) = default;
};

struct SubgroupPlan {
  std::vector<SubgroupStep> steps;          // [subgroup]
  std::vector<SubgroupTransfer> transfers;  // one a trigger
  // Subgroup of kDevice behind the last trigger, to be flushed when all is
  // done; -1: none.
  int last_flush = -1;

  int Count(SubgroupStep step) const;
  // Whose gradients the host needs, of all.
  double HostShare() const;
};

// Every `stride`-th of `subgroups` steps on the device: x triggers where x %
// stride = 0, and is the device's where (x + 1) % stride = 0 otherwise. A
// stride of 1 leaves the device none. From `resident` on they stay on the
// device.
SubgroupPlan PlanStrides(int subgroups, int stride, int resident);

// The first floor(subgroups * ratio), in doubles, are the host's.
int HostSubgroups(int subgroups, double ratio);
SubgroupPlan PlanRatio(int subgroups, double ratio);

// The stride at which the host is as fast as the copies, from 2 on: k* = 1 +
// X * U, rounded up, where U parameters a second are stepped by the host alone
// and X = 16 / B seconds is what one takes on the three copy streams at B bytes
// a second in each direction.
int BestStride(double host_parameters_per_s, double copy_bytes_per_s);

}  // namespace pipewright
