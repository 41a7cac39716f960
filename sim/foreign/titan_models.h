// torchtitan's models, by name and flavor (frameworks/torchtitan_flavors.csv).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "sim/model/model.h"

namespace pipewright {

struct TitanModel {
  std::string preset;  // ours of the same sizes; "" for none
  int64_t layers = 0;
  // Fields of the model and their values.
  std::vector<std::pair<std::string, std::string>> fields;
  // Parts that have no field: "linear_attention_layers 30". The first kind
  // changes the model so much that nothing stands for it.
  std::vector<std::string> missing;
  std::vector<std::string> not_modelled;
};
// The newest of that name and flavor; the part behind "_flex" and the like of a
// flavor says how attention is computed alone.
std::optional<TitanModel> FindTitanModel(absl::string_view name,
                                         absl::string_view flavor);

// A flavor that a file can name.
struct TitanFlavor {
  std::string name;
  std::string flavor;
};
// One of `form` ("toml", "tokens") with the sizes of `model`; none without.
std::optional<TitanFlavor> FlavorOf(const ModelSpec& model,
                                    absl::string_view form);

// Models that the table has.
std::vector<std::string> TitanModels();
// Flavors of a model that the table has.
std::vector<std::string> TitanFlavors(absl::string_view name);

}  // namespace pipewright
