#include "execute/train/reference_math.h"

#include <algorithm>
#include <cmath>

namespace pipewright::reference {
namespace {

int64_t RowsOf(const Values& values, int64_t columns) {
  return static_cast<int64_t>(values.size()) / columns;
}

// sqrt(2 / pi) and the cubic term of GELU's tanh form (arXiv 1606.08415).
const double kGeluScale = std::sqrt(2 / std::acos(-1.0));
constexpr double kGeluCubic = 0.044715;

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

void AddTo(const Values& from, Values* to) {
  for (size_t index = 0; index < from.size(); ++index) {
    (*to)[index] += from[index];
  }
}

Values Linear(const double* x, const double* w, const double* bias,
              int64_t tokens, int64_t inputs, int64_t outputs) {
  Values turned(inputs * outputs);
  for (int64_t output = 0; output < outputs; ++output) {
    for (int64_t input = 0; input < inputs; ++input) {
      turned[input * outputs + output] = w[output * inputs + input];
    }
  }
  Values y(tokens * outputs);
  if (bias != nullptr) {
    for (int64_t token = 0; token < tokens; ++token) {
      std::copy_n(bias, outputs, y.begin() + token * outputs);
    }
  }
  AddProduct(tokens, inputs, outputs, x, inputs, 1, turned.data(), y.data());
  return y;
}

Values LinearBackward(const double* x, const double* w, const double* dy,
                      int64_t tokens, int64_t inputs, int64_t outputs,
                      double* dw, double* dbias) {
  AddProduct(outputs, tokens, inputs, dy, 1, outputs, x, dw);
  for (int64_t token = 0; dbias != nullptr && token < tokens; ++token) {
    for (int64_t output = 0; output < outputs; ++output) {
      dbias[output] += dy[token * outputs + output];
    }
  }
  Values dx(tokens * inputs);
  AddProduct(tokens, outputs, inputs, dy, outputs, 1, w, dx.data());
  return dx;
}

Normed Norm(const Values& x, const double* gamma, const double* beta,
            int64_t columns, double epsilon) {
  Normed out;
  out.y.resize(x.size());
  out.standard.resize(x.size());
  const auto size = static_cast<double>(columns);
  for (int64_t row = 0; row < RowsOf(x, columns); ++row) {
    const double* const in = x.data() + row * columns;
    double mean = 0;
    if (beta != nullptr) {
      for (int64_t column = 0; column < columns; ++column) mean += in[column];
      mean /= size;
    }
    double squares = 0;
    for (int64_t column = 0; column < columns; ++column) {
      squares += (in[column] - mean) * (in[column] - mean);
    }
    const double inverse = 1 / std::sqrt(squares / size + epsilon);
    out.inverse.push_back(inverse);
    for (int64_t column = 0; column < columns; ++column) {
      const double standard = (in[column] - mean) * inverse;
      out.standard[row * columns + column] = standard;
      out.y[row * columns + column] =
          standard * gamma[column] + (beta == nullptr ? 0 : beta[column]);
    }
  }
  return out;
}

// With s = (x - mean) / d and g the gradient of s: dx = (g - mean(g) - s
// mean(g s)) / d, as moving x moves mean and d too; an RMS norm has no mean.
Values NormBackward(const Normed& forward, const Values& dy,
                    const double* gamma, int64_t columns, double* dgamma,
                    double* dbeta) {
  Values dx(dy.size());
  const auto size = static_cast<double>(columns);
  for (int64_t row = 0; row < RowsOf(dy, columns); ++row) {
    const double* const s = forward.standard.data() + row * columns;
    const double* const out = dy.data() + row * columns;
    double mean = 0;
    double along = 0;
    for (int64_t column = 0; column < columns; ++column) {
      dgamma[column] += out[column] * s[column];
      if (dbeta != nullptr) dbeta[column] += out[column];
      mean += out[column] * gamma[column] / size;
      along += out[column] * gamma[column] * s[column] / size;
    }
    if (dbeta == nullptr) mean = 0;
    for (int64_t column = 0; column < columns; ++column) {
      dx[row * columns + column] =
          forward.inverse[row] *
          (out[column] * gamma[column] - mean - s[column] * along);
    }
  }
  return dx;
}

void Rotate(Values* x, int64_t tokens, int64_t stride, int64_t heads,
            int64_t head_dim, double base, int direction) {
  const int64_t half = head_dim / 2;
  for (int64_t row = 0; row < RowsOf(*x, stride); ++row) {
    const auto place = static_cast<double>(row % tokens);
    for (int64_t pair = 0; pair < half; ++pair) {
      const double exponent =
          -2 * static_cast<double>(pair) / static_cast<double>(head_dim);
      const double angle = direction * place * std::pow(base, exponent);
      for (int64_t head = 0; head < heads; ++head) {
        double* const at = x->data() + row * stride + head * head_dim + pair;
        const double first = at[0];
        const double second = at[half];
        at[0] = first * std::cos(angle) - second * std::sin(angle);
        at[half] = second * std::cos(angle) + first * std::sin(angle);
      }
    }
  }
}

namespace {

// Where in the rows of qkv a head of a sequence has what.
struct Place {
  int64_t first;  // first token of the sequence
  int64_t query, key, value;
};

Place PlaceOf(const Heads& shape, int64_t sequence, int64_t head) {
  const int64_t shared = head / (shape.heads / shape.kv_heads);
  const int64_t key = shape.queries() + shared * shape.head_dim;
  return {.first = sequence * shape.tokens,
          .query = head * shape.head_dim,
          .key = key,
          .value = key + shape.kv_heads * shape.head_dim};
}

// [tokens, head_dim] of rows of `stride`, and back, added.
Values Take(const Heads& shape, const Values& rows, int64_t stride,
            int64_t first, int64_t column) {
  Values part;
  for (int64_t token = 0; token < shape.tokens; ++token) {
    const double* const from = rows.data() + (first + token) * stride + column;
    part.insert(part.end(), from, from + shape.head_dim);
  }
  return part;
}
void Put(const Heads& shape, const Values& part, int64_t stride, int64_t first,
         int64_t column, Values* rows) {
  for (int64_t token = 0; token < shape.tokens; ++token) {
    for (int64_t dim = 0; dim < shape.head_dim; ++dim) {
      (*rows)[(first + token) * stride + column + dim] +=
          part[token * shape.head_dim + dim];
    }
  }
}

double ScaleOf(const Heads& shape) {
  return 1 / std::sqrt(static_cast<double>(shape.head_dim));
}

// Softmax over the keys that each query sees, [tokens, tokens]; 0 elsewhere.
Values Weights(const Heads& shape, const Values& q, const Values& k) {
  const int64_t tokens = shape.tokens;
  Values weights =
      Linear(q.data(), k.data(), nullptr, tokens, shape.head_dim, tokens);
  for (int64_t query = 0; query < tokens; ++query) {
    double* const row = weights.data() + query * tokens;
    const int64_t seen = shape.causal ? query + 1 : tokens;
    const double largest = *std::max_element(row, row + seen);
    double sum = 0;
    for (int64_t key = 0; key < seen; ++key) {
      row[key] = std::exp((row[key] - largest) * ScaleOf(shape));
      sum += row[key];
    }
    for (int64_t key = 0; key < seen; ++key) row[key] /= sum;
    std::fill(row + seen, row + tokens, 0.0);
  }
  return weights;
}

}  // namespace

Values Attention(const Heads& shape, const Values& qkv) {
  Values out(shape.sequences * shape.tokens * shape.queries());
  for (int64_t at = 0; at < shape.sequences * shape.heads; ++at) {
    const Place place = PlaceOf(shape, at / shape.heads, at % shape.heads);
    const auto take = [&](int64_t column) {
      return Take(shape, qkv, shape.width(), place.first, column);
    };
    const Values weights = Weights(shape, take(place.query), take(place.key));
    Values each(shape.tokens * shape.head_dim);
    AddProduct(shape.tokens, shape.tokens, shape.head_dim, weights.data(),
               shape.tokens, 1, take(place.value).data(), each.data());
    Put(shape, each, shape.queries(), place.first, place.query, &out);
  }
  return out;
}

// With weights w = softmax(s) and g their gradient: ds = w (g - sum(w g)).
Values AttentionBackward(const Heads& shape, const Values& qkv,
                         const Values& d_out) {
  const int64_t tokens = shape.tokens;
  const int64_t dim = shape.head_dim;
  Values gradient(qkv.size());
  for (int64_t at = 0; at < shape.sequences * shape.heads; ++at) {
    const Place place = PlaceOf(shape, at / shape.heads, at % shape.heads);
    const auto take = [&](int64_t column) {
      return Take(shape, qkv, shape.width(), place.first, column);
    };
    const auto put = [&](const Values& part, int64_t column) {
      Put(shape, part, shape.width(), place.first, column, &gradient);
    };
    const Values q = take(place.query);
    const Values k = take(place.key);
    const Values out =
        Take(shape, d_out, shape.queries(), place.first, place.query);
    const Values weights = Weights(shape, q, k);
    Values slopes = Linear(out.data(), take(place.value).data(), nullptr,
                           tokens, dim, tokens);
    for (int64_t query = 0; query < tokens; ++query) {
      const double* const weight = weights.data() + query * tokens;
      double* const slope = slopes.data() + query * tokens;
      double mean = 0;
      for (int64_t key = 0; key < tokens; ++key) {
        mean += weight[key] * slope[key];
      }
      for (int64_t key = 0; key < tokens; ++key) {
        slope[key] = weight[key] * (slope[key] - mean) * ScaleOf(shape);
      }
    }
    Values dq(tokens * dim);
    Values dk(tokens * dim);
    Values dv(tokens * dim);
    AddProduct(tokens, tokens, dim, slopes.data(), tokens, 1, k.data(),
               dq.data());
    AddProduct(tokens, tokens, dim, slopes.data(), 1, tokens, q.data(),
               dk.data());
    AddProduct(tokens, tokens, dim, weights.data(), 1, tokens, out.data(),
               dv.data());
    put(dq, place.query);
    put(dk, place.key);
    put(dv, place.value);
  }
  return gradient;
}

Values Activation(PwStyle style, const Values& x, int64_t columns) {
  if (style == PW_GPT) {
    Values y(x.size());
    for (size_t index = 0; index < x.size(); ++index) {
      const double in = x[index];
      y[index] = in / 2 *
                 (1 + std::tanh(kGeluScale * (in + kGeluCubic * in * in * in)));
    }
    return y;
  }
  Values y(x.size() / 2);
  for (size_t index = 0; index < y.size(); ++index) {
    const auto at = static_cast<int64_t>(index);
    const double* const gate = x.data() + at / columns * 2 * columns;
    const double in = gate[at % columns];
    y[index] = in * Sigmoid(in) * gate[columns + at % columns];
  }
  return y;
}

Values ActivationBackward(PwStyle style, const Values& x, const Values& dy,
                          int64_t columns) {
  Values dx(x.size());
  if (style == PW_GPT) {
    for (size_t index = 0; index < x.size(); ++index) {
      const double in = x[index];
      const double turned =
          std::tanh(kGeluScale * (in + kGeluCubic * in * in * in));
      const double slope = kGeluScale * (1 + 3 * kGeluCubic * in * in);
      dx[index] = dy[index] *
                  ((1 + turned) / 2 + in / 2 * (1 - turned * turned) * slope);
    }
    return dx;
  }
  for (size_t index = 0; index < dy.size(); ++index) {
    const auto at = static_cast<int64_t>(index);
    const int64_t gate = at / columns * 2 * columns + at % columns;
    const double in = x[gate];
    const double open = Sigmoid(in);
    dx[gate] = dy[index] * x[gate + columns] * (open + in * open * (1 - open));
    dx[gate + columns] = dy[index] * in * open;
  }
  return dx;
}

double CrossEntropy(const std::vector<int32_t>& targets, double scale,
                    Values* logits) {
  const auto columns = static_cast<int64_t>(logits->size() / targets.size());
  double loss = 0;
  for (size_t row = 0; row < targets.size(); ++row) {
    double* const at = logits->data() + static_cast<int64_t>(row) * columns;
    const double largest = *std::max_element(at, at + columns);
    double sum = 0;
    for (int64_t column = 0; column < columns; ++column) {
      sum += std::exp(at[column] - largest);
    }
    loss += largest + std::log(sum) - at[targets[row]];
    for (int64_t column = 0; column < columns; ++column) {
      at[column] = scale * std::exp(at[column] - largest) / sum;
    }
    at[targets[row]] -= scale;
  }
  return loss;
}

}  // namespace pipewright::reference
