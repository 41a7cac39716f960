// The functions behind the CUDA table of kernels.h, by the file that holds
// them; what each does is written there, at PwKernels. For table.cc.
#ifndef PIPEWRIGHT_KERNELS_CUDA_FUNCTIONS_H_
#define PIPEWRIGHT_KERNELS_CUDA_FUNCTIONS_H_

#include "kernels/kernels.h"

namespace pipewright::cuda {

// device.cc
const char* Error();
int32_t DeviceCount();
PwStatus Open(int32_t index, PwDevice** device);
PwStatus OpenPart(int32_t index, int32_t part, int32_t parts,
                  PwDevice** device);
void Close(PwDevice* device);
PwStatus Info(PwDevice* device, PwDeviceInfo* info);
PwStatus State(PwDevice* device, PwDeviceState* state);
const char* Implementation(PwDevice* device);

// memory.cc
PwStatus Allocate(PwDevice* device, size_t bytes, void** memory);
void Release(PwDevice* device, void* memory);
PwStatus AllocateHost(PwDevice* device, size_t bytes, void** memory);
void ReleaseHost(PwDevice* device, void* memory);
PwStatus Zero(PwDevice* device, PwStream* stream, void* memory, size_t bytes);
PwStatus Copy(PwDevice* device, PwStream* stream, PwCopy kind, void* to,
              const void* from, size_t bytes);

// flush.cu
PwStatus FlushCache(PwDevice* device, PwStream* stream);

// random.cu
PwStatus Random(PwDevice* device, PwStream* stream, PwType type, void* values,
                int64_t count, uint64_t seed, float scale);
PwStatus RandomIds(PwDevice* device, PwStream* stream, int32_t* ids,
                   int64_t count, uint64_t seed, int32_t limit);
PwStatus Convert(PwDevice* device, PwStream* stream, PwType to_type, void* to,
                 PwType from_type, const void* from, int64_t count);

// stream.cc
PwStatus CreateStream(PwDevice* device, int32_t priority, PwStream** stream);
void DestroyStream(PwDevice* device, PwStream* stream);
PwStatus Synchronize(PwDevice* device, PwStream* stream);
PwStatus CreateEvent(PwDevice* device, PwEvent** event);
void DestroyEvent(PwDevice* device, PwEvent* event);
PwStatus Record(PwDevice* device, PwStream* stream, PwEvent* event);
PwStatus Wait(PwDevice* device, PwStream* stream, PwEvent* event);
PwStatus Query(PwDevice* device, PwEvent* event, int32_t* done);
PwStatus Elapsed(PwDevice* device, PwEvent* from, PwEvent* to, double* seconds);
PwStatus BeginGraph(PwDevice* device, PwStream* stream);
PwStatus EndGraph(PwDevice* device, PwStream* stream, PwGraph** graph);
PwStatus LaunchGraph(PwDevice* device, PwStream* stream, PwGraph* graph);
void DestroyGraph(PwDevice* device, PwGraph* graph);

// hold.cu
PwStatus HoldStream(PwDevice* device, PwStream* stream);
PwStatus ReleaseStreams(PwDevice* device);

// gemm.cc
PwStatus Gemm(PwDevice* device, PwStream* stream, const PwGemm* gemm,
              const void* a, const void* b, const void* bias, void* c);
PwStatus GroupedGemm(PwDevice* device, PwStream* stream, const PwGemm* gemm,
                     int32_t groups, const int64_t* tokens_of, const void* a,
                     const void* b, void* c);

// quantize.cu
PwStatus Quantize(PwDevice* device, PwStream* stream, PwType type, int64_t rows,
                  int64_t columns, const void* x, int32_t e5m2, void* to,
                  void* to_transposed, float* scale);

// reduction.cu
PwStatus BiasBackward(PwDevice* device, PwStream* stream, PwType type,
                      int64_t rows, int64_t columns, const void* dy,
                      float* dbias);
PwStatus SquareSum(PwDevice* device, PwStream* stream, int64_t count,
                   const float* values, double* result);

// norm.cu
PwStatus NormForward(PwDevice* device, PwStream* stream, PwNorm norm,
                     PwType type, int64_t rows, int64_t columns, float epsilon,
                     const void* x, const void* gamma, const void* beta,
                     void* y, float* statistics);

// norm_backward.cu
PwStatus NormBackward(PwDevice* device, PwStream* stream, PwNorm norm,
                      PwType type, int64_t rows, int64_t columns,
                      const void* dy, const void* x, const void* gamma,
                      const float* statistics, const void* residual, void* dx,
                      float* dgamma, float* dbeta, void* workspace);
size_t NormWorkspace(PwDevice* device, int64_t rows, int64_t columns);

// elementwise.cu
PwStatus Add(PwDevice* device, PwStream* stream, PwType type, int64_t count,
             const void* a, const void* b, void* y);
PwStatus Accumulate(PwDevice* device, PwStream* stream, int64_t count,
                    const float* x, float* y);
PwStatus CopyRows(PwDevice* device, PwStream* stream, PwType type, int64_t rows,
                  int64_t columns, const void* from, int64_t from_stride,
                  void* to, int64_t to_stride);

// activation.cu
PwStatus Rotary(PwDevice* device, PwStream* stream, PwType type, int64_t batch,
                int64_t tokens, int64_t heads, int64_t head_dim, int64_t stride,
                int64_t first, float base, int32_t inverse, void* x);
PwStatus ActivationForward(PwDevice* device, PwStream* stream,
                           PwActivation activation, PwType type, int64_t rows,
                           int64_t columns, const void* x, void* y);
PwStatus ActivationBackward(PwDevice* device, PwStream* stream,
                            PwActivation activation, PwType type, int64_t rows,
                            int64_t columns, const void* x, const void* dy,
                            void* dx);

// attention.cc
size_t AttentionWorkspace(PwDevice* device, const PwAttention* shape,
                          int32_t backward);
PwStatus AttentionForward(PwDevice* device, PwStream* stream,
                          const PwAttention* shape, const void* q,
                          const void* k, const void* v, void* o, float* lse,
                          void* workspace);
PwStatus AttentionBackward(PwDevice* device, PwStream* stream,
                           const PwAttention* shape, const void* q,
                           const void* k, const void* v, const void* o,
                           const float* lse, const void* d_o, void* dq,
                           void* dk, void* dv, void* workspace);

// embedding.cu
PwStatus EmbeddingForward(PwDevice* device, PwStream* stream, PwType type,
                          int64_t tokens, int64_t hidden, int64_t sequence,
                          int64_t first, const int32_t* ids, const void* table,
                          const void* positions, void* y);
PwStatus EmbeddingBackward(PwDevice* device, PwStream* stream, PwType type,
                           int64_t tokens, int64_t hidden, int64_t sequence,
                           int64_t first, const int32_t* ids, const void* dy,
                           float* dtable, float* dpositions);

// cross_entropy.cu
PwStatus CrossEntropyForward(PwDevice* device, PwStream* stream, PwType type,
                             int64_t tokens, int64_t vocabulary,
                             const void* logits, const int32_t* targets,
                             float* losses, float* lse);
PwStatus CrossEntropyBackward(PwDevice* device, PwStream* stream, PwType type,
                              int64_t tokens, int64_t vocabulary, void* logits,
                              const int32_t* targets, const float* lse,
                              float scale);

// adam.cu, adam_host.cc
PwStatus Adam(PwDevice* device, PwStream* stream, const PwAdam* adam,
              PwType type, int64_t count, const float* gradients, float* master,
              float* moment1, float* moment2, void* weights);
PwStatus Predict(PwDevice* device, PwStream* stream, const PwAdam* adam,
                 int64_t steps, PwType type, int64_t count, const float* master,
                 const float* moment1, const float* moment2, void* predicted);
PwStatus AdamHost(const PwAdam* adam, PwType type, int64_t count,
                  const float* gradients, float* master, float* moment1,
                  float* moment2, void* weights);

// experts.cu
PwStatus CheckRoute(const char* operation, const PwRoute& route,
                    int64_t columns);
PwStatus RouteForward(PwDevice* device, PwStream* stream, const PwRoute* route,
                      const void* logits, int32_t* ids, float* weights,
                      int32_t* places, int32_t* counts);
PwStatus RouteBackward(PwDevice* device, PwStream* stream, const PwRoute* route,
                       const int32_t* ids, const float* weights,
                       const float* dweights, void* dlogits);
PwStatus RouteCounts(PwDevice* device, PwStream* stream, const PwRoute* route,
                     const int32_t* counts, int64_t* tokens_of);

// experts_rows.cu
PwStatus DispatchRows(PwDevice* device, PwStream* stream, const PwRoute* route,
                      int64_t columns, const void* x, const int32_t* places,
                      void* rows);
PwStatus CombineRows(PwDevice* device, PwStream* stream, const PwRoute* route,
                     int64_t columns, const void* rows, const int32_t* places,
                     const float* weights, const void* residual, void* y);
PwStatus CombineRowsBackward(PwDevice* device, PwStream* stream,
                             const PwRoute* route, int64_t columns,
                             const void* dy, const void* rows,
                             const int32_t* places, const float* weights,
                             void* drows, float* dweights);

}  // namespace pipewright::cuda

#endif  // PIPEWRIGHT_KERNELS_CUDA_FUNCTIONS_H_
