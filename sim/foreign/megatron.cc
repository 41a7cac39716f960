// Facts: NVIDIA/Megatron-LM (Apache-2.0), core_v0.12.0 to d98e8a64,
// megatron/training/arguments.py and megatron/core/transformer/
// transformer_config.py, unless another file is named. frameworks/megatron.csv
// has each key with its source.
#include "sim/foreign/megatron.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sim/base/status.h"
#include "sim/config/config_fields.h"
#include "sim/foreign/key_reader.h"
#include "sim/foreign/layer_pattern.h"
#include "sim/model/layer_kinds.h"

namespace pipewright {
namespace {

using Ids = std::vector<std::string>;

// Keys of the model's parts, whose fields stand in their rows.
const Ids& ExpertIds() {
  static const auto* const ids = new Ids{"num_experts", "moe_router_topk",
                                         "moe_shared_expert_intermediate_size"};
  return *ids;
}
const Ids& MambaIds() {
  static const auto* const ids =
      new Ids{"mamba_state_dim", "mamba_head_dim", "mamba_num_groups"};
  return *ids;
}
const Ids& DeltaIds() {
  static const auto* const ids = new Ids{
      "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
      "linear_value_head_dim", "linear_conv_kernel_dim"};
  return *ids;
}
const Ids& LatentIds() {
  static const auto* const ids =
      new Ids{"q_lora_rank", "kv_lora_rank", "qk_head_dim",
              "qk_pos_emb_head_dim", "v_head_dim"};
  return *ids;
}

// "[attn, 'mlp']" or a list as words.
Ids WordsOf(const Ids& list) {
  return absl::StrSplit(absl::StrJoin(list, ","), absl::ByAnyChar(",[]'\" "),
                        absl::SkipEmpty());
}

class MegatronFile {
 public:
  MegatronFile(KeyReader* keys, const ForeignSurroundings& around,
               bool is_recipe, std::map<std::string, std::string> known = {})
      : keys_(*keys),
        around_(around),
        is_recipe_(is_recipe),
        known_(std::move(known)) {}

  absl::StatusOr<ForeignArgs> Read() {
    // The old word for it.
    if (keys_.On("use_rotary_position_embeddings")) {
      keys_.Assume("position_embedding_type", "rope");
    }
    PW_RETURN_IF_ERROR(Degrees());
    PW_RETURN_IF_ERROR(Hybrid());
    PW_RETURN_IF_ERROR(Devices());
    PW_RETURN_IF_ERROR(keys_.CheckRules(Known()));
    // Its own rules are checked without them.
    if (hybrid_ != nullptr) {
      keys_.Assume("num_layers", absl::StrCat(letters_.size()));
    }
    if (predictions_ > 0) {
      keys_.Assume("mtp_num_layers", absl::StrCat(predictions_));
    }
    PW_RETURN_IF_ERROR(Model());
    PW_RETURN_IF_ERROR(Stages());
    PW_RETURN_IF_ERROR(Batch());
    Experts();
    PW_RETURN_IF_ERROR(Optimizer());
    Sharding();
    Types();
    PW_RETURN_IF_ERROR(Recompute());
    Kernels();
    keys_.Set("strategy.framework", "megatron", "pipeline_model_parallel_size");
    const int64_t multiple = vocabulary_multiple_;
    ForeignArgs out = keys_.Finish();
    out.vocabulary_multiple = multiple;
    return out;
  }

 private:
  static constexpr char kLayout[] = "pipeline_model_parallel_layout";

  bool named() const {
    return keys_.IsSaid("model.preset") || keys_.IsSaid("model.hf") ||
           around_.Gives("model.preset") || around_.Gives("model.hf");
  }
  bool has_experts() { return keys_.Has("num_experts"); }

  // "M-M*|M-M*/*E": kinds of layers, '|' between stages, behind each '/' those
  // of multi-token prediction (megatron/core/models/hybrid/
  // hybrid_layer_allocation.py).
  absl::Status Hybrid() {
    for (const char* id : {"hybrid_override_pattern", "hybrid_layer_pattern"}) {
      if (!keys_.Knows(id) || !keys_.Has(id)) continue;
      if (hybrid_ != nullptr && keys_.Text(id) != keys_.Text(hybrid_)) {
        return keys_.Wrong(
            id, absl::StrCat(keys_.Text(hybrid_), ", as ", hybrid_, " has it"));
      }
      hybrid_ = id;
    }
    if (hybrid_ == nullptr) return absl::OkStatus();
    std::vector<std::string> parts = absl::StrSplit(keys_.Text(hybrid_), '/');
    for (const absl::string_view stage : absl::StrSplit(parts[0], '|')) {
      absl::StrAppend(&letters_, stage);
      segments_.push_back(static_cast<int64_t>(stage.size()));
    }
    // LayerKindsOf also takes numbers and brackets, which mean other things
    // there.
    const size_t other = letters_.find_first_not_of("MG*+-E");
    if (other != std::string::npos) {
      return keys_.Wrong(hybrid_,
                         absl::StrCat("M, G, *, +, -, E, | and /, not '",
                                      letters_.substr(other, 1),
                                      "', of which no "
                                      "field knows the layer"));
    }
    const auto layers = static_cast<int64_t>(letters_.size());
    if (keys_.Has("num_layers") &&
        keys_.Text("num_layers") != absl::StrCat(layers)) {
      return keys_.Wrong("num_layers",
                         absl::StrCat(layers, ", the layers of ", hybrid_));
    }
    if (absl::StatusOr<std::vector<LayerKind>> kinds =
            LayerKindsOf(letters_, keys_.On("multi_latent_attention"));
        !kinds.ok()) {
      return keys_.Refused(hybrid_, kinds.status().message());
    }
    if (segments_.size() > 1 && segments_.size() % pp_ != 0) {
      return keys_.Refused(hybrid_, absl::StrCat(segments_.size(),
                                                 " stages are no multiple of "
                                                 "pp = ",
                                                 pp_));
    }
    constexpr char kOld[] = "mtp_hybrid_override_pattern";
    parts.erase(parts.begin());
    std::erase(parts, "");  // "M*-/": none
    predictions_ = parts.size();
    if (parts.empty() && keys_.Knows(kOld) && keys_.Has(kOld)) {
      parts.push_back(keys_.Text(kOld));
    }
    for (const std::string& part : parts) {
      if (part.size() == 2 && (part[0] == '*' || part[0] == '+') &&
          part[1] == (has_experts() ? 'E' : '-')) {
        continue;
      }
      return keys_.Wrong(
          hybrid_,
          absl::StrCat("attention and a feed-forward part (*",
                       has_experts() ? "E" : "-",
                       ") behind each '/', since no field has '", part, "'"));
    }
    return absl::OkStatus();
  }

