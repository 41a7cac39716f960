// Routing of tokens to experts.
#include <algorithm>
#include <vector>

#include "kernels/cpu/device.h"

namespace pipewright {
namespace {

constexpr int32_t kMostExperts = 65535;
constexpr int32_t kMostChosen = 32;

PwStatus Prepare(const char* operation, PwDevice* device, const PwRoute& route,
                 int64_t columns, const TypedLoops** loops) {
  *loops = LoopsFor(operation, device, route.type);
  if (*loops == nullptr) return PW_INVALID;
  if (route.experts > kMostExperts || route.chosen > kMostChosen ||
      route.chosen > route.experts) {
    return Fail(PW_INVALID,
                "%s: %d experts of %d; allowed: 1 to %d of at most %d",
                operation, route.chosen, route.experts,
                std::min(route.experts, kMostChosen), kMostExperts);
  }
  if (route.own < 1 || route.experts % route.own != 0) {
    return Fail(PW_INVALID, "%s: own experts %d do not divide %d", operation,
                route.own, route.experts);
  }
  return CheckSizes(operation, {{"tokens", route.tokens},
                                {"experts", route.experts},
                                {"chosen", route.chosen},
                                {"columns", columns}});
}

PwStatus RouteForward(PwDevice* device, PwStream*, const PwRoute* route,
                      const void* logits, int32_t* ids, float* weights,
                      int32_t* places, int32_t* counts) {
  const TypedLoops* loops;
  const PwStatus status = Prepare("route_forward", device, *route, 1, &loops);
  if (status != PW_OK) return status;
  loops->choose_experts(route, logits, ids, weights);
  const int64_t slots = route->tokens * route->chosen;
  std::fill(counts, counts + route->own, 0);
  for (int64_t slot = 0; slot < slots; ++slot) ++counts[ids[slot] % route->own];
  std::vector<int32_t> next(route->own, 0);
  for (int32_t expert = 1; expert < route->own; ++expert) {
    next[expert] = next[expert - 1] + counts[expert - 1];
  }
  for (int64_t slot = 0; slot < slots; ++slot) {
    places[slot] = next[ids[slot] % route->own]++;
  }
  return PW_OK;
}

PwStatus RouteBackward(PwDevice* device, PwStream*, const PwRoute* route,
                       const int32_t* ids, const float* weights,
                       const float* dweights, void* dlogits) {
  const TypedLoops* loops;
  const PwStatus status = Prepare("route_backward", device, *route, 1, &loops);
  if (status == PW_OK) {
    loops->route_backward(route, ids, weights, dweights, dlogits);
  }
  return status;
}

PwStatus RouteCounts(PwDevice* device, PwStream*, const PwRoute* route,
                     const int32_t* counts, int64_t* tokens_of) {
  const TypedLoops* loops;
  const PwStatus status = Prepare("route_counts", device, *route, 1, &loops);
  if (status == PW_OK) std::copy_n(counts, route->own, tokens_of);
  return status;
}

PwStatus DispatchRows(PwDevice* device, PwStream*, const PwRoute* route,
                      int64_t columns, const void* x, const int32_t* places,
                      void* rows) {
  const TypedLoops* loops;
  const PwStatus status =
      Prepare("dispatch_rows", device, *route, columns, &loops);
  if (status == PW_OK) loops->dispatch_rows(route, columns, x, places, rows);
  return status;
}

PwStatus CombineRows(PwDevice* device, PwStream*, const PwRoute* route,
                     int64_t columns, const void* rows, const int32_t* places,
                     const float* weights, const void* residual, void* y) {
  const TypedLoops* loops;
  const PwStatus status =
      Prepare("combine_rows", device, *route, columns, &loops);
  if (status == PW_OK) {
    loops->combine_rows(route, columns, rows, places, weights, residual, y);
  }
  return status;
}

PwStatus CombineRowsBackward(PwDevice* device, PwStream*, const PwRoute* route,
                             int64_t columns, const void* dy, const void* rows,
                             const int32_t* places, const float* weights,
                             void* drows, float* dweights) {
  const TypedLoops* loops;
  const PwStatus status =
      Prepare("combine_rows_backward", device, *route, columns, &loops);
  if (status == PW_OK) {
    loops->combine_rows_backward(route, columns, dy, rows, places, weights,
                                 drows, dweights);
  }
  return status;
}

}  // namespace

void AddExperts(PwKernels* kernels) {
  kernels->route_forward = RouteForward;
  kernels->route_backward = RouteBackward;
  kernels->route_counts = RouteCounts;
  kernels->dispatch_rows = DispatchRows;
  kernels->combine_rows = CombineRows;
  kernels->combine_rows_backward = CombineRowsBackward;
}

}  // namespace pipewright
