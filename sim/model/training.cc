#include "sim/model/training.h"

#include <algorithm>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/nearest.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// Key and value heads are split over tp, or each is repeated on tp / kv_heads
// devices.
bool KvHeadsFit(const ModelSpec& model, int64_t tp) {
  return model.kv_heads % tp == 0 || tp % model.kv_heads == 0;
}

// Why the model cannot be split over `tp`; "" where it can.
std::string TensorConflict(const ModelSpec& model, int64_t tp) {
  const auto conflict = [&](absl::string_view field, int64_t size) {
    return size % tp == 0 ? ""
                          : absl::StrCat("model.", field, " = ", size,
                                         ", which it must divide");
  };
  std::string found = conflict("heads", model.heads);
  if (found.empty() && !model.has_mla() && !KvHeadsFit(model, tp)) {
    found = absl::StrCat("model.kv_heads = ", model.kv_heads,
                         "; it must divide that or be a multiple of it");
  }
  if (found.empty()) found = conflict("ffn_hidden", model.ffn_hidden);
  if (found.empty() && model.Has(Mixer::kMamba)) {
    found = conflict("mamba_heads", model.mamba_heads);
    if (found.empty()) found = conflict("mamba_groups", model.mamba_groups);
  }
  if (found.empty() && model.Has(Mixer::kDelta)) {
    found = conflict("delta_key_heads", model.delta_key_heads);
  }
  if (found.empty() && model.has_experts()) {
    found = conflict("shared_ffn_hidden", model.shared_ffn_hidden);
  }
  return found;
}

std::string Nearest(int64_t value, int64_t highest,
                    const std::function<bool(int64_t)>& works) {
  const std::vector<int64_t> found = NearestWorking(value, highest, works);
  return found.empty() ? "none near it" : absl::StrJoin(found, ", ");
}

absl::Status CheckTensor(const ModelSpec& model, int64_t tp) {
  const std::string conflict = TensorConflict(model, tp);
  if (conflict.empty()) return absl::OkStatus();
  return BadValue(
      "strategy.tp", absl::StrCat(tp),
      absl::StrCat(Nearest(tp, std::max(model.heads, model.mamba_heads),
                           [&](int64_t size) {
                             return TensorConflict(model, size).empty();
                           }),
                   " (", conflict, ")"));
}

// Checks the tensor parallelism of experts against their width and that of the
// rest.
absl::Status CheckExpertTensor(const ModelSpec& model,
                               const TrainingSpec& training) {
  const int etp = training.etp();
  const bool given = training.execution.etp > 0;
  if (!model.has_experts()) {
    if (!given || etp == 1) return absl::OkStatus();
    return BadValue("strategy.etp", absl::StrCat(etp),
                    "1: the model has no experts");
  }
  const auto works = [&](int64_t size) {
    return training.tp % size == 0 && model.expert_ffn_hidden % size == 0;
  };
  if (!works(etp)) {
    return BadValue(
        given ? "strategy.etp" : "strategy.tp", absl::StrCat(etp),
        absl::StrCat(Nearest(etp, training.tp, works),
                     given ? " (it must divide strategy.tp and "
                             "model.expert_ffn_hidden = "
                           : " (model.expert_ffn_hidden = ",
                     model.expert_ffn_hidden,
                     given ? ")" : ", which it must divide; or strategy.etp)"));
  }
  if (etp < training.tp && !training.sequence_parallel) {
    return BadValue("strategy.etp", absl::StrCat(etp),
                    absl::StrCat(training.tp,
                                 " without strategy.sequence_parallel: every "
                                 "device has all tokens then"));
  }
  return absl::OkStatus();
}

absl::Status CheckContext(const ModelSpec& model,
                          const TrainingSpec& training) {
  if (training.execution.context != ContextExchange::kAllToAll ||
      model.heads % (int64_t{training.tp} * training.cp) == 0) {
    return absl::OkStatus();
  }
  return BadValue(
      "strategy.context", "all-to-all",
      absl::StrCat(
          "ring or all-gather (heads are dealt out: tp * cp = ", training.tp,
          " * ", training.cp, " must divide model.heads = ", model.heads, ")"));
}

// Context parallelism deals the heads of a scan out (Megatron-Core,
// mamba_context_parallel.py; transformer_config.py for gated delta).
absl::Status CheckScans(const ModelSpec& model, const TrainingSpec& training) {
  if (!model.has_scans()) return absl::OkStatus();
  if (training.slices > 1) {
    return BadValue("strategy.slices", absl::StrCat(training.slices),
                    "1 with Mamba or gated delta layers: no framework passes "
                    "their states from slice to slice");
  }
  const int64_t tp = training.tp;
  const auto deals = [&](int64_t size) {
    if (model.Has(Mixer::kMamba)) {
      const int64_t groups = model.mamba_groups / tp;
      if (model.mamba_heads / tp % size != 0) return false;
      if (groups % size != 0 && size % groups != 0) return false;
    }
    return !model.Has(Mixer::kDelta) ||
           model.delta_key_heads % (tp * size) == 0;
  };
  if (deals(training.cp)) return absl::OkStatus();
  const std::string sizes =
      model.Has(Mixer::kMamba)
          ? absl::StrCat("model.mamba_heads / tp = ", model.mamba_heads / tp,
                         ", and model.mamba_groups / tp = ",
                         model.mamba_groups / tp, " or be a multiple of it")
          : absl::StrCat("model.delta_key_heads / tp = ",
                         model.delta_key_heads / tp);
  return BadValue(
      "strategy.cp", absl::StrCat(training.cp),
      absl::StrCat(
          Nearest(training.cp,
                  std::max(model.mamba_heads, model.delta_key_heads), deals),
          " (heads are dealt out: it must divide ", sizes, ")"));
}

