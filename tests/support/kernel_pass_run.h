// Runs F, B and W of one part over the slices of one microbatch, with memory
// that is spoilt as soon as layer.h says that it may be.
#ifndef PIPEWRIGHT_TESTS_SUPPORT_KERNEL_PASS_RUN_H_
#define PIPEWRIGHT_TESTS_SUPPORT_KERNEL_PASS_RUN_H_

#include <stdint.h>

#include <vector>

#include "kernels/layer.h"
#include "tests/support/kernel_reference.h"
#include "tests/support/kernel_rig.h"

namespace pipewright {

enum class PassOrder {
  kSplit,      // F of all slices, B and W of each from the last
  kFull,       // B and W in one
  kRecompute,  // F again into new memory in front of B
  kDeferred,   // all B, then all W from the first slice
};
const char* PassOrderName(PassOrder order);

// The whole sequences, slices put together.
struct PassOutcome {
  Values output;
  Values losses;
  Values input_gradient;
  Values gradients;           // the weights', what was there before taken off
  std::vector<uint8_t> bits;  // bits of all that the device gave
  // Blocks of each slice, behind F and behind B or BW.
  std::vector<std::vector<uint8_t>> inputs;
  std::vector<std::vector<uint8_t>> grads;
  std::vector<uint8_t> quantized;  // weights; empty without fp8
};

class PassRun {
 public:
  // Random weights, input and gradient from `seed`. `work` is unsliced.
  PassRun(KernelRig* rig, const PwModel& model, const PwWork& work,
          int64_t slices, PwPart part, uint64_t seed);

  void SetInput(const Values& input);
  void SetOutputGradient(const Values& gradient);
  void SetLossScale(float scale) { reference_.loss_scale = scale; }

  PassOutcome Run(PassOrder order);

  // What the reference gets: the values as the device has them.
  const RefPartInput& reference() const { return reference_; }

 private:
  struct Slice {
    PwWork work;
    PwPartSize size;
    PwPartMemory memory;
    void* input;
  };
  Slice MakeSlice(int64_t index, void* gradients, void* cache);
  void Forward(Slice* slice);
  void Backward(Slice* slice, PassOrder order);
  void Weight(Slice* slice);
  // Rows of a slice among those of the whole, and back.
  Values Cut(const Values& whole, int64_t index, int64_t columns) const;
  void Paste(const Values& part, int64_t index, int64_t columns,
             Values* whole) const;
  void* Blank(size_t bytes);
  void Spoil(void* memory, size_t bytes);

  KernelRig* rig_;
  PwModel model_;
  PwWork work_;
  int64_t slices_;
  PwPart part_;
  uint64_t seed_;
  RefPartInput reference_;
  Values start_;  // start of the gradients
};

}  // namespace pipewright

#endif  // PIPEWRIGHT_TESTS_SUPPORT_KERNEL_PASS_RUN_H_
