#include "tests/support/kernel_reference.h"

#include <math.h>

#include <algorithm>

namespace pipewright {

Values RefLinear(const Values& x, const Values& w, const Values& bias,
                 int64_t tokens, int64_t inputs, int64_t outputs) {
  Values y(tokens * outputs);
  for (int64_t token = 0; token < tokens; ++token) {
    for (int64_t output = 0; output < outputs; ++output) {
      double sum = bias.empty() ? 0 : bias[output];
      for (int64_t input = 0; input < inputs; ++input) {
        sum += x[token * inputs + input] * w[output * inputs + input];
      }
      y[token * outputs + output] = sum;
    }
  }
  return y;
}

Values RefLinearInput(const Values& dy, const Values& w, int64_t tokens,
                      int64_t inputs, int64_t outputs) {
  Values dx(tokens * inputs);
  for (int64_t token = 0; token < tokens; ++token) {
    for (int64_t output = 0; output < outputs; ++output) {
      for (int64_t input = 0; input < inputs; ++input) {
        dx[token * inputs + input] +=
            dy[token * outputs + output] * w[output * inputs + input];
      }
    }
  }
  return dx;
}

Values RefLinearWeight(const Values& x, const Values& dy, int64_t tokens,
                       int64_t inputs, int64_t outputs) {
  Values dw(outputs * inputs);
  for (int64_t token = 0; token < tokens; ++token) {
    for (int64_t output = 0; output < outputs; ++output) {
      for (int64_t input = 0; input < inputs; ++input) {
        dw[output * inputs + input] +=
            dy[token * outputs + output] * x[token * inputs + input];
      }
    }
  }
  return dw;
}

Values RefColumnSums(const Values& dy, int64_t rows, int64_t columns) {
  Values sums(columns);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      sums[column] += dy[row * columns + column];
    }
  }
  return sums;
}

namespace {

struct RowStatistics {
  double mean = 0;
  double inverse = 0;
};

RowStatistics Statistics(PwNorm norm, const double* x, int64_t columns,
                         double epsilon) {
  RowStatistics statistics;
  if (norm == PW_LAYER_NORM) {
    for (int64_t column = 0; column < columns; ++column) {
      statistics.mean += x[column] / columns;
    }
  }
  double variance = 0;
  for (int64_t column = 0; column < columns; ++column) {
    variance += pow(x[column] - statistics.mean, 2) / columns;
  }
  statistics.inverse = 1 / sqrt(variance + epsilon);
  return statistics;
}

}  // namespace

Values RefNorm(PwNorm norm, const Values& x, const Values& gamma,
               const Values& beta, double epsilon) {
  const int64_t columns = gamma.size();
  Values y(x.size());
  for (size_t start = 0; start < x.size(); start += columns) {
    const RowStatistics row = Statistics(norm, &x[start], columns, epsilon);
    for (int64_t column = 0; column < columns; ++column) {
      y[start + column] =
          (x[start + column] - row.mean) * row.inverse * gamma[column] +
          (beta.empty() ? 0 : beta[column]);
    }
  }
  return y;
}

RefNormGradients RefNormBackward(PwNorm norm, const Values& dy, const Values& x,
                                 const Values& gamma, double epsilon) {
  const int64_t columns = gamma.size();
  RefNormGradients gradients{Values(x.size()), Values(columns),
                             Values(columns)};
  for (size_t start = 0; start < x.size(); start += columns) {
    const RowStatistics row = Statistics(norm, &x[start], columns, epsilon);
    double sum = 0;
    double product = 0;
    const auto normal = [&](int64_t column) {
      return (x[start + column] - row.mean) * row.inverse;
    };
    for (int64_t column = 0; column < columns; ++column) {
      const double gradient = dy[start + column];
      sum += gradient * gamma[column] / columns;
      product += gradient * gamma[column] * normal(column) / columns;
      gradients.gamma[column] += gradient * normal(column);
      gradients.beta[column] += gradient;
    }
    if (norm == PW_RMS_NORM) sum = 0;
    for (int64_t column = 0; column < columns; ++column) {
      gradients.x[start + column] = (dy[start + column] * gamma[column] - sum -
                                     normal(column) * product) *
                                    row.inverse;
    }
  }
  return gradients;
}

namespace {

// Calls visit(query row, key row, score row offset, key) for each pair that
// attention sees.
template <typename Visit>
void ForPairs(const PwAttention& shape, Visit visit) {
  const int64_t group = shape.heads / shape.kv_heads;
  for (int64_t batch = 0; batch < shape.batch; ++batch) {
    for (int64_t head = 0; head < shape.heads; ++head) {
      for (int64_t query = 0; query < shape.queries; ++query) {
        const int64_t seen =
            shape.causal ? shape.keys - shape.queries + query + 1 : shape.keys;
        for (int64_t key = 0; key < seen; ++key) {
          visit(((batch * shape.queries + query) * shape.heads + head) *
                    shape.head_dim,
                ((batch * shape.keys + key) * shape.kv_heads + head / group) *
                    shape.head_dim,
                (batch * shape.heads + head) * shape.queries + query, key);
        }
      }
    }
  }
}

double Dot(const Values& a, int64_t a_start, const Values& b, int64_t b_start,
           int64_t count) {
  double sum = 0;
  for (int64_t index = 0; index < count; ++index) {
    sum += a[a_start + index] * b[b_start + index];
  }
  return sum;
}

}  // namespace

