/* The order in which experts are chosen, the same on every backend. */
#ifndef PIPEWRIGHT_KERNELS_ROUTE_ORDER_H_
#define PIPEWRIGHT_KERNELS_ROUTE_ORDER_H_

#include <stdint.h>

#include "kernels/random.h"

/* Is expert `a` with the logit `x` chosen before `b` with `y`? The larger
 * first, of equals the first; NaNs last, so that there is always a choice. */
PW_BOTH int32_t pw_route_before(float x, int32_t a, float y, int32_t b) {
  const int32_t x_is_none = x != x;
  const int32_t y_is_none = y != y;
  if (x_is_none != y_is_none) return y_is_none;
  if (!x_is_none && x != y) return x > y;
  return a < b;
}

#endif /* PIPEWRIGHT_KERNELS_ROUTE_ORDER_H_ */
