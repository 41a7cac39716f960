// Calibration profiles by name: those that ship with the binary
// (calibrate/profiles/*.txtpb), and files.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/profile/profile.h"

namespace pipewright {

// The names of those that ship, sorted; may be empty.
std::vector<std::string> ProfileNames();

// True for what is a file: it has a '/' or ends in .txtpb, .textproto, .pbtxt.
bool IsProfileFile(absl::string_view name_or_path);

// Error: kInvalidArgument naming the nearest shipped one, kNotFound for a file
// that is not there, and those of ReadProfile.
absl::StatusOr<Profile> FindProfile(const std::string& name_or_path);

}  // namespace pipewright
