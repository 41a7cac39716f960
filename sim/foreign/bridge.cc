// Facts: NVIDIA-NeMo/Megatron-Bridge (Apache-2.0) 067f987d,
// src/megatron/bridge/training/{config,mixed_precision,comm_overlap}.py;
// frameworks/bridge.csv has each key with its source.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "sim/base/error_parts.h"
#include "sim/base/names.h"
#include "sim/base/status.h"
#include "sim/foreign/bridge_recipes.h"
#include "sim/foreign/key_table.h"
#include "sim/foreign/megatron.h"
#include "sim/model/model.h"

namespace pipewright {
namespace {

// What is copied into the model at the start wins over what the model says.
int RankOf(const GivenKey& key) {
  if (key.is_null) return -1;
  if (key.section == "comm_overlap") return 3;
  if (key.section == "mixed_precision") return 2;
  if (key.section == "tokenizer") return -1;
  return key.section == "model" || absl::StartsWith(key.section, "model.") ? 0
                                                                           : 1;
}

struct PrecisionRow {
  const char* words;  // that a recipe's name has
  const char* key;
  const char* value;
  bool narrow_weights;  // fp8_param_gather
};
constexpr PrecisionRow kRecipes[] = {
    {"nvfp4", "fp4", "e2m1", false},
    {"mxfp8", "fp8_recipe", "mxfp8", true},
    {"current_scaling", "fp8_recipe", "tensorwise", true},
    {"subchannel_scaling", "fp8_recipe", "blockwise", false},
    {"fp8", "fp8_recipe", "delayed", true},
};

// mixed_precision: the name of a recipe in place of a section.
std::vector<GivenKey> KeysOfRecipe(const GivenKey& given) {
  std::vector<GivenKey> keys;
  const auto add = [&](const char* name, const char* value) {
    keys.push_back({.section = "mixed_precision",
                    .name = name,
                    .values = {value},
                    .line = given.line});
  };
  const std::string name = absl::StrJoin(given.values, "");
  add("bf16", absl::StartsWith(name, "fp16") ? "false" : "true");
  for (const PrecisionRow& row : kRecipes) {
    if (!absl::StrContains(name, row.words)) continue;
    add(row.key, row.value);
    if (std::string(row.key) == "fp8_recipe") add("fp8", "hybrid");
    if (row.narrow_weights) add("fp8_param_gather", "true");
    break;
  }
  return keys;
}

class BridgeFile {
 public:
  explicit BridgeFile(const std::string& path) : path_(path) {}

  // Keys of the core, one of each name; the others are noted.
  std::vector<GivenKey> Core(const std::vector<GivenKey>& keys) {
    for (const GivenKey& key : keys) {
      has_experts_ |= key.name == "num_moe_experts" && !key.is_null;
    }
    for (const GivenKey& key : keys) {
      if (key.section.empty() && key.name == "mixed_precision") {
        for (const GivenKey& each : KeysOfRecipe(key)) Take(each);
      } else if (key.is_flag) {
        core_[key.name] = key;  // of who launches it
      } else if (!absl::StartsWith(key.name, "_")) {
        Take(key);
      }
    }
    // An object of overlaps overwrites ddp's, if the step is sharded.
    const auto on = [this](const char* name) {
      const auto found = core_.find(name);
      return found != core_.end() && !found->second.values.empty() &&
             found->second.values[0] == "true";
    };
    const bool shards =
        on("use_distributed_optimizer") || on("use_megatron_fsdp");
    if (overlap_ && shards) {
      const auto other = core_.find(overlap_->name);
      if (other != core_.end() && !other->second.is_null &&
          other->second.values != overlap_->values) {
        Overruled(other->second, *overlap_);
      }
      core_[overlap_->name] = *overlap_;
    } else if (overlap_ && overlap_->line > 0) {
      without_effect_.push_back(absl::StrCat(
          overlap_->Spelled(), " (without the distributed optimizer)"));
    }
    std::vector<GivenKey> core;
    for (auto& [name, key] : core_) core.push_back(std::move(key));
    return core;
  }

  std::vector<std::string> Notes() const {
    std::vector<std::string> notes;
    const auto add = [&](const char* words,
                         const std::vector<std::string>& names) {
      if (names.empty()) return;
      notes.push_back(
          absl::StrCat(path_, ": ", words, absl::StrJoin(names, ", ")));
    };
    add("not modelled: ", not_modelled_);
    add("not known to Megatron-Bridge: ", unknown_);
    add("without effect on time and memory: ", without_effect_);
    return notes;
  }

  // Values that rules ask for and that are no keys of the core.
  std::map<std::string, std::string> Known() const {
    if (sequence_.empty()) return {};
    return {{"dataset.seq_length", sequence_}};
  }
  // Fields of keys that the core does not have.
  const std::vector<ConfigEdit>& edits() const { return edits_; }

