// How much memory a process may still take: what the machine has, and what
// limits leave of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pipewright {

struct MemoryLimit {
  std::string name;
  // Processes of one machine with the same name and scope share what it leaves.
  std::string scope;
  int64_t free_bytes = 0;
};

// The machine's memory without swapping (MemAvailable), each control group of
// version 1 or 2 above this process that has a limit, and `ulimit -v`. What
// files have cached counts as free. Empty where the system says nothing.
// `root`: in front of /proc and /sys, for tests.
std::vector<MemoryLimit> MemoryLimits(const std::string& root = "");

// The least of them; -1: not known.
int64_t FreeMemory();

}  // namespace pipewright
