#include "kernels/cuda/numa.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

namespace pipewright::cuda {
namespace {

// Cores of the process before any thread was bound here: threads inherit from
// the one that makes them.
struct Allowed {
  Allowed() { known = sched_getaffinity(0, sizeof(cpus), &cpus) == 0; }
  cpu_set_t cpus;
  bool known = false;
};
const Allowed allowed;

}  // namespace

NearNode::NearNode(int node) {
  if (node < 0) return;
  int mode = MPOL_DEFAULT;
  if (syscall(SYS_get_mempolicy, &mode, nullptr, 0, nullptr, 0) != 0 ||
      mode != MPOL_DEFAULT) {
    return;
  }
  constexpr int kBits = 8 * sizeof(unsigned long);
  std::vector<unsigned long> mask(node / kBits + 1, 0);
  mask[node / kBits] = 1ul << (node % kBits);
  // One more than the bits that count (set_mempolicy(2), "Bugs").
  set_ = syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask.data(),
                 mask.size() * kBits + 1) == 0;
}

NearNode::~NearNode() {
  if (set_) syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0);
}

std::vector<int> NumbersOf(const std::string& list) {
  std::vector<int> numbers;
  const char* at = list.c_str();
  while (*at != '\0' && *at != '\n') {
    char* end = nullptr;
    const long first = std::strtol(at, &end, 10);
    if (end == at || first < 0) return {};
    long last = first;
    at = end;
    if (*at == '-') {
      last = std::strtol(at + 1, &end, 10);
      if (end == at + 1) return {};
      at = end;
    }
    if (last < first || last >= CPU_SETSIZE) return {};
    for (long number = first; number <= last; ++number) {
      numbers.push_back(static_cast<int>(number));
    }
    if (*at == ',') ++at;
  }
  return numbers;
}

bool BindThread(int node, const std::string& root) {
  if (node < 0 || !allowed.known) return false;
  std::ifstream file(root + "/node" + std::to_string(node) + "/cpulist");
  std::string list;
  std::getline(file, list);
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const int cpu : NumbersOf(list)) {
    if (CPU_ISSET(cpu, &allowed.cpus)) CPU_SET(cpu, &cpus);
  }
  return CPU_COUNT(&cpus) > 0 && sched_setaffinity(0, sizeof(cpus), &cpus) == 0;
}

void UnbindThread() {
  if (allowed.known) {
    sched_setaffinity(0, sizeof(allowed.cpus), &allowed.cpus);
  }
}

}  // namespace pipewright::cuda
