// The address at which a process of a socket job listens, as a file that others
// read. See socket_job.h.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace pipewright {

// Of the number that is drawn for a job, hexadecimal.
inline constexpr size_t kJobNumberLetters = 32;

struct JobPlace {
  std::string number;
  std::vector<std::string> addresses;  // IPv4
  int port = 0;
};

// Of this machine, the loopback last: it is right on one machine only, and
// there any is.
std::vector<std::string> OwnAddresses();

// At once, and readable by its owner only. Error: kInvalidArgument.
absl::Status WriteJobPlace(const std::string& path, const JobPlace& place);

// Nothing where there is none, or not of this form.
JobPlace ReadJobPlace(const std::string& path);

}  // namespace pipewright
