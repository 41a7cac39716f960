// The lines of a text that a program printed on a terminal or under a launcher,
// without what these add: colours, carriage returns, and the mark of the
// process in front of a line.
//
// Marks: "[1,0]<stdout>:" (mpirun --tag-output), "[rank0]:" and "[default0]:"
// (torchrun), "0: " (srun --label).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace pipewright {

struct LogLine {
  int64_t number = 0;  // from 1
  std::string writer;  // marks of the process; "" without one
  std::string text;
};

// Every line, empty ones too.
std::vector<LogLine> LogLines(absl::string_view text);

// The number behind the first `key` of a line: "tps: 7,282" is 7282 for "tps:".
// False without the key or without a finite number behind it.
bool NumberBehind(absl::string_view line, absl::string_view key, double* value);

// JSON begins with a brace or a list of values; a log with anything else.
bool BeginsJson(absl::string_view text);

}  // namespace pipewright