  // Gated delta in place of attention, in all layers but every Nth or by a list
  // (transformer_config.py, linear_attention_freq).
  absl::Status DeltaLayers() {
    constexpr char kFreq[] = "linear_attention_freq";
    constexpr char kVariant[] = "experimental_attention_variant";
    if (!keys_.Knows(kVariant) || hybrid_ != nullptr) return absl::OkStatus();
    const std::string variant = keys_.Text(kVariant);
    if (variant.empty()) return absl::OkStatus();
    if (variant != "gdn" && variant != "gated_delta_net") {
      keys_.NotModelled(kVariant, "other attention than full or gated delta");
      return absl::OkStatus();
    }
    PW_ASSIGN_OR_RETURN(const int64_t layers, keys_.Int("num_layers", 0));
    const std::string text = absl::StrJoin(keys_.List(kFreq), ",");
    const std::string freq = absl::StrJoin(keys_.List("moe_layer_freq"), ",");
    std::optional<std::vector<int64_t>> delta = ReadLayerPattern(text, layers);
    std::optional<std::vector<int64_t>> experts =
        ReadLayerPattern(freq.empty() ? "1" : freq, layers);
    int64_t every = 0;
    if (absl::SimpleAtoi(text, &every) && delta) {
      for (int64_t layer = 0; layer < layers; ++layer) {
        (*delta)[layer] = (layer + 1) % every == 0 ? 0 : 1;
      }
    }
    const auto size = static_cast<size_t>(layers);
    if (!delta || delta->size() != size) {
      return keys_.Wrong(
          kFreq, absl::StrCat("N, or a list of ", layers, " of 0 and 1"));
    }
    if (!experts || experts->size() != size) return absl::OkStatus();
    std::string letters;
    for (int64_t layer = 0; layer < layers; ++layer) {
      absl::StrAppend(&letters, (*delta)[layer] != 0 ? "(G" : "(*",
                      has_experts() && (*experts)[layer] != 0 ? "E)" : "-)");
    }
    keys_.Set("model.pattern", letters, kFreq);
    keys_.Apply(DeltaIds());
    return absl::OkStatus();
  }

  // Sizes of the kinds that the pattern has.
  void HybridSizes() {
    if (hybrid_ == nullptr) return;
    keys_.Set("model.pattern", letters_, hybrid_);
    for (const char* id : {"is_hybrid_model", "mtp_hybrid_override_pattern",
                           "moe_layer_freq", "linear_attention_freq"}) {
      if (keys_.Knows(id)) keys_.Unused({id}, "the pattern says it");
    }
    if (absl::StrContains(letters_, 'M')) {
      keys_.Apply(MambaIds());
      keys_.SetDefault("model.mamba_conv_bias", "true", "always");
      constexpr char kHeads[] = "mamba_num_heads";
      int64_t width = 0;
      const bool has_width =
          absl::SimpleAtoi(keys_.Text("mamba_head_dim"), &width) && width > 0;
      if (keys_.Knows(kHeads) && keys_.Has(kHeads)) {
        keys_.Apply({kHeads});
      } else if (has_width) {
        keys_.SetDefault("model.mamba_heads",
                         absl::StrCat(2 * Whole("hidden_size") / width),
                         "2 * hidden_size / mamba_head_dim");
      }
    }
    if (absl::StrContains(letters_, 'G')) keys_.Apply(DeltaIds());
    if (keys_.Text("position_embedding_type") == "none") {
      keys_.Set("model.rotary_dim", "0", "position_embedding_type");
    }
  }

  absl::Status Degrees() {
    PW_ASSIGN_OR_RETURN(tp_, keys_.Int("tensor_model_parallel_size", 1));
    PW_ASSIGN_OR_RETURN(pp_, keys_.Int("pipeline_model_parallel_size", 1));
    PW_ASSIGN_OR_RETURN(cp_, keys_.Int("context_parallel_size", 1));
    PW_ASSIGN_OR_RETURN(size_, keys_.Int("micro_batch_size", 1));
    // The command line wins over the file.
    for (const auto& [field, value] :
         {std::pair<const char*, int64_t*>{"strategy.tp", &tp_},
          {"strategy.pp", &pp_},
          {"strategy.cp", &cp_},
          {"strategy.microbatch_size", &size_}}) {
      *value = std::max<int64_t>(around_.Int(field, *value), 1);
    }
    keys_.Set("strategy.tp", absl::StrCat(tp_), "tensor_model_parallel_size");
    keys_.Set("strategy.pp", absl::StrCat(pp_), "pipeline_model_parallel_size");
    keys_.Set("strategy.cp", absl::StrCat(cp_), "context_parallel_size");
    if (keys_.Has("micro_batch_size")) {
      keys_.Set("strategy.microbatch_size", absl::StrCat(size_),
                "micro_batch_size");
    } else {
      keys_.SetDefault("strategy.microbatch_size", "1", "no micro_batch_size");
    }
    return absl::OkStatus();
  }

