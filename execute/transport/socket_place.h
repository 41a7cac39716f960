// The address at which a process of a socket job listens, as a file that others
// read. See socket_job.h.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pipewright {

// Digits of the number that is drawn for a job, hexadecimal.
inline constexpr size_t kJobNumberLetters = 32;

struct JobPlace {
  std::string number;
  std::string machine;  // MachineName() there
  std::string address;  // IPv4
  int port = 0;

  friend bool operator==(const JobPlace&, const JobPlace&) = default;
};

// The IPv4 address of the network interface `name`, or `name` if it is an
// address of this machine; the loopback's for "". Error: kInvalidArgument.
absl::StatusOr<std::string> ListenAddress(const std::string& name);

// Does it reach no other machine?
bool IsLoopback(const std::string& address);

// Writes the file at once, readable by its owner only. Error: kInvalidArgument.
absl::Status WriteJobPlace(const std::string& path, const JobPlace& place);

// Empty where there is no file, or not one of this form.
JobPlace ReadJobPlace(const std::string& path);

}  // namespace pipewright
