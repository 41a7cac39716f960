// Tables of experiments/, for tests that compute numbers of the code from them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace pipewright::testing {

using ExperimentRow = std::map<std::string, std::string>;  // column, cell

// The rows of a file below experiments/, by its header. Cells may be quoted,
// with commas and without quotation marks inside. Fails the test where there is
// no file.
std::vector<ExperimentRow> ExperimentRows(absl::string_view file);

// The number in a cell; fails the test where there is none.
double NumberIn(const ExperimentRow& row, const std::string& column);

}  // namespace pipewright::testing
