#include "kernels/cpu/free_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

namespace pipewright {
namespace {

// "" where there is no such file.
std::string Text(const std::string& path) {
  FILE* const file = fopen(path.c_str(), "r");
  if (file == nullptr) return "";
  std::string text;
  char block[4096];
  size_t bytes = 0;
  while ((bytes = fread(block, 1, sizeof(block), file)) > 0) {
    text.append(block, bytes);
  }
  fclose(file);
  return text;
}

// The number behind `key` at the beginning of a line, -1: there is none.
int64_t NumberBehind(const std::string& text, const std::string& key) {
  size_t at = 0;
  while (at < text.size()) {
    if (text.compare(at, key.size(), key) == 0) {
      return atoll(text.c_str() + at + key.size());
    }
    const size_t end = text.find('\n', at);
    if (end == std::string::npos) break;
    at = end + 1;
  }
  return -1;
}

// A number in a file of its own; -1: no file, or a word ("max").
int64_t NumberIn(const std::string& path) {
  const std::string text = Text(path);
  return text.empty() || text[0] < '0' || text[0] > '9' ? -1
                                                        : atoll(text.c_str());
}

struct Files {
  const char* limit;
  const char* used;
  const char* cached[2];  // lines of memory.stat
};
constexpr Files kVersion1 = {"/memory.limit_in_bytes", "/memory.usage_in_bytes",
                             {"total_inactive_file ", "total_active_file "}};
constexpr Files kVersion2 = {"/memory.max", "/memory.current",
                             {"inactive_file ", "active_file "}};
// Version 1 says this, rounded down to pages, for no limit.
constexpr int64_t kNoLimit = int64_t{1} << 60;

// Adds the limits of `path` and of what is above it. In a container the path
// may be the host's, and only its own root is there.
void AddGroups(const std::string& mount, std::string path, const Files& files,
               std::vector<MemoryLimit>* limits) {
  // Containers may name different groups alike.
  char scope[256] = "";
  const ssize_t length =
      readlink("/proc/self/ns/cgroup", scope, sizeof(scope) - 1);
  scope[length < 0 ? 0 : length] = 0;
  while (true) {
    if (path == "/") path.clear();
    const std::string folder = mount + path;
    const int64_t limit = NumberIn(folder + files.limit);
    const int64_t used = NumberIn(folder + files.used);
    if (limit >= 0 && limit < kNoLimit && used >= 0) {
      const std::string stat = Text(folder + "/memory.stat");
      int64_t cached = 0;
      for (const char* line : files.cached) {
        cached += std::max<int64_t>(0, NumberBehind(stat, line));
      }
      limits->push_back(
          {"control group " + (path.empty() ? "/" : path), scope,
           std::max<int64_t>(0, limit - used + std::min(cached, used))});
    }
    if (path.empty()) return;
    path.erase(path.rfind('/'));
  }
}

// Is `word` one of those between commas and colons?
bool Names(const std::string& list, const std::string& word) {
  for (size_t at = list.find(word); at != std::string::npos;
       at = list.find(word, at + 1)) {
    const char before = list[at - 1];
    const char behind = list[at + word.size()];
    if ((before == ',' || before == ':') && (behind == ',' || behind == ':')) {
      return true;
    }
  }
  return false;
}

void AddControlGroups(const std::string& root,
                      std::vector<MemoryLimit>* limits) {
  const std::string groups = Text(root + "/proc/self/cgroup");
  const std::string sys = root + "/sys/fs/cgroup";
  size_t at = 0;
  while (at < groups.size()) {
    const size_t end = std::min(groups.find('\n', at), groups.size());
    const std::string line = groups.substr(at, end - at);
    at = end + 1;
    // NUMBER:CONTROLLERS:PATH
    const size_t first = line.find(':');
    if (first == std::string::npos) continue;
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::string controllers = line.substr(first, second - first);
    controllers += ':';
    const std::string path = line.substr(second + 1);
    if (Names(controllers, "memory")) {
      AddGroups(sys + "/memory", path, kVersion1, limits);
    } else if (controllers == "::") {
      AddGroups(sys, path, kVersion2, limits);
    }
  }
}

}  // namespace

std::vector<MemoryLimit> MemoryLimits(const std::string& root) {
  std::vector<MemoryLimit> limits;
  const int64_t kibibytes =
      NumberBehind(Text(root + "/proc/meminfo"), "MemAvailable:");
  if (kibibytes >= 0) {
    limits.push_back({"the machine", "", kibibytes * 1024});
  }
  AddControlGroups(root, &limits);
  struct rlimit most = {};
  if (getrlimit(RLIMIT_AS, &most) == 0 && most.rlim_cur != RLIM_INFINITY) {
    const int64_t used = static_cast<int64_t>(sysconf(_SC_PAGESIZE)) *
                         atoll(Text(root + "/proc/self/statm").c_str());
    limits.push_back(
        {"ulimit -v", std::to_string(getpid()),
         std::max<int64_t>(0, static_cast<int64_t>(most.rlim_cur) - used)});
  }
  return limits;
}

int64_t FreeMemory() {
  int64_t least = -1;
  for (const MemoryLimit& limit : MemoryLimits()) {
    least = least < 0 ? limit.free_bytes : std::min(least, limit.free_bytes);
  }
  return least;
}

}  // namespace pipewright
