/* The passes F, B, W of the parts of a GPT- or Llama-style model, each a
 * sequence of a backend's primitives (kernels.h) on one stream; the same code
 * on every backend. It allocates nothing, knows no schedule and no pipeline:
 * whoever calls it brings the memory and decides the order.
 *
 * The split is the zero-bubble one (Qi et al., arXiv 2401.10241): B gives the
 * gradient of the input, with the whole backward of attention, activation and
 * norms (their gains included); W gives the gradients of the linear layers'
 * weights and biases, the embedding tables' included, added in fp32.
 *
 * Memory between the passes of one microbatch (one slice), three blocks that
 * F and B fill:
 *   saved   F -> B   what only B reads: attention, statistics, pre-activations
 *   inputs  F -> W   the inputs of the linear layers
 *   grads   B -> W   the gradients of their outputs
 * After B `saved` may be freed, after W the other two. A part's input is kept
 * by F in `saved` or `inputs` as far as it is needed: the caller may reuse
 * `input` and `output` at once. The head's F writes its logits into `grads`,
 * where B turns them into their gradient.
 *
 * fp8. With `fp8_linear` the four linear layers of PW_LAYER take fp8: inputs
 * and weights in e4m3, gradients in e5m2, each tensor with one scale of its
 * own; all else stays in `type`. `inputs` and `grads` then hold the quantised
 * tensors, transposed as W reads them, and the sums of the biases' gradients,
 * which B takes from what it has before it is quantised. The weights' copies
 * are made by pw_quantize_weights whenever weights have changed, not in a
 * pass.
 *
 * Experts. PW_EXPERT_LAYER is a layer whose feed-forward block is a mixture of
 * experts: a router (a linear layer of the model's type without bias), the
 * choice of experts for each token, its rows sorted by expert, the experts'
 * two products each as grouped ones, and their rows added up, weighted. Shared
 * experts, one dense block, are added to it. In neither style do experts,
 * shared experts and router have biases. The weights of a token's experts are
 * the softmax over their logits (PwRoute); there is no auxiliary loss and no
 * capacity: no row is dropped. B has the gradients of the router's input and of
 * the weights' softmax too, W those of the router's and the experts' weights.
 *
 * How many rows each expert has must be known on the host where the products
 * are queued. With `balanced` it is: the choice is forced (PwRoute) and as even
 * as it can be, whatever the router says; all else, the router and the weights'
 * softmax and their gradients too, is as ever. That is for measuring: nothing
 * is waited for, passes can be queued ahead and captured into graphs, and equal
 * shapes do equal work. Without it the choice is the router's, and F, B and W
 * of a GPU each wait once for the counts, as implementations that count on the
 * host do.
 *
 * Slices. With fewer tokens than the sequence (`slice_tokens`), attention sees
 * the slices before: F appends its keys and values to `cache`, B adds to the
 * cache's gradients and must run from the last slice, which sets them, to the
 * first. A new cache may hold anything. */
#ifndef PIPEWRIGHT_KERNELS_LAYER_H_
#define PIPEWRIGHT_KERNELS_LAYER_H_

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum PwStyle {
  PW_GPT = 0,  /* layer norm, biases, learned positions, GELU */
  PW_LLAMA = 1 /* RMS norm, no biases, rotary positions, SwiGLU */
} PwStyle;

/* A whole model's; what one of `tp` devices holds follows from it: heads,
 * kv_heads (at least one), ffn and vocabulary are divided. With tp above 1 a
 * part computes its shard of each linear layer and none of the exchange: ids
 * and targets are below vocabulary / tp. With sequence_parallel, a part's input
 * and output are the first 1 / tp of the rows; the rows of `inputs` and `grads`
 * that the other devices would send are read, never written: whoever allocates
 * them fills them once. */
