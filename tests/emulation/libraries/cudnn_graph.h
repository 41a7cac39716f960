// Descriptors of cuDNN's backend API, and what computes a graph of them: any of
// matrix products, pointwise operations, reductions and reshapes (cuDNN
// backend API, "Operation descriptors").
#ifndef PIPEWRIGHT_TESTS_EMULATION_LIBRARIES_CUDNN_GRAPH_H_
#define PIPEWRIGHT_TESTS_EMULATION_LIBRARIES_CUDNN_GRAPH_H_

#include <cudnn_graph.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

namespace emulated {

// A descriptor is a bag of attributes, each as the bytes that were given.
struct Descriptor {
  cudnnBackendDescriptorType_t type;
  bool finalized = false;
  std::map<int, std::vector<char>> values;
  Descriptor* graph = nullptr;  // graph of an engine's configuration

  template <typename T>
  std::vector<T> All(int name) const {
    const auto found = values.find(name);
    if (found == values.end()) return {};
    std::vector<T> all(found->second.size() / sizeof(T));
    std::memcpy(all.data(), found->second.data(), all.size() * sizeof(T));
    return all;
  }
  template <typename T>
  T One(int name, T otherwise = {}) const {
    const std::vector<T> all = All<T>(name);
    return all.empty() ? otherwise : all[0];
  }
  // bool has no vector of its own.
  bool Flag(int name) const { return One<char>(name, 0) != 0; }
  Descriptor* Child(int name) const { return One<Descriptor*>(name, nullptr); }
};

using Sizes = std::vector<int64_t>;

// A tensor of up to four dimensions, in fp32, laid out as in memory.
struct Tensor {
  explicit Tensor(const Descriptor& descriptor);
  // Elements from the first to the last.
  int64_t Extent() const;
  int64_t Offset(const Sizes& index) const;
  // Offset of an index into a tensor of sizes `of`: sides of one element, and
  // heads that others share, stand for several.
  int64_t Shared(const Sizes& index, const Sizes& of) const;

  Sizes sizes;
  Sizes strides;
  cudnnDataType_t type;
  bool is_virtual;  // without memory
  bool by_value;    // a number on the host
  int64_t id;
  void* at = nullptr;
  std::vector<float> values;
};

// Computes the graph once; `pointers` by the unique ids of its tensors. Results
// are rounded to their tensors' types, also inside of the graph.
void ComputeGraph(const Descriptor& graph,
                  const std::map<int64_t, void*>& pointers);

}  // namespace emulated

#endif  // PIPEWRIGHT_TESTS_EMULATION_LIBRARIES_CUDNN_GRAPH_H_
