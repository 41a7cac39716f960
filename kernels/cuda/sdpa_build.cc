// The calls of cuDNN's backend API behind sdpa_graph.h.
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/library.h"
#include "kernels/cuda/sdpa_graph.h"

namespace pipewright::cuda {

const CudnnApi* LoadCudnn(std::string* error) {
  struct Loaded {
    Loaded() : library(Places()) {
      library.Find("cudnnGetVersion", &api.version);
      library.Find("cudnnGetErrorString", &api.error_string);
      library.Find("cudnnGetLastErrorString", &api.last_error);
      library.Find("cudnnCreate", &api.create);
      library.Find("cudnnDestroy", &api.destroy);
      library.Find("cudnnSetStream", &api.set_stream);
      library.Find("cudnnBackendCreateDescriptor", &api.make);
      library.Find("cudnnBackendDestroyDescriptor", &api.drop);
      library.Find("cudnnBackendSetAttribute", &api.set);
      library.Find("cudnnBackendGetAttribute", &api.get);
      library.Find("cudnnBackendFinalize", &api.finalize);
      library.Find("cudnnBackendExecute", &api.execute);
    }
    static std::vector<std::string> Places() {
      std::vector<std::string> places = LibraryPlaces("libcudnn", {9});
      for (std::string& place : LibraryPlaces("libcudnn_graph", {9})) {
        places.push_back(std::move(place));
      }
      return places;
    }

    Library library;
    CudnnApi api = {};
  };
  static const Loaded* loaded = new Loaded;
  *error = loaded->library.error();
  return error->empty() ? &loaded->api : nullptr;
}

std::string CudnnName(const CudnnApi& api) {
  const size_t version = api.version();  // CUDNN_VERSION of cudnn_version.h
  return "cudnn " + std::to_string(version / 10000) + "." +
         std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

SdpaGraph::~SdpaGraph() {
  while (!owned_.empty()) {
    api_->drop(owned_.back());
    owned_.pop_back();
  }
}

bool SdpaGraph::Ok(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return true;
  char detail[1024] = "";
  api_->last_error(detail, sizeof(detail));
  error_ = std::string(what) + ": " + api_->error_string(status);
  if (detail[0] != '\0') error_ += std::string(" (") + detail + ")";
  return false;
}

SdpaGraph::Descriptor SdpaGraph::Make(cudnnBackendDescriptorType_t type) {
  Descriptor made = nullptr;
  if (!error_.empty()) return made;
  if (Ok(api_->make(type, &made), "cudnnBackendCreateDescriptor")) {
    owned_.push_back(made);
  }
  return made;
}

void SdpaGraph::Set(Descriptor descriptor, cudnnBackendAttributeName_t name,
                    cudnnBackendAttributeType_t type, int64_t count,
                    const void* values) {
  if (!error_.empty()) return;
  Ok(api_->set(descriptor, name, type, count, values),
     "cudnnBackendSetAttribute");
}

void SdpaGraph::SetDescriptor(Descriptor descriptor,
                              cudnnBackendAttributeName_t name,
                              Descriptor value) {
  Set(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

void SdpaGraph::Finalize(Descriptor descriptor, const char* what) {
  if (error_.empty()) Ok(api_->finalize(descriptor), what);
}

SdpaGraph::Descriptor SdpaGraph::Tensor(const TensorSpec& spec, int64_t id,
                                        bool is_virtual, bool by_value) {
  const Descriptor tensor = Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const int64_t alignment = 16;  // bytes
  Set(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &spec.type);
  Set(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64,
      static_cast<int64_t>(spec.sizes.size()), spec.sizes.data());
  Set(tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64,
      static_cast<int64_t>(spec.strides.size()), spec.strides.data());
  Set(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
  Set(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1,
      &alignment);
  Set(tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
  if (by_value) {
    Set(tensor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1,
        &by_value);
  }
  Finalize(tensor, "tensor");
  return tensor;
}

SdpaGraph::Descriptor SdpaGraph::Real(const TensorSpec& spec, SdpaTensor id) {
  return Tensor(spec, id, false, false);
}

SdpaGraph::Descriptor SdpaGraph::Virtual(const TensorSpec& spec) {
  return Tensor(spec, next_virtual_++, true, false);
}

SdpaGraph::Descriptor SdpaGraph::Scalar(SdpaTensor id, cudnnDataType_t type) {
  return Tensor({type, {1, 1, 1, 1}, {1, 1, 1, 1}}, id, false, true);
}

void SdpaGraph::MatrixProduct(Descriptor a, Descriptor b, Descriptor c) {
  const Descriptor matmul = Make(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  Set(matmul, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  Finalize(matmul, "matmul");
  const Descriptor operation = Make(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  SetDescriptor(operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
  SetDescriptor(operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
  SetDescriptor(operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
  SetDescriptor(operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, matmul);
  Finalize(operation, "matmul operation");
  operations_.push_back(operation);
}

void SdpaGraph::Pointwise(const Point& point, Descriptor x, Descriptor b,
                          Descriptor y, Descriptor selector) {
  const Descriptor pointwise = Make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  Set(pointwise, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1,
      &point.mode);
  Set(pointwise, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1,
      &point.compute);
  if (point.axis >= 0) {
    Set(pointwise, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &point.axis);
  }
  Finalize(pointwise, "pointwise");
  const Descriptor operation =
      Make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  SetDescriptor(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
                pointwise);
  SetDescriptor(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  if (b != nullptr) {
    SetDescriptor(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
  }
  if (selector != nullptr) {
    SetDescriptor(operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, selector);
  }
  SetDescriptor(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  Finalize(operation, "pointwise operation");
  operations_.push_back(operation);
}

void SdpaGraph::Reduce(cudnnReduceTensorOp_t operation_kind, Descriptor x,
                       Descriptor y) {
  const Descriptor reduction = Make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  Set(reduction, CUDNN_ATTR_REDUCTION_OPERATOR,
      CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &operation_kind);
  Set(reduction, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1,
      &compute);
  Finalize(reduction, "reduction");
  const Descriptor operation =
      Make(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  SetDescriptor(operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, reduction);
  SetDescriptor(operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
  SetDescriptor(operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
  Finalize(operation, "reduction operation");
  operations_.push_back(operation);
}

void SdpaGraph::Reshape(Descriptor x, Descriptor y) {
  const Descriptor operation = Make(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  SetDescriptor(operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
  SetDescriptor(operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
  Finalize(operation, "reshape operation");
  operations_.push_back(operation);
}

// A query sees the keys up to its own index, and where there are more keys
// than queries, as many more.
SdpaGraph::Descriptor SdpaGraph::CausalMask(const SdpaShape& shape,
                                            const TensorSpec& scores,
                                            Descriptor x) {
  TensorSpec index = scores;
  index.type = CUDNN_DATA_INT32;
  TensorSpec truth = scores;
  truth.type = CUDNN_DATA_BOOLEAN;
  Descriptor row = Virtual(index);
  Pointwise({CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, 2}, x, nullptr, row);
  if (shape.queries != shape.keys) {
    const Descriptor later = Virtual(index);
    Pointwise({CUDNN_POINTWISE_ADD, CUDNN_DATA_INT32}, row,
              Scalar(kKeys, CUDNN_DATA_INT32), later);
    row = Virtual(index);
    Pointwise({CUDNN_POINTWISE_SUB, CUDNN_DATA_INT32}, later,
              Scalar(kQueries, CUDNN_DATA_INT32), row);
  }
  const Descriptor column = Virtual(index);
  Pointwise({CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, 3}, x, nullptr,
            column);
  const Descriptor seen = Virtual(truth);
  Pointwise({CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN}, row, column, seen);
  const Descriptor masked = Virtual(scores);
  Pointwise({CUDNN_POINTWISE_BINARY_SELECT}, x, Scalar(kMinusInfinity), masked,
            seen);
  return masked;
}

bool SdpaGraph::Plan(cudnnHandle_t handle, Descriptor device_properties) {
  const Descriptor graph = Make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (handle != nullptr) {
    Set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  }
  Set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
      static_cast<int64_t>(operations_.size()), operations_.data());
  Finalize(graph, "operation graph");
  const Descriptor heuristic = Make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  SetDescriptor(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  Set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (device_properties != nullptr) {
    SetDescriptor(heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
                  device_properties);
  }
  Finalize(heuristic, "engine heuristic");
  if (!error_.empty()) return false;
  int64_t offered = 0;
  if (!Ok(api_->get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                    CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &offered, nullptr),
          "number of engines")) {
    return false;
  }
  std::vector<Descriptor> configurations;
  for (int64_t index = 0; index < offered; ++index) {
    configurations.push_back(Make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
  }
  if (!error_.empty()) return false;
  if (!Ok(api_->get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                    CUDNN_TYPE_BACKEND_DESCRIPTOR, offered, &engines_,
                    configurations.data()),
          "engines")) {
    return false;
  }
  std::string last = "no engine takes this graph";
  for (int64_t index = 0; index < engines_; ++index) {
    if (TryPlan(handle, device_properties,
                configurations[static_cast<size_t>(index)])) {
      return true;
    }
    last = error_;
    error_.clear();
  }
  error_ = last;
  return false;
}

bool SdpaGraph::TryPlan(cudnnHandle_t handle, Descriptor device_properties,
                        Descriptor configuration) {
  const Descriptor plan = Make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  if (handle != nullptr) {
    Set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  }
  SetDescriptor(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
  if (device_properties != nullptr) {
    SetDescriptor(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                  device_properties);
  }
  Finalize(plan, "execution plan");
  if (!error_.empty()) return false;
  int64_t count = 0;
  if (!Ok(api_->get(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                    CUDNN_TYPE_INT64, 1, &count, &workspace_bytes_),
          "workspace size")) {
    return false;
  }
  plan_ = plan;
  // The name is for reports only, so a missing one is no failure.
  int64_t length = 0;
  if (api_->get(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                CUDNN_TYPE_CHAR, 0, &length, nullptr) == CUDNN_STATUS_SUCCESS &&
      length > 0) {
    plan_json_.resize(static_cast<size_t>(length));
    if (api_->get(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                  CUDNN_TYPE_CHAR, length, &length,
                  plan_json_.data()) != CUDNN_STATUS_SUCCESS) {
      plan_json_.clear();
    }
  }
  return true;
}

bool SdpaGraph::Execute(cudnnHandle_t handle,
                        const std::vector<int64_t>& tensors,
                        const std::vector<void*>& pointers, void* workspace) {
  error_.clear();
  Descriptor pack = nullptr;
  if (!Ok(api_->make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack),
          "variant pack")) {
    return false;
  }
  Set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
      static_cast<int64_t>(pointers.size()), pointers.data());
  Set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
      static_cast<int64_t>(tensors.size()), tensors.data());
  Set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
      &workspace);
  Finalize(pack, "variant pack");
  if (error_.empty()) Ok(api_->execute(handle, plan_, pack), "attention");
  api_->drop(pack);
  return error_.empty();
}

}  // namespace pipewright::cuda
