// An open CPU device, and the state that its primitives share.
#ifndef PIPEWRIGHT_KERNELS_CPU_DEVICE_H_
#define PIPEWRIGHT_KERNELS_CPU_DEVICE_H_

#include <stddef.h>
#include <stdint.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/choice.h"
#include "kernels/cpu/loops.h"
#include "kernels/kernels.h"

namespace pipewright {

class Bf16Gemm;

// Cosines and sines of the angles of positions [0, positions).
struct RotaryTable {
  float base = 0;
  int64_t head_dim = 0;
  int64_t positions = 0;
  std::vector<float> cosines;
  std::vector<float> sines;
};

}  // namespace pipewright

struct PwDevice {
  explicit PwDevice(
      const pipewright::Loops& chosen,
      pipewright::Bf16Products wanted = pipewright::Bf16Products::kWhereFast);
  ~PwDevice();
  const pipewright::Loops& loops;
  std::string implementation;
  std::unique_ptr<pipewright::Bf16Gemm> bf16;  // null: not on this processor
  std::vector<float> packing;                  // for the built-in GEMM
  std::vector<char> flushed;
  std::vector<float> fp8[3];  // widened operands and a result of fp8 products
  pipewright::RotaryTable rotary;
};

namespace pipewright {

// Keeps the text for error() and returns `status`.
PwStatus Fail(PwStatus status, const char* format, ...)
    __attribute__((format(printf, 2, 3)));
const char* LastError();

// PW_INVALID unless all of the named sizes are at least 1.
PwStatus CheckSizes(
    const char* operation,
    std::initializer_list<std::pair<const char*, int64_t>> sizes);
// The loops for `type`; null, with the error set, for fp8.
const TypedLoops* LoopsFor(const char* operation, PwDevice* device,
                           PwType type);
size_t TypeBytes(PwType type);

// fp32, by oneDNN where it is there, on the calling thread alone.
PwStatus Sgemm(PwDevice* device, const SgemmShape& shape, const float* a,
               const float* b, float* c);
// "dnnl_sgemm:avx512_core", "built-in:avx2".
std::string SgemmName(const PwDevice& device);
// "oneDNN 2.6.3", "built-in GEMM".
std::string GemmLibrary();

// A product of PW_FP8, by fp32; arguments have been checked.
PwStatus Fp8Gemm(PwDevice* device, const PwGemm& gemm, const void* a,
                 const void* b, const void* bias, void* c);

// Fill in the parts of the table (kernels.h).
void AddMemory(PwKernels* kernels);
void AddGemms(PwKernels* kernels);
void AddAttention(PwKernels* kernels);
void AddLoops(PwKernels* kernels);
void AddFp8(PwKernels* kernels);
void AddExperts(PwKernels* kernels);

}  // namespace pipewright

#endif  // PIPEWRIGHT_KERNELS_CPU_DEVICE_H_
