/* One device's kernels, memory, streams and clocks behind a table of
 * functions, so that calibration and the executor call the same code on every
 * backend. A backend knows primitives only: what a transformer layer does with
 * them is layer.h, the same for all.
 *
 * Backends: pw_cpu_kernels() is linked in. The CUDA one is a library of its
 * own, libpipewright_cuda.so, that exports pw_cuda_kernels() and is loaded at
 * run time (loader.h): the main binary starts without it.
 *
 * Plain C, no Abseil, no protobuf: this folder and a compiler are enough to
 * build it on a GPU machine.
 *
 * Conventions. Matrices are row-major and, unless a stride is given, dense.
 * A linear layer is y[T,O] = x[T,I] w[O,I]^T with T tokens. `type` is that of
 * activations and weights; statistics, losses, main gradients, master weights
 * and moments are fp32 always. Work is queued on `stream` and returns at once
 * on CUDA; on the CPU there is one stream, the calling thread, and everything
 * is done on return. All pointers are to the device's memory, aligned to 64
 * bytes at the start of a tensor. A backend is deterministic where its
 * `deterministic` says so: equal inputs give equal bits. */
#ifndef PIPEWRIGHT_KERNELS_KERNELS_H_
#define PIPEWRIGHT_KERNELS_KERNELS_H_

#include <stddef.h>
#include <stdint.h>

#include "kernels/operations.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Goes up with every change of this header; a library with another number is
 * not loaded. */
#define PW_KERNELS_ABI 4

typedef enum PwStatus {
  PW_OK = 0,
  PW_INVALID = 1,   /* a shape or type that this backend cannot do */
  PW_NO_MEMORY = 2, /* on the device or in pinned host memory */
  PW_NO_DEVICE = 3,
  PW_MISSING = 4, /* a library is not there; error() names it */
  PW_FAILED = 5   /* the device or a library reports a failure */
} PwStatus;

typedef struct PwDevice PwDevice; /* one thread uses it at a time */
typedef struct PwStream PwStream; /* NULL: the device's own */
typedef struct PwEvent PwEvent;
typedef struct PwGraph PwGraph;

typedef struct PwDeviceInfo {
  char name[128];      /* "NVIDIA H100 80GB HBM3", the CPU's model name */
  char driver[64];     /* "" on the CPU */
  char libraries[256]; /* "cublasLt 13.1.0, cudnn 9.19.0", "oneDNN 2.6.3" */
  int32_t types;       /* bit 1 << PwType: GEMM, attention and all else */
  int32_t fp8_gemm;    /* 1: gemm takes PW_FP8; 2: by other arithmetic, so that
                          times say nothing of fp8 */
  int32_t cores;       /* multiprocessors; hardware threads */
  int32_t capability;  /* 90 for sm_90; 0 on the CPU */
  int32_t deterministic;
  int64_t memory_bytes;
  int64_t free_bytes;
  int64_t cache_bytes; /* last level: L2 of a GPU, L3 of a CPU */
} PwDeviceInfo;

/* What the device says of itself at the moment; below 0: not known. */
typedef struct PwDeviceState {
  double clock_mhz;
  double memory_clock_mhz;
  double max_clock_mhz;
  double power_w;
  double temperature_c;
  int64_t throttle; /* bits of NVML's clocksEventReasons; 0: none */
  int32_t pcie_generation;
  int32_t pcie_width;
} PwDeviceState;

typedef enum PwCopy {
  PW_HOST_TO_DEVICE = 0,
  PW_DEVICE_TO_HOST = 1,
  PW_DEVICE_TO_DEVICE = 2
} PwCopy;

