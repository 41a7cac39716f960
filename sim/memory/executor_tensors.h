// The tensors of the executor's parts: embedding, layer, layer of experts, head
// as kernels/layer.h describes them, on one device, for one slice of a
// microbatch. What the memory of its stages (executor_memory.h) follows from.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/memory/executor_memory.h"
#include "sim/model/ops.h"

namespace pipewright {

// fp32, and the int32 of tokens and routes.
inline constexpr int64_t kFloat = 4;
inline constexpr int64_t kIndex = 4;

// From which pass to which a tensor is there. In one backward (BW) W's tensors
// go with B's.
enum class TensorSpan : uint8_t {
  kWeight,           // always, in sets of several types
  kTable,            // the same; of words, what a head may share
  kQuantizedWeight,  // in each set that passes read
  kSource,           // F to W, even where the forward runs again
  kForwardToBackward,
  kForwardToWeight,
  kBackwardToWeight,
  kMicrobatch,  // from its first F to its last B, all slices
  kPass,        // inside one pass; one room for all passes of a stage
};

struct ExecutorTensor {
  const char* name;
  TensorSpan span;
  int64_t elements;
  int64_t element_bytes;
};

std::vector<ExecutorTensor> ExecutorTensors(const ModelSpec& model,
                                            const TrainingSpec& training,
                                            const ExecutorSpec& spec,
                                            BlockKind kind);

// One part's bytes, as much as its tensors are rounded up to.
struct ExecutorPart {
  int64_t parameters = 0;  // elements
  int64_t table = 0;       // the table's part of them
  int64_t quantized = 0;
  int64_t source = 0;
  int64_t saved = 0;   // kForwardToBackward
  int64_t inputs = 0;  // kForwardToWeight
  int64_t grads = 0;   // kBackwardToWeight
  int64_t microbatch = 0;
  int64_t workspace = 0;
};
ExecutorPart ExecutorPartOf(const std::vector<ExecutorTensor>& tensors);

}  // namespace pipewright
