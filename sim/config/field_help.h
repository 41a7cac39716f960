// The meaning and the default of each field of the configuration: the one text
// that --help and docs/config.md print. Types and ranges are in
// run_config_fields.h.
#pragma once

#include <vector>

#include "absl/strings/string_view.h"

namespace pipewright {

struct FieldHelp {
  const char* path;
  // Value or rule, as it is printed: "1", "the schedule's". "": none.
  const char* fallback;
  // One or more main clauses, lower case, without a full stop at the end.
  const char* meaning;
};

// In the order of VisitFields, one for each path.
const std::vector<FieldHelp>& AllFieldHelp();

// Empty words for a path without a row; a test looks for those.
const FieldHelp& HelpOfField(absl::string_view path);

}  // namespace pipewright