  // "1:4" of torchrun is elastic; "gpu" and "auto" are all of a node.
  absl::StatusOr<int64_t> Launched(const char* id) {
    const std::string text = keys_.Text(id);
    const std::vector<std::string> range = absl::StrSplit(text, ':');
    int64_t value = 0;
    // What a command or a variable would say stands beside the file.
    const bool beside = absl::string_view(id) == "nnodes"
                            ? around_.Gives("system.nodes")
                            : around_.devices_per_node > 0;
    if (text.empty() || text == "gpu" || text == "auto" ||
        (beside && text.find_first_of("$`") != std::string::npos)) {
      return 0;
    }
    if (!absl::SimpleAtoi(range.back(), &value) || value < 1 ||
        value > kMostForeignNumber) {
      return keys_.Wrong(
          id, absl::StrCat("an integer from 1 to ", kMostForeignNumber,
                           "; a variable by --env NAME=VALUE"));
    }
    if (range.size() > 1 && range[0] != range[1]) {
      if (beside) return 0;
      return keys_.Wrong(id,
                         "one number: an elastic job takes --nodes beside "
                         "the file");
    }
    return value;
  }
  // Replicas follow from the devices.
  absl::Status Devices() {
    PW_ASSIGN_OR_RETURN(int64_t nodes, Launched("nnodes"));
    PW_ASSIGN_OR_RETURN(int64_t per_node, Launched("nproc_per_node"));
    if (nodes > 0) keys_.Set("system.nodes", absl::StrCat(nodes), "nnodes");
    if (per_node > 0 && !keys_.Has("nnodes") &&
        !around_.Gives("system.nodes")) {
      // torch/distributed/run.py, --nnodes.
      nodes = 1;
      keys_.SetDefault("system.nodes", "1", "torchrun without --nnodes");
    }
    if (per_node == 0) per_node = around_.devices_per_node;
    world_ = around_.Int("system.nodes", nodes) * per_node;
    if (world_ == 0 && keys_.Has("data_parallel_size")) {
      PW_ASSIGN_OR_RETURN(dp_, keys_.Int("data_parallel_size", 0));
      world_ = dp_ * tp_ * pp_ * cp_;
    }
    if (world_ == 0) return absl::OkStatus();
    const int64_t each = tp_ * pp_ * cp_;
    if (world_ % each != 0) {
      return keys_.Refused(
          nodes > 0 ? "nnodes" : "pipeline_model_parallel_size",
          absl::StrCat(world_,
                       " devices are no multiple of tp * pp * cp = ", each));
    }
    dp_ = world_ / each;
    return absl::OkStatus();
  }

  int64_t Whole(const char* id) {
    int64_t value = 0;
    return absl::SimpleAtoi(keys_.Text(id), &value) ? value : 0;
  }

  // Chunks of a rank, 1 for none or if the stages do not come out.
  int64_t Chunks() {
    for (const char* id : {"num_virtual_stages_per_pipeline_rank",
                           "virtual_pipeline_model_parallel_size"}) {
      if (keys_.Has(id)) return std::max<int64_t>(Whole(id), 1);
    }
    const std::string layout = Layout();
    if (!layout.empty()) return std::max<int64_t>(CountStages(layout) / pp_, 1);
    const int64_t each = Whole("num_layers_per_virtual_pipeline_stage");
    return each > 0 ? std::max<int64_t>(Whole("num_layers") / (pp_ * each), 1)
                    : 1;
  }

  std::string FeedForwardWidth() {
    const int64_t hidden = Whole("hidden_size");
    const std::string width = keys_.Text("ffn_hidden_size");
    if (!width.empty() || hidden == 0) return width;
    // Two matrices in front instead of one: two thirds, in steps of 64.
    const bool thirds = !is_recipe_ && keys_.On("swiglu");
    return absl::StrCat(thirds ? 4 * hidden * 2 / 3 / 64 * 64 : 4 * hidden);
  }

  // What Megatron computes from its keys before it checks them.
  std::map<std::string, std::string> Known() {
    std::map<std::string, std::string> known = known_;
    const auto take = [&known](const char* name, int64_t value) {
      known[name] = value > 0 ? absl::StrCat(value) : "";
    };
    const int64_t batch = Whole("global_batch_size");
    take("world_size", world_);
    take("data_parallel_size", dp_);
    take("num_microbatches", dp_ > 0 ? batch / (dp_ * size_) : 0);
    take("micro_batch_size", size_);
    const int64_t etp = Whole("expert_tensor_parallel_size");
    const bool alone = is_recipe_ && Whole("expert_model_parallel_size") > 1;
    take("expert_tensor_parallel_size", etp > 0 ? etp : alone ? 1 : tp_);
    const int64_t chunks = Chunks();
    take("virtual_pipeline_model_parallel_size", chunks > 1 ? chunks : 0);
    if (chunks == 1) known["overlap_p2p_comm"] = "false";
    // What is not overlapped is batched.
    if (!is_recipe_ || !keys_.Has("batch_p2p_comm")) {
      known["batch_p2p_comm"] =
          chunks > 1 && keys_.On("overlap_p2p_comm") ? "false" : "true";
    }
    const int64_t group = Whole("microbatch_group_size_per_vp_stage");
    take("microbatch_group_size_per_vp_stage", group > 0 ? group : pp_);
    known["ffn_hidden_size"] = FeedForwardWidth();
    const std::string expert = keys_.Text("moe_ffn_hidden_size");
    known["moe_ffn_hidden_size"] =
        expert.empty() && has_experts() ? FeedForwardWidth() : expert;
    return known;
  }

  void Switch(const char* field, bool on, const char* id) {
    keys_.Set(field, on ? "true" : "false", id);
  }

  absl::Status Model() {
    if (named() || !keys_.Has("num_layers")) {
      keys_.Apply({"seq_length"});
      Beside();
      return absl::OkStatus();
    }
    keys_.Apply({"num_layers", "hidden_size", "num_attention_heads",
                 "kv_channels", "mtp_num_layers", "normalization",
                 keys_.Has("share_embeddings_and_output_weights")
                     ? "share_embeddings_and_output_weights"
                     : "untie_embeddings_and_output_weights"});
    if (keys_.Has("seq_length")) {
      keys_.Set("model.sequence", keys_.Text("seq_length"), "seq_length");
    }
    if (keys_.On("group_query_attention") ||
        (is_recipe_ && keys_.Has("num_query_groups"))) {
      keys_.Set("model.kv_heads", keys_.Text("num_query_groups"),
                "num_query_groups");
    } else if (keys_.Has("num_query_groups")) {
      keys_.Set("model.kv_heads", keys_.Text("num_attention_heads"),
                "num_attention_heads");
      keys_.Note(
          "num_query_groups acts with --group-query-attention alone: each head "
          "has keys and values of its own");
    }
    HybridSizes();
    PW_RETURN_IF_ERROR(FeedForward());
    PW_RETURN_IF_ERROR(DeltaLayers());
    PW_RETURN_IF_ERROR(Vocabulary());
    const bool latent = keys_.On("multi_latent_attention");
    if (latent) {
      keys_.Apply(LatentIds());
      if (!keys_.On("qk_layernorm")) {
        keys_.NotModelled("qk_layernorm", "latent attention without its norms");
      }
    } else {
      keys_.Unused(LatentIds(), "without multi_latent_attention");
      Switch("model.qkv_bias",
             keys_.On("add_qkv_bias") || keys_.On("add_bias_linear"),
             "add_qkv_bias");
      keys_.Apply({"qk_layernorm"});
    }
    Switch("model.gated",
           keys_.On("swiglu") ||
               (is_recipe_ && keys_.On("gated_linear_unit")) ||
               keys_.On("quick_geglu"),
           "swiglu");
    keys_.Apply({"add_bias_linear"});
    Switch("model.dropout",
           keys_.Number("hidden_dropout").value_or(0) > 0 ||
               keys_.Number("attention_dropout").value_or(0) > 0,
           "hidden_dropout");
    Positions();
    return Window();
  }

