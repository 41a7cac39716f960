// Which part of a host with several memories a GPU is attached to. Pinned
// memory of another node is read across the link between the sockets, which
// costs a copy up to half of its rate; a thread of another node launches over
// it.
#ifndef PIPEWRIGHT_KERNELS_CUDA_NUMA_H_
#define PIPEWRIGHT_KERNELS_CUDA_NUMA_H_

#include <cctype>
#include <fstream>
#include <string>
#include <vector>

namespace pipewright::cuda {

// The node of a PCI device, "0000:1b:00.0" in any case, as Linux tells it
// below `root`; -1 where it tells none.
inline int NumaNodeOf(const std::string& pci_bus_id,
                      const std::string& root = "/sys/bus/pci/devices") {
  std::string name;
  for (const char letter : pci_bus_id) {
    name += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  // CUDA writes the domain with four digits or with eight.
  const size_t colon = name.find(':');
  if (colon == 8) name = name.substr(4);
  std::ifstream file(root + "/" + name + "/numa_node");
  int node = -1;
  return file >> node && node >= 0 ? node : -1;
}

// While it lives, memory that this thread touches first comes from `node` if
// there is some left. Nothing for -1, where the process has a policy of its
// own (numactl), and where the kernel knows none.
class NearNode {
 public:
  explicit NearNode(int node);
  ~NearNode();
  NearNode(const NearNode&) = delete;
  NearNode& operator=(const NearNode&) = delete;

 private:
  bool set_ = false;
};

// The numbers of a list of Linux: "0-2,8" is 0, 1, 2, 8. Empty for what is no
// such list.
std::vector<int> NumbersOf(const std::string& list);

// Lets the calling thread run on the CPUs of `node` only, as far as the
// process could when this library was loaded: what taskset, numactl or a batch
// system has set stays. Where none of those CPUs is among them, and for -1,
// the thread is left alone. True where it is bound.
bool BindThread(int node, const std::string& root = "/sys/devices/system/node");
// Lets it run where the process could.
void UnbindThread();

}  // namespace pipewright::cuda

#endif  // PIPEWRIGHT_KERNELS_CUDA_NUMA_H_
