// The address at which a process of a socket job listens, as a file that others
// read. See socket_job.h.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace pipewright {

// Digits of the number that is drawn for a job, hexadecimal.
inline constexpr size_t kJobNumberLetters = 32;

struct JobPlace {
  std::string number;
  std::vector<std::string> addresses;  // IPv4
  int port = 0;
};

// The addresses of this machine, the loopback last: it works on one machine
// only, where any other does too.
std::vector<std::string> OwnAddresses();

// Writes the file at once, readable by its owner only. Error: kInvalidArgument.
absl::Status WriteJobPlace(const std::string& path, const JobPlace& place);

// Empty where there is no file, or not one of this form.
JobPlace ReadJobPlace(const std::string& path);

}  // namespace pipewright
