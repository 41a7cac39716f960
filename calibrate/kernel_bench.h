// The kernels of one shape's passes, each by itself: the matrix products of a
// layer and of the head forward and for both gradients, attention, norm,
// activation, cross-entropy, quantising to fp8. Runs them, times nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "calibrate/device.h"
#include "calibrate/part_bench.h"
#include "sim/profile/profile.h"

namespace pipewright {

struct SingleKernel {
  // Without time and implementation. Of shapes: matrix products tokens x
  // inputs x outputs, attention batch x sequence x heads x kv heads x head
  // dimension, norm and activation rows x columns, cross-entropy tokens x
  // vocabulary, quantising to fp8 rows x columns, of weights all of a layer's
  // matrices; all of one device.
  KernelEntry entry;
  // Queues what it needs anew before each run; may be empty.
  std::function<absl::Status()> prepare;
  // Queues it with the weights of layer `layer`.
  std::function<absl::Status(int layer)> run;
  bool names_implementation = false;  // matrix products and attention
};

class KernelBench {
 public:
  // `layer` and `head` of one shape, on one arena and one device.
  KernelBench(MeasuredDevice* device, std::shared_ptr<PartBench> layer,
              std::shared_ptr<PartBench> head);
  KernelBench(const KernelBench&) = delete;
  KernelBench& operator=(const KernelBench&) = delete;

  // Bytes that the kernels take of the arena, from its start.
  static size_t Bytes(MeasuredDevice* device, const Shape& shape, PwPart layer);

  // In an order in which each finds its inputs: forward before backward. They
  // refer to this bench.
  std::vector<SingleKernel> Kernels();
  // Fills in other numbers, because what the passes left in the arena need not
  // be numbers.
  absl::Status Renew(uint64_t seed);
  int layers() const { return layer_->layers(); }
  const Shape& shape() const { return layer_->shape(); }

 private:
  void AddGemms(const PartBench& bench, std::vector<SingleKernel>* kernels);
  void AddAttention(std::vector<SingleKernel>* kernels);
  void AddNorm(std::vector<SingleKernel>* kernels);
  void AddActivation(std::vector<SingleKernel>* kernels);
  void AddCrossEntropy(std::vector<SingleKernel>* kernels);
  void AddQuantize(std::vector<SingleKernel>* kernels);
  KernelEntry Entry(absl::string_view name, std::vector<int64_t> shape,
                    double flops, double elements) const;
  char* At(size_t offset) const;

  MeasuredDevice* device_;
  std::shared_ptr<PartBench> layer_;
  std::shared_ptr<PartBench> head_;
};

}  // namespace pipewright