 private:
  // A key of Bridge itself that the core does not have.
  void TakeOther(const ForeignKey& key, const GivenKey& given) {
    const std::string value = absl::StrJoin(given.values, ",");
    const std::string* const word =
        key.values.empty() ? &value : key.WordOf(value);
    if (given.is_null || key.IsNeutral(value, "main")) {
      without_effect_.push_back(given.Spelled());
    } else if (absl::StartsWith(key.field, "@") || word == nullptr) {
      not_modelled_.push_back(
          absl::StrCat(given.Spelled(), " ", value, " (", key.note, ")"));
    } else {
      edits_.push_back(
          {key.field, *word,
           FieldPlace::InFile(path_, given.line, given.Spelled())});
    }
  }

  void Take(const GivenKey& given) {
    if (given.section == "comm_overlap") {
      if (given.name == "overlap_grad_reduce" && !given.is_null) {
        overlap_ = given;
        return;
      }
      if (!overlap_) {
        overlap_ = GivenKey{.section = given.section,
                            .name = "overlap_grad_reduce",
                            .values = {"true"}};
      }
    }
    const KeyTable& bridge = KeyTable::Of("bridge");
    const KeyTable& megatron = KeyTable::Of("megatron");
    const ForeignKey* key = bridge.FindName(given.section, given.name);
    // A dump without sections, or one of a section within another.
    if (key == nullptr &&
        (given.section.empty() || absl::StrContains(given.section, "."))) {
      key = bridge.FindName("", given.name);
    }
    const bool core = megatron.FindName("", given.name) != nullptr;
    // Without a section it can only be the core's.
    if (core && given.section.empty()) key = nullptr;
    if (key == nullptr && !(core && given.section.empty())) {
      const std::string nearest = NearestName(given.name, bridge.Names());
      unknown_.push_back(absl::StrCat(
          given.Spelled(),
          nearest.empty() ? ""
                          : absl::StrCat(" (did you mean ", nearest, "?)")));
      return;
    }
    if (key != nullptr && key->effect != KeyEffect::kMapped) {
      const std::string value = absl::StrJoin(given.values, ",");
      // A dump has all keys of experts, whether there are any or not.
      const bool none =
          key->effect == KeyEffect::kNone || given.is_null ||
          (!has_experts_ && absl::StartsWith(given.name, "moe_")) ||
          key->IsNeutral(value, "main");
      (none ? without_effect_ : not_modelled_)
          .push_back(none
                         ? given.Spelled()
                         : absl::StrCat(given.Spelled(), " (", key->note, ")"));
      return;
    }
    if (!core) {
      TakeOther(*key, given);
      return;
    }
    if (given.section == "dataset") {
      // Its sequence has to be the model's, and is no other one.
      if (given.name == "seq_length" && !given.is_null) {
        sequence_ = absl::StrJoin(given.values, "");
      }
      return;
    }
    const auto before = core_.find(given.name);
    if (before != core_.end() && RankOf(before->second) > RankOf(given)) {
      if (!given.is_null) Overruled(given, before->second);
      return;
    }
    // Set by either section, both have it (config.py, validate).
    if (before != core_.end() && !before->second.values.empty() &&
        (given.name == "use_distributed_optimizer" ||
         given.name == "overlap_param_gather") &&
        before->second.values[0] == "true") {
      return;
    }
    if (before != core_.end() && before->second.section != given.section &&
        !before->second.is_null) {
      Overruled(before->second, given);
    }
    core_[given.name] = given;
    // Copied to the model, if it is on.
    if (given.name == "te_rng_tracker" && !given.is_null &&
        given.values[0] == "true") {
      core_["use_te_rng_tracker"] = given;
    }
  }
  void Overruled(const GivenKey& given, const GivenKey& by) {
    without_effect_.push_back(
        absl::StrCat(given.Spelled(), " (", by.Spelled(), " wins)"));
  }

