// A run as overrides of a recipe of Megatron-Bridge (067f987d,
// scripts/training/run_recipe.py): every key whose value is not the recipe's.
#include <map>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "sim/base/check.h"
#include "sim/base/status.h"
#include "sim/foreign/bridge_recipes.h"
#include "sim/foreign/emission.h"
#include "sim/foreign/key_table.h"
#include "sim/foreign/layer_pattern.h"
#include "sim/model/precision.h"

namespace pipewright {
namespace {

// Value of a flag as hydra's grammar has it (OverrideParser.g4 of hydra):
// brackets around a list, and no parentheses or commas outside of quotes.
std::string HydraValue(const std::string& key, const std::string& value) {
  if (key == "moe_layer_freq") {
    const auto pattern = ReadLayerPattern(value, 0);
    PW_CHECK(pattern.has_value());
    return absl::StrCat("[", absl::StrJoin(*pattern, ","), "]");
  }
  if (key == "window_size") {
    return absl::StrReplaceAll(value, {{"(", "["}, {")", "]"}});
  }
  return value.find_first_of("(|,") == std::string::npos
             ? value
             : absl::StrCat("\"", value, "\"");
}

// Flags that have another name or sense as keys.
struct Renamed {
  const char* flag;
  const char* key;  // "": a key of its own says it
  bool inverted = false;
};
constexpr Renamed kRenamed[] = {
    {"bf16", ""},
    {"group_query_attention", ""},
    {"max_position_embeddings", ""},  // follows the sequence
    {"num_experts", "num_moe_experts"},
    {"num_virtual_stages_per_pipeline_rank",
     "virtual_pipeline_model_parallel_size"},
    {"swiglu", "gated_linear_unit"},
    {"untie_embeddings_and_output_weights",
     "share_embeddings_and_output_weights", true},
    {"grad_reduce_in_bf16", "grad_reduce_in_fp32", true},
};

// Overlaps of a recipe that no plan has, and that need others.
bool IsUnplanned(const std::string& key) {
  return key == "delay_wgrad_compute" || key == "moe_shared_expert_overlap" ||
         key == "overlap_param_gather_with_optimizer_step";
}

class BridgeOverrides {
 public:
  explicit BridgeOverrides(const BridgeRecipe& recipe) : recipe_(recipe) {}

  void Take(const GivenKey& flag) {
    bool clears = false;
    const ForeignKey* const row =
        KeyTable::Of("megatron").FindFlag(flag.name, &clears);
    PW_CHECK(row != nullptr);
    std::string name = row->id();
    said_.insert(name);
    bool on = !clears;
    for (const Renamed& each : kRenamed) {
      if (name != each.flag) continue;
      name = each.key;
      on ^= each.inverted;
    }
    if (name.empty()) return;
    const std::string value = absl::StrJoin(flag.values, ",");
    Set(name, row->type == "bool"   ? (on ? "true" : "false")
              : row->type == "strs" ? absl::StrCat("[", value, "]")
                                    : HydraValue(name, value));
  }

  void Set(const std::string& name, const std::string& value) {
    said_.insert(name);
    wanted_[absl::StrCat(SectionOf(name), ".", name)] = value;
  }
  void Set(const char* section, const char* name, const std::string& value) {
    wanted_[absl::StrCat(section, ".", name)] = value;
  }

  // Switches the recipe's other keys off.
  void Reset() {
    const KeyTable& table = KeyTable::Of("bridge");
    for (const auto& [path, value] : recipe_.values) {
      const size_t dot = path.rfind('.');
      if (dot == std::string::npos) continue;
      const std::string section = path.substr(0, dot);
      const std::string name = path.substr(dot + 1);
      const ForeignKey* const row = table.FindName(section, name);
      // All of these recipes have weights in bf16.
      if (section == "tokenizer" || name == "params_dtype" ||
          said_.count(name) > 0 || row == nullptr ||
          (row->effect != KeyEffect::kMapped && !IsUnplanned(name))) {
        continue;
      }
      const std::string usual = row->DefaultOf("main");
      wanted_[path] = row->type == "bool" ? "false"
                      : usual.empty()     ? "null"
                                          : usual;
    }
  }

  // In both places: an object of overlaps counts with the distributed optimizer
  // alone, and then overwrites ddp's (comm_overlap.py, setup).
  void SetOverlap(const char* name, bool on) {
    const char* const value = on ? "true" : "false";
    Set("ddp", name, value);
    Set(name, value);
  }

  // "model.seq_length=4096", sorted.
  std::vector<std::string> Words() const {
    std::vector<std::string> words;
    for (const auto& [path, value] : wanted_) {
      const auto has = recipe_.values.find(path);
      if (has != recipe_.values.end() && has->second == value) continue;
      words.push_back(absl::StrCat("'", Spelled(path), "=", value, "'"));
    }
    return words;
  }

