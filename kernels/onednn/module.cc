// Built as libpipewright_onednn.so: all that is linked with oneDNN.
#include "kernels/onednn/module.h"

#include <dnnl.h>
#include <stdio.h>

#include <dnnl.hpp>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

// oneDNN runs on GNU OpenMP, whose setting is the calling thread's own.
extern "C" void omp_set_num_threads(int);

namespace pipewright {

// bf16 products by oneDNN's matmul primitive. oneDNN 3 has no operation
// descriptors.
#if DNNL_VERSION_MAJOR == 2

namespace {

using dnnl::memory;

memory::desc Matrix(memory::dims dims, memory::data_type type,
                    bool transposed) {
  // `dims` as matmul sees them; transposed: the columns are dense.
  const memory::dims strides =
      transposed ? memory::dims{1, dims[0]} : memory::dims{dims[1], 1};
  return memory::desc(dims, type, strides);
}

struct Primitive {
  dnnl::matmul matmul;
  memory::desc left;
  memory::desc right;
  memory::desc bias;
  memory::desc to;
  std::string name;
};

}  // namespace

struct OneDnnBf16 {
 public:
  OneDnnBf16() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

  // Throws dnnl::error.
  void Run(const PwGemm& gemm, const void* a, const void* b, const void* bias,
           void* c) {
    const Primitive& primitive = Find(gemm, bias != nullptr);
    // W is dy^T x; the header's order is x, dy.
    const bool weight = gemm.pass == PW_GEMM_BACKWARD_WEIGHT;
    std::unordered_map<int, memory> arguments = {
        {DNNL_ARG_SRC, Wrap(primitive.left, weight ? b : a)},
        {DNNL_ARG_WEIGHTS, Wrap(primitive.right, weight ? a : b)},
        {DNNL_ARG_DST, Wrap(primitive.to, c)}};
    if (bias != nullptr) {
      arguments.emplace(DNNL_ARG_BIAS, Wrap(primitive.bias, bias));
    }
    primitive.matmul.execute(stream_, arguments);
    stream_.wait();
    implementation_ = primitive.name;
  }

  const char* implementation() const { return implementation_.c_str(); }

  // Throws dnnl::error where there is no bf16.
  const std::string& Probe() {
    const PwGemm gemm = {PW_GEMM_FORWARD, PW_BF16, 64, 64, 64};
    return Find(gemm, false).name;
  }

 private:
  using Key = std::tuple<int, int64_t, int64_t, int64_t, bool>;

  memory Wrap(const memory::desc& desc, const void* data) {
    return memory(desc, engine_, const_cast<void*>(data));
  }

