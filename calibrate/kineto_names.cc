#include "calibrate/kineto_names.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr absl::string_view kModule = "nn.Module: ";
// The library's search takes time, and stack, with the length.
constexpr size_t kLongestPartName = 200;

std::regex Pattern(const char* text) {
  return std::regex(text, std::regex::ECMAScript | std::regex::icase);
}

// Classes of modules.
const std::regex& LayerClass() {
  static const std::regex pattern = Pattern(
      "^(\\w*(transformer|decoder|encoder|gpt\\w*|bert\\w*|llama\\w*)"
      "(layer|block)|block|layer)$");
  return pattern;
}
const std::regex& EmbeddingClass() {
  static const std::regex pattern =
      Pattern("^(?!.*(rotary|position|rope|yarn)).*embedding$");
  return pattern;
}
const std::regex& HeadClass() {
  static const std::regex pattern =
      Pattern("^\\w*(lm_?head|crossentropy(loss)?|nllloss)$");
  return pattern;
}

// Marks: nothing but a pass may stand behind the number, or marks of a layer's
// parts and of its weights' collectives would be layers.
const std::regex& LayerMark() {
  static const std::regex pattern = Pattern(
      "^(.*[^a-z])?(\\w*(transformer|decoder|encoder))?[ _.-]?(layers?|blocks?)"
      "[ _.:#-]*(\\d+)[ _.:-]*(forward|fwd|backward|bwd|recompute)?$");
  return pattern;
}
const std::regex& EmbeddingMark() {
  static const std::regex pattern = Pattern(
      "^(word|tok|token|vocab|input)?[ _.-]*embed(ding|dings)?"
      "[ _.:-]*(layer|tokens)?[ _.:-]*(forward|fwd|backward|bwd)?$");
  return pattern;
}
const std::regex& HeadMark() {
  static const std::regex pattern = Pattern(
      "^(lm[ _.-]?head|output[ _.-]?layer|logits|head|loss|"
      "cross[ _.-]?entropy)[ _.:-]*(forward|fwd|backward|bwd)?$");
  return pattern;
}

}  // namespace

absl::StatusOr<PartNames> PartNames::Create(const std::string& layer) {
  if (layer.empty()) return PartNames(std::nullopt);
  try {
    return PartNames(Pattern(layer.c_str()));
  } catch (const std::regex_error& error) {
    return BadValue("--layer-name", layer,
                    absl::StrCat("a regular expression (", error.what(), ")"));
  }
}

const std::optional<NamedPart>& PartNames::Of(const std::string& name) {
  const auto found = known_.find(name);
  if (found != known_.end()) return found->second;
  return known_.emplace(name, Classify(name)).first->second;
}

std::optional<NamedPart> PartNames::Classify(absl::string_view name) const {
  if (name.size() > kLongestPartName) return std::nullopt;
  const bool is_module = absl::ConsumePrefix(&name, kModule);
  const std::string whole(name);
  if (!is_module) {
    std::smatch match;
    if (layer_ && std::regex_search(whole, *layer_)) {
      return NamedPart{TracePart::kLayer, false, whole};
    }
    if (!layer_ && std::regex_match(whole, match, LayerMark())) {
      return NamedPart{TracePart::kLayer, false, match[5].str()};
    }
    if (std::regex_match(whole, EmbeddingMark())) {
      return NamedPart{TracePart::kEmbedding, false, ""};
    }
    if (std::regex_match(whole, HeadMark())) {
      return NamedPart{TracePart::kHead, false, ""};
    }
    return std::nullopt;
  }
  const size_t number = whole.find_last_of('_');
  const std::string of_class = whole.substr(0, number);
  if (std::regex_search(of_class, layer_ ? *layer_ : LayerClass())) {
    return NamedPart{TracePart::kLayer, true, whole};
  }
  if (std::regex_match(of_class, EmbeddingClass())) {
    return NamedPart{TracePart::kEmbedding, true, ""};
  }
  if (std::regex_match(of_class, HeadClass())) {
    return NamedPart{TracePart::kHead, true, ""};
  }
  return std::nullopt;
}

TraceOpKind TraceOpKindOf(absl::string_view name) {
  if (name == "aten::mm" || name == "aten::addmm") return TraceOpKind::kProduct;
  if (absl::StrContains(name, "ackward")) return TraceOpKind::kOther;
  if (name == "aten::embedding") return TraceOpKind::kEmbedding;
  if (name == "aten::_scaled_dot_product_flash_attention" ||
      name == "aten::_scaled_dot_product_efficient_attention" ||
      name == "aten::_scaled_dot_product_cudnn_attention" ||
      name == "flash_attn::_flash_attn_forward" || name == "FlashAttnFunc") {
    return TraceOpKind::kAttention;
  }
  const std::string lower = absl::AsciiStrToLower(name);
  for (const char* loss :
       {"cross_entropy", "crossentropy", "nll_loss", "log_softmax"}) {
    if (absl::StrContains(lower, loss)) return TraceOpKind::kLoss;
  }
  return TraceOpKind::kOther;
}

bool HasHeadsFirst(absl::string_view attention) {
  return absl::StartsWith(attention, "aten::");
}

TracePart PartOfKernel(absl::string_view name) {
  const std::string lower = absl::AsciiStrToLower(name);
  if (absl::StartsWith(lower, "nccl") || absl::StartsWith(lower, "rccl") ||
      absl::StrContains(lower, "nvshmem")) {
    return TracePart::kCommunication;
  }
  for (const char* loss :
       {"cross_entropy", "crossentropy", "nll_loss", "nllloss"}) {
    if (absl::StrContains(lower, loss)) return TracePart::kHead;
  }
  if (absl::StrContains(lower, "embedding") &&
      !absl::StrContains(lower, "rotary") &&
      !absl::StrContains(lower, "position")) {
    return TracePart::kEmbedding;
  }
  return TracePart::kLayer;
}

bool IsGroupOf(TraceAxis axis, absl::string_view description) {
  const std::string name = absl::AsciiStrToLower(description);
  switch (axis) {
    case TraceAxis::kPipeline:
      return name == "pipeline_model_parallel_group" || name == "mesh_pp" ||
             name == "pp";
    case TraceAxis::kTensor:
      return name == "tensor_model_parallel_group" || name == "mesh_tp" ||
             name == "tp";
    case TraceAxis::kExpert:
      return name == "expert_model_parallel_group" || name == "mesh_ep" ||
             name == "ep";
    case TraceAxis::kContext:
      return name == "context_parallel_group" || name == "mesh_cp" ||
             name == "cp";
  }
  return false;
}

}  // namespace pipewright
