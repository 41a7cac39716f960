// The passes of one part of a model in one shape, on memory of their own or
// shared, ready to be run and timed. Weights of several layers take turns, as
// in a stage, so that they do not stay in a cache that a stage's would leave.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "calibrate/device.h"
#include "calibrate/grid.h"
#include "kernels/layer.h"
#include "sim/profile/profile.h"

namespace pipewright {

// Weights and main gradients of `layers` copies of a part for one tp.
class BenchWeights {
 public:
  static absl::StatusOr<std::shared_ptr<BenchWeights>> Create(
      MeasuredDevice* device, const Shape& shape, PwPart part, int layers);

  int layers() const { return static_cast<int>(gradients_.size()); }
  int64_t parameters() const { return parameters_; }
  const void* weights(int layer) const;
  float* gradients(int layer) const;
  // The weights in fp8; null without it.
  void* quantized(int layer) const;

 private:
  int64_t parameters_ = 0;
  std::vector<Buffer> weights_;
  std::vector<Buffer> quantized_;
  std::vector<Buffer> gradients_;
};

// Bytes that Create takes.
int64_t WeightBytes(const PwPartSize& size, PwType type, int layers);

// Bytes of one element of a product's result in F or B.
size_t ResultBytes(const PwGemm& gemm);

// Memory for the activations of whichever bench runs; renewed from round to
// round at other addresses. Operands of matrix products in fp8 have memory of
// their own, since random numbers of another type are none of fp8.
class Arena {
 public:
  Arena(MeasuredDevice* device, PwType type, size_t bytes, size_t fp8_bytes)
      : device_(device), type_(type), bytes_(bytes), fp8_bytes_(fp8_bytes) {}
  // Takes other memory, full of random numbers.
  absl::Status Renew(uint64_t seed);
  char* data() const { return buffer_.as<char>() + shift_; }
  size_t bytes() const { return bytes_; }
  char* fp8() const { return fp8_.as<char>(); }
  size_t fp8_bytes() const { return fp8_bytes_; }

 private:
  MeasuredDevice* device_;
  PwType type_;
  size_t bytes_;
  size_t fp8_bytes_;
  Buffer fp8_;
  size_t shift_ = 0;
  Buffer buffer_;
};

class PartBench {
 public:
  static absl::StatusOr<std::unique_ptr<PartBench>> Create(
      MeasuredDevice* device, const Shape& shape, PwPart part,
      std::shared_ptr<BenchWeights> weights, std::shared_ptr<Arena> arena);

  // An arena has room for the passes of the largest bench and, after that, for
  // the matrix products of the bench with the largest.
  static size_t PassBytes(const PwPartSize& size, const Shape& shape,
                          int layers);
  static size_t GemmBytes(const Shape& shape, PwPart part);
  // Bytes of the arena's part for fp8.
  static size_t Fp8Bytes(const Shape& shape, PwPart part);

  // Queues a pass of layer `layer`.
  absl::Status Run(ProfilePass pass, int layer);
  // Where its activations lie: another address with a renewed arena.
  const void* place() const { return arena_->data(); }
  // Queues the matrix products of F, B or W alone.
  absl::Status RunGemms(PwPassKind pass, int layer);
  // Queues the pass's product `index` of Gemms() with any numbers x and y of
  // its type; the result goes to `out`. As in the pass it has a bias or scales,
  // by which libraries choose. An expert layer's may be one product for each
  // expert, balanced.
  absl::Status RunGemm(PwPassKind pass, size_t index, int layer, const void* x,
                       const void* y, void* out) const;

  int layers() const { return weights_->layers(); }
  int64_t parameters() const { return weights_->parameters(); }
  double Flops(PwPassKind pass) const;
  const BenchWeights& weights() const { return *weights_; }
  const Arena& arena() const { return *arena_; }
  const int32_t* ids() const { return ids_.as<int32_t>(); }  // one a token
  const Shape& shape() const { return shape_; }
  PwPart part() const { return part_; }
  bool is_layer() const { return IsLayer(part_); }
  std::vector<PwGemm> Gemms(PwPassKind pass) const;

 private:
  PartBench() = default;
  PwPartMemory Memory(int layer) const;
  bool HasBias(PwPassKind pass, size_t index) const;

  MeasuredDevice* device_ = nullptr;
  Shape shape_ = {};
  PwPart part_ = PW_LAYER;
  PwPartSize size_ = {};
  std::shared_ptr<BenchWeights> weights_;
  std::shared_ptr<Arena> arena_;
  Buffer ids_;
  Buffer scales_;  // for products in fp8; empty without
};

}  // namespace pipewright
