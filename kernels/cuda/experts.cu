// Routing of tokens to experts. A warp chooses for a token; places are found
// by counting, in an order that does not depend on how blocks run.
#include <algorithm>
#include <string>
#include <vector>

#include "kernels/cuda/functions.h"
#include "kernels/cuda/vector.cuh"
#include "kernels/random.h"

namespace pipewright::cuda {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kAll = 0xffffffffu;

// The next expert behind (`value`, `expert`), -1 for none yet; the same in
// every lane.
template <typename T>
__device__ inline int32_t NextExpert(const T* logits, int32_t experts,
                                     float value, int32_t expert,
                                     float* found) {
  int32_t best = -1;
  float best_logit = 0;
  for (int32_t one = static_cast<int32_t>(threadIdx.x) % kWarp; one < experts;
       one += kWarp) {
    const float logit = ToFloat(logits[one]);
    if (expert >= 0 && !pw_route_before(value, expert, logit, one)) continue;
    if (best >= 0 && !pw_route_before(logit, one, best_logit, best)) continue;
    best = one;
    best_logit = logit;
  }
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const int32_t other = __shfl_xor_sync(kAll, best, distance);
    const float other_logit = __shfl_xor_sync(kAll, best_logit, distance);
    if (other < 0) continue;
    if (best < 0 || pw_route_before(other_logit, other, best_logit, best)) {
      best = other;
      best_logit = other_logit;
    }
  }
  *found = best_logit;
  return best;
}

