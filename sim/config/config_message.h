// Fills a protobuf message, by reflection, from the three syntaxes and from
// single edits ("strategy.pp" = "8"), and remembers where each field came
// from. Knows no particular schema; what the values mean is run_config.h's.
#pragma once

#include <google/protobuf/message.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "sim/base/quantity.h"
#include "sim/config/config_edit.h"
#include "sim/config/config_tree.h"

namespace pipewright {

struct ConfigMessage {
  google::protobuf::Message* message;
  // The unit of a string field that holds a quantity; kNone for others.
  Unit (*unit_of)(const google::protobuf::FieldDescriptor*);
  // What the number at this path may be, "an integer from 1 to 8"; "" for
  // other paths.
  std::string (*allowed_of)(absl::string_view path);
  // Paths that this version refuses by name.
  std::vector<std::string> not_available;
  ConfigOrigins origins;
};

// Errors: kInvalidArgument, "ORIGIN: PATH: VALUE is not allowed; allowed:
// ..."; unknown fields name the nearest known one.
absl::Status FillFromTree(const ConfigNode& root, absl::string_view source,
                          ConfigMessage* target);
absl::Status FillFromTextproto(absl::string_view text, absl::string_view source,
                               ConfigMessage* target);
// Replaces what is there; a message field of (key, value) pairs by key.
absl::Status ApplyEdit(const ConfigEdit& edit, ConfigMessage* target);

// Takes the field at `path` away; nothing happens where it is not set.
void ClearPath(absl::string_view path, ConfigMessage* target);

// The message that holds the field at `path` and the field itself; the
// message is null where a section above it is not set. The path must exist.
struct FieldAt {
  const google::protobuf::Message* message;
  const google::protobuf::FieldDescriptor* field;
};
FieldAt FindField(const google::protobuf::Message& root,
                  absl::string_view path);

// All paths of the schema below `descriptor`, sections left out.
std::vector<std::string> FieldPaths(
    const google::protobuf::Descriptor* descriptor);

}  // namespace pipewright
