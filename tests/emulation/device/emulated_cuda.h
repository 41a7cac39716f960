// What kernels/cuda/launch.cuh includes where .cu files are compiled as C++:
// the words and functions of CUDA that the kernels use, as in the CUDA C++
// programming guide ("C++ Language Extensions"). A block runs at a time, each
// of its threads as a fiber, so that barriers and exchanges really wait.
#ifndef PIPEWRIGHT_TESTS_EMULATION_DEVICE_EMULATED_CUDA_H_
#define PIPEWRIGHT_TESTS_EMULATION_DEVICE_EMULATED_CUDA_H_

#include <cuda_runtime_api.h>
#include <vector_functions.h>
#include <vector_types.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __launch_bounds__
#undef __forceinline__
#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __forceinline__ inline

namespace emulated {

struct Index {
  unsigned x = 0;
  unsigned y = 0;
  unsigned z = 0;
};
// Indices of the thread that runs.
struct Place {
  Index thread;
  Index block;
  Index block_size;
  Index grid_size;
};
extern Place place;
// Does a thread of a kernel run?
extern bool inside;

// What a launch asks for.
struct KernelCall {
  dim3 grid;
  dim3 block;
  size_t dynamic_bytes = 0;  // bytes of shared memory
  const void* kernel = nullptr;
  std::string name;  // file and line of the launch
  std::function<void()> body;
};
// Queues it; what is wrong with it is cudaGetLastError's.
void LaunchKernel(const KernelCall& call, cudaStream_t stream);
// An argument of a launch on the calling thread's device: its memory, mapped
// memory of the host, or null.
void CheckPointer(const std::string& launch, int argument, const void* pointer);

// A grid, and who launches it.
struct Grid {
  template <typename T>
  Grid(const T& given,
       std::source_location from = std::source_location::current())
      : size(static_cast<dim3>(given)), where(from) {}
  dim3 size;
  std::source_location where;
};

template <typename... Parameters, typename... Arguments>
void Launch(void (*kernel)(Parameters...), Grid grid, dim3 block, size_t shared,
            cudaStream_t stream, const Arguments&... arguments) {
  // Arguments are copied when a kernel is launched, not when it runs.
  const std::tuple<std::decay_t<Parameters>...> copies(
      static_cast<Parameters>(arguments)...);
  const std::string file = grid.where.file_name();
  const std::string name = file.substr(file.rfind('/') + 1) + ":" +
                           std::to_string(grid.where.line());
  int argument = 0;
  const auto check = [&](const auto& value) {
    ++argument;
    if constexpr (std::is_pointer_v<std::decay_t<decltype(value)>>) {
      CheckPointer(
          name, argument,
          const_cast<const void*>(static_cast<const volatile void*>(value)));
    }
  };
  std::apply([&](const auto&... values) { (check(values), ...); }, copies);
  LaunchKernel({grid.size, block, shared, reinterpret_cast<const void*>(kernel),
                name, [kernel, copies] { std::apply(kernel, copies); }},
               stream);
}

// Once a block: NaN into what a kernel has as shared memory.
void BeginShared(void* memory, size_t bytes);

// Kernels that do not sleep use the same memory one after the other.
template <typename T, int kNumber = 0>
T& Shared() {
  static T memory;
  BeginShared(&memory, sizeof(memory));
  return memory;
}

float* DynamicShared();
uint64_t GlobalNanoseconds();

// Waits for the block; returns how many of its threads came with `predicate`.
int Barrier(bool predicate);
// Every lane of `mask` leaves a value; gives those of all 32 lanes.
const uint64_t* Exchange(unsigned mask, uint64_t value);
int Lane();
// Others run on; the kernel goes on when it is its turn again.
void Sleep();

template <typename To, typename From>
To BitsAs(From value) {
  static_assert(sizeof(From) <= sizeof(uint64_t) &&
                sizeof(To) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  To result;
  std::memcpy(&result, &bits, sizeof(result));
  return result;
}

}  // namespace emulated

#define threadIdx (::emulated::place.thread)
#define blockIdx (::emulated::place.block)
#define blockDim (::emulated::place.block_size)
#define gridDim (::emulated::place.grid_size)

inline void __syncthreads() { emulated::Barrier(false); }
inline int __syncthreads_count(int predicate) {
  return emulated::Barrier(predicate != 0);
}

template <typename T>
T __shfl_sync(unsigned mask, T value, int from) {
  const uint64_t* all =
      emulated::Exchange(mask, emulated::BitsAs<uint64_t>(value));
  return emulated::BitsAs<T>(all[from & 31]);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int distance) {
  return __shfl_sync(mask, value, emulated::Lane() ^ distance);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  const uint64_t* all = emulated::Exchange(mask, predicate != 0 ? 1 : 0);
  unsigned bits = 0;
  for (int lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1u) != 0 && all[lane] != 0) bits |= 1u << lane;
  }
  return bits;
}

// Bytes 0 to 3 are those of x, 4 to 7 those of y; a digit of `which` chooses
// one (CUDA math API, "Integer Intrinsics").
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned which) {
  const uint64_t both = static_cast<uint64_t>(y) << 32 | x;
  unsigned result = 0;
  for (int byte = 0; byte < 4; ++byte) {
    const unsigned from = which >> (4 * byte) & 7u;
    result |= static_cast<unsigned>(both >> (8 * from) & 0xffu) << (8 * byte);
  }
  return result;
}
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline void __nanosleep(unsigned) { emulated::Sleep(); }
inline void __threadfence_system() {}

// The fast exponential: of a product with log2(e), programming guide,
// "Intrinsic Functions".
inline float __expf(float x) { return std::exp2f(x * 1.4426950408889634f); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline unsigned __float_as_uint(float x) {
  return emulated::BitsAs<unsigned>(x);
}
inline float __uint_as_float(unsigned x) { return emulated::BitsAs<float>(x); }
using std::isfinite;

// One thread runs at a time.
template <typename T>
T atomicAdd(T* at, T value) {
  const T old = *at;
  *at += value;
  return old;
}
template <typename T>
T atomicMax(T* at, T value) {
  const T old = *at;
  if (value > old) *at = value;
  return old;
}

// In C++ the runtime takes addresses only.
template <typename... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...),
                                 cudaFuncAttribute which, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), which,
                              value);
}

#endif  // PIPEWRIGHT_TESTS_EMULATION_DEVICE_EMULATED_CUDA_H_
