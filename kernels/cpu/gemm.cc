// Linear layers: fp32 by oneDNN's dnnl_sgemm or the built-in GEMM, bf16 by
// oneDNN with AMX.
#include "kernels/cpu/bf16_gemm.h"
#include "kernels/cpu/device.h"
#include "kernels/onednn/module.h"

namespace pipewright {
namespace {

PwStatus CheckGemmSizes(const PwGemm& gemm) {
  return CheckSizes("gemm", {{"tokens", gemm.tokens},
                             {"inputs", gemm.inputs},
                             {"outputs", gemm.outputs}});
}

PwStatus CheckGemm(const PwGemm& gemm, const PwDevice& device) {
  if (gemm.type != PW_FP32 && !(gemm.type == PW_BF16 && device.bf16)) {
    return Fail(PW_INVALID, "gemm: this processor computes in fp32%s only",
                device.bf16 ? " and bf16" : "");
  }
  return CheckGemmSizes(gemm);
}

PwStatus RunGemm(PwDevice* device, const PwGemm& gemm, const void* a,
                 const void* b, const void* bias, void* c) {
  if (gemm.type == PW_BF16) {
    const PwStatus status = device->bf16->Run(gemm, a, b, bias, c);
    device->implementation = device->bf16->Implementation();
    return status;
  }
  const float* left = static_cast<const float*>(a);
  const float* right = static_cast<const float*>(b);
  float* to = static_cast<float*>(c);
  if (gemm.pass == PW_GEMM_FORWARD) {
    if (bias != nullptr) {
      device->loops.fp32.bias_rows(gemm.tokens, gemm.outputs, bias, to);
    }
    return Sgemm(
        device,
        {false, true, gemm.tokens, gemm.outputs, gemm.inputs, 1.0f, gemm.inputs,
         gemm.inputs, bias == nullptr ? 0.0f : 1.0f, gemm.outputs},
        left, right, to);
  }
  if (gemm.pass == PW_GEMM_BACKWARD_INPUT) {
    return Sgemm(device,
                 {false, false, gemm.tokens, gemm.inputs, gemm.outputs, 1.0f,
                  gemm.outputs, gemm.inputs, 0.0f, gemm.inputs},
                 left, right, to);
  }
  return Sgemm(device,
               {true, false, gemm.outputs, gemm.inputs, gemm.tokens, 1.0f,
                gemm.outputs, gemm.inputs, 1.0f, gemm.inputs},
               right, left, to);
}

PwStatus Gemm(PwDevice* device, PwStream*, const PwGemm* gemm, const void* a,
              const void* b, const void* bias, void* c) {
  const PwStatus status =
      gemm->type == PW_FP8 ? CheckGemmSizes(*gemm) : CheckGemm(*gemm, *device);
  if (status != PW_OK) return status;
  if (bias != nullptr && gemm->pass != PW_GEMM_FORWARD) {
    return Fail(PW_INVALID, "gemm: a bias is for the forward pass only");
  }
  if (gemm->type == PW_FP8) return Fp8Gemm(device, *gemm, a, b, bias, c);
  if (gemm->type == PW_FP32) device->implementation = SgemmName(*device);
  return RunGemm(device, *gemm, a, b, bias, c);
}

PwStatus GroupedGemm(PwDevice* device, PwStream*, const PwGemm* gemm,
                     int32_t groups, const int64_t* tokens_of, const void* a,
                     const void* b, void* c) {
  PwStatus status = CheckGemm(*gemm, *device);
  if (status == PW_OK)
    status = CheckSizes("grouped_gemm", {{"groups", groups}});
  if (status != PW_OK) return status;
  int64_t tokens = 0;
  for (int32_t group = 0; group < groups; ++group) {
    if (tokens_of[group] < 0) {
      return Fail(PW_INVALID, "grouped_gemm: group %d has %lld tokens", group,
                  static_cast<long long>(tokens_of[group]));
    }
    tokens += tokens_of[group];
  }
  if (tokens != gemm->tokens) {
    return Fail(PW_INVALID, "grouped_gemm: the groups have %lld tokens of %lld",
                static_cast<long long>(tokens),
                static_cast<long long>(gemm->tokens));
  }
  if (gemm->type == PW_FP32) device->implementation = SgemmName(*device);
  const size_t bytes = TypeBytes(gemm->type);
  const bool weight = gemm->pass == PW_GEMM_BACKWARD_WEIGHT;
  const bool forward = gemm->pass == PW_GEMM_FORWARD;
  // Elements of a row of a, b and c, where they have a row a token.
  const int64_t a_row =
      gemm->pass == PW_GEMM_BACKWARD_INPUT ? gemm->outputs : gemm->inputs;
  const int64_t expert = gemm->inputs * gemm->outputs;
  const char* from = static_cast<const char*>(a);
  const char* by = static_cast<const char*>(b);
  char* to = static_cast<char*>(c);
  for (int32_t group = 0; group < groups; ++group) {
    PwGemm one = *gemm;
    one.tokens = tokens_of[group];
    if (one.tokens > 0) {
      status = RunGemm(device, one, from, by, nullptr, to);
      if (status != PW_OK) return status;
    }
    from += one.tokens * a_row * bytes;
    by += (weight ? one.tokens * gemm->outputs : expert) * bytes;
    to += weight
              ? expert * sizeof(float)
              : one.tokens * (forward ? gemm->outputs : gemm->inputs) * bytes;
  }
  return PW_OK;
}

}  // namespace

PwStatus Sgemm(PwDevice* device, const SgemmShape& shape, const float* a,
               const float* b, float* c) {
#ifdef PIPEWRIGHT_ONEDNN
  (void)device;
  const char* problem = nullptr;
  const OneDnnModule* const onednn = OneDnn(&problem);
  if (onednn == nullptr) return Fail(PW_FAILED, "gemm: %s", problem);
  const int status = onednn->sgemm(shape, a, b, c);
  if (status == 0) return PW_OK;
  if (status == onednn->out_of_memory) {
    return Fail(PW_NO_MEMORY, "gemm: oneDNN is out of memory");
  }
  return Fail(PW_FAILED, "gemm: dnnl_sgemm gives status %d", status);
#else
  if (device->packing.empty()) device->packing.resize(kSgemmPacking);
  device->loops.sgemm(shape, a, b, c, device->packing.data());
  return PW_OK;
#endif
}

std::string SgemmName(const PwDevice& device) {
#ifdef PIPEWRIGHT_ONEDNN
  (void)device;
  const OneDnnModule* const onednn = OneDnn(nullptr);
  return std::string("dnnl_sgemm:") +
         (onednn == nullptr ? "missing" : onednn->isa());
#else
  return std::string("built-in:") + device.loops.name;
#endif
}

std::string GemmLibrary() {
#ifdef PIPEWRIGHT_ONEDNN
  const OneDnnModule* const onednn = OneDnn(nullptr);
  return std::string("oneDNN ") +
         (onednn == nullptr ? "(missing)" : onednn->version());
#else
  return "built-in GEMM";
#endif
}

void AddGemms(PwKernels* kernels) {
  kernels->gemm = Gemm;
  kernels->grouped_gemm = GroupedGemm;
}

}  // namespace pipewright
