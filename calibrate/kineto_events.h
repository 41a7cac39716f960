// The events of a Kineto trace that importing needs, read without keeping the
// rest.
#pragma once

#include <cstdint>
#include <functional>
#include <istream>
#include <string>

#include "absl/status/status.h"

namespace pipewright {

struct KinetoEvent {
  std::string phase;
  std::string category;
  std::string name;
  // Of process and thread, as they are written: numbers or words.
  std::string process;
  std::string thread;
  double start_us = 0;
  double duration_us = 0;
  int64_t correlation = -1;
};

struct KinetoDevice {
  std::string name;
  int64_t memory_bytes = 0;
};

// Calls `see` for every element of "traceEvents", in the file's order; fills
// `device` with the first of "deviceProperties". Error: kInvalidArgument with
// the source for text that is no JSON or has no "traceEvents".
absl::Status ReadKineto(std::istream& in, const std::string& source_name,
                        const std::function<void(const KinetoEvent&)>& see,
                        KinetoDevice* device);

}  // namespace pipewright
