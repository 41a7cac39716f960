// Attention as a graph of cuDNN 9's backend API: which operations, on which
// tensors, and the plan that cuDNN makes of them. It runs nothing by itself
// but Execute(), so that a test without a GPU can ask cuDNN whether it takes
// the graphs. Built without cudnn-frontend; the operations are those that
// cudnn-frontend 1.x emits for flash attention.
#ifndef PIPEWRIGHT_KERNELS_CUDA_SDPA_GRAPH_H_
#define PIPEWRIGHT_KERNELS_CUDA_SDPA_GRAPH_H_

#include <cudnn_graph.h>

#include <cstdint>
#include <string>
#include <vector>

namespace pipewright::cuda {

// cuDNN, loaded at run time.
struct CudnnApi {
  decltype(&cudnnGetVersion) version;
  decltype(&cudnnGetErrorString) error_string;
  decltype(&cudnnGetLastErrorString) last_error;
  decltype(&cudnnCreate) create;
  decltype(&cudnnDestroy) destroy;
  decltype(&cudnnSetStream) set_stream;
  decltype(&cudnnBackendCreateDescriptor) make;
  decltype(&cudnnBackendDestroyDescriptor) drop;
  decltype(&cudnnBackendSetAttribute) set;
  decltype(&cudnnBackendGetAttribute) get;
  decltype(&cudnnBackendFinalize) finalize;
  decltype(&cudnnBackendExecute) execute;
};

// The library of this process. Error: NULL, with what is missing in *error.
const CudnnApi* LoadCudnn(std::string* error);

// "cudnn 9.19.0".
std::string CudnnName(const CudnnApi& api);

// bf16; strides are of tokens, in elements, as in PwAttention.
struct SdpaShape {
  int64_t batch;
  int64_t queries;
  int64_t keys;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t q_stride;
  int64_t k_stride;
  int64_t o_stride;
  bool causal;  // the last query sees all keys

  friend bool operator==(const SdpaShape&, const SdpaShape&) = default;
};

// The tensors that a caller brings. kScale to kOne are fp32 and kKeys and
// kQueries int32 on the host, everything else is device memory.
enum SdpaTensor : int64_t {
  kQ = 1,
  kK,
  kV,
  kO,
  kStatistics,  // log of the sum of exponentials: fp32 [batch, heads, queries]
  kGradientO,
  kGradientQ,
  kGradientK,
  kGradientV,
  kSoftmaxSum,   // fp32 [batch, heads, queries], written by the backward
  kAccumulator,  // fp32 [batch, heads, queries, head_dim]: must be 0 before
  kScale,
  kMinusInfinity,  // causal only
  kOne,
  kKeys,  // these two causal with fewer queries than keys only
  kQueries,
};

// One graph and, after Plan(), what runs it. After the first call of cuDNN
// that fails all others do nothing: look at error() at the end.
class SdpaGraph {
 public:
  explicit SdpaGraph(const CudnnApi* api) : api_(api) {}
  ~SdpaGraph();
  SdpaGraph(const SdpaGraph&) = delete;
  SdpaGraph& operator=(const SdpaGraph&) = delete;

  void AddForward(const SdpaShape& shape);
  void AddBackward(const SdpaShape& shape);

  // For the device behind `handle`, or with a NULL handle for the one that
  // `device_properties` (CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR) describes.
  // False when no engine takes the graph.
  bool Plan(cudnnHandle_t handle,
            cudnnBackendDescriptor_t device_properties = nullptr);

  // Queues the plan on the handle's stream. tensors[i] is at pointers[i].
  bool Execute(cudnnHandle_t handle, const std::vector<int64_t>& tensors,
               const std::vector<void*>& pointers, void* workspace);

  const std::string& error() const { return error_; }
  int64_t engines() const { return engines_; }  // that the heuristic offers
  int64_t workspace_bytes() const { return workspace_bytes_; }
  // The plan as cuDNN writes it down: engine, knobs, kernels.
  const std::string& plan_json() const { return plan_json_; }

 private:
  using Descriptor = cudnnBackendDescriptor_t;
  struct TensorSpec {
    cudnnDataType_t type;
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
  };
  // Mode, compute type and axis of a pointwise operation.
  struct Point {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    int64_t axis = -1;
  };

  bool Ok(cudnnStatus_t status, const char* what);
  Descriptor Make(cudnnBackendDescriptorType_t type);
  void Set(Descriptor descriptor, cudnnBackendAttributeName_t name,
           cudnnBackendAttributeType_t type, int64_t count, const void* values);
  void SetDescriptor(Descriptor descriptor, cudnnBackendAttributeName_t name,
                     Descriptor value);
  void Finalize(Descriptor descriptor, const char* what);
  Descriptor Tensor(const TensorSpec& spec, int64_t id, bool is_virtual,
                    bool by_value);
  Descriptor Real(const TensorSpec& spec, SdpaTensor id);
  Descriptor Virtual(const TensorSpec& spec);
  Descriptor Scalar(SdpaTensor id, cudnnDataType_t type = CUDNN_DATA_FLOAT);
  void MatrixProduct(Descriptor a, Descriptor b, Descriptor c);
  void Pointwise(const Point& point, Descriptor x, Descriptor b, Descriptor y,
                 Descriptor selector = nullptr);
  void Reduce(cudnnReduceTensorOp_t operation, Descriptor x, Descriptor y);
  void Reshape(Descriptor x, Descriptor y);
  Descriptor CausalMask(const SdpaShape& shape, const TensorSpec& scores,
                        Descriptor x);
  bool TryPlan(cudnnHandle_t handle, Descriptor device_properties,
               Descriptor configuration);

  const CudnnApi* api_;
  std::vector<Descriptor> owned_;
  std::vector<Descriptor> operations_;
  Descriptor plan_ = nullptr;
  int64_t next_virtual_ = 1000;
  int64_t engines_ = 0;
  int64_t workspace_bytes_ = 0;
  std::string plan_json_;
  std::string error_;
};

}  // namespace pipewright::cuda

#endif  // PIPEWRIGHT_KERNELS_CUDA_SDPA_GRAPH_H_