// Lane i keeps what becomes the weight of slot i.
template <typename T>
__global__ void ChooseKernel(const PwRoute route, const T* logits, int32_t* ids,
                             float* weights) {
  const int64_t token =
      (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
  if (token >= route.tokens) return;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % kWarp;
  const T* row = logits + token * route.experts;
  int32_t own = -1;
  float logit = -INFINITY;
  if (route.balanced != 0) {
    if (lane < route.chosen) {
      own = static_cast<int32_t>((token * route.chosen + lane) % route.experts);
      logit = ToFloat(row[own]);
    }
  } else {
    int32_t last = -1;
    float last_logit = 0;
    for (int32_t slot = 0; slot < route.chosen; ++slot) {
      float found = 0;
      last = NextExpert(row, route.experts, last_logit, last, &found);
      last_logit = found;
      if (lane == slot) {
        own = last;
        logit = found;
      }
    }
  }
  const float largest = WarpReduce(logit, Max());
  const float power = lane < route.chosen ? expf(logit - largest) : 0.0f;
  const float sum = WarpReduce(power, Sum());
  if (lane >= route.chosen) return;
  ids[token * route.chosen + lane] = own;
  weights[token * route.chosen + lane] = power / sum;
}

// One block an own expert.
__global__ void CountKernel(const int32_t* ids, int64_t slots, int32_t own,
                            int32_t* counts) {
  const int32_t expert = static_cast<int32_t>(blockIdx.x);
  int32_t count = 0;
  for (int64_t first = 0; first < slots; first += blockDim.x) {
    const int64_t slot = first + threadIdx.x;
    count +=
        __syncthreads_count(slot < slots && ids[slot] % own == expert ? 1 : 0);
  }
  if (threadIdx.x == 0) counts[expert] = count;
}

// One block an own expert: its slots in order, behind those of the experts
// before it.
__global__ void PlaceKernel(const int32_t* ids, int64_t slots, int32_t own,
                            const int32_t* counts, int32_t* places) {
  auto& before = Shared<int32_t[kThreads / kWarp]>();
  const int32_t expert = static_cast<int32_t>(blockIdx.x);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  int32_t next = 0;
  for (int32_t other = 0; other < expert; ++other) next += counts[other];
  for (int64_t first = 0; first < slots; first += kThreads) {
    const int64_t slot = first + threadIdx.x;
    const bool is_own = slot < slots && ids[slot] % own == expert;
    const unsigned lanes = __ballot_sync(kAll, is_own);
    if (lane == 0) before[warp] = __popc(lanes);
    __syncthreads();
    int32_t place = next + __popc(lanes & ((1u << lane) - 1u));
    for (int other = 0; other < kThreads / kWarp; ++other) {
      if (other < warp) place += before[other];
      next += before[other];
    }
    if (is_own) places[slot] = place;
    __syncthreads();
  }
}

// A warp a token.
template <typename T>
__global__ void RouteBackwardKernel(const PwRoute route, const int32_t* ids,
                                    const float* weights, const float* dweights,
                                    T* dlogits) {
  const int64_t token =
      (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
  if (token >= route.tokens) return;
  const int64_t first = token * route.chosen;
  float mean = 0;
  for (int32_t slot = 0; slot < route.chosen; ++slot) {
    mean += weights[first + slot] * dweights[first + slot];
  }
  for (int32_t expert = static_cast<int32_t>(threadIdx.x) % kWarp;
       expert < route.experts; expert += kWarp) {
    float gradient = 0;
    for (int32_t slot = 0; slot < route.chosen; ++slot) {
      if (ids[first + slot] != expert) continue;
      gradient = weights[first + slot] * (dweights[first + slot] - mean);
    }
    dlogits[token * route.experts + expert] = FromFloat<T>(gradient);
  }
}

int64_t SlotsOf(const PwRoute& route) { return route.tokens * route.chosen; }

}  // namespace

PwStatus CheckRoute(const char* operation, const PwRoute& route,
                    int64_t columns) {
  if (route.tokens < 1 || route.experts < 1 || route.experts > 65535 ||
      route.chosen < 1 || route.chosen > std::min(route.experts, kWarp) ||
      route.own < 1 || route.experts % route.own != 0 || columns < 1) {
    return Fail(PW_INVALID, std::string(operation) + ": tokens " +
                                std::to_string(route.tokens) + ", experts " +
                                std::to_string(route.experts) + ", chosen " +
                                std::to_string(route.chosen) + ", own " +
                                std::to_string(route.own) + ", columns " +
                                std::to_string(columns));
  }
  return PW_OK;
}

PwStatus RouteForward(PwDevice* device, PwStream* stream, const PwRoute* route,
                      const void* logits, int32_t* ids, float* weights,
                      int32_t* places, int32_t* counts) {
  PW_RETURN_IF_FAILED(Enter(device));
  PW_RETURN_IF_FAILED(CheckRoute("route_forward", *route, 1));
  const cudaStream_t queue = StreamOf(device, stream)->stream;
  PW_RETURN_IF_FAILED(Dispatch(route->type, {1}, {}, [&](auto shape) {
    using T = typename decltype(shape)::Type;
    Launch(ChooseKernel<T>, BlocksFor(route->tokens * kWarp, kThreads),
           kThreads, 0, queue, *route, static_cast<const T*>(logits), ids,
           weights);
  }));
  const unsigned own = static_cast<unsigned>(route->own);
  Launch(CountKernel, own, kThreads, 0, queue, ids, SlotsOf(*route), route->own,
         counts);
  Launch(PlaceKernel, own, kThreads, 0, queue, ids, SlotsOf(*route), route->own,
         counts, places);
  return Launched("route_forward");
}

PwStatus RouteBackward(PwDevice* device, PwStream* stream, const PwRoute* route,
                       const int32_t* ids, const float* weights,
                       const float* dweights, void* dlogits) {
  PW_RETURN_IF_FAILED(Enter(device));
  PW_RETURN_IF_FAILED(CheckRoute("route_backward", *route, 1));
  const cudaStream_t queue = StreamOf(device, stream)->stream;
  PW_RETURN_IF_FAILED(Dispatch(route->type, {1}, {}, [&](auto shape) {
    using T = typename decltype(shape)::Type;
    Launch(RouteBackwardKernel<T>, BlocksFor(route->tokens * kWarp, kThreads),
           kThreads, 0, queue, *route, ids, weights, dweights,
           static_cast<T*>(dlogits));
  }));
  return Launched("route_backward");
}

PwStatus RouteCounts(PwDevice* device, PwStream* stream, const PwRoute* route,
                     const int32_t* counts, int64_t* tokens_of) {
  PW_RETURN_IF_FAILED(Enter(device));
  PW_RETURN_IF_FAILED(CheckRoute("route_counts", *route, 1));
  const cudaStream_t queue = StreamOf(device, stream)->stream;
  std::vector<int32_t> host(static_cast<size_t>(route->own));
  PW_CUDA(cudaMemcpyAsync(host.data(), counts, host.size() * sizeof(int32_t),
                          cudaMemcpyDeviceToHost, queue));
  PW_CUDA(cudaStreamSynchronize(queue));
  std::copy(host.begin(), host.end(), tokens_of);
  return PW_OK;
}

}  // namespace pipewright::cuda
