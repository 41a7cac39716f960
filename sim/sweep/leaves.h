// A JSON tree in two parts: its shape, which many results share, and its
// leaves. The shape is the tree with the number of a leaf in the place of each
// scalar; the leaves are a list of scalars in that order. Columns of results
// are paths into the tree: "bubble_fraction.per_rank", "ranks.0.idle_s"; a list
// of numbers has .max, .min, .mean and .sum besides its places.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "sim/sweep/cell.h"

namespace pipewright {

struct TreeParts {
  std::string shape;   // JSON
  std::string leaves;  // JSON, a list
};
TreeParts SplitTree(const nlohmann::ordered_json& tree);

// The inverse; `leaves` is the list.
nlohmann::ordered_json JoinTree(const nlohmann::ordered_json& shape,
                                const nlohmann::json& leaves);

// Which leaves a column is made of.
struct ColumnOfShape {
  enum class Use : uint8_t { kOne, kMax, kMin, kMean, kSum };
  Use use = Use::kOne;
  std::vector<int> leaves;  // empty: the tree has no such path
};
ColumnOfShape FindColumn(const nlohmann::ordered_json& shape,
                         absl::string_view path);
SweepCell CellOfColumn(const ColumnOfShape& column,
                       const nlohmann::json& leaves);

// All paths of a shape, in its order.
std::vector<std::string> ColumnsOfShape(const nlohmann::ordered_json& shape);

}  // namespace pipewright
