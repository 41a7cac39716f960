// Products of experts with tokens of their own: one call of cuBLAS where it
// has one (grouped_call.h), else a cuBLASLt product for each expert.
#include <algorithm>
#include <numeric>
#include <string>

#include "kernels/cuda/functions.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/grouped_call.h"

namespace pipewright::cuda {
namespace {

// Experts run side by side on this many streams.
constexpr size_t kLanes = 4;

PwStatus OneByOne(PwDevice* device, PwStream* on, const PwGemm& gemm,
                  const GroupedLayout& layout, const int64_t* tokens_of,
                  const void* a, const void* b, void* c) {
  const auto groups = static_cast<size_t>(layout.groups());
  const size_t lanes = std::min(kLanes, std::max(groups, size_t{1}));
  PW_RETURN_IF_FAILED(OpenLane(device, lanes - 1));
  PW_CUDA(cudaEventRecord(device->lane_events[0], on->stream));
  for (size_t lane = 0; lane < lanes; ++lane) {
    PW_CUDA(cudaStreamWaitEvent(device->lanes[lane]->stream,
                                device->lane_events[0], 0));
  }
  const GroupSteps steps = StepsOf(gemm);
  PwStatus status = PW_OK;
  for (size_t group = 0; group < groups && status == PW_OK; ++group) {
    const int32_t expert = layout.expert[group];
    const int64_t before = layout.tokens_before[group];
    PwGemm one = gemm;
    one.tokens = tokens_of[expert];
    status = CheckGemm(device, one);
    if (status != PW_OK) break;
    status = device->gemm_plans->Run(
        device, device->lanes[group % lanes].get(), one,
        static_cast<const uint8_t*>(a) + steps.a.Bytes(before, expert),
        static_cast<const uint8_t*>(b) + steps.b.Bytes(before, expert), nullptr,
        static_cast<uint8_t*>(c) + steps.c.Bytes(before, expert));
  }
  // Joined whatever happened: a graph that is being captured must not keep
  // lanes that never come back.
  const std::string message = LastError();
  for (size_t lane = 0; lane < lanes; ++lane) {
    PW_CUDA(cudaEventRecord(device->lane_events[lane + 1],
                            device->lanes[lane]->stream));
    PW_CUDA(cudaStreamWaitEvent(on->stream, device->lane_events[lane + 1], 0));
  }
  if (status != PW_OK) return Fail(status, message);
  if (groups > 0) {
    device->implementation =
        std::to_string(groups) + " x " + device->implementation;
  }
  return PW_OK;
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
  if (std::any_of(tokens_of, tokens_of + groups,
                  [](int64_t tokens) { return tokens < 0; })) {
    return Fail(PW_INVALID, "grouped_gemm: an expert has tokens below 0");
  }
  PwStream* on = StreamOf(device, stream);
  const GroupedLayout layout = GroupedLayoutOf(*gemm, groups, tokens_of);
  if (layout.groups() == 0) return PW_OK;
  if (device->grouped_calls->Takes(on, *gemm, layout.groups())) {
    PW_RETURN_IF_FAILED(CheckGemm(device, *gemm));
    bool done = false;
    PW_RETURN_IF_FAILED(
        device->grouped_calls->Run(device, on, *gemm, layout, a, b, c, &done));
    if (done) return PW_OK;
  }
  return OneByOne(device, on, *gemm, layout, tokens_of, a, b, c);
}

}  // namespace pipewright::cuda
