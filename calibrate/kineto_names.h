// What names in a Kineto trace stand for: modules and marks of layers, of the
// embedding and of the head, operators, kernels, process groups.
//
// Facts of the names: modules as "nn.Module: CLASS_NUMBER", the number counting
// the instances of a class (pytorch, torch/csrc/autograd/profiler_python.cpp);
// operators of aten (native_functions.yaml) and of flash-attn; kernels
// "ncclDevKernel_..." (NVIDIA/nccl); groups of Megatron-LM
// (megatron/core/parallel_state.py) and of device meshes ("mesh_pp").
#pragma once

#include <cstdint>
#include <optional>
#include <regex>
#include <string>
#include <unordered_map>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pipewright {

enum class TracePart { kEmbedding, kLayer, kHead, kCommunication, kOther };
inline constexpr int kNumTraceParts = 5;

struct NamedPart {
  TracePart part = TracePart::kLayer;
  bool is_module = false;  // "nn.Module: ..."
  std::string id;          // names a layer: different where the layer is
};

// Caches, because a trace has few names and many events.
class PartNames {
 public:
  // `layer`: regular expression of a module's class, or of a mark, that is a
  // layer; "": those that are common. Error: kInvalidArgument.
  static absl::StatusOr<PartNames> Create(const std::string& layer);

  // Returns the part that a module or a mark (record_function) stands for;
  // nothing if it is none.
  const std::optional<NamedPart>& Of(const std::string& name);

 private:
  explicit PartNames(std::optional<std::regex> layer)
      : layer_(std::move(layer)) {}
  std::optional<NamedPart> Classify(absl::string_view name) const;

  std::optional<std::regex> layer_;  // the user's
  std::unordered_map<std::string, std::optional<NamedPart>> known_;
};

enum class TraceOpKind { kOther, kProduct, kAttention, kEmbedding, kLoss };
TraceOpKind TraceOpKindOf(absl::string_view name);
// Attention whose queries are [batch, heads, sequence, head_dim]; else
// [batch, sequence, heads, head_dim].
bool HasHeadsFirst(absl::string_view attention);

// kLayer: it does not say.
TracePart PartOfKernel(absl::string_view name);

enum class TraceAxis { kPipeline, kTensor, kExpert, kContext };
bool IsGroupOf(TraceAxis axis, absl::string_view description);

}  // namespace pipewright
