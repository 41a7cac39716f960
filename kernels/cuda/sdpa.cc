#include "kernels/cuda/sdpa.h"

#include "kernels/cuda/arithmetic.h"

#ifdef PIPEWRIGHT_CUDNN

#include <cstdlib>
#include <vector>

#include "kernels/cuda/sdpa_graph.h"

namespace pipewright::cuda {
namespace {

constexpr int64_t kAlignment = 256;

SdpaShape ShapeOf(const PwAttention& shape) {
  return {shape.batch,    shape.queries,    shape.keys,     shape.heads,
          shape.kv_heads, shape.head_dim,   shape.q_stride, shape.k_stride,
          shape.o_stride, shape.causal != 0};
}

// What the graphs say of their tensors: bf16, everything at 16 bytes.
bool Fits(const PwAttention& shape) {
  const auto wide = [](int64_t elements) { return elements % 8 == 0; };
  return shape.type == PW_BF16 && wide(shape.head_dim) &&
         wide(shape.q_stride) && wide(shape.k_stride) && wide(shape.o_stride);
}

int64_t Rows(const PwAttention& shape) {
  return shape.batch * shape.heads * shape.queries;
}

int64_t SumBytes(const PwAttention& shape) {
  return RoundUp(Rows(shape) * 4, kAlignment);
}

int64_t AccumulatorBytes(const PwAttention& shape) {
  return RoundUp(Rows(shape) * shape.head_dim * 4, kAlignment);
}

}  // namespace

struct AttentionPlans::State {
  struct Entry {
    SdpaShape shape;
    bool backward;
    std::unique_ptr<SdpaGraph> graph;  // NULL: cuDNN does not take it
    std::string refusal;
  };

  // NULL where there is no plan; `refusal` says why.
  SdpaGraph* Find(const PwAttention& attention, bool backward) {
    refusal.clear();
    if (api == nullptr || !Fits(attention)) return nullptr;
    if (!broken.empty()) {
      refusal = broken;
      return nullptr;
    }
    const SdpaShape shape = ShapeOf(attention);
    for (const Entry& entry : entries) {
      if (entry.backward == backward && entry.shape == shape) {
        refusal = entry.refusal;
        return entry.graph.get();
      }
    }
    if (handle == nullptr) {
      const cudnnStatus_t status = api->create(&handle);
      if (status != CUDNN_STATUS_SUCCESS) {
        handle = nullptr;
        broken = name + ": cudnnCreate: " + api->error_string(status);
        refusal = broken;
        return nullptr;
      }
    }
    auto graph = std::make_unique<SdpaGraph>(api);
    if (backward) {
      graph->AddBackward(shape);
    } else {
      graph->AddForward(shape);
    }
    if (!graph->Plan(handle)) {
      refusal = name + ": " + graph->error();
      graph.reset();
    }
    // A plan that fails may leave an error in the runtime behind.
    cudaGetLastError();
    entries.push_back({shape, backward, std::move(graph), refusal});
    return entries.back().graph.get();
  }

