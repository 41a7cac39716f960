#include "sim/sweep/leaves.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace pipewright {
namespace {

using nlohmann::ordered_json;

constexpr auto kReplace = ordered_json::error_handler_t::replace;

struct NamedUse {
  const char* name;
  ColumnOfShape::Use use;
};
constexpr NamedUse kUses[] = {{"max", ColumnOfShape::Use::kMax},
                              {"min", ColumnOfShape::Use::kMin},
                              {"mean", ColumnOfShape::Use::kMean},
                              {"sum", ColumnOfShape::Use::kSum}};

// Without anything that JSON escapes, or that may be no UTF-8.
bool IsPlain(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char letter) {
    return letter >= 0x20 && letter < 0x7f && letter != '"' && letter != '\\';
  });
}

void AppendText(const std::string& text, std::string* out) {
  if (!IsPlain(text)) {
    *out += ordered_json(text).dump(-1, ' ', false, kReplace);
    return;
  }
  *out += '"';
  *out += text;
  *out += '"';
}

// What dump() gives, which makes a writer of its own for each leaf.
void AppendLeaf(const ordered_json& leaf, std::string* out) {
  switch (leaf.type()) {
    case ordered_json::value_t::null:
      *out += "null";
      return;
    case ordered_json::value_t::boolean:
      *out += leaf.get<bool>() ? "true" : "false";
      return;
    case ordered_json::value_t::number_integer:
      absl::StrAppend(out, leaf.get<int64_t>());
      return;
    case ordered_json::value_t::number_unsigned:
      absl::StrAppend(out, leaf.get<uint64_t>());
      return;
    case ordered_json::value_t::number_float: {
      const auto value = leaf.get<double>();
      if (!std::isfinite(value)) {
        *out += "null";
        return;
      }
      char digits[64];
      const char* const end =
          nlohmann::detail::to_chars(digits, digits + sizeof(digits), value);
      out->append(digits, static_cast<size_t>(end - digits));
      return;
    }
    case ordered_json::value_t::string:
      AppendText(leaf.get_ref<const std::string&>(), out);
      return;
    default:
      *out += leaf.dump(-1, ' ', false, kReplace);
  }
}

void Split(const ordered_json& tree, int* next, TreeParts* parts) {
  std::string& shape = parts->shape;
  if (tree.is_object()) {
    shape += '{';
    bool first = true;
    for (const auto& [key, value] :
         tree.get_ref<const ordered_json::object_t&>()) {
      if (!first) shape += ',';
      first = false;
      AppendText(key, &shape);
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
  AppendLeaf(tree, &parts->leaves);
  ++*next;
}

bool IsLeaf(const ordered_json& shape) { return shape.is_number_integer(); }

bool IsListOfLeaves(const ordered_json& shape) {
  return shape.is_array() && !shape.empty() &&
         std::all_of(shape.begin(), shape.end(), IsLeaf);
}

void AddColumns(const ordered_json& shape, const std::string& path,
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
  for (const auto& [key, value] : shape.items()) {
    AddColumns(value, front + key, columns);
  }
}

}  // namespace

TreeParts SplitTree(const ordered_json& tree) {
  TreeParts parts;
  parts.leaves.assign(1, '[');
  int next = 0;
  Split(tree, &next, &parts);
  parts.leaves += ']';
  return parts;
}

ordered_json JoinTree(const ordered_json& shape, const nlohmann::json& leaves) {
  if (IsLeaf(shape)) {
    const auto index = shape.get<size_t>();
    return index < leaves.size() ? ordered_json(leaves[index]) : ordered_json();
  }
  ordered_json tree = shape;
  if (shape.is_object()) {
    for (const auto& [key, value] : shape.items()) {
      tree[key] = JoinTree(value, leaves);
    }
  } else {
    for (size_t index = 0; index < shape.size(); ++index) {
      tree[index] = JoinTree(shape[index], leaves);
    }
  }
  return tree;
}

ColumnOfShape FindColumn(const ordered_json& shape, absl::string_view path) {
  const ordered_json* at = &shape;
  const std::vector<absl::string_view> words = absl::StrSplit(path, '.');
  for (size_t place = 0; place < words.size(); ++place) {
    const absl::string_view word = words[place];
    size_t index = 0;
    if (at->is_object()) {
      const auto found = at->find(std::string(word));
      if (found == at->end()) return {};
      at = &*found;
    } else if (at->is_array() && absl::SimpleAtoi(word, &index) &&
               index < at->size()) {
      at = &(*at)[index];
    } else if (IsListOfLeaves(*at)) {
      for (const NamedUse& use : kUses) {
        if (word != use.name) continue;
        ColumnOfShape column = {.use = use.use};
        for (const ordered_json& leaf : *at) {
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

SweepCell CellOfColumn(const ColumnOfShape& column,
                       const nlohmann::json& leaves) {
  if (column.leaves.empty()) return {};
  const auto cell_of = [&leaves](int index) -> SweepCell {
    if (index >= static_cast<int>(leaves.size())) return {};
    const nlohmann::json& leaf = leaves[index];
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

std::vector<std::string> ColumnsOfShape(const ordered_json& shape) {
  std::vector<std::string> columns;
  AddColumns(shape, "", &columns);
  return columns;
}

}  // namespace pipewright
