// Fills a protobuf message, by reflection, from the three syntaxes and from
// single edits ("strategy.pp" = "8"), and remembers where each field came
// from. Knows no particular schema; what the values mean is run_config.h's.
#pragma once

#include <google/protobuf/message.h>

#include <functional>
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
  // The field beside it, a mapping, that holds the value of this one under its
  // name; null for all others.
  const google::protobuf::FieldDescriptor* (*mapping_of)(
      const google::protobuf::FieldDescriptor*);
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

// Takes away what `path` holds, with its origin: the field, of a mapping all
// of its keys, of a field that is a key of a mapping that key. What `stays`
// says of the origin of a field or key (null: nobody knows it) keeps it.
void ClearPath(absl::string_view path, ConfigMessage* target,
               const std::function<bool(const ConfigOrigin*)>& stays = nullptr);

// The message that holds the field at `path` and the field itself; the
// message is null where a section above it is not set. The path must exist.
struct FieldAt {
  const google::protobuf::Message* message;
  const google::protobuf::FieldDescriptor* field;
};
FieldAt FindField(const google::protobuf::Message& root,
                  absl::string_view path);

// The same for many messages of one type, without a look at names.
class FieldPath {
 public:
  // The path must exist.
  FieldPath(const google::protobuf::Descriptor* root, absl::string_view path);
  FieldAt In(const google::protobuf::Message& root) const;

 private:
  std::vector<const google::protobuf::FieldDescriptor*> sections_;
  const google::protobuf::FieldDescriptor* field_;
};

// All paths of the schema below `descriptor`, sections left out.
std::vector<std::string> FieldPaths(
    const google::protobuf::Descriptor* descriptor);

}  // namespace pipewright