 private:
  // What a section of its own sets is copied over the model's at the start.
  std::string SectionOf(const std::string& name) const {
    std::vector<std::string> sections;
    for (const ForeignKey* row : KeyTable::Of("bridge").AllOfName(name)) {
      if (row->effect == KeyEffect::kNone) continue;
      sections.insert(sections.end(), row->sections.begin(),
                      row->sections.end());
    }
    for (const char* section : {"mixed_precision", "comm_overlap"}) {
      // Both are keys of the top level if the recipe has no such object.
      if (recipe_.values.count(section) == 0 &&
          absl::c_linear_search(sections, section)) {
        return section;
      }
    }
    for (const char* section : {"model", "ddp", "optimizer"}) {
      if (absl::c_linear_search(sections, section)) return section;
    }
    return sections.empty() ? "model" : sections.front();
  }

  std::string Spelled(const std::string& path) const {
    const std::string name = path.substr(path.rfind('.') + 1);
    const bool nested =
        recipe_.nested && path == absl::StrCat("model.", name) &&
        KeyTable::Of("bridge").FindName("model.transformer", name) != nullptr;
    return nested ? absl::StrCat("model.transformer.", name) : path;
  }

  const BridgeRecipe& recipe_;
  std::map<std::string, std::string> wanted_;
  std::set<std::string> said_;  // names
};

absl::StatusOr<const BridgeRecipe*> RecipeFor(const ModelSpec& model) {
  std::vector<std::string> known;
  for (const BridgeRecipe& recipe : BridgeRecipes()) {
    const absl::StatusOr<ModelSpec> preset = FindModel(recipe.model);
    if (preset.ok() && IsSameModel(*preset, model)) return &recipe;
    known.push_back(recipe.model);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--emit bridge: no recipe has the sizes of ", model.name,
                   "; allowed: ", absl::StrJoin(known, ", ")));
}

}  // namespace

absl::Status EmitBridge(Emission* emission) {
  PW_ASSIGN_OR_RETURN(const BridgeRecipe* const recipe,
                      RecipeFor(emission->model));
  const bool named = recipe->values.count("mixed_precision") > 0;
  const int gradient =
      emission->strategy().gradient_bytes_per_parameter.value_or(4);
  PW_RETURN_IF_ERROR(RefuseUnsayable(
      "bridge", {{emission->training.precision != Precision::kBf16,
                  "a precision other than bf16"},
                 {emission->model.positions > 0 &&
                      emission->model.positions != emission->training.sequence,
                  "more learned positions than the sequence has"},
                 {named && gradient == 2,
                  absl::StrCat("gradients of 2 bytes: ", recipe->name,
                               " has mixed_precision by name")}}));
  PW_ASSIGN_OR_RETURN(const MegatronFlags flags,
                      MegatronFlagsOf(emission, "bridge"));
  BridgeOverrides overrides(*recipe);
  for (const auto* part : {&flags.model, &flags.parallel}) {
    for (const GivenKey& flag :
         KeysOfShell(absl::StrJoin(*part, " "), nullptr)) {
      overrides.Take(flag);
    }
  }
  for (const char* name : {"overlap_grad_reduce", "overlap_param_gather"}) {
    const std::string flag =
        absl::StrCat("--", absl::StrReplaceAll(name, {{"_", "-"}}));
    overrides.SetOverlap(name, absl::c_linear_search(flags.parallel, flag));
  }
  // As Megatron-LM does itself with several chunks of a rank.
  const bool overlaps = *emission->strategy().vpp > 1 &&
                        emission->strategy().waiting != WaitRule::kBatched;
  if (overlaps) {
    overrides.Set("overlap_p2p_comm", "true");
    overrides.Set("batch_p2p_comm", "false");
  }
  // bf16 gradients are summed in fp32 unless a flag says other.
  if (gradient == 4) overrides.Set("grad_reduce_in_fp32", "true");
  // Else the tokenizer's vocabulary counts, and the length of the data.
  overrides.Set("tokenizer", "use_tokenizer_vocab_size", "false");
  overrides.Set("dataset", "seq_length",
                absl::StrCat(emission->training.sequence));
  overrides.Reset();
  // Bridge refuses graphs without it.
  if (emission->training.execution.launch == Launch::kGraphs) {
    overrides.Set("rng", "te_rng_tracker", "true");
    overrides.Set("model", "use_te_rng_tracker", "true");
  }
  const std::string launch = TorchrunLine(emission);
  emission->out.text = absl::StrCat(
      "#!/bin/bash\n# Overrides of a recipe of Megatron-Bridge (067f987d).\n",
      emission->Comments(), launch,
      " scripts/training/run_recipe.py \\\n  --recipe ", recipe->name,
      " \\\n  ", absl::StrJoin(overrides.Words(), " \\\n  "), "\n");
  return absl::OkStatus();
}

}  // namespace pipewright
