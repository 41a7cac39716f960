// libcudnn: the backend API, as kernels/cuda/sdpa_build.cc loads it. A plan is
// its graph, and any graph has one.
#include <cudnn_graph.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "tests/emulation/libraries/cudnn_graph.h"
#include "tests/emulation/runtime/queue.h"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

namespace emulated {
namespace {

constexpr int64_t kWorkspaceBytes = 4096;
constexpr size_t kAlignment = 16;  // that the graphs promise
constexpr double kSeconds = 20e-6;

size_t BytesOf(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
      return 1;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return 8;
    default:
      return 4;
  }
}

Descriptor* Of(cudnnBackendDescriptor_t handle) {
  return static_cast<Descriptor*>(handle);
}

void CheckPlace(const Tensor& tensor, const void* at) {
  const auto id = static_cast<long long>(tensor.id);
  size_t left = 0;
  const Kind kind = KindOf(at, &left);
  const size_t element = tensor.type == CUDNN_DATA_BFLOAT16 ? 2 : 4;
  const size_t bytes = static_cast<size_t>(tensor.Extent()) * element;
  if (kind != Kind::kDevice || left < bytes) {
    Violation("cudnn: tensor %lld of %zu bytes has %zu on the device", id,
              bytes, left);
  }
  if (reinterpret_cast<uintptr_t>(at) % kAlignment != 0) {
    Violation("cudnn: tensor %lld is not aligned to %zu", id, kAlignment);
  }
}

// What a run of a graph keeps: numbers of the host are read when it is queued,
// all else when it runs.
struct Given {
  std::map<int64_t, void*> pointers;
  std::map<int64_t, std::vector<char>> numbers;
};

// The tensors among the attributes of an operation.
std::vector<Descriptor*> TensorsOf(const Descriptor& operation) {
  static constexpr int kNames[] = {CUDNN_ATTR_OPERATION_MATMUL_ADESC,
                                   CUDNN_ATTR_OPERATION_MATMUL_BDESC,
                                   CUDNN_ATTR_OPERATION_MATMUL_CDESC,
                                   CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                                   CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                   CUDNN_ATTR_OPERATION_POINTWISE_TDESC,
                                   CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
                                   CUDNN_ATTR_OPERATION_REDUCTION_XDESC,
                                   CUDNN_ATTR_OPERATION_REDUCTION_YDESC,
                                   CUDNN_ATTR_OPERATION_RESHAPE_XDESC,
                                   CUDNN_ATTR_OPERATION_RESHAPE_YDESC};
  std::vector<Descriptor*> tensors;
  for (const int name : kNames) {
    Descriptor* tensor = operation.Child(name);
    if (tensor != nullptr) tensors.push_back(tensor);
  }
  return tensors;
}

std::shared_ptr<Given> Take(const Descriptor& graph, const Descriptor& pack) {
  const auto ids = pack.All<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto at = pack.All<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  auto given = std::make_shared<Given>();
  for (size_t index = 0; index < ids.size(); ++index) {
    given->pointers[ids[index]] = at[index];
  }
  for (const Descriptor* operation :
       graph.All<Descriptor*>(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    for (const Descriptor* descriptor : TensorsOf(*operation)) {
      const Tensor tensor(*descriptor);
      const auto found = given->pointers.find(tensor.id);
      if (tensor.is_virtual || found == given->pointers.end()) continue;
      if (!tensor.by_value) {
        CheckPlace(tensor, found->second);
      } else if (given->numbers.count(tensor.id) == 0) {
        if (KindOf(found->second, nullptr) != Kind::kPageable) {
          Violation("cudnn: a number of the host is on the device");
        }
        const char* number = static_cast<const char*>(found->second);
        given->numbers[tensor.id].assign(number, number + 4);
        found->second = given->numbers[tensor.id].data();
      }
    }
  }
  return given;
}

}  // namespace
}  // namespace emulated

using emulated::Descriptor;
using emulated::Of;

extern "C" {

size_t cudnnGetVersion() { return CUDNN_VERSION; }
const char* cudnnGetErrorString(cudnnStatus_t) { return "an emulated error"; }
void cudnnGetLastErrorString(char* text, size_t size) {
  if (size > 0) text[0] = '\0';
}
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = new cudnnContext;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* made) {
  *made = new Descriptor{.type = type};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t handle) {
  delete Of(handle);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t handle,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type,
                                       int64_t count, const void* values) {
  if (Of(handle)->finalized) return CUDNN_STATUS_BAD_PARAM;
  const char* from = static_cast<const char*>(values);
  Of(handle)->values[name].assign(
      from, from + static_cast<size_t>(count) * emulated::BytesOf(type));
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const handle,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t,
                                       int64_t wanted, int64_t* count,
                                       void* values) {
  *count = 1;
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
      if (wanted > 0) {
        static_cast<Descriptor**>(values)[0]->graph =
            Of(handle)->Child(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
      }
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      *static_cast<int64_t*>(values) = emulated::kWorkspaceBytes;
      return CUDNN_STATUS_SUCCESS;
    default:
      return CUDNN_STATUS_NOT_SUPPORTED;
  }
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t handle) {
  if (Of(handle)->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR &&
      std::getenv("EMULATION_CUDNN_REFUSES") != nullptr) {
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  Of(handle)->finalized = true;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle,
                                  cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
  const Descriptor* graph =
      Of(plan)->Child(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->graph;
  if (graph == nullptr || !Of(plan)->finalized || !Of(pack)->finalized) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  void* workspace =
      Of(pack)->One<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, nullptr);
  size_t left = 0;
  constexpr auto kNeeded = static_cast<size_t>(emulated::kWorkspaceBytes);
  if (emulated::KindOf(workspace, &left) != emulated::Kind::kDevice ||
      left < kNeeded) {
    emulated::Violation("cudnn: a workspace of %zu bytes", left);
    return CUDNN_STATUS_BAD_PARAM;
  }
  const std::shared_ptr<emulated::Given> given =
      emulated::Take(*graph, *Of(pack));
  emulated::Queue(handle->stream, "cudnn", emulated::kSeconds,
                  [graph, given, workspace] {
                    std::memset(workspace, 0xff, kNeeded);
                    emulated::ComputeGraph(*graph, given->pointers);
                    return true;
                  });
  return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
