// What libpipewright_cuda.so exports.
#include "kernels/cuda/functions.h"
#include "kernels/kernels.h"

namespace cuda = pipewright::cuda;

extern "C" __attribute__((visibility("default"))) const PwKernels*
pw_cuda_kernels(void) {
  static const PwKernels kTable = {
      .abi = PW_KERNELS_ABI,
      .name = "cuda",
      .error = cuda::Error,
      .device_count = cuda::DeviceCount,
      .open = cuda::Open,
      .close = cuda::Close,
      .info = cuda::Info,
      .state = cuda::State,
      .implementation = cuda::Implementation,
      .allocate = cuda::Allocate,
      .release = cuda::Release,
      .allocate_host = cuda::AllocateHost,
      .release_host = cuda::ReleaseHost,
      .zero = cuda::Zero,
      .copy = cuda::Copy,
      .random = cuda::Random,
      .random_ids = cuda::RandomIds,
      .convert = cuda::Convert,
      .create_stream = cuda::CreateStream,
      .destroy_stream = cuda::DestroyStream,
      .synchronize = cuda::Synchronize,
      .create_event = cuda::CreateEvent,
      .destroy_event = cuda::DestroyEvent,
      .record = cuda::Record,
      .wait = cuda::Wait,
      .query = cuda::Query,
      .elapsed = cuda::Elapsed,
      .hold_stream = cuda::HoldStream,
      .release_streams = cuda::ReleaseStreams,
      .flush_cache = cuda::FlushCache,
      .begin_graph = cuda::BeginGraph,
      .end_graph = cuda::EndGraph,
      .launch_graph = cuda::LaunchGraph,
      .destroy_graph = cuda::DestroyGraph,
      .gemm = cuda::Gemm,
      .grouped_gemm = cuda::GroupedGemm,
      .bias_backward = cuda::BiasBackward,
      .norm_forward = cuda::NormForward,
      .norm_backward = cuda::NormBackward,
      .norm_workspace = cuda::NormWorkspace,
      .add = cuda::Add,
      .accumulate = cuda::Accumulate,
      .copy_rows = cuda::CopyRows,
      .rotary = cuda::Rotary,
      .attention_workspace = cuda::AttentionWorkspace,
      .attention_forward = cuda::AttentionForward,
      .attention_backward = cuda::AttentionBackward,
      .activation_forward = cuda::ActivationForward,
      .activation_backward = cuda::ActivationBackward,
      .embedding_forward = cuda::EmbeddingForward,
      .embedding_backward = cuda::EmbeddingBackward,
      .cross_entropy_forward = cuda::CrossEntropyForward,
      .cross_entropy_backward = cuda::CrossEntropyBackward,
      .adam = cuda::Adam,
      .adam_host = cuda::AdamHost,
      .square_sum = cuda::SquareSum,
      .predict = cuda::Predict,
      .quantize = cuda::Quantize,
      .route_forward = cuda::RouteForward,
      .route_backward = cuda::RouteBackward,
      .route_counts = cuda::RouteCounts,
      .dispatch_rows = cuda::DispatchRows,
      .combine_rows = cuda::CombineRows,
      .combine_rows_backward = cuda::CombineRowsBackward,
  };
  return &kTable;
}

extern "C" __attribute__((visibility("default"))) PwStatus pw_cuda_open_part(
    int32_t index, int32_t part, int32_t parts, PwDevice** device) {
  return cuda::OpenPart(index, part, parts, device);
}
