// Products of experts with tokens of their own, a cuBLASLt product each.
#include <algorithm>
#include <numeric>
#include <string>

#include "kernels/cuda/functions.h"
#include "kernels/cuda/gemm.h"

namespace pipewright::cuda {
namespace {

// Experts run side by side on this many streams.
constexpr size_t kLanes = 4;

int64_t InputBytes(PwType type) {
  if (type == PW_FP32) return 4;
  return type == PW_FP8 ? 1 : 2;
}

}  // namespace

PwStatus GroupedGemm(PwDevice* device, PwStream* stream, const PwGemm* gemm,
                     int32_t groups, const int64_t* tokens_of, const void* a,
                     const void* b, void* c) {
  PW_RETURN_IF_FAILED(Enter(device));
  const int64_t total =
      std::accumulate(tokens_of, tokens_of + groups, int64_t{0});
  if (total != gemm->tokens) {
    return Fail(PW_INVALID, "grouped_gemm: the experts have " +
                                std::to_string(total) + " tokens, not " +
                                std::to_string(gemm->tokens));
  }
  PwStream* on = StreamOf(device, stream);
  const size_t lanes =
      std::min(kLanes, static_cast<size_t>(std::max(groups, 1)));
  PW_RETURN_IF_FAILED(OpenLane(device, lanes - 1));
  PW_CUDA(cudaEventRecord(device->lane_events[0], on->stream));
  for (size_t lane = 0; lane < lanes; ++lane) {
    PW_CUDA(cudaStreamWaitEvent(device->lanes[lane]->stream,
                                device->lane_events[0], 0));
  }
  const int64_t input_bytes = InputBytes(gemm->type);
  const int64_t output_bytes =
      gemm->pass == PW_GEMM_BACKWARD_WEIGHT || gemm->type == PW_FP32 ? 4 : 2;
  const bool weights = gemm->pass == PW_GEMM_BACKWARD_WEIGHT;
  const bool forward = gemm->pass == PW_GEMM_FORWARD;
  const uint8_t* first = static_cast<const uint8_t*>(a);
  const uint8_t* second = static_cast<const uint8_t*>(b);
  uint8_t* result = static_cast<uint8_t*>(c);
  const int64_t matrix = gemm->inputs * gemm->outputs;
  PwStatus status = PW_OK;
  for (int32_t group = 0; group < groups && status == PW_OK; ++group) {
    PwGemm one = *gemm;
    one.tokens = tokens_of[group];
    status = CheckGemm(device, one);
    if (status == PW_OK && one.tokens > 0) {
      PwStream* lane = device->lanes[static_cast<size_t>(group) % lanes].get();
      status = device->gemm_plans->Run(device, lane, one, first, second,
                                       nullptr, result);
    }
    // x or dy; w or dy; y, dx or dw.
    const int64_t width =
        gemm->pass == PW_GEMM_BACKWARD_INPUT ? gemm->outputs : gemm->inputs;
    first += one.tokens * width * input_bytes;
    second += (weights ? one.tokens * gemm->outputs : matrix) * input_bytes;
    result +=
        (weights ? matrix
                 : one.tokens * (forward ? gemm->outputs : gemm->inputs)) *
        output_bytes;
  }
  // Joined whatever happened: a graph that is being captured must not keep
  // lanes that never come back.
  const std::string message = LastError();
  for (size_t lane = 0; lane < lanes; ++lane) {
    PW_CUDA(cudaEventRecord(device->lane_events[lane + 1],
                            device->lanes[lane]->stream));
    PW_CUDA(cudaStreamWaitEvent(on->stream, device->lane_events[lane + 1], 0));
  }
  return status == PW_OK ? PW_OK : Fail(status, message);
}

}  // namespace pipewright::cuda