RefAttention RefAttentionForward(const PwAttention& shape, const Values& q,
                                 const Values& k, const Values& v) {
  RefAttention result{Values(q.size()),
                      Values(shape.batch * shape.heads * shape.queries)};
  const double scale = shape.scale;
  ForPairs(shape, [&](int64_t query, int64_t key, int64_t row, int64_t) {
    result.lse[row] += exp(scale * Dot(q, query, k, key, shape.head_dim));
  });
  for (double& sum : result.lse) sum = log(sum);
  ForPairs(shape, [&](int64_t query, int64_t key, int64_t row, int64_t) {
    const double probability =
        exp(scale * Dot(q, query, k, key, shape.head_dim) - result.lse[row]);
    for (int64_t index = 0; index < shape.head_dim; ++index) {
      result.o[query + index] += probability * v[key + index];
    }
  });
  return result;
}

RefAttentionGradients RefAttentionBackward(const PwAttention& shape,
                                           const Values& q, const Values& k,
                                           const Values& v, const Values& d_o) {
  const RefAttention forward = RefAttentionForward(shape, q, k, v);
  RefAttentionGradients gradients{Values(q.size()), Values(k.size()),
                                  Values(v.size())};
  const double scale = shape.scale;
  const int64_t dim = shape.head_dim;
  ForPairs(shape, [&](int64_t query, int64_t key, int64_t row, int64_t) {
    const double probability =
        exp(scale * Dot(q, query, k, key, dim) - forward.lse[row]);
    const double score =
        probability * scale *
        (Dot(d_o, query, v, key, dim) - Dot(d_o, query, forward.o, query, dim));
    for (int64_t index = 0; index < dim; ++index) {
      gradients.v[key + index] += probability * d_o[query + index];
      gradients.q[query + index] += score * k[key + index];
      gradients.k[key + index] += score * q[query + index];
    }
  });
  return gradients;
}

Values RefRotary(Values x, int64_t batch, int64_t tokens, int64_t heads,
                 int64_t head_dim, int64_t stride, int64_t first, double base,
                 bool inverse) {
  const int64_t half = head_dim / 2;
  for (int64_t row = 0; row < batch * tokens; ++row) {
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t index = 0; index < half; ++index) {
        const double position = first + row % tokens;
        const double angle = (inverse ? -position : position) *
                             pow(base, -2.0 * index / head_dim);
        double& low = x[row * stride + head * head_dim + index];
        double& high = x[row * stride + head * head_dim + index + half];
        const double old_low = low;
        const double old_high = high;
        low = old_low * cos(angle) - old_high * sin(angle);
        high = old_high * cos(angle) + old_low * sin(angle);
      }
    }
  }
  return x;
}

namespace {

double Gelu(double x) {
  return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

double GeluSlope(double x) {
  const double inner = tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + inner) + 0.5 * x * (1 - inner * inner) * sqrt(2 / M_PI) *
                                 (1 + 3 * 0.044715 * x * x);
}

double Silu(double x) { return x / (1 + exp(-x)); }

double SiluSlope(double x) {
  const double sigmoid = 1 / (1 + exp(-x));
  return sigmoid * (1 + x * (1 - sigmoid));
}

}  // namespace

Values RefActivation(PwActivation activation, const Values& x, int64_t rows,
                     int64_t columns) {
  Values y(rows * columns);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t index = row * columns + column;
      const int64_t gate = 2 * row * columns + column;
      y[index] = activation == PW_GELU ? Gelu(x[index])
                                       : Silu(x[gate]) * x[gate + columns];
    }
  }
  return y;
}

Values RefActivationBackward(PwActivation activation, const Values& x,
                             const Values& dy, int64_t rows, int64_t columns) {
  Values dx(x.size());
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t index = row * columns + column;
      const int64_t gate = 2 * row * columns + column;
      if (activation == PW_GELU) {
        dx[index] = dy[index] * GeluSlope(x[index]);
      } else {
        dx[gate] = dy[index] * x[gate + columns] * SiluSlope(x[gate]);
        dx[gate + columns] = dy[index] * Silu(x[gate]);
      }
    }
  }
  return dx;
}

Values RefCrossEntropy(const Values& logits,
                       const std::vector<int32_t>& targets, Values* lse) {
  const int64_t vocabulary = logits.size() / targets.size();
  Values losses(targets.size());
  if (lse != nullptr) lse->assign(targets.size(), 0);
  for (size_t token = 0; token < targets.size(); ++token) {
    const double* row = &logits[token * vocabulary];
    const double top = *std::max_element(row, row + vocabulary);
    double sum = 0;
    for (int64_t word = 0; word < vocabulary; ++word) {
      sum += exp(row[word] - top);
    }
    losses[token] = top + log(sum) - row[targets[token]];
    if (lse != nullptr) (*lse)[token] = top + log(sum);
  }
  return losses;
}

Values RefCrossEntropyBackward(const Values& logits,
                               const std::vector<int32_t>& targets,
                               double scale) {
  Values lse;
  RefCrossEntropy(logits, targets, &lse);
  const int64_t vocabulary = logits.size() / targets.size();
  Values gradients(logits.size());
  for (size_t index = 0; index < logits.size(); ++index) {
    const int64_t token = index / vocabulary;
    const bool aim = static_cast<int64_t>(index % vocabulary) == targets[token];
    gradients[index] = scale * (exp(logits[index] - lse[token]) - aim);
  }
  return gradients;
}

}  // namespace pipewright
