// The one loop of the reference in which time goes by: four rows and eight
// columns at once, in registers.
#include "execute/train/reference_math.h"

namespace pipewright::reference {
namespace {

constexpr int kRows = 4;
constexpr int kColumns = 8;

// Two of these are a block's columns. Rows begin anywhere.
typedef double Lanes __attribute__((vector_size(32), aligned(8), may_alias));

struct Factors {
  int64_t rows, inner, columns;
  const double* a;
  int64_t row_stride, inner_stride;
  const double* b;
  double* c;
};

// Sanitizers would look at every load of what is checked in AddProduct.
#define PW_REFERENCE_LOOP \
  inline __attribute__((always_inline, no_sanitize("address", "undefined")))

PW_REFERENCE_LOOP void AddElement(const Factors& f, int64_t row,
                                  int64_t column) {
  double sum = 0;
  for (int64_t k = 0; k < f.inner; ++k) {
    sum += f.a[row * f.row_stride + k * f.inner_stride] *
           f.b[k * f.columns + column];
  }
  f.c[row * f.columns + column] += sum;
}

PW_REFERENCE_LOOP void AddBlock(const Factors& f, int64_t row, int64_t column) {
  Lanes sums[kRows][2] = {};
  for (int64_t k = 0; k < f.inner; ++k) {
    const double* const b = f.b + k * f.columns + column;
    const Lanes left = *reinterpret_cast<const Lanes*>(b);
    const Lanes right = *reinterpret_cast<const Lanes*>(b + kColumns / 2);
    const double* const a = f.a + row * f.row_stride + k * f.inner_stride;
    for (int of = 0; of < kRows; ++of) {
      const double value = a[of * f.row_stride];
      sums[of][0] += value * left;
      sums[of][1] += value * right;
    }
  }
  for (int of = 0; of < kRows; ++of) {
    double* const c = f.c + (row + of) * f.columns + column;
    *reinterpret_cast<Lanes*>(c) += sums[of][0];
    *reinterpret_cast<Lanes*>(c + kColumns / 2) += sums[of][1];
  }
}

PW_REFERENCE_LOOP void AddAll(const Factors& f) {
  const int64_t rows = f.rows / kRows * kRows;
  const int64_t columns = f.columns / kColumns * kColumns;
  for (int64_t column = 0; column < columns; column += kColumns) {
    for (int64_t row = 0; row < rows; row += kRows) AddBlock(f, row, column);
  }
  for (int64_t row = 0; row < f.rows; ++row) {
    const int64_t from = row < rows ? columns : 0;
    for (int64_t column = from; column < f.columns; ++column) {
      AddElement(f, row, column);
    }
  }
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"), no_sanitize("address", "undefined"))) void
AddAllAvx2(const Factors& factors) {
  AddAll(factors);
}
#endif

__attribute__((no_sanitize("address", "undefined"))) void AddAllPlain(
    const Factors& factors) {
  AddAll(factors);
}

}  // namespace

void AddProduct(int64_t rows, int64_t inner, int64_t columns, const double* a,
                int64_t row_stride, int64_t inner_stride, const double* b,
                double* c) {
  const Factors factors = {rows,       inner,        columns, a,
                           row_stride, inner_stride, b,       c};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    AddAllAvx2(factors);
    return;
  }
#endif
  AddAllPlain(factors);
}

}  // namespace pipewright::reference
