// Completion for shells and the manual page, both from the table of options.
#pragma once

#include <string>
#include <vector>

#include "sim/cli/option_table.h"

namespace pipewright {

// A script to be sourced, or to be put where the shell looks for it.
std::string BashCompletion(const std::vector<VerbRow>& verbs);
std::string ZshCompletion(const std::vector<VerbRow>& verbs);
std::string FishCompletion(const std::vector<VerbRow>& verbs);

// pipewright.1 in mdoc.
std::string ManualPage(const std::vector<VerbRow>& verbs);

}  // namespace pipewright
