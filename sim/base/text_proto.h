// Text protobuf files, parsed with errors as people want them: file, line, and
// for an unknown field the nearest known one. Knows no message of ours.
#pragma once

#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace pipewright {

// Parses `text` into `message`; `lines` remembers where each field stands.
// Error: kInvalidArgument "SOURCE:LINE: ...", the first one only, for what
// does not parse, an unknown field, a number out of its type's range.
absl::Status ParseTextProto(absl::string_view text, absl::string_view source,
                            google::protobuf::Message* message,
                            google::protobuf::TextFormat::ParseInfoTree* lines);

// Puts "SOURCE:LINE: " in front of `status`. `line` counts from 0, as protobuf
// does; below 0 only "SOURCE: ".
absl::Status AtLine(absl::string_view source, int line,
                    const absl::Status& status);

}  // namespace pipewright
