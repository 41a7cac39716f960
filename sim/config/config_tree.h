// A YAML or JSON text as a tree that remembers lines: what both have in
// common, before any schema. Text protobuf does not come through here.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pipewright {

struct ConfigNode {
  enum class Kind { kNull, kScalar, kList, kMap };
  struct Entry;

  Kind kind = Kind::kNull;
  std::string text;               // of a scalar
  bool quoted = false;            // a scalar that can only be a string
  int line = 0;                   // from 1
  std::vector<ConfigNode> items;  // of a list
  std::vector<Entry> entries;     // of a map, in file order

  // For messages: the text, or "a list", "a mapping", "nothing".
  std::string Describe() const;
};

struct ConfigNode::Entry {
  std::string key;
  int line = 0;
  ConfigNode value;
};

// The one document of `text`. Duplicate keys, keys that are not scalars,
// aliases, several documents, and nesting deeper than 32 are errors. An empty
// text is kNull. Errors: kInvalidArgument, "source:LINE: ...".
absl::StatusOr<ConfigNode> ParseYamlTree(absl::string_view text,
                                         absl::string_view source);

// Strict JSON (no comments, no trailing commas); same errors.
absl::StatusOr<ConfigNode> ParseJsonTree(absl::string_view text,
                                         absl::string_view source);

}  // namespace pipewright
