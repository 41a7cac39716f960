// Does cuDNN take the graphs of kernels/cuda/sdpa_graph.h? Without a GPU: it
// is given the properties of a device as JSON, and a driver that answers with
// success (fake_driver.cc) lets it finish its plans. Says nothing about the
// numbers that a graph computes.
//
//   sdpa_deviceless DEVICE.json    exit 0: all taken; 1: not; 77: no cuDNN
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "kernels/cuda/sdpa_graph.h"

namespace pipewright::cuda {
namespace {

struct Case {
  const char* name;
  SdpaShape shape;
  bool backward_on_sm90_only = false;
};

// batch, queries, keys, heads, kv_heads, head_dim, strides of q, k and o.
SdpaShape Dense(int64_t batch, int64_t tokens, int64_t heads, int64_t kv_heads,
                int64_t head_dim, bool causal) {
  return {batch,
          tokens,
          tokens,
          heads,
          kv_heads,
          head_dim,
          heads * head_dim,
          kv_heads * head_dim,
          heads * head_dim,
          causal};
}

// q, k and v as one GEMM writes them, side by side in a token.
SdpaShape Fused(int64_t batch, int64_t tokens, int64_t heads, int64_t kv_heads,
                int64_t head_dim) {
  SdpaShape shape = Dense(batch, tokens, heads, kv_heads, head_dim, true);
  shape.q_stride = (heads + 2 * kv_heads) * head_dim;
  shape.k_stride = shape.q_stride;
  return shape;
}

// The last tokens of a sequence, with the keys of all before them.
SdpaShape Slice(int64_t batch, int64_t queries, int64_t keys, int64_t heads,
                int64_t kv_heads, int64_t head_dim) {
  SdpaShape shape = Dense(batch, keys, heads, kv_heads, head_dim, true);
  shape.queries = queries;
  return shape;
}

const Case kCases[] = {
    {"16 heads of 64, causal", Dense(1, 1024, 16, 16, 64, true)},
    {"32 heads of 128, causal, fused", Fused(2, 4096, 32, 32, 128)},
    {"32/8 heads of 128, causal, fused", Fused(1, 4096, 32, 8, 128)},
    {"64/8 heads of 128, causal", Dense(1, 8192, 64, 8, 128, true)},
    {"one shard: 8/2 heads, fused", Fused(4, 2048, 8, 2, 128)},
    {"16 heads of 64, not causal", Dense(1, 2048, 16, 16, 64, false)},
    {"slice: 1024 of 4096, 32/8 heads", Slice(1, 1024, 4096, 32, 8, 128)},
    {"slice: 512 of 1024, 16 heads", Slice(2, 512, 1024, 16, 16, 64)},
    {"not causal, fewer queries",
     [] {
       SdpaShape shape = Slice(1, 1024, 2048, 16, 16, 64);
       shape.causal = false;
       return shape;
     }()},
    // 9.19 has no backward for heads of 256 but on Hopper.
    {"16 heads of 256, causal", Dense(1, 2048, 16, 16, 256, true), true},
};

cudnnBackendDescriptor_t Device(const CudnnApi& api, const std::string& json) {
  cudnnBackendDescriptor_t device = nullptr;
  if (api.make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &device) !=
          CUDNN_STATUS_SUCCESS ||
      api.set(device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
              CUDNN_TYPE_CHAR, static_cast<int64_t>(json.size()),
              json.data()) != CUDNN_STATUS_SUCCESS ||
      api.finalize(device) != CUDNN_STATUS_SUCCESS) {
    return nullptr;
  }
  return device;
}

// A graph with one wrong size: cuDNN must see it, or this test shows nothing.
bool RefusesNonsense(const CudnnApi& api, cudnnBackendDescriptor_t device) {
  SdpaShape shape = Dense(1, 1024, 16, 16, 64, true);
  shape.head_dim = 63;
  SdpaGraph graph(&api);
  graph.AddForward(shape);
  return !graph.Plan(nullptr, device);
}

int Main(const char* path) {
  std::ifstream file(path);
  const std::string json{std::istreambuf_iterator<char>(file),
                         std::istreambuf_iterator<char>()};
  if (json.empty()) {
    std::fprintf(stderr, "cannot read %s\n", path);
    return 2;
  }
  std::string error;
  const CudnnApi* api = LoadCudnn(&error);
  if (api == nullptr) {
    std::printf("SKIP: no cuDNN: %s\n", error.c_str());
    return 77;
  }
  std::printf("%s, %s\n", CudnnName(*api).c_str(), path);
  // CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR takes JSON from 9.11 on.
  if (api->version() < 91100) {
    std::printf("SKIP: descriptions of devices need cuDNN 9.11\n");
    return 77;
  }
  const cudnnBackendDescriptor_t device = Device(*api, json);
  if (device == nullptr) {
    std::printf("FAILED: cuDNN does not take the device\n");
    return 1;
  }
  const bool hopper = json.find("\"deviceVer\":900") != std::string::npos ||
                      json.find("\"deviceVer\": 900") != std::string::npos;
  int failures = 0;
  for (const Case& one : kCases) {
    for (const bool backward : {false, true}) {
      SdpaGraph graph(api);
      if (backward) {
        graph.AddBackward(one.shape);
      } else {
        graph.AddForward(one.shape);
      }
      const bool planned = graph.Plan(nullptr, device);
      const bool expected = hopper || !backward || !one.backward_on_sm90_only;
      if (!planned && expected) ++failures;
      std::printf("%-34s %-8s engines %lld, %s, workspace %lld bytes %s\n",
                  one.name, backward ? "backward" : "forward",
                  static_cast<long long>(graph.engines()),
                  planned    ? "planned"
                  : expected ? "FAILED"
                             : "refused as expected",
                  static_cast<long long>(graph.workspace_bytes()),
                  planned ? "" : graph.error().c_str());
    }
  }
  if (!RefusesNonsense(*api, device)) {
    std::printf("FAILED: cuDNN takes heads of 63\n");
    ++failures;
  }
  api->drop(device);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace pipewright::cuda

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: sdpa_deviceless DEVICE.json\n");
    return 2;
  }
  return pipewright::cuda::Main(arguments[1]);
}
