#include "sim/foreign/titan_models.h"

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sim/config/config_fields.h"
#include "sim/foreign/emission.h"
#include "sim/foreign/key_table.h"

namespace pipewright {
namespace {

struct Same {
  const char* name;
  const char* flavor;
  const char* preset;
};
constexpr Same kPresets[] = {
    {"llama3", "8B", "llama3-8b"},
    {"llama3", "70B", "llama3-70b"},
    {"llama3", "405B", "llama3-405b"},
};

int64_t Number(const std::string& text) {
  int64_t value = 0;
  return absl::SimpleAtoi(text, &value) ? value : 0;
}

// What `other` says beside the columns, one "key=value" at a time.
void TakeOther(absl::string_view pair, TitanModel* model) {
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(pair, absl::MaxSplits('=', 1));
  const auto& [key, value] = parts;
  for (const char* field :
       {"q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim",
        "v_head_dim", "head_dim", "qk_norm", "qkv_bias", "bias", "window",
        "full_attention_every"}) {
    if (key != field) continue;
    if (value != "0") model->fields.emplace_back("model." + key, value);
    return;
  }
  if (key == "moe_every" && value == "1") return;
  if (key == "linear_attention_layers" || key == "moe_every" ||
      key == "vision_encoder") {
    model->missing.push_back(absl::StrCat(key, " ", value));
  } else if (!absl::StartsWith(key, "rope_") && key != "max_context" &&
             key != "attention") {
    model->not_modelled.push_back(absl::StrCat(key, " ", value));
  }
}

TitanModel ModelOf(const std::map<std::string, std::string>& row) {
  TitanModel model;
  model.layers = Number(row.at("layers"));
  for (const char* column :
       {"layers", "hidden", "heads", "kv_heads", "ffn_hidden", "vocabulary",
        "experts", "experts_per_token", "expert_ffn_hidden",
        "first_dense_layers"}) {
    const std::string& value = row.at(column);
    if (Number(value) > 0) {
      model.fields.emplace_back(absl::StrCat("model.", column), value);
    }
  }
  const int64_t shared =
      Number(row.at("shared_experts")) * Number(row.at("expert_ffn_hidden"));
  if (shared > 0) {
    model.fields.emplace_back("model.shared_ffn_hidden", absl::StrCat(shared));
  }
  model.fields.emplace_back("model.gated", "true");
  model.fields.emplace_back("model.tied_embeddings", row.at("tied_embeddings"));
  for (const absl::string_view pair :
       absl::StrSplit(row.at("other"), ';', absl::SkipEmpty())) {
    TakeOther(pair, &model);
  }
  return model;
}

ModelSpec SpecOf(const TitanModel& flavor) {
  const std::map<std::string, std::string> fields(flavor.fields.begin(),
                                                  flavor.fields.end());
  ModelSpec model;
  for (const ModelSizeRow& row : ModelSizeRows()) {
    const auto field = fields.find(row.path);
    if (field != fields.end()) model.*row.size = Number(field->second);
  }
  for (const ModelPropertyRow& row : ModelPropertyRows()) {
    const auto field = fields.find(row.path);
    if (field != fields.end()) model.*row.property = field->second == "true";
  }
  return model;
}

}  // namespace

std::optional<TitanModel> FindTitanModel(absl::string_view name,
                                         absl::string_view flavor) {
  std::optional<TitanModel> found;
  bool newest = false;
  for (const auto& row : KeyRows("torchtitan_flavors")) {
    if (row.at("name") != name || row.at("flavor") != flavor) continue;
    const bool tokens = absl::StrContains(row.at("versions"), "tokens");
    if (found && (newest || !tokens)) continue;
    newest = tokens;
    found = ModelOf(row);
  }
  if (!found) {
    const size_t suffix = flavor.find('_');
    return suffix == absl::string_view::npos
               ? std::nullopt
               : FindTitanModel(name, flavor.substr(0, suffix));
  }
  for (const Same& same : kPresets) {
    if (name == same.name && flavor == same.flavor) found->preset = same.preset;
  }
  return found;
}

std::optional<TitanFlavor> FlavorOf(const ModelSpec& model,
                                    absl::string_view form) {
  for (const auto& row : KeyRows("torchtitan_flavors")) {
    const std::vector<std::string> forms =
        absl::StrSplit(row.at("versions"), '|');
    const TitanModel flavor = ModelOf(row);
    if (!absl::c_linear_search(forms, form) || !flavor.missing.empty()) {
      continue;
    }
    if (IsSameModel(SpecOf(flavor), model)) {
      return TitanFlavor{row.at("name"), row.at("flavor")};
    }
  }
  return std::nullopt;
}

std::vector<std::string> TitanModels() {
  std::vector<std::string> names;
  for (const auto& row : KeyRows("torchtitan_flavors")) {
    const std::string& name = row.at("name");
    if (!absl::c_linear_search(names, name)) names.push_back(name);
  }
  return names;
}

std::vector<std::string> TitanFlavors(absl::string_view name) {
  std::vector<std::string> flavors;
  for (const auto& row : KeyRows("torchtitan_flavors")) {
    const std::string& flavor = row.at("flavor");
    if (row.at("name") == name && !absl::c_linear_search(flavors, flavor)) {
      flavors.push_back(flavor);
    }
  }
  return flavors;
}

}  // namespace pipewright
