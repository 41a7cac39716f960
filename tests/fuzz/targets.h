// What must hold for any input of each reader and for any program. A target
// runs as a libFuzzer executable (fuzz_main.cc) and, over its committed corpus
// and seeded mutations of it, as a test (fuzz_test.cc).
#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace pipewright::testing {

struct FuzzTarget {
  absl::string_view name;  // also of its corpus and dictionary
  // Aborts where a promise is broken. Returns whether the input was accepted.
  bool (*run)(absl::string_view input);
};

absl::Span<const FuzzTarget> FuzzTargets();

// Each syntax gives a configuration with sizes in their ranges, or an error of
// the user's that names the source.
bool FuzzConfig(absl::string_view input);
// A model that CheckModel takes, with a finite number of parameters, or an
// error of the user's that names the file.
bool FuzzHuggingFace(absl::string_view input);
// What parses prints, and the print parses to the same schedule.
bool FuzzSchedule(absl::string_view input);
// The same for PyTorch's file; what is legal is written in both flavours.
bool FuzzTorchCsv(absl::string_view input);
// What is read is written, and read again alike; it merges with itself.
bool FuzzProfile(absl::string_view input);
// What is imported is a profile that can be written and read.
bool FuzzNcclTests(absl::string_view input);
bool FuzzNvbandwidth(absl::string_view input);
bool FuzzKineto(absl::string_view input);
// A run has finite times; compared with itself it differs by nothing.
bool FuzzChromeTrace(absl::string_view input);
// Lengths of samples within their range, each of which a packer takes.
bool FuzzLengths(absl::string_view input);
// Finite times of a measured job, or an error of the user's with the file.
bool FuzzJobTable(absl::string_view input);
// Finite times and rates of a log, or an error of the user's with the file.
bool FuzzTrainingLog(absl::string_view input);
// What a process of a job may get once it knows the other: frames are the same
// in whatever pieces they come and hold no more than has come; what is in them
// is a message, a word of the run, or refused.
bool FuzzFrames(absl::string_view input);
// The bytes choose a program; the engines agree on it or all refuse it.
bool FuzzProgram(absl::string_view input);

}  // namespace pipewright::testing
