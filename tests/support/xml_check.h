// A small well-formedness check for the SVG and HTML that reports are made
// of: tags nest and close, attributes are quoted and unique, & starts an
// entity. No validation against a schema.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace pipewright::testing {

// "" when `text` is well formed, else what is wrong and where. HTML's void
// elements (meta, link, input, br) need no end.
std::string XmlProblem(absl::string_view text);

// How often `part` occurs in `text`.
int Count(absl::string_view text, absl::string_view part);

}  // namespace pipewright::testing