  // The model is the command line's or a comment line's.
  void Beside() {
    keys_.Ignore({"model.", "@attention", "@dropout", "@positions",
                  "@vocabulary", "@window"});
    if (keys_.Has("num_layers")) {
      keys_.Note(
          "the model is the one that is named; sizes of the file are taken to "
          "be the same");
    }
  }

  absl::Status FeedForward() {
    const std::string width = FeedForwardWidth();
    if (keys_.Has("ffn_hidden_size") || width.empty()) {
      keys_.Apply({"ffn_hidden_size"});
    } else {
      keys_.SetDefault("model.ffn_hidden", width,
                       !is_recipe_ && keys_.On("swiglu")
                           ? "8/3 of hidden_size, in steps of 64"
                           : "4 * hidden_size");
    }
    if (!has_experts()) return absl::OkStatus();
    keys_.Apply(ExpertIds());
    if (keys_.Has("moe_ffn_hidden_size")) {
      keys_.Apply({"moe_ffn_hidden_size"});
    } else {
      keys_.SetDefault("model.expert_ffn_hidden", width,
                       "moe_ffn_hidden_size is ffn_hidden_size");
    }
    return DenseLayers();
  }

  // moe_layer_freq: N, or a list of 0 and 1 with (...)*n in it.
  absl::Status DenseLayers() {
    if (hybrid_ != nullptr) return absl::OkStatus();
    PW_ASSIGN_OR_RETURN(const int64_t layers, keys_.Int("num_layers", 0));
    const std::string text = absl::StrJoin(keys_.List("moe_layer_freq"), ",");
    if (text.empty() || text == "1") return absl::OkStatus();
    const std::optional<std::vector<int64_t>> pattern =
        ReadLayerPattern(text, layers);
    if (!pattern || static_cast<int64_t>(pattern->size()) != layers) {
      return keys_.Wrong("moe_layer_freq", absl::StrCat("1, N, or a list of ",
                                                        layers, " of 0 and 1"));
    }
    const auto first = std::find_if(pattern->begin(), pattern->end(),
                                    [](int64_t has) { return has != 0; });
    const auto second =
        first == pattern->end()
            ? first
            : std::find_if(first + 1, pattern->end(),
                           [](int64_t has) { return has != 0; });
    const int64_t start = first - pattern->begin();
    const int64_t every = second == pattern->end() ? 1 : second - first;
    for (int64_t layer = start; layer < layers; ++layer) {
      if (((*pattern)[layer] != 0) == ((layer - start) % every == 0)) continue;
      return keys_.Wrong("moe_layer_freq",
                         "dense layers at the start, then experts in each "
                         "layer or in every so many");
    }
    keys_.Set("model.first_dense_layers", absl::StrCat(start),
              "moe_layer_freq");
    if (every > 1) {
      keys_.Set("model.expert_layer_every", absl::StrCat(every),
                "moe_layer_freq");
    }
    return absl::OkStatus();
  }

  absl::Status Vocabulary() {
    PW_ASSIGN_OR_RETURN(const int64_t divisor,
                        keys_.Int("make_vocab_size_divisible_by", 128));
    if (keys_.Has("padded_vocab_size")) {
      keys_.Set("model.vocabulary", keys_.Text("padded_vocab_size"),
                "padded_vocab_size");
      keys_.Unused({"vocab_size"}, "padded_vocab_size wins");
      return absl::OkStatus();
    }
    if (!is_recipe_ || keys_.On("should_pad_vocab")) {
      vocabulary_multiple_ = divisor * tp_;
    }
    if (keys_.Has("vocab_size")) {
      keys_.Set("model.vocabulary", keys_.Text("vocab_size"), "vocab_size");
      return absl::OkStatus();
    }
    if (around_.Gives("model.vocabulary") || keys_.IsSaid("model.vocabulary")) {
      return absl::OkStatus();
    }
    return MissingValue(
        keys_.PlaceOf("vocab_size"),
        "the size of the vocabulary, which Megatron-LM takes from the "
        "tokenizer: --vocab-size in the file, or --set model.vocabulary=N");
  }

  void Positions() {
    const std::string type = keys_.Text("position_embedding_type");
    if (type != "learned_absolute") {
      keys_.Unused({"max_position_embeddings"}, "without learned positions");
      return;
    }
    const std::string rows = keys_.Text("max_position_embeddings");
    const std::string value = rows.empty() ? keys_.Text("seq_length") : rows;
    if (value.empty()) return;
    if (keys_.Has("position_embedding_type")) {
      keys_.Set("model.positions", value, "position_embedding_type");
    } else {
      keys_.SetDefault("model.positions", value,
                       "position_embedding_type learned_absolute");
    }
  }

  // "(4096,0)" or two numbers: tokens to the left and right.
  absl::Status Window() {
    const std::vector<std::string> given = keys_.List("window_size");
    if (given.empty()) return absl::OkStatus();
    const std::vector<std::string> ends = absl::StrSplit(
        absl::StrReplaceAll(absl::StrJoin(given, ","),
                            {{"(", ""}, {")", ""}, {"[", ""}, {"]", ""}}),
        ',');
    int64_t left = 0;
    if (!absl::SimpleAtoi(ends[0], &left) || left < -1) {
      return keys_.Wrong("window_size", "\"(TOKENS,0)\"");
    }
    if (left <= 0) return absl::OkStatus();
    keys_.Set("model.window", absl::StrCat(left), "window_size");
    const std::string skips =
        absl::StrJoin(keys_.List("window_attn_skip_freq"), ",");
    int64_t every = 0;
    if (skips.empty()) return absl::OkStatus();
    if (!absl::SimpleAtoi(skips, &every)) {
      return keys_.Wrong("window_attn_skip_freq",
                         "N: one layer of every N looks back on all; a list "
                         "has no field");
    }
    keys_.Set("model.full_attention_every", absl::StrCat(every),
              "window_attn_skip_freq");
    return absl::OkStatus();
  }

