#include "sim/analysis/sweep/leaves.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sim/base/json.h"

namespace pipewright {
namespace {

struct NamedUse {
  const char* name;
  ColumnOfShape::Use use;
};
constexpr NamedUse kUses[] = {{"max", ColumnOfShape::Use::kMax},
                              {"min", ColumnOfShape::Use::kMin},
                              {"mean", ColumnOfShape::Use::kMean},
                              {"sum", ColumnOfShape::Use::kSum}};

void Split(const Json& tree, int* next, TreeParts* parts) {
  std::string& shape = parts->shape;
  if (tree.is_object()) {
    shape += '{';
    bool first = true;
    for (const auto& [key, value] : tree.items()) {
      if (!first) shape += ',';
      first = false;
      AppendQuotedJson(key, &shape);
      shape += ':';
      Split(value, next, parts);
    }
    shape += '}';
    return;
  }
  if (tree.is_array()) {
    shape += '[';
    for (size_t index = 0; index < tree.size(); ++index) {
      if (index > 0) shape += ',';
      Split(tree[index], next, parts);
    }
    shape += ']';
    return;
  }
  absl::StrAppend(&shape, *next);
  if (*next > 0) parts->leaves += ',';
  tree.append_to(&parts->leaves);
  ++*next;
}

bool IsLeaf(const Json& shape) { return shape.is_number_integer(); }

bool IsListOfLeaves(const Json& shape) {
  return shape.is_array() && !shape.empty() &&
         std::all_of(shape.begin(), shape.end(), IsLeaf);
}

void AddColumns(const Json& shape, const std::string& path,
                std::vector<std::string>* columns) {
  if (IsLeaf(shape)) {
    columns->push_back(path);
    return;
  }
  const std::string front = path.empty() ? "" : absl::StrCat(path, ".");
  if (IsListOfLeaves(shape)) {
    for (const NamedUse& use : kUses) columns->push_back(front + use.name);
  }
  if (shape.is_array()) {
    for (size_t index = 0; index < shape.size(); ++index) {
      AddColumns(shape[index], absl::StrCat(front, index), columns);
    }
    return;
  }
  if (!shape.is_object()) return;
  for (const auto& [key, value] : shape.items()) {
    AddColumns(value, front + key, columns);
  }
}

}  // namespace

TreeParts SplitTree(const Json& tree) {
  TreeParts parts;
  parts.leaves.assign(1, '[');
  int next = 0;
  Split(tree, &next, &parts);
  parts.leaves += ']';
  return parts;
}

Json JoinTree(const Json& shape, const Json& leaves) {
  if (IsLeaf(shape)) {
    const auto index = shape.get<uint64_t>();
    return index < leaves.size() ? leaves[index] : Json();
  }
  if (shape.is_object()) {
    Json tree = Json::object();
    tree.reserve(shape.size());
    for (const auto& [key, value] : shape.items()) {
      tree.append(key, JoinTree(value, leaves));
    }
    return tree;
  }
  if (!shape.is_array()) return shape;
  Json tree = Json::array();
  tree.reserve(shape.size());
  for (const Json& each : shape) tree.push_back(JoinTree(each, leaves));
  return tree;
}

ColumnOfShape FindColumn(const Json& shape, absl::string_view path) {
  const Json* at = &shape;
  const std::vector<absl::string_view> words = absl::StrSplit(path, '.');
  for (size_t place = 0; place < words.size(); ++place) {
    const absl::string_view word = words[place];
    size_t index = 0;
    if (at->is_object()) {
      at = at->find(word);
      if (at == nullptr) return {};
    } else if (at->is_array() && absl::SimpleAtoi(word, &index) &&
               index < at->size()) {
      at = &(*at)[index];
    } else if (IsListOfLeaves(*at)) {
      for (const NamedUse& use : kUses) {
        if (word != use.name) continue;
        ColumnOfShape column = {.use = use.use};
        for (const Json& leaf : *at) {
          column.leaves.push_back(leaf.get<int>());
        }
        // Nothing may stand behind it.
        return place + 1 == words.size() ? column : ColumnOfShape();
      }
      return {};
    } else {
      return {};
    }
  }
  ColumnOfShape column;
  if (IsLeaf(*at)) column.leaves.push_back(at->get<int>());
  return column;
}

SweepCell CellOfColumn(const ColumnOfShape& column, const Json& leaves) {
  if (column.leaves.empty()) return {};
  const auto cell_of = [&leaves](int index) -> SweepCell {
    if (index < 0 || index >= static_cast<int>(leaves.size())) return {};
    const Json& leaf = leaves[index];
    if (leaf.is_number()) return SweepCell::Number(leaf.get<double>());
    if (leaf.is_string()) return SweepCell::Text(leaf.get<std::string>());
    if (leaf.is_boolean()) {
      return SweepCell::Text(leaf.get<bool>() ? "true" : "false");
    }
    return {};
  };
  if (column.use == ColumnOfShape::Use::kOne) return cell_of(column.leaves[0]);
  double sum = 0;
  double most = 0;
  double least = 0;
  for (size_t index = 0; index < column.leaves.size(); ++index) {
    const SweepCell cell = cell_of(column.leaves[index]);
    if (cell.kind != SweepCell::Kind::kNumber) return {};
    sum += cell.number;
    most = index == 0 ? cell.number : std::max(most, cell.number);
    least = index == 0 ? cell.number : std::min(least, cell.number);
  }
  switch (column.use) {
    case ColumnOfShape::Use::kMax:
      return SweepCell::Number(most);
    case ColumnOfShape::Use::kMin:
      return SweepCell::Number(least);
    case ColumnOfShape::Use::kMean:
      return SweepCell::Number(sum / static_cast<double>(column.leaves.size()));
    default:
      return SweepCell::Number(sum);
  }
}

std::vector<std::string> ColumnsOfShape(const Json& shape) {
  std::vector<std::string> columns;
  AddColumns(shape, "", &columns);
  return columns;
}

}  // namespace pipewright
