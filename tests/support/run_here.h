// Runs a command line inside of this process: some milliseconds sooner than
// the binary, for tests of thousands of runs.
#pragma once

#include <string>
#include <vector>

#include "sim/cli/option_table.h"
#include "tests/support/run_binary.h"

namespace pipewright::testing {

// What RunBinary gives for the same arguments, the program's name left out.
BinaryResult RunHere(const std::vector<std::string>& arguments);

// The verbs and options of the program's command line.
std::vector<VerbRow> VerbTable();

}  // namespace pipewright::testing
