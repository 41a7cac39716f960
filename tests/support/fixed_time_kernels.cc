#include "tests/support/fixed_time_kernels.h"

namespace pipewright::testing {
namespace {

FixedTimes fixed;
thread_local double now_s = 0;

const PwKernels& Cpu() { return *pw_cpu_kernels(); }

// A layer has attention once, forward and backward; of its linear layers the
// one whose inputs are more than its outputs (down) counts as the W.
PwStatus AttentionForward(PwDevice* device, PwStream* stream,
                          const PwAttention* shape, const void* q,
                          const void* k, const void* v, void* o, float* lse,
                          void* workspace) {
  now_s += fixed.forward_s;
  return Cpu().attention_forward(device, stream, shape, q, k, v, o, lse,
                                 workspace);
}

PwStatus AttentionBackward(PwDevice* device, PwStream* stream,
                           const PwAttention* shape, const void* q,
                           const void* k, const void* v, const void* o,
                           const float* lse, const void* d_o, void* dq,
                           void* dk, void* dv, void* workspace) {
  now_s += fixed.backward_input_s;
  return Cpu().attention_backward(device, stream, shape, q, k, v, o, lse, d_o,
                                  dq, dk, dv, workspace);
}

PwStatus Gemm(PwDevice* device, PwStream* stream, const PwGemm* gemm,
              const void* a, const void* b, const void* bias, void* c) {
  if (gemm->pass == PW_GEMM_BACKWARD_WEIGHT && gemm->inputs > gemm->outputs) {
    now_s += fixed.backward_weight_s;
  }
  return Cpu().gemm(device, stream, gemm, a, b, bias, c);
}

PwStatus Adam(PwDevice* device, PwStream* stream, const PwAdam* adam,
              PwType type, int64_t count, const float* gradients, float* master,
              float* moment1, float* moment2, void* weights) {
  now_s += fixed.optimizer_s;
  return Cpu().adam(device, stream, adam, type, count, gradients, master,
                    moment1, moment2, weights);
}

PwStatus CreateEvent(PwDevice*, PwEvent** event) {
  *event = reinterpret_cast<PwEvent*>(new double(0));
  return PW_OK;
}
void DestroyEvent(PwDevice*, PwEvent* event) {
  delete reinterpret_cast<double*>(event);
}
PwStatus Record(PwDevice*, PwStream*, PwEvent* event) {
  *reinterpret_cast<double*>(event) = now_s;
  return PW_OK;
}
PwStatus Elapsed(PwDevice*, PwEvent* from, PwEvent* to, double* seconds) {
  *seconds = *reinterpret_cast<double*>(to) - *reinterpret_cast<double*>(from);
  return PW_OK;
}

}  // namespace

const PwKernels* FixedTimeKernels(const FixedTimes& times) {
  fixed = times;
  static const PwKernels* const table = [] {
    static PwKernels own = Cpu();
    own.attention_forward = AttentionForward;
    own.attention_backward = AttentionBackward;
    own.gemm = Gemm;
    own.adam = Adam;
    own.create_event = CreateEvent;
    own.destroy_event = DestroyEvent;
    own.record = Record;
    own.elapsed = Elapsed;
    return &own;
  }();
  return table;
}

}  // namespace pipewright::testing
