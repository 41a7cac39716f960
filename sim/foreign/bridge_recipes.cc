#include "sim/foreign/bridge_recipes.h"

#include <utility>

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sim/foreign/key_table.h"

namespace pipewright {

const std::vector<BridgeRecipe>& BridgeRecipes() {
  static const auto* const recipes = [] {
    auto* all = new std::vector<BridgeRecipe>;
    for (const auto& row : KeyRows("bridge_recipes")) {
      BridgeRecipe recipe = {row.at("recipe"), row.at("model"),
                             row.at("form") == "transformer"};
      for (const absl::string_view pair :
           absl::StrSplit(row.at("values"), ';', absl::SkipEmpty())) {
        recipe.values.insert(absl::StrSplit(pair, absl::MaxSplits('=', 1)));
      }
      all->push_back(std::move(recipe));
    }
    return all;
  }();
  return *recipes;
}

const BridgeRecipe* FindBridgeRecipe(absl::string_view name) {
  for (const BridgeRecipe& recipe : BridgeRecipes()) {
    if (recipe.name == name) return &recipe;
  }
  return nullptr;
}

std::vector<GivenKey> RecipeKeys(const BridgeRecipe& recipe, int line) {
  std::vector<GivenKey> keys;
  for (const auto& [path, value] : recipe.values) {
    const size_t dot = path.rfind('.');
    GivenKey key = {.name = path.substr(dot == std::string::npos ? 0 : dot + 1),
                    .line = line};
    if (dot != std::string::npos) key.section = path.substr(0, dot);
    key.is_null = value == "null";
    if (!key.is_null) key.values = {value};
    // "[[embedding decoder] [decoder loss]]"
    absl::string_view stages = value;
    if (absl::ConsumePrefix(&stages, "[[") &&
        absl::ConsumeSuffix(&stages, "]]")) {
      key.is_list = true;
      key.values = absl::StrSplit(
          absl::StrReplaceAll(stages, {{"] [", "|"}, {" ", ","}}), '|');
    }
    keys.push_back(std::move(key));
  }
  return keys;
}

}  // namespace pipewright
