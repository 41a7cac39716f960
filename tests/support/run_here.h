// Runs a command line inside of this process: some milliseconds sooner than
// the binary, for tests of thousands of runs.
#pragma once

#include <string>
#include <vector>

#include "tests/support/run_binary.h"

namespace pipewright::testing {

// What RunBinary gives for the same arguments, the program's name left out.
BinaryResult RunHere(const std::vector<std::string>& arguments);

}  // namespace pipewright::testing
