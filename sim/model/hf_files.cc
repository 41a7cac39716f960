#include "sim/model/hf_files.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sim/base/input.h"

namespace pipewright {
namespace {

namespace fs = std::filesystem;

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string CacheFolder() {
  if (const std::string hub = Variable("HF_HUB_CACHE"); !hub.empty()) {
    return hub;
  }
  if (const std::string home = Variable("HF_HOME"); !home.empty()) {
    return absl::StrCat(home, "/hub");
  }
  return absl::StrCat(Variable("HOME"), "/.cache/huggingface/hub");
}

bool IsFile(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

// "" where no snapshot has one.
std::string InSnapshots(const fs::path& model) {
  const std::string revision(absl::StripAsciiWhitespace(
      ReadFile((model / "refs" / "main").string()).value_or("")));
  const fs::path main = model / "snapshots" / revision / "config.json";
  if (!revision.empty() && IsFile(main)) return main.string();
  std::error_code failed;
  std::string last;
  for (fs::directory_iterator at(model / "snapshots", failed), end;
       !failed && at != end; at.increment(failed)) {
    const fs::path file = at->path() / "config.json";
    if (IsFile(file)) last = std::max(last, file.string());
  }
  return last;
}

// "org/name" of the end of a path; "" where there is none.
std::string IdOf(absl::string_view given) {
  const std::vector<std::string> parts = absl::StrSplit(given, '/');
  if (parts.size() < 2) return "";
  const auto is_name = [](const std::string& part) {
    return !part.empty() && part[0] != '.' &&
           std::all_of(part.begin(), part.end(), [](unsigned char letter) {
             return absl::ascii_isalnum(letter) || letter == '-' ||
                    letter == '_' || letter == '.';
           });
  };
  const std::string& name = parts.back();
  const std::string& owner = parts[parts.size() - 2];
  return is_name(owner) && is_name(name) ? absl::StrCat(owner, "/", name) : "";
}

}  // namespace

absl::StatusOr<std::string> HuggingFaceFile(const std::string& given) {
  std::error_code ignored;
  if (fs::is_directory(given, ignored)) {
    const fs::path file = fs::path(given) / "config.json";
    if (IsFile(file)) return file.string();
    return absl::InvalidArgumentError(
        absl::StrCat(given, ": a folder without a config.json"));
  }
  const std::string id = IdOf(given);
  if (id.empty() || absl::EndsWith(given, ".json") ||
      fs::exists(given, ignored)) {
    return given;
  }
  const std::vector<std::string> parts = absl::StrSplit(id, '/');
  const std::string folder =
      absl::StrCat(CacheFolder(), "/models--", parts[0], "--", parts[1]);
  if (const std::string file = InSnapshots(folder); !file.empty()) return file;
  return absl::InvalidArgumentError(
      absl::StrCat(given, ": no file, no folder and not in the cache (", folder,
                   "); fetch https://huggingface.co/", id,
                   "/resolve/main/config.json and give its path"));
}

}  // namespace pipewright
