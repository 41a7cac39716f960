// Recipes of Megatron-Bridge with the values that they set
// (frameworks/bridge_recipes.csv).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "sim/foreign/given_keys.h"

namespace pipewright {

struct BridgeRecipe {
  std::string name;     // of its function
  std::string model;    // preset of ours with the same sizes
  bool nested = false;  // the model has its keys under model.transformer
  // "model.seq_length" and its like; "null" for none.
  std::map<std::string, std::string> values;
};
const std::vector<BridgeRecipe>& BridgeRecipes();

// Null for a recipe that the table does not have.
const BridgeRecipe* FindBridgeRecipe(absl::string_view name);

// Its values as if a file gave them in `line`.
std::vector<GivenKey> RecipeKeys(const BridgeRecipe& recipe, int line);

}  // namespace pipewright