absl::Status CheckExperts(const ModelSpec& model,
                          const TrainingSpec& training) {
  PW_RETURN_IF_ERROR(CheckExpertTensor(model, training));
  const double load = training.execution.expert_load;
  if (model.has_experts() && load > training.ep) {
    return BadValue("strategy.expert_load", absl::StrCat(load),
                    absl::StrCat("1 to strategy.ep = ", training.ep,
                                 ", where one device has all rows"));
  }
  if (training.ep == 1) return absl::OkStatus();
  if (!model.has_experts()) {
    return BadValue("strategy.ep", absl::StrCat(training.ep),
                    "1: the model has no experts");
  }
  const int64_t across = training.tp / training.etp();
  const int64_t shards = int64_t{training.dp} * training.cp * across;
  const auto works = [&](int64_t size) {
    return model.experts % size == 0 && shards % size == 0;
  };
  if (works(training.ep)) return absl::OkStatus();
  return BadValue(
      "strategy.ep", absl::StrCat(training.ep),
      absl::StrCat(
          Nearest(training.ep, std::min(model.experts, shards), works),
          " (it must divide model.experts = ", model.experts,
          across == 1 ? " and dp * cp = " : " and dp * cp * tp / etp = ",
          training.dp, " * ", training.cp,
          across == 1 ? "" : absl::StrCat(" * ", across), " = ", shards, ")"));
}

absl::Status CheckSequence(const TrainingSpec& training) {
  const int64_t sequence = training.sequence;
  if (sequence < 1) {
    return BadValue("strategy.sequence", absl::StrCat(sequence),
                    "an integer from 1 on");
  }
  const auto divides = [&](const char* field, int64_t value, int64_t pieces) {
    const auto works = [&](int64_t size) {
      return sequence % (pieces * size) == 0;
    };
    if (works(value)) return absl::OkStatus();
    return BadValue(
        absl::StrCat("strategy.", field), absl::StrCat(value),
        absl::StrCat(Nearest(value, sequence / pieces, works),
                     " (it must divide the sequence of ", sequence, " tokens",
                     pieces == 1 ? ""
                                 : absl::StrCat(" in ", pieces,
                                                " pieces of cp and slices"),
                     "); or another strategy.sequence"));
  };
  PW_RETURN_IF_ERROR(divides("cp", training.cp, 1));
  PW_RETURN_IF_ERROR(divides("slices", training.slices, training.cp));
  if (!training.sequence_parallel) return absl::OkStatus();
  return divides("tp", training.tp, int64_t{training.cp} * training.slices);
}

// What Megatron-Core refuses of recompute_modules
// (megatron/core/transformer/transformer_config.py, __post_init__).
absl::Status CheckModules(const ModelSpec& model,
                          const TrainingSpec& training) {
  if (training.recompute != Recompute::kSelective) return absl::OkStatus();
  const auto refuse = [](const char* module, const char* allowed) {
    return BadValue("strategy.recompute_modules", module, allowed);
  };
  if (training.RunsAgain(RecomputeModule::kLatentUp) && !model.has_mla()) {
    return refuse("mla_up_proj",
                  "without it: the model has no latent attention "
                  "(model.kv_lora_rank)");
  }
  if (training.RunsAgain(RecomputeModule::kExpertActivation) &&
      !model.has_experts()) {
    return refuse("moe_act", "without it: the model has no experts");
  }
  if (training.precision == Precision::kFp8) {
    constexpr char kDelayed[] =
        "without it, or another strategy.precision: Transformer Engine does "
        "not run it again with the delayed scales of fp8";
    if (training.RunsAgain(RecomputeModule::kExpertActivation)) {
      return refuse("moe_act", kDelayed);
    }
    if (training.RunsAgain(RecomputeModule::kNorms)) {
      return refuse("layernorm", kDelayed);
    }
  }
  if (training.RunsAgain(RecomputeModule::kExperts) &&
      training.execution.overlap_experts) {
    return refuse("moe", "without it with strategy.overlap_experts");
  }
  return absl::OkStatus();
}

}  // namespace

bool TensorFits(const ModelSpec& model, int64_t tp) {
  return TensorConflict(model, tp).empty();
}

absl::Status CheckTraining(const ModelSpec& model, const TrainingSpec& training,
                           int vpp) {
  PW_RETURN_IF_ERROR(CheckTensor(model, training.tp));
  PW_RETURN_IF_ERROR(CheckExperts(model, training));
  PW_RETURN_IF_ERROR(CheckContext(model, training));
  PW_RETURN_IF_ERROR(CheckScans(model, training));
  PW_RETURN_IF_ERROR(CheckSequence(training));
  PW_RETURN_IF_ERROR(CheckModules(model, training));
  const size_t chunks = training.recompute_chunks.size();
  if (chunks != 0 && chunks != static_cast<size_t>(vpp)) {
    return BadValue("strategy.recompute_chunks",
                    absl::StrCat("a list of ", chunks),
                    absl::StrCat("one entry a chunk, vpp = ", vpp));
  }
  return absl::OkStatus();
}

}  // namespace pipewright
