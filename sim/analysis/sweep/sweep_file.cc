#include "sim/analysis/sweep/sweep_file.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/base/names.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

const std::vector<std::string>& Keys() {
  static const auto* const keys = new std::vector<std::string>{
      "base", "axes", "linked", "filters", "seeds"};
  return *keys;
}

bool EndsAs(absl::string_view source, absl::string_view ending) {
  return absl::EndsWithIgnoreCase(source, ending);
}

// Writes a tree as JSON, each entry on the line where it stood.
class LineKeeper {
 public:
  void Write(const ConfigNode& node) {
    switch (node.kind) {
      case ConfigNode::Kind::kNull:
        text_ += "null";
        return;
      case ConfigNode::Kind::kScalar:
        Scalar(node);
        return;
      case ConfigNode::Kind::kList:
        text_ += '[';
        for (size_t index = 0; index < node.items.size(); ++index) {
          if (index > 0) text_ += ", ";
          Write(node.items[index]);
        }
        text_ += ']';
        return;
      case ConfigNode::Kind::kMap:
        text_ += '{';
        for (size_t index = 0; index < node.entries.size(); ++index) {
          const ConfigNode::Entry& entry = node.entries[index];
          if (index > 0) text_ += ", ";
          for (; line_ < entry.line; ++line_) text_ += '\n';
          Quote(entry.key);
          text_ += ": ";
          Write(entry.value);
        }
        text_ += '}';
        return;
    }
  }
  std::string Take() && { return std::move(text_); }

 private:
  void Scalar(const ConfigNode& node) {
    // Bare words and numbers stay bare, so that they are read as they were.
    const bool bare =
        !node.quoted && !node.text.empty() &&
        std::all_of(node.text.begin(), node.text.end(), [](char letter) {
          return absl::ascii_isalnum(letter) || letter == '.' ||
                 letter == '-' || letter == '+' || letter == '_';
        });
    bare ? text_ += node.text : Quote(node.text);
  }
  std::string& Quote(absl::string_view words) {
    text_ += '"';
    for (const char letter : words) {
      if (letter == '"' || letter == '\\') text_ += '\\';
      if (letter == '\n') {
        text_ += "\\n";
      } else {
        text_ += letter;
      }
    }
    return text_ += '"';
  }

  std::string text_;
  int line_ = 1;
};

// "sweeps/" of "sweeps/a.yaml", "" of "a.yaml".
std::string FolderOf(const std::string& source) {
  const size_t slash = source.rfind('/');
  return slash == std::string::npos ? "" : source.substr(0, slash + 1);
}

std::string PathBesideFile(const std::string& source, const std::string& path) {
  if (absl::StartsWith(path, "/")) return path;
  return absl::StrCat(FolderOf(source), path);
}

absl::Status ReadFilters(const ConfigNode& node, const std::string& source,
                         SweepGrid* grid) {
  std::vector<ConfigNode> items = node.items;
  if (node.kind == ConfigNode::Kind::kScalar) items = {node};
  if (items.empty()) {
    return InFile(source, node.line,
                  BadValue("filters", node.Describe(), "a list of conditions"));
  }
  for (const ConfigNode& item : items) {
    if (item.kind != ConfigNode::Kind::kScalar) {
      return InFile(source, item.line,
                    BadValue("filters", item.Describe(), "a condition"));
    }
    absl::StatusOr<Expression> keep = Expression::Parse(item.text);
    if (!keep.ok()) {
      return InFile(source, item.line,
                    AboutField("filters", Prefix("filters", keep.status())));
    }
    grid->filters.push_back(
        {*std::move(keep), absl::StrCat(source, ":", item.line)});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::optional<SweepFile>> ReadSweepFile(
    absl::string_view text, const std::string& source) {
  for (const char* ending : {".txtpb", ".textproto", ".pbtxt"}) {
    if (EndsAs(source, ending)) return std::optional<SweepFile>();
  }
  const bool json =
      EndsAs(source, ".json") ||
      absl::StartsWith(absl::StripLeadingAsciiWhitespace(text), "{");
  const absl::StatusOr<ConfigNode> root =
      json ? ParseJsonTree(text, source) : ParseYamlTree(text, source);
  // What is wrong with it is said when it is read as a configuration.
  if (!root.ok() || root->kind != ConfigNode::Kind::kMap) {
    return std::optional<SweepFile>();
  }
  const bool is_sweep =
      std::any_of(root->entries.begin(), root->entries.end(),
                  [](const ConfigNode::Entry& entry) {
                    return std::find(Keys().begin(), Keys().end(), entry.key) !=
                           Keys().end();
                  });
  if (!is_sweep) return std::optional<SweepFile>();
  SweepFile file;
  // Without a base, an empty one: an empty text is no JSON.
  if (json) file.base_text = "{}";
  for (const ConfigNode::Entry& entry : root->entries) {
    const ConfigNode& node = entry.value;
    if (entry.key == "base") {
      if (node.kind == ConfigNode::Kind::kScalar) {
        file.base_path = PathBesideFile(source, node.text);
      } else if (node.kind == ConfigNode::Kind::kMap) {
        LineKeeper keeper;
        keeper.Write(node);
        file.base_text = std::move(keeper).Take();
      } else {
        return InFile(source, entry.line,
                      BadValue("base", node.Describe(),
                               "a configuration, or the path of one"));
      }
    } else if (entry.key == "axes") {
      PW_ASSIGN_OR_RETURN(std::vector<SweepAxis> axes,
                          AxesOfNode(node, source));
      for (SweepAxis& axis : axes) file.grid.axes.push_back(std::move(axis));
    } else if (entry.key == "linked") {
      const std::vector<ConfigNode> items = node.kind == ConfigNode::Kind::kList
                                                ? node.items
                                                : std::vector<ConfigNode>{node};
      for (const ConfigNode& item : items) {
        PW_ASSIGN_OR_RETURN(SweepAxis axis, LinkedAxisOfNode(item, source));
        file.grid.axes.push_back(std::move(axis));
      }
    } else if (entry.key == "filters") {
      PW_RETURN_IF_ERROR(ReadFilters(node, source, &file.grid));
    } else if (entry.key == "seeds") {
      int64_t seeds = 0;
      if (node.kind != ConfigNode::Kind::kScalar ||
          !absl::SimpleAtoi(node.text, &seeds) || seeds < 1 ||
          seeds > kMostSeeds) {
        return InFile(
            source, entry.line,
            BadValue("seeds", node.Describe(),
                     absl::StrCat("an integer from 1 to ", kMostSeeds)));
      }
      file.seeds = seeds;
    } else {
      return InFile(
          source, entry.line,
          AboutField(entry.key, UnknownName("key", entry.key, Keys())));
    }
  }
  for (SweepAxis& axis : file.grid.axes) axis.folder = FolderOf(source);
  return std::optional<SweepFile>(std::move(file));
}

SweepAxis SeedAxis(int64_t count, int64_t first, const std::string& place) {
  SweepAxis axis;
  axis.names = {"costs.seed"};
  axis.place = place;
  for (int64_t index = 0; index < count; ++index) {
    axis.values.push_back({absl::StrCat(first + index)});
  }
  return axis;
}

}  // namespace pipewright
