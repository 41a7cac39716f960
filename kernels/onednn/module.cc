// Built as libpipewright_onednn.so: all that is linked with oneDNN.
#include "kernels/onednn/module.h"

#include <dnnl.h>

#include <string>

#include "kernels/onednn/parts.h"

// oneDNN runs on GNU OpenMP, whose setting is the calling thread's own.
extern "C" void omp_set_num_threads(int);

namespace pipewright {
namespace {

void UseOneThread() {
  thread_local const bool done = (omp_set_num_threads(1), true);
  (void)done;
}

const char* IsaName() {
  switch (dnnl_get_effective_cpu_isa()) {
    case dnnl_cpu_isa_sse41:
      return "sse41";
    case dnnl_cpu_isa_avx:
      return "avx";
    case dnnl_cpu_isa_avx2:
      return "avx2";
    case dnnl_cpu_isa_avx512_core:
      return "avx512_core";
    case dnnl_cpu_isa_avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl_cpu_isa_avx512_core_bf16:
      return "avx512_core_bf16";
    case dnnl_cpu_isa_avx512_core_amx:
      return "avx512_core_amx";
    default:
      return "newer";
  }
}

const char* Version() {
  static const std::string text = [] {
    const dnnl_version_t* version = dnnl_version();
    return std::to_string(version->major) + "." +
           std::to_string(version->minor) + "." +
           std::to_string(version->patch);
  }();
  return text.c_str();
}

int Sgemm(const SgemmShape& shape, const float* a, const float* b, float* c) {
  UseOneThread();
  return dnnl_sgemm(shape.transpose_a ? 'T' : 'N',
                    shape.transpose_b ? 'T' : 'N', shape.rows, shape.columns,
                    shape.depth, shape.alpha, a, shape.a_stride, b,
                    shape.b_stride, shape.beta, c, shape.c_stride);
}

}  // namespace
}  // namespace pipewright

extern "C" __attribute__((visibility("default")))
const pipewright::OneDnnModule*
pipewright_onednn() {
  static const pipewright::OneDnnModule module = {
      .abi = pipewright::kOneDnnModuleAbi,
      .version = pipewright::Version,
      .isa = pipewright::IsaName,
      .sgemm = pipewright::Sgemm,
      .out_of_memory = dnnl_out_of_memory,
      .open_bf16 = pipewright::OpenBf16,
      .close_bf16 = pipewright::CloseBf16,
      .run_bf16 = pipewright::RunBf16,
      .bf16_implementation = pipewright::Bf16Implementation,
  };
  return &module;
}
