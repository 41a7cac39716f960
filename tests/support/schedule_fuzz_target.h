// What the fuzzer and its plain test run on any bytes.
#pragma once

#include "absl/strings/string_view.h"

namespace pipewright::testing {

// Parses, verifies, prints and parses again; aborts where a promise of text.h
// or verify.h does not hold.
void FuzzSchedule(absl::string_view content);

}  // namespace pipewright::testing
