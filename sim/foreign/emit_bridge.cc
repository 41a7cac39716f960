// A run as overrides of a recipe of Megatron-Bridge (067f987d,
// scripts/training/run_recipe.py): every key whose value is not the recipe's.
#include <map>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/check.h"
#include "sim/base/status.h"
#include "sim/foreign/bridge_recipes.h"
#include "sim/foreign/emission.h"
#include "sim/foreign/key_table.h"
#include "sim/model/precision.h"

namespace pipewright {
namespace {

// Flags that have another name or sense as keys.
struct Renamed {
  const char* flag;
  const char* key;  // "": a key of its own says it
  bool inverted = false;
};
constexpr Renamed kRenamed[] = {
    {"bf16", ""},
    {"group_query_attention", ""},
    {"num_experts", "num_moe_experts"},
    {"num_virtual_stages_per_pipeline_rank",
     "virtual_pipeline_model_parallel_size"},
    {"swiglu", "gated_linear_unit"},
    {"untie_embeddings_and_output_weights",
     "share_embeddings_and_output_weights", true},
    {"grad_reduce_in_bf16", "grad_reduce_in_fp32", true},
};

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
    Set(name, row->type == "bool" ? (on ? "true" : "false")
              : row->type == "strs" || row->type == "ints"
                  ? absl::StrCat("[", value, "]")
                  : value);
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
      if (section == "tokenizer" || said_.count(name) > 0 || row == nullptr ||
          row->effect != KeyEffect::kMapped) {
        continue;
      }
      if (row->type == "bool") {
        wanted_[path] = "false";
      } else if (section == "optimizer" && absl::EndsWith(name, "_dtype")) {
        // Others are refused without the precision-aware optimizer.
        wanted_[path] = row->DefaultOf("main");
      } else if (row->DefaultOf("main").empty()) {
        wanted_[path] = "null";
      }
    }
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
  // bf16 gradients are summed in fp32 unless a flag says other.
  if (gradient == 4) overrides.Set("grad_reduce_in_fp32", "true");
  // Else the tokenizer's vocabulary counts, and the length of the data.
  overrides.Set("tokenizer", "use_tokenizer_vocab_size", "false");
  overrides.Set("dataset", "seq_length",
                absl::StrCat(emission->training.sequence));
  overrides.Reset();
  const std::string launch = TorchrunLine(emission);
  emission->out.text = absl::StrCat(
      "#!/bin/bash\n# Overrides of a recipe of Megatron-Bridge (067f987d).\n",
      emission->Comments(), launch,
      " scripts/training/run_recipe.py \\\n  --recipe ", recipe->name,
      " \\\n  ", absl::StrJoin(overrides.Words(), " \\\n  "), "\n");
  return absl::OkStatus();
}

}  // namespace pipewright
