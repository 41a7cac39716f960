#include <memory>

#include "kernels/cuda/device.h"
#include "kernels/cuda/functions.h"

namespace pipewright::cuda {

PwStatus CreateStream(PwDevice* device, int32_t priority, PwStream** stream) {
  *stream = nullptr;
  PW_RETURN_IF_FAILED(Enter(device));
  int lowest = 0;
  int highest = 0;
  PW_CUDA(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  auto created = std::make_unique<PwStream>();
  PW_CUDA(cudaStreamCreateWithPriority(&created->stream, cudaStreamNonBlocking,
                                       priority > 0 ? highest : lowest));
  *stream = created.release();
  return PW_OK;
}

void DestroyStream(PwDevice* device, PwStream* stream) {
  if (stream == nullptr || Enter(device) != PW_OK) return;
  cudaStreamSynchronize(stream->stream);
  cudaStreamDestroy(stream->stream);
  delete stream;
}

PwStatus Synchronize(PwDevice* device, PwStream* stream) {
  PW_RETURN_IF_FAILED(Enter(device));
  PW_CUDA(cudaStreamSynchronize(StreamOf(device, stream)->stream));
  return PW_OK;
}

PwStatus CreateEvent(PwDevice* device, PwEvent** event) {
  *event = nullptr;
  PW_RETURN_IF_FAILED(Enter(device));
  auto created = std::make_unique<PwEvent>();
  PW_CUDA(cudaEventCreate(&created->event));
  *event = created.release();
  return PW_OK;
}

void DestroyEvent(PwDevice* device, PwEvent* event) {
  if (event == nullptr || Enter(device) != PW_OK) return;
  cudaEventDestroy(event->event);
  delete event;
}

PwStatus Record(PwDevice* device, PwStream* stream, PwEvent* event) {
  PW_RETURN_IF_FAILED(Enter(device));
  PW_CUDA(cudaEventRecord(event->event, StreamOf(device, stream)->stream));
  return PW_OK;
}

PwStatus Wait(PwDevice* device, PwStream* stream, PwEvent* event) {
  PW_RETURN_IF_FAILED(Enter(device));
  PW_CUDA(
      cudaStreamWaitEvent(StreamOf(device, stream)->stream, event->event, 0));
  return PW_OK;
}

PwStatus Query(PwDevice* device, PwEvent* event, int32_t* done) {
  PW_RETURN_IF_FAILED(Enter(device));
  const cudaError_t error = cudaEventQuery(event->event);
  *done = error == cudaSuccess ? 1 : 0;
  if (error == cudaErrorNotReady) {
    cudaGetLastError();
    return PW_OK;
  }
  return FromCuda(error, "cudaEventQuery");
}

PwStatus Elapsed(PwDevice* device, PwEvent* from, PwEvent* to,
                 double* seconds) {
  PW_RETURN_IF_FAILED(Enter(device));
  float milliseconds = 0;
  PW_CUDA(cudaEventElapsedTime(&milliseconds, from->event, to->event));
  *seconds = static_cast<double>(milliseconds) * 1e-3;
  return PW_OK;
}

PwStatus BeginGraph(PwDevice* device, PwStream* stream) {
  PW_RETURN_IF_FAILED(Enter(device));
  // Relaxed: a plan or workspace that is missing may still be made meanwhile.
  PW_CUDA(cudaStreamBeginCapture(StreamOf(device, stream)->stream,
                                 cudaStreamCaptureModeRelaxed));
  return PW_OK;
}

PwStatus EndGraph(PwDevice* device, PwStream* stream, PwGraph** graph) {
  *graph = nullptr;
  PW_RETURN_IF_FAILED(Enter(device));
  cudaGraph_t captured = nullptr;
  PW_CUDA(cudaStreamEndCapture(StreamOf(device, stream)->stream, &captured));
  auto made = std::make_unique<PwGraph>();
  const cudaError_t error =
      cudaGraphInstantiate(&made->executable, captured, 0);
  cudaGraphDestroy(captured);
  PW_RETURN_IF_FAILED(FromCuda(error, "cudaGraphInstantiate"));
  *graph = made.release();
  return PW_OK;
}

PwStatus LaunchGraph(PwDevice* device, PwStream* stream, PwGraph* graph) {
  PW_RETURN_IF_FAILED(Enter(device));
  PW_CUDA(cudaGraphLaunch(graph->executable, StreamOf(device, stream)->stream));
  return PW_OK;
}

void DestroyGraph(PwDevice* device, PwGraph* graph) {
  if (graph == nullptr || Enter(device) != PW_OK) return;
  cudaGraphExecDestroy(graph->executable);
  delete graph;
}

}  // namespace pipewright::cuda
