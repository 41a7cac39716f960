// What nccl-tests and nvbandwidth print, as the JSON that they write when they
// are asked for it, so that one importer reads both.
//
// Facts of the formats: NVIDIA/nccl-tests, src/util.cu (versions before 2.17 do
// not print the name of the test); NVIDIA/nvbandwidth, output.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pipewright {

struct BenchmarkText {
  std::string json;
  std::vector<int64_t> lines;  // of each result, or of each test
  std::vector<std::string> warnings;
};

// One for each run that the text holds: a script may run several tests, and
// without MPI every process runs its own. Columns are known by the header.
// Without a name of the test, a command ("all_gather_perf"), or one in the
// file's name, the columns "redop" and "count" tell all-reduce and
// reduce-scatter from the others, and a warning says so. Error:
// kInvalidArgument with file and line, for a row that does not fit the header,
// and for a text without a table, ranks or a test's name.
absl::StatusOr<std::vector<BenchmarkText>> ReadNcclTestsText(
    absl::string_view text, const std::string& source_name);

// Tests keep the status that the text tells; one without results stays
// "Running". Errors: as above.
absl::StatusOr<BenchmarkText> ReadNvbandwidthText(
    absl::string_view text, const std::string& source_name);

}  // namespace pipewright
