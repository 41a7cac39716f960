// The sequential run while it trains (sequential.h): its memory, its passes
// (sequential.cc), its weights and steps (sequential_weights.cc). Internal to
// these.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "execute/train/memory_pool.h"
#include "execute/train/sequential.h"
#include "sim/base/status.h"

namespace pipewright {

class Sequential {
 public:
  Sequential(const ExecutedModel& model, const PwKernels* kernels)
      : model_(model), kernels_(*kernels) {}
  ~Sequential() {
    for (void* const block : owned_) kernels_.release(device_, block);
    if (device_ != nullptr) kernels_.close(device_);
  }

  absl::StatusOr<SequentialRun> Run(int device_index,
                                    const SequentialOptions& options);
  // See SequentialMemory; takes nothing.
  absl::StatusOr<SequentialBytes> Count(int device_index,
                                        const SequentialOptions& options);

 private:
  struct Part {
    // True for the copy of a tied model's table that the head reads, behind all
    // other parts. It runs no passes.
    bool is_copy;
    PwPart part;
    int stage;
    int64_t parameters;
    float* master;
    // Weights of the last steps, in turn, which forwards use.
    std::vector<void*> versions;
    void* newest;    // where backwards use them
    void* forward;   // one of those
    void* backward;  // one of those
    float* gradients;
    float* moment1;
    float* moment2;
    char* cache;
    size_t cache_bytes;
    struct Blocks {
      char* saved;
      char* inputs;
      char* grads;
      char* output;
    };
    std::vector<Blocks> slices;
  };

  absl::Status Check(PwStatus status) const {
    return KernelStatus(kernels_, status, "sequential run");
  }
  template <class T>
  absl::Status New(size_t bytes, T** memory) {
    *memory = nullptr;
    bytes_ += static_cast<int64_t>(bytes);
    if (bytes == 0 || counts_) return absl::OkStatus();
    void* block = nullptr;
    PW_RETURN_IF_ERROR(Check(kernels_.allocate(device_, bytes, &block)));
    owned_.push_back(block);
    *memory = static_cast<T*>(block);
    return Check(kernels_.zero(device_, nullptr, block, bytes));
  }

  absl::Status Allocate(const SequentialOptions& options);
  absl::Status LargestOf(PwPart part, int slice, PwPartSize* size);
  absl::Status AllocateWeights(const SequentialOptions& options,
                               size_t quantized, Part* part);
  absl::Status CopyTable(const float* from, float* to);
  absl::Status SumTables();
  PwPartMemory MemoryOf(const Part& part, int slice, const void* weights) const;
  absl::Status FillIds(const Part& part, int64_t sample, int slice);
  absl::Status ForwardPart(size_t index, int64_t sample, int slice,
                           const void* weights);
  // Adds to *sum.
  absl::Status Forward(int64_t sample, int slice, double* sum);
  absl::Status Recompute(size_t last, int64_t sample, int slice);
  absl::Status Backward(int64_t sample, int slice, bool recomputes);
  absl::Status ChooseWeights(int64_t taken, const SequentialOptions& options);
  absl::Status OneMicrobatch(int64_t sample, bool recomputes, double* loss);
  absl::StatusOr<SequentialRun::Step> OneIteration(
      int iteration, const SequentialOptions& options);
  absl::Status Keep(float* Part::*values,
                    std::vector<std::vector<float>>* stages);
  // In the norm of a stage: a copy counts as the table that it is of.
  static bool Counts(const Part& part, int stage) {
    return part.stage == stage && !part.is_copy;
  }

  absl::StatusOr<double> SquareSum(int stage);
  absl::Status Optimize(int64_t taken, const SequentialOptions& options,
                        double* norm);
  const ExecutedModel& model_;
  const PwKernels& kernels_;
  bool counts_ = false;  // what it would allocate
  int64_t bytes_ = 0;    // that it has asked for
  PwDevice* device_ = nullptr;
  std::vector<Part> parts_;
  size_t passes_ = 0;  // parts that run
  std::vector<void*> owned_;
  float loss_scale_ = 1;
  char* workspace_ = nullptr;
  int32_t* ids_ = nullptr;
  float* losses_ = nullptr;
  double* sums_ = nullptr;
  float* stage_values_ = nullptr;
  int64_t stage_count_ = 0;
  char* gradients_[2] = {};
  size_t piece_ = 0;  // in the microbatch that runs: a sample of its own length
  std::vector<int32_t> host_ids_;
  std::vector<float> host_losses_;
};

}  // namespace pipewright
