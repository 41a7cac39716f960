// Mappings in a configuration's message: repeated messages of key and value,
// the user's own words. Fields beside a mapping may be second paths of its
// keys (ConfigMessage::mapping_of). Parts of config_message.h.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "sim/config/config_message.h"

namespace pipewright {

// "strategy" and "pp" make "strategy.pp"; "" and "engine" make "engine".
std::string JoinPath(absl::string_view path, absl::string_view name);

// The path of another field of the same section.
std::string PathBeside(absl::string_view path, absl::string_view name);

bool IsMapping(const google::protobuf::FieldDescriptor* field);

// The pair of `key` in a mapping of `message`; -1 for none.
int IndexOfKey(const google::protobuf::Message& message,
               const google::protobuf::FieldDescriptor* mapping,
               absl::string_view key);

void RemoveKey(const google::protobuf::FieldDescriptor* mapping,
               absl::string_view key, google::protobuf::Message* message);

// The message of a place that FindField found.
google::protobuf::Message* MutableOf(const FieldAt& at);

// Moves into their mappings what fields hold that are second paths of keys;
// their origins call them as they were given. Error: kInvalidArgument where a
// key is given by both paths.
absl::Status MoveIntoMappings(ConfigMessage* target);

}  // namespace pipewright