typedef struct PwKernels {
  int32_t abi;
  const char* name; /* "cpu", "cuda" */

  /* What went wrong in this thread's last call that did not give PW_OK. */
  const char* (*error)(void);
  int32_t (*device_count)(void);
  PwStatus (*open)(int32_t index, PwDevice** device);
  void (*close)(PwDevice* device);
  PwStatus (*info)(PwDevice* device, PwDeviceInfo* info);
  PwStatus (*state)(PwDevice* device, PwDeviceState* state);
  /* The implementation that the last gemm or attention of this device ran:
   * "brgemm:avx512_core", a cuDNN plan's name. */
  const char* (*implementation)(PwDevice* device);

  /* Memory. Host memory is pinned where copies need that. */
  PwStatus (*allocate)(PwDevice* device, size_t bytes, void** memory);
  void (*release)(PwDevice* device, void* memory);
  PwStatus (*allocate_host)(PwDevice* device, size_t bytes, void** memory);
  void (*release_host)(PwDevice* device, void* memory);
  PwStatus (*zero)(PwDevice* device, PwStream* stream, void* memory,
                   size_t bytes);
  PwStatus (*copy)(PwDevice* device, PwStream* stream, PwCopy kind, void* to,
                   const void* from, size_t bytes);
  /* Uniform in [-scale, scale), element i from (seed, i) alone, the same
   * numbers on every backend up to rounding: see random.h. */
  PwStatus (*random)(PwDevice* device, PwStream* stream, PwType type,
                     void* values, int64_t count, uint64_t seed, float scale);
  /* Token ids in [0, limit), the same way. */
  PwStatus (*random_ids)(PwDevice* device, PwStream* stream, int32_t* ids,
                         int64_t count, uint64_t seed, int32_t limit);
  /* Between fp32, bf16 and fp8 (e4m3, rounded to nearest, saturating). */
  PwStatus (*convert)(PwDevice* device, PwStream* stream, PwType to_type,
                      void* to, PwType from_type, const void* from,
                      int64_t count);

  /* Streams and clocks. `priority` 0: low, 1: high. On the CPU an event is a
   * reading of the calling thread's CPU time, and waits are no-ops. */
  PwStatus (*create_stream)(PwDevice* device, int32_t priority,
                            PwStream** stream);
  void (*destroy_stream)(PwDevice* device, PwStream* stream);
  PwStatus (*synchronize)(PwDevice* device, PwStream* stream);
  PwStatus (*create_event)(PwDevice* device, PwEvent** event);
  void (*destroy_event)(PwDevice* device, PwEvent* event);
  PwStatus (*record)(PwDevice* device, PwStream* stream, PwEvent* event);
  PwStatus (*wait)(PwDevice* device, PwStream* stream, PwEvent* event);
  /* Has everything before it ended? *done is 0 or 1. */
  PwStatus (*query)(PwDevice* device, PwEvent* event, int32_t* done);
  /* Seconds between two events that have ended. */
  PwStatus (*elapsed)(PwDevice* device, PwEvent* from, PwEvent* to,
                      double* seconds);
  /* Holds the stream until release_streams: whatever is queued behind it
   * starts without gaps. Every kernel behind it has run once before. No-ops
   * on the CPU. Release gives PW_FAILED when a hold since the last release
   * ended by its time-out; the streams run then too. */
  PwStatus (*hold_stream)(PwDevice* device, PwStream* stream);
  PwStatus (*release_streams)(PwDevice* device);
  /* Fills the last-level cache with other data, and leaves none there that
   * has still to be written to memory. */
  PwStatus (*flush_cache)(PwDevice* device, PwStream* stream);
  /* What is queued on `stream` between the two becomes a graph that launches
   * as one. PW_INVALID on the CPU. */
  PwStatus (*begin_graph)(PwDevice* device, PwStream* stream);
  PwStatus (*end_graph)(PwDevice* device, PwStream* stream, PwGraph** graph);
  PwStatus (*launch_graph)(PwDevice* device, PwStream* stream, PwGraph* graph);
  void (*destroy_graph)(PwDevice* device, PwGraph* graph);

  /* Linear layers. `bias` [O] of `type`, forward only, may be NULL. */
  PwStatus (*gemm)(PwDevice* device, PwStream* stream, const PwGemm* gemm,
                   const void* a, const void* b, const void* bias, void* c);
  /* The same for `groups` experts: tokens sorted by expert, group g has
   * tokens_of[g] (host memory) of gemm->tokens in all; b (or c of the weight
   * pass) holds the experts' weights one after the other. */
  PwStatus (*grouped_gemm)(PwDevice* device, PwStream* stream,
                           const PwGemm* gemm, int32_t groups,
                           const int64_t* tokens_of, const void* a,
                           const void* b, void* c);
  /* dbias[columns] += sum over rows of dy[rows, columns]. */
  PwStatus (*bias_backward)(PwDevice* device, PwStream* stream, PwType type,
                            int64_t rows, int64_t columns, const void* dy,
                            float* dbias);

  /* statistics: fp32 [rows, 2], mean (0 for RMS) and 1 / deviation. beta is
   * NULL for RMS. */
  PwStatus (*norm_forward)(PwDevice* device, PwStream* stream, PwNorm norm,
                           PwType type, int64_t rows, int64_t columns,
                           float epsilon, const void* x, const void* gamma,
                           const void* beta, void* y, float* statistics);
  /* dx = gradient (+ `residual` [rows, columns], may be NULL); dgamma and
   * dbeta (NULL for RMS) are added to. `workspace`: norm_workspace bytes. */
  PwStatus (*norm_backward)(PwDevice* device, PwStream* stream, PwNorm norm,
                            PwType type, int64_t rows, int64_t columns,
                            const void* dy, const void* x, const void* gamma,
                            const float* statistics, const void* residual,
                            void* dx, float* dgamma, float* dbeta,
                            void* workspace);
  size_t (*norm_workspace)(PwDevice* device, int64_t rows, int64_t columns);

  /* y = a + b. y may be a or b. */
  PwStatus (*add)(PwDevice* device, PwStream* stream, PwType type,
                  int64_t count, const void* a, const void* b, void* y);
  /* y += x, both fp32. */
  PwStatus (*accumulate)(PwDevice* device, PwStream* stream, int64_t count,
                         const float* x, float* y);
  /* [rows, columns] between row strides, in elements. */
  PwStatus (*copy_rows)(PwDevice* device, PwStream* stream, PwType type,
                        int64_t rows, int64_t columns, const void* from,
                        int64_t from_stride, void* to, int64_t to_stride);

  /* Rotary embedding in place (Su et al., arXiv 2104.09864; halves rotated
   * as in Llama's Hugging Face form) on `heads` heads of each of
   * batch * tokens rows `stride` apart; token t of a sequence has position
   * first + t. `inverse` 1: the gradient. */
  PwStatus (*rotary)(PwDevice* device, PwStream* stream, PwType type,
                     int64_t batch, int64_t tokens, int64_t heads,
                     int64_t head_dim, int64_t stride, int64_t first,
                     float base, int32_t inverse, void* x);

  size_t (*attention_workspace)(PwDevice* device, const PwAttention* shape,
                                int32_t backward);
  PwStatus (*attention_forward)(PwDevice* device, PwStream* stream,
                                const PwAttention* shape, const void* q,
                                const void* k, const void* v, void* o,
                                float* lse, void* workspace);
  /* Writes dq, dk, dv. */
  PwStatus (*attention_backward)(PwDevice* device, PwStream* stream,
                                 const PwAttention* shape, const void* q,
                                 const void* k, const void* v, const void* o,
                                 const float* lse, const void* d_o, void* dq,
                                 void* dk, void* dv, void* workspace);

  /* GELU: x, y [rows, columns]. SwiGLU: x [rows, 2 columns], y [rows,
   * columns]. */
  PwStatus (*activation_forward)(PwDevice* device, PwStream* stream,
                                 PwActivation activation, PwType type,
                                 int64_t rows, int64_t columns, const void* x,
                                 void* y);
  PwStatus (*activation_backward)(PwDevice* device, PwStream* stream,
                                  PwActivation activation, PwType type,
                                  int64_t rows, int64_t columns, const void* x,
                                  const void* dy, void* dx);

  /* y[tokens, hidden] = table[ids] (+ positions[(first + t)], t the place in
   * a sequence of `sequence` tokens; may be NULL). */
  PwStatus (*embedding_forward)(PwDevice* device, PwStream* stream, PwType type,
                                int64_t tokens, int64_t hidden,
                                int64_t sequence, int64_t first,
                                const int32_t* ids, const void* table,
                                const void* positions, void* y);
  /* dtable and dpositions (may be NULL) are added to. */
  PwStatus (*embedding_backward)(PwDevice* device, PwStream* stream,
                                 PwType type, int64_t tokens, int64_t hidden,
                                 int64_t sequence, int64_t first,
                                 const int32_t* ids, const void* dy,
                                 float* dtable, float* dpositions);

  /* losses[t] = lse[t] - logits[t, targets[t]], in nats. */
  PwStatus (*cross_entropy_forward)(PwDevice* device, PwStream* stream,
                                    PwType type, int64_t tokens,
                                    int64_t vocabulary, const void* logits,
                                    const int32_t* targets, float* losses,
                                    float* lse);
  /* logits become their gradient times `scale`. */
  PwStatus (*cross_entropy_backward)(PwDevice* device, PwStream* stream,
                                     PwType type, int64_t tokens,
                                     int64_t vocabulary, void* logits,
                                     const int32_t* targets, const float* lse,
                                     float scale);

  /* master, moment1 and moment2 are updated, `weights` is the master in
   * `type`; NULL where the master itself is computed with. Undo is exact to
   * rounding only, so a caller that may roll back keeps a copy. */
  PwStatus (*adam)(PwDevice* device, PwStream* stream, const PwAdam* adam,
                   PwType type, int64_t count, const float* gradients,
                   float* master, float* moment1, float* moment2,
                   void* weights);
  /* The same on the host's cores, all pointers to host memory, on the calling
   * thread: the offloaded optimizer. */
  PwStatus (*adam_host)(const PwAdam* adam, PwType type, int64_t count,
                        const float* gradients, float* master, float* moment1,
                        float* moment2, void* weights);
  /* result[0] += sum of squares, result[1] += how many are not finite. */
  PwStatus (*square_sum)(PwDevice* device, PwStream* stream, int64_t count,
                         const float* values, double* result);
  /* Where AdamW will be `steps` more steps on if its direction stays that of
   * the moments, which adam->step steps have made (PipeOptim, arXiv
   * 2312.00839): predicted = master - steps * learning_rate *
   * (mean / (sqrt(variance) + epsilon) + weight_decay * master), in `type`.
   * With adam->step 0 the moments say nothing: predicted = master. */
  PwStatus (*predict)(PwDevice* device, PwStream* stream, const PwAdam* adam,
                      int64_t steps, PwType type, int64_t count,
                      const float* master, const float* moment1,
                      const float* moment2, void* predicted);
  /* To fp8, e4m3 or (`e5m2` 1) e5m2, with one scale for the whole tensor from
   * what is in it now: m = L / (largest magnitude), 1 where all are 0, with L
   * the format's largest, 448 or 57344; stored is x times m to nearest, ties
   * to even, and scale[0] = 1 / m, which the values stand for times. NaNs stay
   * such; with an infinity in it a tensor becomes NaNs. x is [rows, columns]
   * of `type`, so is `to`; `to_transposed` is [columns, rows]; one of the two
   * may be NULL. Equal inputs give equal bits, a NaN's sign apart, on every
   * backend. */
  PwStatus (*quantize)(PwDevice* device, PwStream* stream, PwType type,
                       int64_t rows, int64_t columns, const void* x,
                       int32_t e5m2, void* to, void* to_transposed,
                       float* scale);

  /* logits [tokens, experts] -> ids and weights [tokens, chosen], largest
   * first; places [tokens, chosen]: the row of each slot among all, sorted by
   * own expert, then in their order; counts [own]: slots of each own expert. */
  PwStatus (*route_forward)(PwDevice* device, PwStream* stream,
                            const PwRoute* route, const void* logits,
                            int32_t* ids, float* weights, int32_t* places,
                            int32_t* counts);
  /* Writes dlogits; those of experts that were not chosen are 0. */
  PwStatus (*route_backward)(PwDevice* device, PwStream* stream,
                             const PwRoute* route, const int32_t* ids,
                             const float* weights, const float* dweights,
                             void* dlogits);
  /* The counts as grouped_gemm wants them, in host memory. Waits for all that
   * is queued on `stream`; impossible while it is captured. */
  PwStatus (*route_counts)(PwDevice* device, PwStream* stream,
                           const PwRoute* route, const int32_t* counts,
                           int64_t* tokens_of);
  /* rows[places[slot]] = x[token of slot]; x [tokens, columns], rows [tokens *
   * chosen, columns]. */
  PwStatus (*dispatch_rows)(PwDevice* device, PwStream* stream,
                            const PwRoute* route, int64_t columns,
                            const void* x, const int32_t* places, void* rows);
  /* y[token] = residual[token] (NULL: 0; may be y) + sum over its slots in
   * order of weights[slot] (NULL: 1) * rows[places[slot]]. */
  PwStatus (*combine_rows)(PwDevice* device, PwStream* stream,
                           const PwRoute* route, int64_t columns,
                           const void* rows, const int32_t* places,
                           const float* weights, const void* residual, void* y);
  /* drows[places[slot]] = weights[slot] * dy[token]; dweights[slot] = sum of
   * dy[token] * rows[places[slot]]. */
  PwStatus (*combine_rows_backward)(PwDevice* device, PwStream* stream,
                                    const PwRoute* route, int64_t columns,
                                    const void* dy, const void* rows,
                                    const int32_t* places, const float* weights,
                                    void* drows, float* dweights);
} PwKernels;

const PwKernels* pw_cpu_kernels(void);

/* What libpipewright_cuda.so exports; error() of the table says what is
 * missing when device_count() is 0. */
const PwKernels* pw_cuda_kernels(void);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PIPEWRIGHT_KERNELS_KERNELS_H_ */