  std::string path_;
  bool has_experts_ = false;
  std::string sequence_;  // of the data set
  std::vector<ConfigEdit> edits_;
  std::optional<GivenKey> overlap_;  // of comm_overlap, given or its default
  std::map<std::string, GivenKey> core_;
  std::vector<std::string> unknown_;
  std::vector<std::string> not_modelled_;
  std::vector<std::string> without_effect_;
};

// Options of run_recipe.py are overrides below the others.
std::vector<GivenKey> WithOptions(std::vector<GivenKey> keys) {
  std::vector<GivenKey> options;
  std::vector<GivenKey> others;
  for (GivenKey& key : keys) {
    bool clears = false;
    const ForeignKey* const row =
        key.is_flag ? KeyTable::Of("bridge").FindFlag(
                          absl::StripPrefix(key.name, "-"), &clears)
                    : nullptr;
    const bool is_option = row != nullptr && !row->sections.empty();
    if (is_option) {
      key.section = row->sections[0];
      key.name = row->id();
      // The script copies the data's sequence to the model.
      if (key.name == "seq_length") key.section = "model";
      key.is_flag = false;
    }
    (is_option ? options : others).push_back(std::move(key));
  }
  options.insert(options.end(), others.begin(), others.end());
  return options;
}

// The recipe's model, if nothing else says one.
void TakeModel(const BridgeRecipe& recipe, const std::vector<GivenKey>& keys,
               const std::string& place, ForeignArgs* out) {
  out->edits.push_back({"model.preset", recipe.model, place});
  const auto value = [&keys](const char* section, const char* name) {
    for (const GivenKey& key : keys) {
      if (key.section == section && key.name == name && !key.is_null) {
        return absl::StrJoin(key.values, "");
      }
    }
    return std::string();
  };
  if (value("tokenizer", "use_tokenizer_vocab_size") != "true") return;
  const std::string tokens = value("tokenizer", "vocab_size");
  if (tokens.empty()) return;
  out->edits.push_back({"model.vocabulary", tokens, place});
}

}  // namespace

absl::StatusOr<ForeignArgs> ReadBridge(std::vector<GivenKey> keys,
                                       const std::string& path,
                                       const std::set<std::string>& said,
                                       const ForeignSurroundings& around) {
  keys = WithOptions(std::move(keys));
  const BridgeRecipe* recipe = nullptr;
  std::string place;
  // What the recipe sets lies below the overrides.
  const auto names_recipe = [](const GivenKey& key) {
    return key.is_flag && key.name == "recipe";
  };
  const auto last = std::find_if(keys.rbegin(), keys.rend(), names_recipe);
  if (last != keys.rend()) {
    const GivenKey named = *last;
    const std::string name = absl::StrJoin(named.values, "");
    recipe = FindBridgeRecipe(name);
    place = FieldPlace::InFile(path, named.line, "--recipe");
    if (recipe == nullptr) {
      return BadValue(FieldPlace::InFile(path, named.line, "--recipe"), name,
                      "a recipe of frameworks/bridge_recipes.csv; of others "
                      "give the dump");
    }
    std::vector<GivenKey> values = RecipeKeys(*recipe, named.line);
    std::erase_if(keys, names_recipe);
    // An override replaces the value, be it with null.
    std::erase_if(values, [&keys](const GivenKey& value) {
      return std::any_of(keys.begin(), keys.end(), [&](const GivenKey& given) {
        return given.name == value.name &&
               absl::StripSuffix(given.section, ".transformer") ==
                   value.section;
      });
    });
    keys.insert(keys.begin(), values.begin(), values.end());
  }
  ForeignSurroundings beside = around;
  const auto is_named = [&](const char* field) {
    return said.count(field) > 0 || around.Gives(field);
  };
  const auto given = [&keys](const char* name) {
    return absl::c_find_if(keys, [name](const GivenKey& key) {
      return key.name == name && !key.is_null;
    });
  };
  const bool takes_model = recipe != nullptr && !is_named("model.preset") &&
                           !is_named("model.hf") &&
                           given("hidden_size") == keys.end();
  std::optional<ConfigEdit> layers;
  if (const auto key = given("num_layers"); takes_model && key != keys.end()) {
    layers = {"model.layers", absl::StrJoin(key->values, ""),
              FieldPlace::InFile(path, key->line, key->Spelled())};
  }
  if (takes_model) {
    beside.given["model.preset"] = recipe->model;
    PW_ASSIGN_OR_RETURN(const ModelSpec model, FindModel(recipe->model));
    // What rules and stages ask for.
    const std::pair<const char*, std::string> facts[] = {
        {"num_layers", absl::StrCat(model.layers)},
        {"add_bias_linear", model.bias ? "true" : "false"},
        {"num_moe_experts",
         model.has_experts() ? absl::StrCat(model.experts) : ""}};
    for (const auto& [name, value] : facts) {
      if (value.empty() || given(name) != keys.end()) continue;
      keys.insert(
          keys.begin(),
          GivenKey{.section = "model", .name = name, .values = {value}});
    }
  }
  BridgeFile file(path);
  PW_ASSIGN_OR_RETURN(
      ForeignArgs out,
      ReadMegatronCore(file.Core(keys), path, said, beside, file.Known()));
  if (takes_model) TakeModel(*recipe, keys, place, &out);
  if (layers) out.edits.push_back(*std::move(layers));
  for (const ConfigEdit& edit : file.edits()) {
    if (said.count(edit.path) == 0) out.edits.push_back(edit);
  }
  for (std::string& note : file.Notes()) out.notes.push_back(std::move(note));
  return out;
}

}  // namespace pipewright
