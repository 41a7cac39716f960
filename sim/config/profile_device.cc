#include "sim/config/profile_device.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace pipewright {
namespace {

// "nvidia", "a100", "sxm4", "80gb" of "NVIDIA A100-SXM4-80GB".
std::vector<std::string> WordsOf(absl::string_view device) {
  return absl::StrSplit(absl::AsciiStrToLower(device), absl::ByAnyChar(" -_"),
                        absl::SkipEmpty());
}

bool HasWord(const std::vector<std::string>& words, absl::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// "80gb"; "" where a name has none.
std::string MemoryOf(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (absl::EndsWith(word, "gb")) return word;
  }
  return "";
}

bool IsDevice(const std::string& measured, const std::string& device) {
  if (device.empty()) return false;
  if (measured == device) return true;
  const std::vector<std::string> own = WordsOf(device);
  const std::vector<std::string> other = WordsOf(measured);
  if (own.empty() || !HasWord(other, own[0])) return false;
  for (const char* form : {"pcie", "nvl"}) {
    if (HasWord(other, form) != HasWord(own, form)) return false;
  }
  const std::string memory = MemoryOf(own);
  return memory.empty() || MemoryOf(other).empty() || MemoryOf(other) == memory;
}

}  // namespace

bool IsOfDevice(const Profile& profile, const std::string& device) {
  return !profile.sources.empty() &&
         std::all_of(profile.sources.begin(), profile.sources.end(),
                     [&](const ProfileSource& source) {
                       return IsDevice(source.device, device);
                     });
}

}  // namespace pipewright
