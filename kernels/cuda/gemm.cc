#include "kernels/cuda/gemm.h"

#include <cublasLt.h>

#include <algorithm>
#include <utility>

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

struct Api {
  explicit Api(Library loaded) : library(std::move(loaded)) {
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

// Functions of the version that was compiled against, if it works with this
// driver. First called with the device current.
const Api& Lt() {
  static const Api* api =
      FirstThatOpens<Api>(
          LibraryPlaces("libcublasLt", MajorsToTry(CUBLAS_VER_MAJOR)),
          [](const Api& tried) {
            cublasLtHandle_t handle = nullptr;
            if (tried.create(&handle) != CUBLAS_STATUS_SUCCESS) return false;
            tried.destroy(handle);
            return true;
          })
          .release();
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

// Type of cuBLASLt's A or B.
cudaDataType InputType(const PwGemm& gemm, bool is_dy) {
  if (gemm.type == PW_FP32) return CUDA_R_32F;
  if (gemm.type != PW_FP8) return CUDA_R_16BF;
  return is_dy && gemm.dy_e5m2 != 0 ? CUDA_R_8F_E5M2 : CUDA_R_8F_E4M3;
}

cudaDataType OutputType(const PwGemm& gemm) {
  const bool wide = gemm.pass == PW_GEMM_BACKWARD_WEIGHT ||
                    gemm.type == PW_FP32 ||
                    (gemm.type == PW_FP8 && gemm.fp32_output != 0);
  return wide ? CUDA_R_32F : CUDA_R_16BF;
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

}  // namespace

PwStatus CheckGemm(const PwDevice* device, const PwGemm& gemm) {
  if (gemm.tokens < 0 || gemm.inputs < 1 || gemm.outputs < 1) {
    return Fail(PW_INVALID, "gemm: sizes below 1: " + Text(gemm));
  }
  if (gemm.type != PW_FP8) {
    if (gemm.dy_e5m2 == 0 && gemm.a_scale == nullptr &&
        gemm.b_scale == nullptr && gemm.transposed == 0 &&
        gemm.fp32_output == 0) {
      return PW_OK;
    }
    return Fail(
        PW_INVALID,
        "gemm: e5m2, scales and transposed operands are of fp8: " + Text(gemm));
  }
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
  for (const float* scale : {gemm.a_scale, gemm.b_scale}) {
    if (reinterpret_cast<uintptr_t>(scale) % PW_SCALE_ALIGNMENT != 0) {
      return Fail(PW_INVALID, "gemm: a scale lies at a multiple of 16 bytes: " +
                                  Text(gemm));
    }
  }
  return PW_OK;
}

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

// Sets the bias of this call; the heuristic wants to see one too.
PwStatus SetBias(GemmPlan* plan, const void* bias) {
  if (bias == nullptr) return PW_OK;
  return SetOperation(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                      sizeof(bias));
}

// Sets the scales of this call, as cuBLASLt's A and B stand; NULL is 1.
PwStatus SetScales(GemmPlan* plan, const PwGemm& gemm) {
  if (gemm.type != PW_FP8) return PW_OK;
  const bool swapped = plan->layout.swapped;
  const void* a = swapped ? gemm.b_scale : gemm.a_scale;
  const void* b = swapped ? gemm.a_scale : gemm.b_scale;
  PW_RETURN_IF_FAILED(
      SetOperation(plan, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &a, sizeof(a)));
  return SetOperation(plan, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &b,
                      sizeof(b));
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
  // dy is a of the pass B, cuBLASLt's B there, and b of W, its B too.
  const cudaDataType first = InputType(gemm, false);
  const cudaDataType second = InputType(gemm, gemm.pass != PW_GEMM_FORWARD);
  const cudaDataType output = OutputType(gemm);
  if (gemm.type == PW_FP8 && gemm.pass == PW_GEMM_FORWARD) {
    // Partial sums stay in the tensor cores' own accumulators in F, and in F
    // alone, as in TransformerEngine's recipes for fp8.
    const int8_t fast = 1;
    PW_RETURN_IF_FAILED(SetOperation(plan, CUBLASLT_MATMUL_DESC_FAST_ACCUM,
                                     &fast, sizeof(fast)));
  }
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
  PW_RETURN_IF_FAILED(make(layout.a, first, &plan->a));
  PW_RETURN_IF_FAILED(make(layout.b, second, &plan->b));
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
  if (status != CUBLAS_STATUS_SUCCESS || found == 0) {
    // It refuses places too, and wants memory.
    const std::string what =
        "cublasLt has no algorithm for " + Text(key.gemm) + ", operands at " +
        std::to_string(key.a_alignment) + ", " +
        std::to_string(key.b_alignment) + " and " +
        std::to_string(key.c_alignment) + " bytes; " + FreeText();
    PW_RETURN_IF_FAILED(FromLt(status, what.c_str()));
    return Fail(PW_INVALID, what);
  }
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
  // The heuristic of fp8 chooses by whether there are scales.
  PW_RETURN_IF_FAILED(SetScales(made.get(), key.gemm));
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
  PW_RETURN_IF_FAILED(SetScales(plan, gemm));
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
  PW_RETURN_IF_FAILED(CheckGemm(device, *gemm));
  if (bias != nullptr && gemm->pass != PW_GEMM_FORWARD) {
    return Fail(PW_INVALID, "gemm: a bias is for the forward pass only");
  }
  // cuBLAS manual, "cublasLtMatmul": a bias of fp8 is bf16 also where D is not.
  if (bias != nullptr && gemm->fp32_output != 0) {
    return Fail(PW_INVALID,
                "gemm: a bias of fp8 is bf16, and so is its result");
  }
  if (gemm->tokens == 0) return PW_OK;
  return device->gemm_plans->Run(device, StreamOf(device, stream), *gemm, a, b,
                                 bias, c);
}

}  // namespace pipewright::cuda
