// What the libraries that stand in for cuBLAS, cuDNN and the driver use of the
// runtime that stands in for CUDA's.
#ifndef PIPEWRIGHT_TESTS_EMULATION_RUNTIME_QUEUE_H_
#define PIPEWRIGHT_TESTS_EMULATION_RUNTIME_QUEUE_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>

namespace emulated {

// Queues work of `seconds` of the device's time. `step` gives true when it is
// done, false while it cannot go on (a peer has not come); it may be called
// again for the next launch of a graph.
void Queue(cudaStream_t stream, const char* name, double seconds,
           std::function<bool()> step);

// Work in which others take part, also where time alone passes
// (EMULATION_CLOCK_ONLY). `step` gets the time at which this stream came to it;
// `met` gives the time at which the last one did.
void QueueMeeting(cudaStream_t stream, const char* name, double seconds,
                  std::function<bool(double now_s)> step,
                  std::function<double()> met);
int DeviceOf(cudaStream_t stream);

enum class Kind { kPageable, kPinned, kDevice };

// What kind of memory is at an address, and how much of it is left from there
// on (0 of pageable memory); `device` may be null.
Kind KindOf(const void* address, size_t* left, int* device = nullptr);

// Says that something would go wrong on a GPU: the process ends with 99 at its
// end, whatever else it finds.
__attribute__((format(printf, 1, 2))) void Violation(const char* format, ...);

// The calling thread's device.
int CurrentDevice();
cudaError_t MakeCurrent(int device);
bool Capturing(cudaStream_t stream);
// Multiprocessors of each device.
int Cores();
int Devices();

}  // namespace emulated

#endif  // PIPEWRIGHT_TESTS_EMULATION_RUNTIME_QUEUE_H_
