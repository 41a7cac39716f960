// The mathematics of the float64 reference (reference.h): each operation and
// its gradient as a loop over its formula. It takes only the names of shapes
// from kernels/.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/layer.h"

namespace pipewright::reference {

using Values = std::vector<double>;

// c[rows, columns] += a b, with b [inner, columns] and a's element (row, k) at
// a[row * row_stride + k * inner_stride].
void AddProduct(int64_t rows, int64_t inner, int64_t columns, const double* a,
                int64_t row_stride, int64_t inner_stride, const double* b,
                double* c);

// A linear layer y[tokens, outputs] = x[tokens, inputs] w[outputs, inputs]^T +
// bias[outputs] (null: none).
Values Linear(const double* x, const double* w, const double* bias,
              int64_t tokens, int64_t inputs, int64_t outputs);
// Gradient of x. What w and bias (null: none) gain is added to theirs.
Values LinearBackward(const double* x, const double* w, const double* dy,
                      int64_t tokens, int64_t inputs, int64_t outputs,
                      double* dw, double* dbias);

// Layer norm where beta is not null, else RMS norm, of rows of `columns`.
struct Normed {
  Values y;
  Values standard;  // x, shifted and scaled
  Values inverse;   // [rows] what it was scaled by
};
Normed Norm(const Values& x, const double* gamma, const double* beta,
            int64_t columns, double epsilon);
// Gradient of x; dgamma and dbeta (null: RMS) are added to.
Values NormBackward(const Normed& forward, const Values& dy,
                    const double* gamma, int64_t columns, double* dgamma,
                    double* dbeta);

// Rotary positions in the first `heads` heads of each row of x [sequences,
// tokens, stride]; `direction` -1 turns back.
void Rotate(Values* x, int64_t tokens, int64_t stride, int64_t heads,
            int64_t head_dim, double base, int direction);

// Rows of qkv are queries, keys and values side by side.
struct Heads {
  int64_t sequences = 1;
  int64_t tokens = 0;  // in each
  int64_t heads = 1;
  int64_t kv_heads = 1;
  int64_t head_dim = 1;
  bool causal = true;

  int64_t queries() const { return heads * head_dim; }
  int64_t width() const { return (heads + 2 * kv_heads) * head_dim; }
};
Values Attention(const Heads& shape, const Values& qkv);
// Gradient of qkv.
Values AttentionBackward(const Heads& shape, const Values& qkv,
                         const Values& d_out);

// GELU of rows of `columns`, or SwiGLU, whose rows have twice as many in.
Values Activation(PwStyle style, const Values& x, int64_t columns);
Values ActivationBackward(PwStyle style, const Values& x, const Values& dy,
                          int64_t columns);

// Sum of the cross-entropies of the rows, in nats; the logits become the
// gradient of `scale` times it.
double CrossEntropy(const std::vector<int32_t>& targets, double scale,
                    Values* logits);

void AddTo(const Values& from, Values* to);

}  // namespace pipewright::reference
