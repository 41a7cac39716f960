#include "kernels/cpu/bf16_gemm.h"

#ifdef PIPEWRIGHT_ONEDNN
#include <dnnl.hpp>
#endif

#include <map>
#include <tuple>

#include "kernels/cpu/device.h"

namespace pipewright {

// oneDNN 3 has no operation descriptors.
#if defined(PIPEWRIGHT_ONEDNN) && DNNL_VERSION_MAJOR == 2

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

class OneDnnBf16Gemm : public Bf16Gemm {
 public:
  OneDnnBf16Gemm() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

  PwStatus Run(const PwGemm& gemm, const void* a, const void* b,
               const void* bias, void* c) override {
    try {
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
      return PW_OK;
    } catch (const dnnl::error& error) {
      return Fail(PW_FAILED, "gemm: oneDNN: %s", error.what());
    }
  }

  std::string Implementation() const override { return implementation_; }

  std::string Probe() {
    try {
      const PwGemm gemm = {PW_GEMM_FORWARD, PW_BF16, 64, 64, 64};
      return Find(gemm, false).name;
    } catch (const dnnl::error&) {
      return "";
    }
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

}  // namespace

std::unique_ptr<Bf16Gemm> Bf16Gemm::Create(Bf16Products wanted) {
  if (wanted == Bf16Products::kOff) return nullptr;
  auto gemm = std::make_unique<OneDnnBf16Gemm>();
  const std::string name = gemm->Probe();
  if (name.empty()) return nullptr;
  if (wanted == Bf16Products::kWhereFast &&
      name.find("amx") == std::string::npos) {
    return nullptr;
  }
  return gemm;
}

#else

std::unique_ptr<Bf16Gemm> Bf16Gemm::Create(Bf16Products) { return nullptr; }

#endif

}  // namespace pipewright