typedef struct PwModel {
  PwStyle style;
  PwType type;
  int64_t hidden;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t ffn;
  int64_t vocabulary;
  int64_t sequence; /* learned positions */
  int32_t causal;
  int32_t tp;
  int32_t sequence_parallel; /* norms and residuals on 1 / tp of the tokens */
  float epsilon;             /* epsilon of the norms */
  float rotary_base;
  int32_t fp8_linear; /* 1: a layer's linear layers in fp8 */
  /* Sizes of expert layers; 0 experts: the model has none, and the rest is 0.
   * tp divides each expert's ffn as it does a dense one's, and not the router.
   *
   * ep devices share the experts of a layer, a microbatch each: a device holds
   * experts / ep of them. With even traffic it gets as many rows from the
   * others as go to them, so it computes tokens * experts_per_token rows
   * whatever ep is, in fewer and larger groups. As none of the exchange is
   * done, its own rows stand for those that come: expert e's are computed by
   * its expert e % (experts / ep). */
  int32_t experts;
  int32_t experts_per_token;
  int64_t expert_ffn;
  int64_t shared_ffn; /* width of all shared experts together; 0: none */
  int32_t ep;
  int32_t balanced;
  /* 1: the head's output matrix is the embedding's table. The head has none of
   * its own then, and its passes are told where the table is. */
  int32_t tied;
} PwModel;

/* One microbatch, or one slice of it. */
typedef struct PwWork {
  int64_t batch;        /* sequences */
  int64_t sequence;     /* tokens of each */
  int64_t slice_first;  /* position of the first token */
  int64_t slice_tokens; /* in each sequence; == sequence: no slices */
} PwWork;

typedef enum PwPart {
  PW_EMBEDDING = 0,   /* ids -> hidden */
  PW_LAYER = 1,       /* attention and feed-forward block */
  PW_HEAD = 2,        /* final norm, output matrix, cross-entropy */
  PW_EXPERT_LAYER = 3 /* attention and a mixture of experts */
} PwPart;

/* Bytes, but for `parameters`. */
typedef struct PwPartSize {
  int64_t parameters; /* elements of one device */
  size_t saved;
  size_t inputs;
  size_t grads;
  size_t cache;     /* cache of a whole microbatch; 0 without slices */
  size_t workspace; /* for any one pass; contents need not survive it */
  size_t boundary;  /* input and output: batch * slice_tokens * hidden, with
                       sequence_parallel 1 / tp of it */
  size_t quantized; /* for pw_quantize_weights; 0 without fp8 */
} PwPartSize;

/* A weight inside a part's parameters. */
typedef struct PwTensor {
  char name[24];  /* "qkv", "norm1.gamma" */
  int64_t offset; /* elements */
  int64_t rows;   /* outputs; 1 for a vector */
  int64_t columns;
  float init; /* uniform in [-init, init) around `mean` */
  float mean; /* 1 for gains, else 0 */
} PwTensor;

#define PW_MAX_TENSORS 16

typedef struct PwPartMemory {
  const void* weights; /* [parameters], of the model's type */
  float* gradients;    /* [parameters], added to */
  /* [tokens, hidden] of the model's type (sequence_parallel: [tokens / tp,
   * hidden]); the embedding's input and the
   * head's targets are `ids`, the head's output are `losses`. */
  const void* input;
  void* output;
  const void* output_gradient; /* none for the head */
  void* input_gradient;        /* none for the embedding */
  const int32_t* ids;          /* [tokens]: for the head the targets */
  float* losses;               /* [tokens], of the head */
  float loss_scale; /* the head's gradient is of loss_scale * sum of losses */
  void* saved;
  void* inputs;
  void* grads;
  void* cache;
  void* workspace;
  const void* quantized; /* `weights` as pw_quantize_weights leaves them */
  /* Table of a tied model, for the head: [vocabulary, hidden] of the model's
   * type, and its gradients, added to. */
  const void* table;
  float* table_gradients;
} PwPartMemory;

