// Shared by the functions of the CUDA backend: the opaque types of kernels.h,
// error messages, and memory that belongs to a stream. For files of this folder
// only.
#ifndef PIPEWRIGHT_KERNELS_CUDA_DEVICE_H_
#define PIPEWRIGHT_KERNELS_CUDA_DEVICE_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace pipewright::cuda {

class GemmPlans;       // gemm.cc
class GroupedCalls;    // grouped_call.cc
class AttentionPlans;  // sdpa.cc
class Nvml;            // nvml.cc
class Part;            // part.cc

// Device memory that grows and never moves what is queued: a buffer that was
// too small is kept until the device is closed, because a graph or a running
// kernel may still use it.
class Scratch {
 public:
  ~Scratch();
  // At least `bytes`, aligned to 256. Contents do not survive the next call
  // for more. Error: PW_NO_MEMORY.
  PwStatus Get(size_t bytes, void** memory);

 private:
  std::vector<void*> buffers_;
  size_t bytes_ = 0;
};

}  // namespace pipewright::cuda

struct PwStream {
  cudaStream_t stream = nullptr;
  pipewright::cuda::Scratch gemm;       // cuBLASLt's workspace
  pipewright::cuda::Scratch operands;   // transposed fp8 operands
  pipewright::cuda::Scratch reduction;  // first stage of sums over rows
  pipewright::cuda::Scratch pointers;   // to the experts of a grouped GEMM
};

struct PwEvent {
  cudaEvent_t event = nullptr;
};

struct PwGraph {
  cudaGraphExec_t executable = nullptr;
};

struct PwDevice {
  PwDevice();
  ~PwDevice();

  int32_t index = 0;
  // Null: all of the device. Outlives what is in it.
  std::unique_ptr<pipewright::cuda::Part> part;
  std::string name;
  int32_t cores = 0;
  int32_t capability = 0;  // 90 for sm_90
  int64_t cache_bytes = 0;
  int64_t shared_bytes = 0;  // at most, of one block
  int numa_node = -1;        // whose PCIe root it is behind; -1: not known
  bool bound = false;        // the thread that opened it runs on that node
  PwStream own;              // behind a NULL stream
  // Streams that experts of a grouped GEMM are spread over, and the events
  // that fork and join them.
  std::vector<std::unique_ptr<PwStream>> lanes;
  std::vector<cudaEvent_t> lane_events;
  // Streams held by hold_stream wait until hold_flag[0] reaches their number;
  // [1] is not 0 after a hold that ended by its time-out.
  volatile uint32_t* hold_flag = nullptr;  // pinned, mapped
  uint32_t* hold_flag_device = nullptr;
  uint32_t released = 0;
  pipewright::cuda::Scratch flush;
  void* flushed_with = nullptr;  // its memory, once it is all zeros
  std::unique_ptr<pipewright::cuda::GemmPlans> gemm_plans;
  std::unique_ptr<pipewright::cuda::GroupedCalls> grouped_calls;
  std::unique_ptr<pipewright::cuda::AttentionPlans> attention_plans;
  std::unique_ptr<pipewright::cuda::Nvml> nvml;
  std::string implementation;
};

namespace pipewright::cuda {

// The message of this thread's last failure.
const std::string& LastError();

// Keeps the message and gives the status back.
PwStatus Fail(PwStatus status, std::string message);

// PW_OK, or the status for a failed call of the runtime.
PwStatus FromCuda(cudaError_t error, const char* what);

// Makes `device` the calling thread's, and forgets earlier failures.
PwStatus Enter(PwDevice* device);

// The status of a launch; `what` names the kernel.
PwStatus Launched(const char* what);

PwStream* StreamOf(PwDevice* device, PwStream* stream);

// "1 of 2 bytes are free", of the current device's memory.
std::string FreeText();

// Opens lane `index` of a device, with its events.
PwStatus OpenLane(PwDevice* device, size_t index);

}  // namespace pipewright::cuda

// Returns from the calling function when a step does not succeed.
#define PW_RETURN_IF_FAILED(step)               \
  do {                                          \
    const PwStatus pw_status_ = (step);         \
    if (pw_status_ != PW_OK) return pw_status_; \
  } while (false)

#define PW_CUDA(call) \
  PW_RETURN_IF_FAILED(::pipewright::cuda::FromCuda((call), #call))

#endif  // PIPEWRIGHT_KERNELS_CUDA_DEVICE_H_