  // Chunks, layers on stages, schedule.
  absl::Status Stages() {
    PW_ASSIGN_OR_RETURN(layers_, keys_.Int("num_layers", 0));
    int64_t vpp = 1;
    for (const char* id : {"num_virtual_stages_per_pipeline_rank",
                           "virtual_pipeline_model_parallel_size"}) {
      if (!keys_.Has(id)) continue;
      PW_ASSIGN_OR_RETURN(vpp, keys_.Int(id, 1));
    }
    const std::string layout = Layout();
    if (absl::StrContains(layout, "?")) {
      return keys_.Wrong(kLayout,
                         "lists of embedding, decoder, mtp, loss by stage, or "
                         "a text such as Et*3|t*4|L");
    }
    const bool embedding = keys_.On("account_for_embedding_in_pipeline_split");
    const bool loss = keys_.On("account_for_loss_in_pipeline_split");
    const int64_t extra = (embedding ? 1 : 0) + (loss ? 1 : 0);
    const char* const kEach = "num_layers_per_virtual_pipeline_stage";
    if (keys_.Has(kEach)) {
      PW_ASSIGN_OR_RETURN(const int64_t each, keys_.Int(kEach, 1));
      if ((layers_ + extra) % (pp_ * each) != 0) {
        return keys_.Wrong(kEach, "a divisor of the layers of a rank");
      }
      if (layers_ > 0) vpp = (layers_ + extra) / (pp_ * each);
    }
    if (segments_.size() > 1) {
      vpp = static_cast<int64_t>(segments_.size()) / pp_;
      keys_.Set("strategy.layers", absl::StrJoin(segments_, ","), hybrid_);
    } else if (!layout.empty()) {
      const int64_t stages = CountStages(layout);
      if (stages % pp_ != 0) {
        return keys_.Refused(
            "pipeline_model_parallel_layout",
            absl::StrCat(stages, " stages are no multiple of pp = ", pp_));
      }
      vpp = stages / pp_;
      if (!keys_.IsSaid("strategy.layers")) {
        keys_.Set("strategy.layout", layout, "pipeline_model_parallel_layout");
      }
    } else {
      PW_RETURN_IF_ERROR(Ends(vpp, embedding, loss));
    }
    keys_.Set("strategy.vpp", absl::StrCat(vpp),
              "virtual_pipeline_model_parallel_size");
    if (keys_.IsSaid("schedule.file")) return absl::OkStatus();
    keys_.Set("schedule.name", vpp > 1 ? "interleaved-1f1b" : "1f1b",
              "pipeline_model_parallel_size");
    if (vpp > 1 && keys_.Has("overlap_p2p_comm") &&
        !keys_.On("overlap_p2p_comm")) {
      keys_.Set("strategy.waiting", "batched", "overlap_p2p_comm");
    }
    keys_.Unused({"batch_p2p_comm"}, "overlap_p2p_comm decides");
    constexpr char kGroup[] = "microbatch_group_size_per_vp_stage";
    if (vpp > 1) {
      keys_.Apply({kGroup});
    } else {
      keys_.Unused({kGroup}, "without virtual stages");
    }
    return absl::OkStatus();
  }

  // "Et*3|t*4|L" as it is; lists of names by stage become it, with ? for what
  // is no such name.
  std::string Layout() {
    std::vector<std::string> stages = keys_.List(kLayout);
    if (stages.empty()) return "";
    if (stages.size() == 1 && absl::StartsWith(stages[0], "[")) {
      const std::string lists = absl::StrReplaceAll(
          stages[0],
          {{" ", ""}, {"'", ""}, {"\"", ""}, {"[[", ""}, {"]]", ""}});
      stages = absl::StrSplit(lists, "],[");
    }
    if (stages.size() == 1 && !absl::StrContains(stages[0], "decoder") &&
        !absl::StrContains(stages[0], "embedding")) {
      return stages[0];
    }
    std::vector<std::string> words;
    for (const std::string& stage : stages) {
      std::string letters;
      for (absl::string_view part : absl::StrSplit(stage, ',')) {
        part = absl::StripAsciiWhitespace(part);
        letters += part == "embedding" ? "E"
                   : part == "loss"    ? "L"
                   : part == "mtp"     ? "m"
                   : part == "decoder" ? "t"
                   : part.empty()      ? ""
                                       : "?";
      }
      words.push_back(letters);
    }
    return absl::StrJoin(words, "|");
  }

