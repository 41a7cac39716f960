#include "sim/cli/trace_folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace pipewright {

bool IsFolder(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

absl::StatusOr<std::vector<std::string>> TracesOfFolder(
    const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  std::filesystem::directory_iterator at(folder, error);
  for (; !error && at != std::filesystem::directory_iterator();
       at.increment(error)) {
    const std::string path = at->path().string();
    if (absl::EndsWith(path, ".json") || absl::EndsWith(path, ".json.gz")) {
      paths.push_back(path);
    }
  }
  if (error) {
    return absl::NotFoundError(absl::StrCat(folder, ": ", error.message()));
  }
  std::sort(paths.begin(), paths.end(),
            [](const std::string& a, const std::string& b) {
              return std::make_pair(a.size(), a) < std::make_pair(b.size(), b);
            });
  return paths;
}

}  // namespace pipewright
