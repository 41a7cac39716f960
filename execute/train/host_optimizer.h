// The optimizer of one rank whose states are in the memory of the host
// (strategy.optimizer_placement): the arrays there and on the device, and what
// each operation of the rank's program does with them. Who steps what, and
// when, is the program's (sim/program/lower_offload.cc).
//
// Host, pinned, fp32: master weights, both moments and gradients of what is
// stepped there or visits the device. The host casts weights into the place of
// the gradients that it has stepped with. Device: the states of what stays
// there, and those of one visitor.
//
// Gradients travel in fp32, as the device adds them up, so that a step gives
// the bits that it would give on the device.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "execute/train/memory_pool.h"
#include "execute/train/stage.h"
#include "sim/program/lower.h"

namespace pipewright {

struct Program;
struct RankProgram;

// The part of a stage that this rank's replica steps.
struct SteppedPart {
  Stage* stage = nullptr;
  int number = 0;  // number of the stage
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

class HostOptimizer {
 public:
  // A step as all subgroups take it.
  struct Step {
    PwAdam adam{};
    bool may_undo = false;  // keeps what it changes
  };

  // Takes the states over from the stages of `parts`, made with
  // Stage::States::kElsewhere. All must outlive this. Error: kInternal where
  // the program's operations are not those of `offload`.
  static absl::StatusOr<std::unique_ptr<HostOptimizer>> Create(
      const Program& program, int rank, const OptimizerOffload& offload,
      const std::vector<SteppedPart>& parts, const DeviceHandle& handle,
      PwType weight_type, MemoryPool* arena, MemoryPool* host);
  ~HostOptimizer();

  // Is it an operation of this step?
  bool Has(int32_t side_op) const {
    return actions_[side_op].kind != Kind::kNone;
  }
  // Does its time come from cores of the host?
  bool OnCores(int32_t side_op) const {
    return actions_[side_op].kind >= Kind::kHostStep;
  }
  bool CopiesGradients(int32_t side_op) const {
    return actions_[side_op].kind == Kind::kGradientsOut;
  }
  // True for the operations of a step that wait for the norm, the first ones
  // behind it.
  bool NeedsNorm(int32_t side_op) const;
  bool early() const { return early_; }

  // Has ended when it returns. Any thread: operations that the program orders
  // do not meet on the same data. `stream`: the caller's alone.
  absl::Status Run(int32_t side_op, const Step& step, PwStream* stream);

  // Master weights of `part`, [size()].
  absl::Status CopyMaster(size_t part, float* to);
  const std::vector<SteppedPart>& parts() const { return parts_; }

 private:
  enum class Kind : uint8_t {
    kNone,
    kGradientsOut,   // to the host
    kGradientsCast,  // to fp32, by the device: they are that
    kWeightsIn,      // to the device
    kWeightsCast,    // fp32 weights that have come, by the device
    kStatesOut,      // states of a visitor
    kStatesIn,
    kDeviceStep,
    kHostStep,  // from here on: by the host's cores
    kHostCast,
    kHostUndo,
  };
  struct Action {
    Kind kind = Kind::kNone;
    int subgroup = -1;
    int array = -1;  // for kStatesOut and kStatesIn
    int stage = -1;  // for kGradientsOut of all that the host steps of it
  };
  // Elements of parts_[part], counted from its begin.
  struct Range {
    int part = 0;
    int64_t begin = 0;
    int64_t end = 0;
    int64_t count() const { return end - begin; }
  };
  struct Subgroup {
    std::vector<Range> ranges;
    SubgroupStep step = SubgroupStep::kHost;
    int64_t count = 0;
  };
  static constexpr int kArrays = 3;  // moments and master, as in Stream
  enum Array { kMomentum = 0, kVariance = 1, kMaster = 2 };
  // States of one part: [begin, on_host) on the host, the rest on the device.
  struct States {
    int64_t on_host = 0;
    std::array<Payload, kArrays> host;
    std::array<Payload, kArrays> device;
    Payload gradients;  // on the host
    Payload arrived;    // on the device: fp32 weights, where those are others
  };

  HostOptimizer(const DeviceHandle& handle, PwType weight_type)
      : handle_(handle), weight_type_(weight_type) {}
  // Cuts parts [first, last) into `plan`'s subgroups.
  void Cut(size_t first, size_t last, const SubgroupPlan& plan);
  absl::Status TakeStates(MemoryPool* arena, MemoryPool* host);
  absl::Status Assign(const RankProgram& rank);

  float* HostValues(const Range& range, int array) const;
  float* HostGradients(const Range& range) const;
  float* DeviceGradients(const Range& range) const;
  void* DeviceWeights(const Range& range) const;
  size_t WeightBytes(int64_t count) const;

  absl::Status CopyGradients(const Range& range, PwStream* stream);
  absl::Status HostStep(const Subgroup& subgroup, const Step& step);
  absl::Status HostCast(const Range& range);
  absl::Status Undo(const Subgroup& subgroup);
  absl::Status BringWeights(const Range& range, PwStream* stream);
  absl::Status CastWeights(const Range& range, PwStream* stream);
  absl::Status MoveStates(const Subgroup& subgroup, int array, bool out,
                          PwStream* stream);
  absl::Status DeviceStep(const Subgroup& subgroup, const Step& step,
                          PwStream* stream);
  absl::Status Copy(PwStream* stream, PwCopy kind, void* to, const void* from,
                    size_t bytes);
  absl::Status Check(PwStatus status, const char* what) const {
    return KernelStatus(*handle_.kernels, status, what);
  }

  const DeviceHandle handle_;
  const PwType weight_type_;
  bool early_ = false;  // steps before the norm is known
  std::vector<SteppedPart> parts_;
  std::vector<Subgroup> subgroups_;
  std::vector<States> states_;              // [part]
  std::array<Payload, kArrays> visitor_;    // on the device
  std::vector<Action> actions_;             // [side operation]
  std::vector<std::vector<float>> before_;  // [subgroup] what Undo brings back
  PwDevice* cores_ = nullptr;               // the host's cores
};

}  // namespace pipewright