  // First and last stages with layers of their own number.
  absl::Status Ends(int64_t vpp, bool embedding, bool loss) {
    constexpr char kFirst[] = "decoder_first_pipeline_num_layers";
    constexpr char kLast[] = "decoder_last_pipeline_num_layers";
    PW_ASSIGN_OR_RETURN(const int64_t first, keys_.Int(kFirst, -1, 0));
    PW_ASSIGN_OR_RETURN(const int64_t last, keys_.Int(kLast, -1, 0));
    const int64_t extra = (embedding ? 1 : 0) + (loss ? 1 : 0);
    if (layers_ == 0 || (first < 0 && last < 0 && extra == 0)) {
      return absl::OkStatus();
    }
    std::vector<int64_t> counts(pp_ * vpp);
    if (extra > 0) {
      if ((layers_ + extra) % (pp_ * vpp) != 0) {
        return keys_.Refused(embedding
                                 ? "account_for_embedding_in_pipeline_split"
                                 : "account_for_loss_in_pipeline_split",
                             absl::StrCat(layers_ + extra,
                                          " layers with embedding and loss are "
                                          "no multiple of ",
                                          pp_ * vpp, " stages"));
      }
      std::fill(counts.begin(), counts.end(), (layers_ + extra) / (pp_ * vpp));
      counts.front() -= embedding ? 1 : 0;
      counts.back() -= loss ? 1 : 0;
    } else {
      // All chunks of a rank have the same share of its layers.
      const int64_t ends = (first >= 0 ? 1 : 0) + (last >= 0 ? 1 : 0);
      const int64_t left =
          layers_ - std::max<int64_t>(first, 0) - std::max<int64_t>(last, 0);
      const auto divides = [vpp](int64_t layers) { return layers % vpp == 0; };
      if (pp_ == ends && left == 0 && vpp == 1) {
        keys_.Set("strategy.layers",
                  absl::StrJoin(pp_ == 1 ? std::vector<int64_t>{layers_}
                                         : std::vector<int64_t>{first, last},
                                ","),
                  kFirst);
        return absl::OkStatus();
      }
      if (pp_ <= ends || left < 0 || left % (pp_ - ends) != 0 ||
          !divides(left / (pp_ - ends)) || (first > 0 && !divides(first)) ||
          (last > 0 && !divides(last))) {
        return keys_.Wrong(first >= 0 ? kFirst : kLast,
                           "what leaves the same for each other stage");
      }
      for (int64_t stage = 0; stage < pp_ * vpp; ++stage) {
        const int64_t rank = stage % pp_;
        const int64_t of_rank = rank == 0 && first >= 0 ? first
                                : rank == pp_ - 1 && last >= 0
                                    ? last
                                    : left / (pp_ - ends);
        counts[stage] = of_rank / vpp;
      }
    }
    keys_.Set("strategy.layers", absl::StrJoin(counts, ","),
              extra > 0    ? "account_for_embedding_in_pipeline_split"
              : first >= 0 ? kFirst
                           : kLast);
    return absl::OkStatus();
  }

  // Separators between stages, groups repeated.
  static int64_t CountStages(absl::string_view text) {
    std::vector<int64_t> sums = {0};
    for (size_t at = 0; at < text.size();) {
      const char letter = text[at++];
      if (letter == '(') {
        sums.push_back(0);
        continue;
      }
      int64_t unit = letter == '|' ? 1 : 0;
      if (letter == ')' && sums.size() > 1) {
        unit = sums.back();
        sums.pop_back();
      }
      int64_t times = 1;
      if (at < text.size() && text[at] == '*') {
        times = 0;
        for (++at; at < text.size() && absl::ascii_isdigit(text[at]); ++at) {
          times = std::min<int64_t>(times * 10 + (text[at] - '0'), 1 << 20);
        }
      }
      sums.back() = std::min<int64_t>(sums.back() + unit * times, 1 << 20);
    }
    return sums[0] + 1;
  }

  absl::Status Batch() {
    PW_ASSIGN_OR_RETURN(int64_t batch, keys_.Int("global_batch_size", 0));
    if (around_.Gives("strategy.dp")) {
      dp_ = around_.Int("strategy.dp", 0);
    } else if (dp_ > 0) {
      keys_.Set("strategy.dp", absl::StrCat(dp_), "nnodes");
    }
    if (dp_ <= 0) {
      if (!keys_.IsSaid("strategy.dp")) {
        keys_.Note(
            "the number of devices is not in it (--nnodes, --nproc-per-node): "
            "give --nodes, or --dp and --microbatches");
      }
      return absl::OkStatus();
    }
    if (around_.Gives("strategy.microbatches") ||
        around_.Gives("strategy.global_batch")) {
      return absl::OkStatus();
    }
    if (batch == 0) {
      keys_.SetDefault("strategy.microbatches", "1",
                       "global_batch_size is dp * micro_batch_size");
      return absl::OkStatus();
    }
    if (batch % (dp_ * size_) != 0) {
      return keys_.Wrong(
          "global_batch_size",
          absl::StrCat("a multiple of dp * micro-batch-size = ", dp_ * size_));
    }
    keys_.Set("strategy.microbatches", absl::StrCat(batch / (dp_ * size_)),
              "global_batch_size");
    return absl::OkStatus();
  }

  void Experts() {
    if (!has_experts() && !named()) {
      keys_.Unused(ExpertIds(), "without experts");
      keys_.Unused({"moe_ffn_hidden_size", "moe_layer_freq",
                    "expert_model_parallel_size", "expert_tensor_parallel_size",
                    "moe_token_dispatcher_type", "moe_grouped_gemm",
                    "moe_permute_fusion"},
                   "without experts");
      return;
    }
    if (keys_.Has("expert_model_parallel_size")) {
      keys_.Apply({"expert_model_parallel_size"});
    }
    if (keys_.Has("expert_tensor_parallel_size")) {
      keys_.Apply({"expert_tensor_parallel_size"});
    } else if (is_recipe_ && tp_ > 1 &&
               Whole("expert_model_parallel_size") > 1) {
      // Flags take tp in its place.
      keys_.SetDefault("strategy.etp", "1",
                       "no expert_tensor_parallel_size with ep above 1");
    }
    const std::string dispatcher = keys_.Text("moe_token_dispatcher_type");
    const bool deepep = dispatcher == "flex" || keys_.On("moe_enable_deepep");
    if (!deepep) {
      keys_.Unused({"moe_flex_dispatcher_backend"},
                   "without the dispatcher flex");
    } else {
      keys_.Has("moe_flex_dispatcher_backend");
    }
    if (deepep) {
      keys_.Set("strategy.dispatch", "once", "moe_token_dispatcher_type");
    } else if (dispatcher == "allgather") {
      if (!named() || keys_.Has("moe_token_dispatcher_type")) {
        keys_.NotModelled("moe_token_dispatcher_type",
                          "allgather, Megatron-LM's default: all tokens go to "
                          "all devices of ep; all-to-all is taken");
      }
    } else {
      keys_.Set("strategy.dispatch", "all-to-all", "moe_token_dispatcher_type");
    }
    if (!keys_.On("moe_grouped_gemm") && !named() && !is_recipe_) {
      keys_.NotModelled("moe_grouped_gemm",
                        "without it experts run one after the other; grouped "
                        "products are taken");
    }
    const char* const fused = keys_.On("moe_permute_fusion") ? "true" : "false";
    if (keys_.Has("moe_permute_fusion")) {
      keys_.Set("strategy.fused_permutation", fused, "moe_permute_fusion");
    } else if (has_experts()) {
      keys_.SetDefault("strategy.fused_permutation", fused,
                       "no moe_permute_fusion");
    }
    if (!keys_.Has("moe_router_group_topk")) {
      keys_.Unused({"moe_router_num_groups"}, "without moe_router_group_topk");
    } else if (keys_.Has("moe_router_num_groups")) {
      keys_.Set("strategy.expert_nodes", keys_.Text("moe_router_group_topk"),
                "moe_router_group_topk");
    }
  }

