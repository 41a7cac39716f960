// Which of the given fields change nothing in a run, and why: the one list of
// conditions under which a field is read at all. Fields that decide something
// in every run have no row. tests/config/idle_options_test.cc holds the list
// against the output of runs.
#pragma once

#include <string>
#include <vector>

#include "sim/config/prepare.h"
#include "sim/config/prepare_parts.h"

namespace pipewright {

// The fields that `run.config` was given and that have no effect, in the
// order of the fields. `run` is otherwise complete.
std::vector<IdleOption> FindIdleOptions(const PreparedRun& run,
                                        const RunSizes& sizes);

}  // namespace pipewright
