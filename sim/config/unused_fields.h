// Fields that were given and change nothing in a run. What a field needs to
// matter stands beside it in sim/proto/config.proto (Field.needs);
// tests/config/unused_fields_test.cc holds that against the output of runs.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "sim/config/prepare.h"
#include "sim/config/prepare_parts.h"

namespace pipewright {

// Why a field with these needs (Field.needs) has no effect in the run, the end
// of "PATH has no effect ..."; "" if all are met. `run` is otherwise complete.
std::string MissingNeed(absl::string_view needs, const PreparedRun& run,
                        const RunSizes& sizes);

// Fields that `run.config` was given and that have no effect, in the order of
// the fields. A value that is the field's default is not among them.
std::vector<UnusedField> FindUnusedFields(const PreparedRun& run,
                                          const RunSizes& sizes);

}  // namespace pipewright