/* Error: PW_INVALID, with the reason in `reason` (of `size` bytes), for a
 * model or a slice that cannot be: heads that kv_heads or tp do not divide,
 * sizes below 1, a slice outside of its sequence; with fp8_linear, sizes that
 * 16 does not divide, experts, and sequence_parallel. A part that the model
 * does not have (an expert layer without experts, a dense layer with ffn 0) is
 * PW_INVALID to the functions that take a part. */
PwStatus pw_check_model(const PwModel* model, const PwWork* work, char* reason,
                        size_t size);

/* The same for parts of a model that this device has no arithmetic for: fp8. */
PwStatus pw_check_device(const PwKernels* kernels, PwDevice* device,
                         const PwModel* model, char* reason, size_t size);

/* Error: that of pw_check_model or pw_check_device. */
PwStatus pw_part_size(const PwKernels* kernels, PwDevice* device,
                      const PwModel* model, const PwWork* work, PwPart part,
                      PwPartSize* size);

/* Fills at most PW_MAX_TENSORS; returns how many there are. */
int32_t pw_part_tensors(const PwModel* model, PwPart part, PwTensor* tensors);

/* Random weights of a part: fp32 `master`, and `weights` of the model's type
 * where that is not fp32 (else weights may be NULL). Two parts with one seed
 * are equal. */
PwStatus pw_initialize(const PwKernels* kernels, PwDevice* device,
                       PwStream* stream, const PwModel* model, PwPart part,
                       uint64_t seed, float* master, void* weights);

/* Copies of a part's matrices as passes with fp8_linear read them: `quantized`
 * is what they find in PwPartMemory, of PwPartSize.quantized bytes. Nothing to
 * do for a part without any. */
PwStatus pw_quantize_weights(const PwKernels* kernels, PwDevice* device,
                             PwStream* stream, const PwModel* model,
                             PwPart part, const void* weights, void* quantized);

/* R is F again: it fills `saved` and `inputs` anew from `input` and writes
 * `output` too. */
PwStatus pw_forward(const PwKernels* kernels, PwDevice* device,
                    PwStream* stream, const PwModel* model, const PwWork* work,
                    PwPart part, const PwPartMemory* memory);
PwStatus pw_backward_input(const PwKernels* kernels, PwDevice* device,
                           PwStream* stream, const PwModel* model,
                           const PwWork* work, PwPart part,
                           const PwPartMemory* memory);
PwStatus pw_backward_weight(const PwKernels* kernels, PwDevice* device,
                            PwStream* stream, const PwModel* model,
                            const PwWork* work, PwPart part,
                            const PwPartMemory* memory);
/* B and W in one: each linear layer's W right behind its B. Bits are those of
 * B followed by W. */
PwStatus pw_backward_full(const PwKernels* kernels, PwDevice* device,
                          PwStream* stream, const PwModel* model,
                          const PwWork* work, PwPart part,
                          const PwPartMemory* memory);

/* Floating-point operations of the linear layers (2 a multiply-add) and of
 * attention (2 products of matrices in F, 5 in B, which makes the scores again;
 * causal: halved) of one pass, for efficiency in reports. */
typedef enum PwPassKind {
  PW_PASS_F = 0,
  PW_PASS_B = 1,
  PW_PASS_W = 2
} PwPassKind;
void pw_pass_flops(const PwModel* model, const PwWork* work, PwPart part,
                   PwPassKind pass, double* linear, double* attention);
/* Shapes of the GEMMs of one pass; at most 8; returns how many. */
int32_t pw_pass_gemms(const PwModel* model, const PwWork* work, PwPart part,
                      PwPassKind pass, PwGemm* gemms);
/* In how many groups (experts) each of those is computed; 1: a plain one. */
int32_t pw_pass_groups(const PwModel* model, const PwWork* work, PwPart part,
                       PwPassKind pass, int32_t* groups);
/* How many of `rows` each of `groups` experts gets when they are balanced:
 * row i goes to expert i % groups. */
void pw_balanced_rows(int64_t rows, int32_t groups, int64_t* rows_of);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PIPEWRIGHT_KERNELS_LAYER_H_ */
