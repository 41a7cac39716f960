#include "kernels/cpu/device.h"

#include <stdarg.h>
#include <stdio.h>

#include "kernels/cpu/bf16_gemm.h"

namespace pipewright {
namespace {

thread_local char last_error[2048] = "";

}  // namespace

PwStatus Fail(PwStatus status, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(last_error, sizeof(last_error), format, arguments);
  va_end(arguments);
  return status;
}

const char* LastError() { return last_error; }

PwStatus CheckSizes(
    const char* operation,
    std::initializer_list<std::pair<const char*, int64_t>> sizes) {
  for (const auto& [name, size] : sizes) {
    if (size < 1) {
      return Fail(PW_INVALID, "%s: %s is %lld, must be at least 1", operation,
                  name, static_cast<long long>(size));
    }
  }
  return PW_OK;
}

const TypedLoops* LoopsFor(const char* operation, PwDevice* device,
                           PwType type) {
  if (type == PW_FP32) return &device->loops.fp32;
  if (type == PW_BF16) return &device->loops.bf16;
  Fail(PW_INVALID, "%s: type must be fp32 or bf16", operation);
  return nullptr;
}

size_t TypeBytes(PwType type) {
  return type == PW_FP32 ? 4 : type == PW_BF16 ? 2 : 1;
}

}  // namespace pipewright

PwDevice::PwDevice(const pipewright::Loops& chosen,
                   pipewright::Bf16Products wanted)
    : loops(chosen), bf16(pipewright::Bf16Gemm::Create(wanted)) {
  implementation = pipewright::SgemmName(*this);
}

PwDevice::~PwDevice() = default;

extern "C" const PwKernels* pw_cpu_kernels(void) {
  static const PwKernels kernels = [] {
    PwKernels table{};
    table.abi = PW_KERNELS_ABI;
    table.name = "cpu";
    table.error = pipewright::LastError;
    pipewright::AddMemory(&table);
    pipewright::AddGemms(&table);
    pipewright::AddAttention(&table);
    pipewright::AddLoops(&table);
    pipewright::AddFp8(&table);
    pipewright::AddExperts(&table);
    return table;
  }();
  return &kernels;
}
