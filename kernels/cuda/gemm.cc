#include "kernels/cuda/gemm.h"

#include <cublasLt.h>

#include <algorithm>
#include <numeric>

#include "kernels/cuda/arithmetic.h"
#include "kernels/cuda/functions.h"
#include "kernels/cuda/library.h"

namespace pipewright::cuda {
namespace {

// What NVIDIA recommends for Hopper is 32 MiB (cuBLAS manual, 2.1.9); split-k
// into an fp32 gradient may want more.
constexpr size_t kWorkspaceBytes = size_t{64} << 20;
// The heuristic assumes 256 bytes where nothing is said (cublasLt.h,
// CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES).
constexpr uint32_t kMostAlignment = 256;
// Experts of a grouped GEMM run side by side on this many streams.
constexpr size_t kLanes = 4;

struct Api {
  Api() : library({"libcublasLt.so.13", "libcublasLt.so.12"}) {
    library.Find("cublasLtCreate", &create);
    library.Find("cublasLtDestroy", &destroy);
    library.Find("cublasLtGetVersion", &version);
    library.Find("cublasLtGetStatusName", &status_name);
    library.Find("cublasLtMatmulDescCreate", &make_operation);
    library.Find("cublasLtMatmulDescDestroy", &drop_operation);
    library.Find("cublasLtMatmulDescSetAttribute", &set_operation);
    library.Find("cublasLtMatrixLayoutCreate", &make_layout);
    library.Find("cublasLtMatrixLayoutDestroy", &drop_layout);
    library.Find("cublasLtMatmulPreferenceCreate", &make_preference);
    library.Find("cublasLtMatmulPreferenceDestroy", &drop_preference);
    library.Find("cublasLtMatmulPreferenceSetAttribute", &set_preference);
    library.Find("cublasLtMatmulAlgoGetHeuristic", &heuristic);
    library.Find("cublasLtMatmulAlgoConfigGetAttribute", &algorithm_value);
    library.Find("cublasLtMatmul", &matmul);
  }

  Library library;
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtGetStatusName) status_name;
  decltype(&cublasLtMatmulDescCreate) make_operation;
  decltype(&cublasLtMatmulDescDestroy) drop_operation;
  decltype(&cublasLtMatmulDescSetAttribute) set_operation;
  decltype(&cublasLtMatrixLayoutCreate) make_layout;
  decltype(&cublasLtMatrixLayoutDestroy) drop_layout;
  decltype(&cublasLtMatmulPreferenceCreate) make_preference;
  decltype(&cublasLtMatmulPreferenceDestroy) drop_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) algorithm_value;
  decltype(&cublasLtMatmul) matmul;
};

const Api& Lt() {
  static const Api* api = new Api;
  return *api;
}

PwStatus FromLt(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return PW_OK;
  const PwStatus kind = status == CUBLAS_STATUS_NOT_SUPPORTED ||
                                status == CUBLAS_STATUS_INVALID_VALUE
                            ? PW_INVALID
                            : PW_FAILED;
  return Fail(kind, std::string(what) + ": " + Lt().status_name(status));
}

#define PW_LT(call) PW_RETURN_IF_FAILED(FromLt(Lt().call, "cublasLt: " #call))

cudaDataType InputType(PwType type) {
  if (type == PW_FP32) return CUDA_R_32F;
  return type == PW_FP8 ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
}

cudaDataType OutputType(const PwGemm& gemm) {
  if (gemm.pass == PW_GEMM_BACKWARD_WEIGHT || gemm.type == PW_FP32) {
    return CUDA_R_32F;
  }
  return CUDA_R_16BF;
}

int64_t InputBytes(PwType type) {
  if (type == PW_FP32) return 4;
  return type == PW_FP8 ? 1 : 2;
}

std::string Text(const PwGemm& gemm) {
  static constexpr const char* kPasses[] = {"forward", "backward input",
                                            "backward weight"};
  static constexpr const char* kTypes[] = {"fp32", "bf16", "fp8"};
  return std::string(kPasses[gemm.pass]) + " of " + kTypes[gemm.type] +
         ", tokens " + std::to_string(gemm.tokens) + ", inputs " +
         std::to_string(gemm.inputs) + ", outputs " +
         std::to_string(gemm.outputs);
}

PwStatus Check(const PwDevice* device, const PwGemm& gemm) {
  if (gemm.tokens < 0 || gemm.inputs < 1 || gemm.outputs < 1) {
    return Fail(PW_INVALID, "gemm: sizes below 1: " + Text(gemm));
  }
  if (gemm.type != PW_FP8) return PW_OK;
  if (device->capability < 89) {
    return Fail(PW_INVALID, "gemm: " + device->name +
                                " has no fp8; compute capability 8.9 does");
  }
  // cuBLAS manual, "cublasLtMatmul": fp8 needs sizes that 16 divides.
  if (gemm.tokens % 16 != 0 || gemm.inputs % 16 != 0 ||
      gemm.outputs % 16 != 0) {
    return Fail(PW_INVALID,
                "gemm: fp8 takes multiples of 16 only: " + Text(gemm));
  }
  return PW_OK;
}

}  // namespace

