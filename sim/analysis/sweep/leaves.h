// A JSON tree in two parts: its shape, which many results share, and its
// leaves. The shape is the tree with the number of a leaf in the place of each
// scalar; the leaves are a list of scalars in that order. Columns of results
// are paths into the tree: "bubble_fraction.per_rank", "ranks.0.idle_s"; a list
// of numbers has .max, .min, .mean and .sum besides its places.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "sim/analysis/sweep/cell.h"

namespace pipewright {

class Json;

struct TreeParts {
  std::string shape;   // JSON
  std::string leaves;  // JSON, a list
};
TreeParts SplitTree(const Json& tree);

// The inverse; `leaves` is the list.
Json JoinTree(const Json& shape, const Json& leaves);

// Which leaves a column is made of.
struct ColumnOfShape {
  enum class Use : uint8_t { kOne, kMax, kMin, kMean, kSum };
  Use use = Use::kOne;
  std::vector<int> leaves;  // empty: the tree has no such path
};
ColumnOfShape FindColumn(const Json& shape, absl::string_view path);
SweepCell CellOfColumn(const ColumnOfShape& column, const Json& leaves);

// All paths of a shape, in its order.
std::vector<std::string> ColumnsOfShape(const Json& shape);

}  // namespace pipewright