  // What a step does; other rules than Adam's have no types of their own.
  absl::Status Optimizer() {
    const std::string name = keys_.Text("optimizer");
    std::string kind = keys_.Mapped("optimizer");
    if (kind.empty()) {
      return keys_.Wrong("optimizer",
                         "adam, sgd, lion, muon, dist_muon: no field has the "
                         "states and the work of others");
    }
    const bool has_momentum = keys_.Number("sgd_momentum").value_or(0.9) != 0;
    if (kind == "sgd-momentum") {
      if (!has_momentum) kind = "sgd";
    } else {
      keys_.Unused({"sgd_momentum"}, "without optimizer sgd");
    }
    if (kind != "adam") {
      keys_.Set("strategy.optimizer_kind", kind, "optimizer");
    } else if (keys_.Has("optimizer") &&
               !keys_.On("use_precision_aware_optimizer")) {
      keys_.Set("strategy.moment_bytes_per_parameter", "8", "optimizer");
    }
    const bool listed = keys_.On("use_layer_wise_distributed_optimizer");
    const Ids ids = {"muon_num_ns_steps", "muon_tp_mode", "muon_split_qkv"};
    if (kind != "muon") {
      keys_.Unused(ids, "without optimizer muon");
      keys_.Unused({"use_layer_wise_distributed_optimizer",
                    "use_layer_wise_param_layout"},
                   "without optimizer muon");
      return absl::OkStatus();
    }
    // Bridge's own default.
    if (is_recipe_ && !keys_.Has("muon_tp_mode")) {
      keys_.SetDefault("strategy.muon_tp_mode", "blockwise", "no muon_tp_mode");
      keys_.Apply({"muon_num_ns_steps", "muon_split_qkv"});
    } else {
      keys_.Apply(ids);
    }
    for (const std::string& id : ids) keys_.IsGiven(id);
    is_layer_wise_ =
        listed || name == "dist_muon" || keys_.On("use_distributed_optimizer");
    if (is_layer_wise_ && !keys_.On("use_layer_wise_param_layout")) {
      keys_.NotModelled("use_layer_wise_param_layout",
                        "false: all-reduced gradients and gathers of lists");
    }
    return absl::OkStatus();
  }

  void Sharding() {
    std::string sharding =
        keys_.On("use_distributed_optimizer") || is_layer_wise_ ? "zero1"
                                                                : "ddp";
    // It acts with Megatron's FSDP alone; recipes set it without, too.
    const bool fsdp =
        keys_.On("use_megatron_fsdp") || keys_.On("use_custom_fsdp");
    if (fsdp) {
      sharding = keys_.Mapped("data_parallel_sharding_strategy");
    } else {
      keys_.Unused({"data_parallel_sharding_strategy"},
                   "without Megatron's FSDP");
    }
    const bool overlaps = keys_.On("overlap_grad_reduce");
    if (keys_.On("use_torch_fsdp2")) sharding = "fsdp";
    if (dp_ == 1 && cp_ == 1) return;
    keys_.Set("strategy.data_parallel", sharding, "use_distributed_optimizer");
    if (overlaps)
      Switch("strategy.overlap_gradients", true, "overlap_grad_reduce");
  }

  static int BytesOf(const std::string& type) {
    if (absl::StrContains(type, "32")) return 4;
    if (absl::StrContains(type, "8")) return 1;
    return type.empty() ? 4 : 2;
  }

  // Bytes of what the optimizer keeps.
  void Types() {
    const bool half = keys_.On("bf16") || keys_.On("fp16");
    if (!half && (keys_.Has("num_layers") || named()) &&
        (!is_recipe_ || keys_.Has("bf16"))) {
      keys_.NotModelled("bf16",
                        "without it and fp16 training is in fp32; 16 bit is "
                        "taken");
    }
    const bool precise = keys_.On("use_precision_aware_optimizer");
    const std::string gradients = keys_.Text("main_grads_dtype");
    const std::string first = keys_.Text("exp_avg_dtype");
    const std::string second = keys_.Text("exp_avg_sq_dtype");
    const std::string master = keys_.Text("main_params_dtype");
    const bool reduced = keys_.On("grad_reduce_in_bf16") ||
                         (keys_.Has("accumulate_allreduce_grads_in_fp32") &&
                          !keys_.On("accumulate_allreduce_grads_in_fp32"));
    if (half || is_recipe_) {
      int bytes = 4;
      const char* id = "grad_reduce_in_bf16";
      if (reduced || (keys_.On("fp16") &&
                      !keys_.On("accumulate_allreduce_grads_in_fp32"))) {
        bytes = 2;
      }
      if (precise && keys_.Has("main_grads_dtype")) {
        bytes = std::min(bytes, BytesOf(gradients));
        id = "main_grads_dtype";
      }
      keys_.Set("strategy.gradient_bytes_per_parameter", absl::StrCat(bytes),
                id);
    }
    if (!precise) return;
    keys_.Set("strategy.moment_bytes_per_parameter",
              absl::StrCat(BytesOf(first) + BytesOf(second)), "exp_avg_dtype");
    // Beside bf16 weights, fp16 masters are the other half of 32 bits.
    keys_.Set("strategy.master_bytes_per_parameter",
              absl::StrCat(BytesOf(master)), "main_params_dtype");
  }