struct GemmPlan {
  ~GemmPlan() {
    for (cublasLtMatrixLayout_t matrix : {a, b, c}) {
      if (matrix != nullptr) Lt().drop_layout(matrix);
    }
    if (operation != nullptr) Lt().drop_operation(operation);
  }

  GemmLayout layout;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr;
  cublasLtMatrixLayout_t b = nullptr;
  cublasLtMatrixLayout_t c = nullptr;
  cublasLtMatmulAlgo_t algorithm;
  std::string name;
};

namespace {

PwStatus SetOperation(GemmPlan* plan, cublasLtMatmulDescAttributes_t attribute,
                      const void* value, size_t bytes) {
  PW_LT(set_operation(plan->operation, attribute, value, bytes));
  return PW_OK;
}

// Of this call; the heuristic wants to see one too.
PwStatus SetBias(GemmPlan* plan, const void* bias) {
  if (bias == nullptr) return PW_OK;
  return SetOperation(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                      sizeof(bias));
}

PwStatus Describe(const GemmKey& key, GemmPlan* plan) {
  const PwGemm& gemm = key.gemm;
  plan->layout = LayoutOf(gemm);
  const GemmLayout& layout = plan->layout;
  PW_LT(make_operation(&plan->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const cublasOperation_t a = layout.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t b = layout.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  PW_RETURN_IF_FAILED(
      SetOperation(plan, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof(a)));
  PW_RETURN_IF_FAILED(
      SetOperation(plan, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof(b)));
  const cudaDataType input = InputType(gemm.type);
  const cudaDataType output = OutputType(gemm);
  if (key.bias) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    PW_RETURN_IF_FAILED(SetOperation(plan, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                     &epilogue, sizeof(epilogue)));
    PW_RETURN_IF_FAILED(SetOperation(plan, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
                                     &output, sizeof(output)));
  }
  const auto make = [](const GemmMatrix& matrix, cudaDataType type,
                       cublasLtMatrixLayout_t* made) {
    PW_LT(make_layout(made, type, static_cast<uint64_t>(matrix.rows),
                      static_cast<uint64_t>(matrix.columns), matrix.leading));
    return PW_OK;
  };
  PW_RETURN_IF_FAILED(make(layout.a, input, &plan->a));
  PW_RETURN_IF_FAILED(make(layout.b, input, &plan->b));
  return make(layout.c, output, &plan->c);
}

std::string AlgorithmName(const cublasLtMatmulAlgo_t& algorithm) {
  const auto value = [&](cublasLtMatmulAlgoConfigAttributes_t attribute) {
    int32_t result = -1;
    size_t written = 0;
    Lt().algorithm_value(&algorithm, attribute, &result, sizeof(result),
                         &written);
    return std::to_string(result);
  };
  return "cublasLt:algorithm " + value(CUBLASLT_ALGO_CONFIG_ID) + ", tile " +
         value(CUBLASLT_ALGO_CONFIG_TILE_ID) + ", stages " +
         value(CUBLASLT_ALGO_CONFIG_STAGES_ID) + ", split-k " +
         value(CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
}

PwStatus Choose(cublasLtHandle_t handle, const GemmKey& key, GemmPlan* plan) {
  cublasLtMatmulPreference_t preference = nullptr;
  PW_LT(make_preference(&preference));
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute,
                       const auto& value) {
    return Lt().set_preference(preference, attribute, &value, sizeof(value));
  };
  // cuBLASLt's A is the second pointer of PwKernels.gemm where swapped; a
  // transposed copy starts at 256 bytes.
  const bool swapped = plan->layout.swapped;
  const uint32_t a = plan->layout.copy_a ? kMostAlignment
                     : swapped           ? key.b_alignment
                                         : key.a_alignment;
  const uint32_t b = plan->layout.copy_b ? kMostAlignment
                     : swapped           ? key.a_alignment
                                         : key.b_alignment;
  cublasLtMatmulHeuristicResult_t result = {};
  int found = 0;
  cublasStatus_t status =
      set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  for (const auto& [attribute, alignment] :
       {std::pair(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, a),
        std::pair(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, b),
        std::pair(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.c_alignment),
        std::pair(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
                  key.c_alignment)}) {
    if (status == CUBLAS_STATUS_SUCCESS) status = set(attribute, alignment);
  }
  if (status == CUBLAS_STATUS_SUCCESS) {
    status = Lt().heuristic(handle, plan->operation, plan->a, plan->b, plan->c,
                            plan->c, preference, 1, &result, &found);
  }
  Lt().drop_preference(preference);
  const std::string what = "cublasLt has no algorithm for " + Text(key.gemm);
  PW_RETURN_IF_FAILED(FromLt(status, what.c_str()));
  if (found == 0) return Fail(PW_INVALID, what);
  plan->algorithm = result.algo;
  plan->name = AlgorithmName(result.algo);
  return PW_OK;
}

}  // namespace

GemmPlans::GemmPlans() {
  if (!Lt().library.error().empty()) return;
  cublasLtHandle_t handle = nullptr;
  if (Lt().create(&handle) == CUBLAS_STATUS_SUCCESS) handle_ = handle;
}

GemmPlans::~GemmPlans() {
  if (handle_ != nullptr) {
    Lt().destroy(static_cast<cublasLtHandle_t>(handle_));
  }
}

std::string GemmPlans::Library() const {
  if (!Lt().library.error().empty()) return "no cublasLt";
  const size_t version = Lt().version();
  return "cublasLt " + std::to_string(version / 10000) + "." +
         std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

PwStatus GemmPlans::Plan(const GemmKey& key, const void* bias,
                         GemmPlan** plan) {
  const auto found = plans_.find(key);
  if (found != plans_.end()) {
    *plan = found->second.get();
    return PW_OK;
  }
  if (!Lt().library.error().empty()) {
    return Fail(PW_MISSING, "cuBLASLt is missing: " + Lt().library.error());
  }
  if (handle_ == nullptr) return Fail(PW_FAILED, "cublasLtCreate failed");
  auto made = std::make_unique<GemmPlan>();
  PW_RETURN_IF_FAILED(Describe(key, made.get()));
  PW_RETURN_IF_FAILED(SetBias(made.get(), bias));
  PW_RETURN_IF_FAILED(
      Choose(static_cast<cublasLtHandle_t>(handle_), key, made.get()));
  *plan = made.get();
  plans_.emplace(key, std::move(made));
  return PW_OK;
}

PwStatus GemmPlans::Run(PwDevice* device, PwStream* on, const PwGemm& gemm,
                        const void* a, const void* b, const void* bias,
                        void* c) {
  const GemmKey key = {gemm, bias != nullptr, AlignmentOf(a, kMostAlignment),
                       AlignmentOf(b, kMostAlignment),
                       AlignmentOf(c, kMostAlignment)};
  GemmPlan* plan = nullptr;
  PW_RETURN_IF_FAILED(Plan(key, bias, &plan));
  const GemmLayout& layout = plan->layout;
  const void* left = layout.swapped ? b : a;
  const void* right = layout.swapped ? a : b;
  if (layout.copy_a || layout.copy_b) {
    const int64_t a_bytes = layout.copy_a ? layout.k * layout.m : 0;
    const int64_t b_bytes = layout.copy_b ? layout.k * layout.n : 0;
    void* memory = nullptr;
    PW_RETURN_IF_FAILED(on->operands.Get(
        static_cast<size_t>(RoundUp(a_bytes, kMostAlignment) + b_bytes),
        &memory));
    uint8_t* copies = static_cast<uint8_t*>(memory);
    if (layout.copy_a) {
      PW_RETURN_IF_FAILED(
          TransposeBytes(on->stream, layout.k, layout.m, left, copies));
      left = copies;
    }
    if (layout.copy_b) {
      uint8_t* copy = copies + RoundUp(a_bytes, kMostAlignment);
      PW_RETURN_IF_FAILED(
          TransposeBytes(on->stream, layout.k, layout.n, right, copy));
      right = copy;
    }
  }
  PW_RETURN_IF_FAILED(SetBias(plan, bias));
  void* workspace = nullptr;
  PW_RETURN_IF_FAILED(on->gemm.Get(kWorkspaceBytes, &workspace));
  const float alpha = 1.0f;
  const float beta = layout.accumulate ? 1.0f : 0.0f;
  PW_LT(matmul(static_cast<cublasLtHandle_t>(handle_), plan->operation, &alpha,
               left, plan->a, right, plan->b, &beta, c, plan->c, c, plan->c,
               &plan->algorithm, workspace, kWorkspaceBytes, on->stream));
  device->implementation = plan->name;
  return PW_OK;
}

PwStatus Gemm(PwDevice* device, PwStream* stream, const PwGemm* gemm,
              const void* a, const void* b, const void* bias, void* c) {
  PW_RETURN_IF_FAILED(Enter(device));
  PW_RETURN_IF_FAILED(Check(device, *gemm));
  if (bias != nullptr && gemm->pass != PW_GEMM_FORWARD) {
    return Fail(PW_INVALID, "gemm: a bias is for the forward pass only");
  }
  if (gemm->tokens == 0) return PW_OK;
  return device->gemm_plans->Run(device, StreamOf(device, stream), *gemm, a, b,
                                 bias, c);
}

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
  const int64_t output_bytes = OutputType(*gemm) == CUDA_R_32F ? 4 : 2;
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
    status = Check(device, one);
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
