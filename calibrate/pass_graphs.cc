#include "calibrate/pass_graphs.h"

#include "sim/base/status.h"

namespace pipewright {
namespace {

// What a GPU of 500 TFLOP/s does in a millisecond; an H100 does 400 to 750 in
// bf16 products of these sizes.
constexpr double kSmallFlops = 5e11;

}  // namespace

bool TakesGraphs(const MeasuredDevice& device, const PartBench& bench) {
  // A capture cannot take the one call for all experts that `execute` makes
  // (kernels/cuda/grouped_call.h): it would time another implementation.
  if (bench.part() == PW_EXPERT_LAYER) return false;
  return device.info().capability > 0 && bench.is_layer() &&
         bench.Flops(PW_PASS_F) < kSmallFlops;
}

void PassGraphs::Clear() {
  for (PwGraph* const graph : graphs_) {
    device_->kernels()->destroy_graph(device_->handle(), graph);
  }
  graphs_.clear();
  place_ = nullptr;
}

absl::Status PassGraphs::Capture(
    const void* place,
    const std::vector<std::function<absl::Status()>>& works) {
  if (place == place_) return absl::OkStatus();
  // None of the last graphs still runs: each was timed to its end.
  Clear();
  const PwKernels* const kernels = device_->kernels();
  for (const auto& work : works) {
    PW_RETURN_IF_ERROR(device_->Check(
        kernels->begin_graph(device_->handle(), nullptr), "begin a graph"));
    const absl::Status queued = work();
    // The stream must leave its capture whatever happened.
    PwGraph* graph = nullptr;
    const absl::Status ended = device_->Check(
        kernels->end_graph(device_->handle(), nullptr, &graph), "end a graph");
    if (graph != nullptr) graphs_.push_back(graph);
    PW_RETURN_IF_ERROR(queued);
    PW_RETURN_IF_ERROR(ended);
  }
  for (size_t index = 0; index < graphs_.size(); ++index) {
    PW_RETURN_IF_ERROR(Launch(index));
  }
  PW_RETURN_IF_ERROR(device_->Wait(nullptr));
  place_ = place;
  return absl::OkStatus();
}

absl::Status PassGraphs::Launch(size_t index) {
  return device_->Check(device_->kernels()->launch_graph(
                            device_->handle(), nullptr, graphs_[index]),
                        "launch a graph");
}

}  // namespace pipewright
