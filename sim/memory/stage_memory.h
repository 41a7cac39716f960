// The memory of one stage of the model on a device: the constant part, and what
// each of its passes allocates, frees and needs at its highest point. No
// schedule, no times. Whole bytes of one device, so that what is allocated is
// freed exactly.
//
// Allocation follows PyTorch with Megatron-LM's fused accumulation of weight
// gradients: tensors are freed as soon as nothing refers to them any more.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "sim/model/model.h"
#include "sim/model/ops.h"
#include "sim/model/stages.h"
#include "sim/model/training.h"

namespace pipewright {

// What memory is used for; in the order of tables and pictures.
enum class MemoryKind : uint8_t {
  kWeights,
  kGradients,
  kMaster,   // fp32 copy of the weights
  kMoments,  // Adam's, both
  // Tensors of a weight's shape that stand for its gradient towards autograd
  // while the kernel adds the real one to the accumulated gradients. One for
  // each shape of a linear layer on the device, never freed (Transformer
  // Engine, get_dummy_wgrad: release 2.3 on, grouped layers 2.10 on;
  // Megatron-Core's output head uses it too).
  kPlaceholders,
  kActivations,  // kept from F to B or W
  kRecomputed,   // made again for B
  kWorkspace,    // inside an operation; scratch of kernel libraries
  kBuffers,      // for transfers and for ZeRO's gathered layers
};
inline constexpr int kNumMemoryKinds = 9;

// "weights", "gradients", "master weights", ...
absl::string_view MemoryKindName(MemoryKind kind);

struct MemoryBytes {
  std::array<int64_t, kNumMemoryKinds> of{};

  int64_t& operator[](MemoryKind kind) { return of[static_cast<int>(kind)]; }
  int64_t operator[](MemoryKind kind) const {
    return of[static_cast<int>(kind)];
  }
  MemoryBytes& operator+=(const MemoryBytes& other);
  int64_t total() const;
  friend bool operator==(const MemoryBytes&, const MemoryBytes&) = default;
};

// The highest point inside a pass, against what is live when it starts: of
// kActivations and kRecomputed what has come or (below zero) gone until then.
struct PassMemory {
  MemoryBytes peak;
  std::string op;      // "output head", "attention"
  int64_t layer = -1;  // index within its stage, from 0; -1: outside
};

struct StageMemory {
  MemoryBytes fixed;  // kWeights .. kMoments, sharded
  // Weights of one layer as ZeRO 3 gathers it, and its gradient before it is
  // scattered (ZeRO 2 and 3).
  int64_t gathered_layer = 0;
  int64_t gathered_layers = 0;  // all of them
  // A head where layers are gathered one by one: it stays from F to B
  // (torchtitan, apply_fsdp).
  int64_t gathered_head = 0;
  int64_t layer_gradient = 0;
  int64_t whole_gradients = 0;  // all of them, in their own type
  // Outputs and inputs of linear layers that are trained, for placeholders.
  std::vector<std::pair<int64_t, int64_t>> weight_shapes;
  bool has_grouped_layers = false;
  // The word table here, and of a head that is tied to it: in `fixed`, but
  // stored once where one device has both.
  bool has_table = false;
  MemoryBytes tied_table;

  // Bytes of one slice of a microbatch.
  int64_t kept = 0;         // F leaves it, B or BW frees it
  int64_t away = 0;         // part of `kept` that an O takes to the host
  int64_t weight_part = 0;  // B leaves it, W frees it: inputs, held gradients
  int64_t recomputed = 0;   // R leaves it, B or BW frees it
  // Bytes of a whole microbatch, from the F of its first slice to the B of that
  // one.
  int64_t per_microbatch = 0;
  int64_t boundary = 0;  // for a transfer to or from the next stage
  int64_t logits = 0;    // in 16 bit, of the stage with the head
  PassMemory forward;
  PassMemory backward_input;
  PassMemory backward_full;
  PassMemory backward_weight;
  PassMemory recompute;
  // Behind an R, which leaves nothing for them to make again.
  PassMemory backward_input_after;
  PassMemory backward_full_after;
};

// Bytes of a parameter of a layer that is there whole under ZeRO 3: its type on
// the way, except of odc, which casts it to 16 bits.
double WholeWeightBytes(const TrainingSpec& training);

// `chunk`: index of the stage within its rank, for recompute_chunks.
StageMemory BuildStageMemory(const ModelSpec& model,
                             const TrainingSpec& training,
                             const std::vector<StageBlock>& blocks, int chunk);

// Inside of the stage: its operations in order, with what each keeps under the
// stage's recomputation, and the walks over them that find the highest point of
// each pass.
struct WalkOp {
  const ModelOp* op = nullptr;
  double part = 1;  // part of the block that this stage has
  int block = 0;
  int64_t layer = -1;  // index within its stage, from 0; -1: outside layers

  double saved = 0;         // with nothing recomputed
  double kept = 0;          // from F to B
  double again = 0;         // saved - kept: made again for B
  double linear = 0;        // part of `saved` that W needs
  double linear_again = 0;  // part of both that is made again
  double stream = 0;      // gradient of the residual stream during its backward
  bool offloaded = true;  // an O takes what is kept
  bool runs_again = false;  // any part of its forward
  // Index in the walk of the op whose backward begins with making it again, and
  // whether this is such an op.
  size_t remade_at = 0;
  bool remakes = false;
};

class StageWalk {
 public:
  explicit StageWalk(std::vector<WalkOp> ops) : ops_(std::move(ops)) {}

  PassMemory Forward() const;
  PassMemory Recompute() const;
  // `splits`: B alone, else BW. `after`: an R has run before.
  PassMemory Backward(bool splits, bool after) const;
  PassMemory Weight() const;

  double Kept() const;
  double Offloaded() const;  // part of Kept()
  double WeightPart() const;
  double Recomputed() const;

 private:
  std::vector<WalkOp> ops_;
};

}  // namespace pipewright
