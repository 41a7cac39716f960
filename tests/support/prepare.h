// A run prepared from YAML, called "run.yaml" in messages.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/config/prepare.h"

namespace pipewright::testing {

// The least that can be prepared, and times for it.
inline constexpr char kBase[] =
    "schedule: {name: 1f1b}\nstrategy: {pp: 4, microbatches: 8}\n";
inline constexpr char kTimes[] =
    "costs: {uniform: {forward: 3s, backward_input: 5s, "
    "backward_weight: 7s}, p2p: 1s}\n";

absl::StatusOr<PreparedRun> PrepareText(const std::string& yaml);

// The same where it has to be OK. Nobody has to say what passes take.
PreparedRun Prepared(const std::string& yaml);

// Is there a warning with `part` in it?
bool Warns(const PreparedRun& run, absl::string_view part);

}  // namespace pipewright::testing