  absl::Status Recompute() {
    if (keys_.Has("sequence_parallel") || tp_ > 1) {
      Switch("strategy.sequence_parallel",
             tp_ > 1 && keys_.On("sequence_parallel"), "sequence_parallel");
    }
    const std::string granularity = keys_.Text("recompute_granularity");
    const std::vector<std::string> modules = keys_.List("recompute_modules");
    const std::string method = keys_.Text("recompute_method");
    PW_ASSIGN_OR_RETURN(const int64_t layers,
                        keys_.Int("recompute_num_layers", 0));
    if (granularity == "full") {
      keys_.Set("strategy.recompute", "full", "recompute_granularity");
      if (method == "uniform" && layers > 1) {
        keys_.NotModelled("recompute_num_layers",
                          "several layers with one input kept; one is taken");
      }
      if (method == "block" && layers > 0) {
        keys_.Set("strategy.recompute_layers", absl::StrCat(layers),
                  "recompute_num_layers");
      }
      keys_.Unused({"recompute_modules"}, "layers are recomputed whole");
      return absl::OkStatus();
    }
    keys_.Unused({"recompute_method", "recompute_num_layers"},
                 "without recompute_granularity full");
    const bool moe = keys_.On("moe_layer_recompute");
    if (granularity != "selective" && !keys_.On("recompute_activations") &&
        !moe) {
      keys_.Set("strategy.recompute", "none", "recompute_granularity");
      keys_.Unused({"recompute_modules"},
                   "without recompute_granularity selective");
      return absl::OkStatus();
    }
    RecomputeModules(modules, moe);
    return absl::OkStatus();
  }

  // `moe`: the old word for the module.
  void RecomputeModules(const std::vector<std::string>& modules, bool moe) {
    std::vector<std::string> names;
    if (moe && modules.empty()) names = {"core_attn"};
    if (moe) names.push_back("moe");
    for (const std::string& module : WordsOf(modules)) {
      const bool known =
          absl::c_any_of(RecomputeModuleChoices(),
                         [&](const auto& row) { return row.name == module; });
      if (!known) {
        keys_.NotModelled("recompute_modules",
                          absl::StrCat("recomputation of ", module));
      } else if (!absl::c_linear_search(names, module)) {
        names.push_back(module);
      }
    }
    const bool none = names.empty() && !modules.empty();
    keys_.Set("strategy.recompute", none ? "none" : "selective",
              "recompute_modules");
    if (names.empty()) return;
    keys_.Set("strategy.recompute_modules", absl::StrJoin(names, ","),
              "recompute_modules");
  }

  void Kernels() {
    const std::string attention = keys_.Mapped("attention_backend");
    if (attention != "flash") keys_.Apply({"attention_backend"});
    keys_.Unused({"use_flash_attn"}, "attention_backend decides");
    Precision();
    keys_.Apply({"cross_entropy_loss_fusion"});
    if (tp_ == 1) {
      keys_.Unused({"tp_comm_overlap"}, "without tensor parallelism");
    }
    Graphs();
    Offload();
  }

  void Precision() {
    keys_.On("bf16");
    keys_.On("fp16");
    if (keys_.On("fp8")) {
      keys_.Apply({"fp8_recipe"});
      if (keys_.On("fp8_param_gather")) {
        keys_.Set("strategy.narrow_weights", "true", "fp8_param_gather");
      }
      return;
    }
    keys_.Unused(
        {"fp8_recipe", "fp8_dot_product_attention", "fp8_param_gather"},
        "without fp8");
    if (keys_.On("fp4")) {
      keys_.Apply({"fp4_recipe"});
    } else {
      keys_.Unused({"fp4_recipe"}, "without fp4");
    }
  }

  void Graphs() {
    std::string how = keys_.Mapped("cuda_graph_impl");
    if (keys_.On("enable_cuda_graph") || keys_.On("external_cuda_graph")) {
      how = "graphs";
    }
    Ids parts;
    for (const char* id : {"cuda_graph_modules", "cuda_graph_scope"}) {
      const bool given = keys_.Has(id);
      for (const std::string& scope : given ? WordsOf(keys_.List(id)) : Ids()) {
        for (std::string& part : WordsOf({keys_.Mapped(id, scope)})) {
          if (part == "unmodelled") {
            keys_.NotModelled(id, scope);
          } else if (std::find(parts.begin(), parts.end(), part) ==
                     parts.end()) {
            parts.push_back(std::move(part));
          }
        }
      }
    }
    if (how != "graphs") {
      keys_.Unused({"cuda_graph_modules", "cuda_graph_scope"},
                   "without CUDA graphs");
      return;
    }
    keys_.Set("strategy.launch", how, "cuda_graph_impl");
    if (parts.empty()) parts = {"attention", "dense", "router", "experts"};
    keys_.Set("strategy.graph_parts", absl::StrJoin(parts, ","),
              "cuda_graph_modules");
  }

  void Offload() {
    if (!keys_.On("optimizer_cpu_offload")) {
      keys_.Unused({"optimizer_offload_fraction"},
                   "without optimizer_cpu_offload");
      return;
    }
    keys_.Apply({"optimizer_cpu_offload", "optimizer_offload_fraction"});
  }

  KeyReader& keys_;
  const ForeignSurroundings& around_;
  bool is_recipe_;
  std::map<std::string, std::string> known_;
  bool is_layer_wise_ = false;
  int64_t tp_ = 1;
  int64_t pp_ = 1;
  int64_t cp_ = 1;
  int64_t dp_ = 0;
  int64_t size_ = 1;
  int64_t world_ = 0;
  int64_t layers_ = 0;
  const char* hybrid_ = nullptr;   // the key of the pattern
  size_t predictions_ = 0;         // behind each '/'
  std::string letters_;            // of all stages
  std::vector<int64_t> segments_;  // layers of each stage of the pattern
  int64_t vocabulary_multiple_ = 1;
};

}  // namespace

absl::StatusOr<ForeignArgs> ReadMegatron(std::vector<GivenKey> keys,
                                         const std::string& path,
                                         const std::set<std::string>& said,
                                         const ForeignSurroundings& around) {
  KeyReader reader(KeyTable::Of("megatron"), "Megatron-LM", "main", "0.14",
                   path, said);
  PW_RETURN_IF_ERROR(reader.Take(std::move(keys)));
  return MegatronFile(&reader, around, false).Read();
}

absl::StatusOr<ForeignArgs> ReadMegatronCore(
    std::vector<GivenKey> keys, const std::string& path,
    const std::set<std::string>& said, const ForeignSurroundings& around,
    std::map<std::string, std::string> known) {
  KeyReader reader(KeyTable::Of("megatron"), "Megatron-Bridge", "main", "",
                   path, said);
  PW_RETURN_IF_ERROR(reader.Take(std::move(keys)));
  return MegatronFile(&reader, around, true, std::move(known)).Read();
}

}  // namespace pipewright