  const Primitive& Find(const PwGemm& gemm, bool biased) {
    const Key key(gemm.pass, gemm.tokens, gemm.inputs, gemm.outputs, biased);
    const auto found = primitives_.find(key);
    if (found != primitives_.end()) return found->second;
    const auto bf16 = memory::data_type::bf16;
    const int64_t tokens = gemm.tokens;
    const int64_t inputs = gemm.inputs;
    const int64_t outputs = gemm.outputs;
    Primitive made;
    dnnl::primitive_attr attributes;
    if (gemm.pass == PW_GEMM_FORWARD) {
      made.left = Matrix({tokens, inputs}, bf16, false);
      made.right = Matrix({inputs, outputs}, bf16, true);
      made.to = Matrix({tokens, outputs}, bf16, false);
    } else if (gemm.pass == PW_GEMM_BACKWARD_INPUT) {
      made.left = Matrix({tokens, outputs}, bf16, false);
      made.right = Matrix({outputs, inputs}, bf16, false);
      made.to = Matrix({tokens, inputs}, bf16, false);
    } else {
      made.left = Matrix({outputs, tokens}, bf16, true);
      made.right = Matrix({tokens, inputs}, bf16, false);
      made.to = Matrix({outputs, inputs}, memory::data_type::f32, false);
      dnnl::post_ops add;
      add.append_sum(1.0f);
      attributes.set_post_ops(add);
    }
    if (biased) made.bias = Matrix({1, outputs}, bf16, false);
    const dnnl::matmul::desc operation =
        biased ? dnnl::matmul::desc(made.left, made.right, made.bias, made.to)
               : dnnl::matmul::desc(made.left, made.right, made.to);
    const dnnl::matmul::primitive_desc desc(operation, attributes, engine_);
    made.name = desc.impl_info_str();
    made.matmul = dnnl::matmul(desc);
    return primitives_.emplace(key, std::move(made)).first->second;
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  std::map<Key, Primitive> primitives_;
  std::string implementation_;
};

OneDnnBf16* OpenBf16(char* name, size_t size) {
  try {
    auto bf16 = std::make_unique<OneDnnBf16>();
    snprintf(name, size, "%s", bf16->Probe().c_str());
    return bf16.release();
  } catch (const dnnl::error&) {
    return nullptr;
  }
}

void CloseBf16(OneDnnBf16* bf16) { delete bf16; }

bool RunBf16(OneDnnBf16* bf16, const PwGemm& gemm, const void* a, const void* b,
             const void* bias, void* c, char* error, size_t size) {
  try {
    bf16->Run(gemm, a, b, bias, c);
    return true;
  } catch (const dnnl::error& problem) {
    snprintf(error, size, "%s", problem.what());
    return false;
  }
}

const char* Bf16Implementation(const OneDnnBf16* bf16) {
  return bf16->implementation();
}

#else

OneDnnBf16* OpenBf16(char*, size_t) { return nullptr; }
void CloseBf16(OneDnnBf16*) {}
bool RunBf16(OneDnnBf16*, const PwGemm&, const void*, const void*, const void*,
             void*, char*, size_t) {
  return false;
}
const char* Bf16Implementation(const OneDnnBf16*) { return ""; }

#endif

namespace {

void UseOneThread() {
  thread_local const bool done = (omp_set_num_threads(1), true);
  (void)done;
}

const char* IsaName() {
  switch (dnnl_get_effective_cpu_isa()) {
    case dnnl_cpu_isa_sse41:
      return "sse41";
    case dnnl_cpu_isa_avx:
      return "avx";
    case dnnl_cpu_isa_avx2:
      return "avx2";
    case dnnl_cpu_isa_avx512_core:
      return "avx512_core";
    case dnnl_cpu_isa_avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl_cpu_isa_avx512_core_bf16:
      return "avx512_core_bf16";
    case dnnl_cpu_isa_avx512_core_amx:
      return "avx512_core_amx";
    default:
      return "newer";
  }
}

const char* Version() {
  static const std::string text = [] {
    const dnnl_version_t* version = dnnl_version();
    return std::to_string(version->major) + "." +
           std::to_string(version->minor) + "." +
           std::to_string(version->patch);
  }();
  return text.c_str();
}

int Sgemm(const SgemmShape& shape, const float* a, const float* b, float* c) {
  UseOneThread();
  return dnnl_sgemm(shape.transpose_a ? 'T' : 'N',
                    shape.transpose_b ? 'T' : 'N', shape.rows, shape.columns,
                    shape.depth, shape.alpha, a, shape.a_stride, b,
                    shape.b_stride, shape.beta, c, shape.c_stride);
}

}  // namespace
}  // namespace pipewright

extern "C" __attribute__((visibility("default")))
const pipewright::OneDnnModule*
pipewright_onednn() {
  static const pipewright::OneDnnModule module = {
      .abi = pipewright::kOneDnnModuleAbi,
      .version = pipewright::Version,
      .isa = pipewright::IsaName,
      .sgemm = pipewright::Sgemm,
      .out_of_memory = dnnl_out_of_memory,
      .open_bf16 = pipewright::OpenBf16,
      .close_bf16 = pipewright::CloseBf16,
      .run_bf16 = pipewright::RunBf16,
      .bf16_implementation = pipewright::Bf16Implementation,
  };
  return &module;
}
