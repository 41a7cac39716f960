#include "kernels/cuda/numa.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <vector>

namespace pipewright::cuda {

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

}  // namespace pipewright::cuda
