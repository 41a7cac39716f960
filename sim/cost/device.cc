#include "sim/cost/device.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "sim/base/check.h"
#include "sim/base/file.h"
#include "sim/base/names.h"
#include "sim/base/status.h"

namespace pipewright {

// Made at build time (cmake/embed.cmake) of devices/*.textproto.
const std::vector<std::pair<std::string, std::string>>& EmbeddedDevices();

const std::vector<DeviceSpec>& AllDevices() {
  static const auto* devices = [] {
    auto* all = new std::vector<DeviceSpec>;
    for (const auto& [name, text] : EmbeddedDevices()) {
      absl::StatusOr<DeviceSpec> device = ReadDevice(text, name);
      PW_CHECK(device.ok());
      all->push_back(*std::move(device));
    }
    std::sort(all->begin(), all->end(),
              [](const DeviceSpec& a, const DeviceSpec& b) {
                return a.name < b.name;
              });
    return all;
  }();
  return *devices;
}

bool IsDeviceFile(absl::string_view name_or_path) {
  return absl::StrContains(name_or_path, '/') ||
         absl::EndsWith(name_or_path, ".txtpb") ||
         absl::EndsWith(name_or_path, ".textproto") ||
         absl::EndsWith(name_or_path, ".pbtxt");
}

absl::StatusOr<DeviceSpec> FindDevice(absl::string_view name) {
  if (IsDeviceFile(name)) {
    const std::string path(name);
    PW_ASSIGN_OR_RETURN(const std::string text,
                        ReadFile(path, InputKind::kConfiguration));
    return ReadDevice(text, path);
  }
  std::vector<std::string> known;
  for (const DeviceSpec& device : AllDevices()) {
    if (device.name == name || device.device_name == name) return device;
    known.push_back(device.name);
  }
  return UnknownName("device", name, known);
}

absl::StatusOr<std::string> DeviceFileText(absl::string_view name) {
  std::vector<std::string> known;
  for (const auto& [file, text] : EmbeddedDevices()) {
    if (file == name) return text;
    known.push_back(file);
  }
  std::sort(known.begin(), known.end());
  return UnknownName("device", name, known);
}

}  // namespace pipewright