  const CudnnApi* api = nullptr;
  cudnnHandle_t handle = nullptr;
  std::string name;
  std::string broken;  // why no shape has a plan
  std::string refusal;
  std::vector<Entry> entries;
};

AttentionPlans::AttentionPlans() : state_(std::make_unique<State>()) {
  // Off: our own kernels run even where cuDNN is there, to check or time them.
  const char* chosen = std::getenv("PIPEWRIGHT_CUDNN");
  if (chosen != nullptr && std::string(chosen) == "off") {
    state_->name = "cudnn off";
    return;
  }
  std::string error;
  state_->api = LoadCudnn(&error);
  state_->name = state_->api == nullptr ? "no cudnn" : CudnnName(*state_->api);
}

AttentionPlans::~AttentionPlans() {
  state_->entries.clear();
  if (state_->handle != nullptr) state_->api->destroy(state_->handle);
}

std::string AttentionPlans::Library() const { return state_->name; }

const std::string& AttentionPlans::Refusal() const { return state_->refusal; }

bool AttentionPlans::Takes(const PwAttention& shape, bool backward,
                           size_t* workspace) {
  const SdpaGraph* graph = state_->Find(shape, backward);
  if (graph == nullptr) return false;
  int64_t bytes = graph->workspace_bytes();
  if (backward) bytes += SumBytes(shape) + AccumulatorBytes(shape);
  *workspace = static_cast<size_t>(bytes);
  return true;
}

PwStatus AttentionPlans::Run(PwDevice* device, PwStream* on,
                             const PwAttention& shape, bool backward,
                             const AttentionTensors& tensors) {
  SdpaGraph* graph = state_->Find(shape, backward);
  if (graph == nullptr) return Fail(PW_INVALID, "cudnn: no plan");
  const cudnnHandle_t handle = state_->handle;
  if (state_->api->set_stream(handle, on->stream) != CUDNN_STATUS_SUCCESS) {
    return Fail(PW_FAILED, "cudnnSetStream failed");
  }
  float scale = shape.scale;
  float minus_infinity = -1e30f;
  float one = 1.0f;
  const auto plain = [](const void* pointer) {
    return const_cast<void*>(pointer);
  };
  std::vector<int64_t> ids = {kQ, kK, kV, kO, kStatistics, kScale};
  std::vector<void*> pointers = {plain(tensors.q), plain(tensors.k),
                                 plain(tensors.v), tensors.o,
                                 tensors.lse,      &scale};
  if (shape.causal != 0) {
    ids.push_back(kMinusInfinity);
    pointers.push_back(&minus_infinity);
  }
  int32_t keys = static_cast<int32_t>(shape.keys);
  int32_t queries = static_cast<int32_t>(shape.queries);
  if (shape.causal != 0 && keys != queries) {
    ids.insert(ids.end(), {kKeys, kQueries});
    pointers.insert(pointers.end(),
                    {static_cast<void*>(&keys), static_cast<void*>(&queries)});
  }
  uint8_t* workspace = static_cast<uint8_t*>(tensors.workspace);
  if (backward) {
    uint8_t* sums = workspace;
    uint8_t* accumulator = sums + SumBytes(shape);
    workspace = accumulator + AccumulatorBytes(shape);
    ids.insert(ids.end(), {kGradientO, kGradientQ, kGradientK, kGradientV,
                           kSoftmaxSum, kAccumulator, kOne});
    pointers.insert(pointers.end(),
                    {plain(tensors.d_o), tensors.dq, tensors.dk, tensors.dv,
                     static_cast<void*>(sums), static_cast<void*>(accumulator),
                     static_cast<void*>(&one)});
    // The kernels add to it.
    PW_CUDA(cudaMemsetAsync(accumulator, 0,
                            static_cast<size_t>(AccumulatorBytes(shape)),
                            on->stream));
  }
  if (!graph->Execute(handle, ids, pointers, workspace)) {
    return Fail(PW_FAILED, "cudnn: " + graph->error());
  }
  device->implementation =
      state_->name + (backward ? ":sdpa backward" : ":sdpa forward");
  return PW_OK;
}

}  // namespace pipewright::cuda

#else  // no headers of cuDNN where this was built

namespace pipewright::cuda {

struct AttentionPlans::State {
  std::string refusal;
};

AttentionPlans::AttentionPlans() : state_(std::make_unique<State>()) {}
AttentionPlans::~AttentionPlans() = default;

const std::string& AttentionPlans::Refusal() const { return state_->refusal; }

std::string AttentionPlans::Library() const { return "built without cudnn"; }

bool AttentionPlans::Takes(const PwAttention&, bool, size_t*) { return false; }

PwStatus AttentionPlans::Run(PwDevice*, PwStream*, const PwAttention&, bool,
                             const AttentionTensors&) {
  return Fail(PW_MISSING, "built without cudnn");
}

}  // namespace pipewright::cuda

#endif  // PIPEWRIGHT_CUDNN
