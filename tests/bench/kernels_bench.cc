// What the passes of a layer cost beyond their GEMMs, on the CPU backend: each
// pass, the GEMMs of its linear layers alone, and the pass with GEMMs left out
// (norms, activations, attention, copies: the stated rest) run by turns in one
// process. `over_gemm` is (pass - rest) / GEMMs, the figure that must stay
// below 1.11; `rest_share` is rest / pass.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/layer.h"
#include "sim/base/statistics.h"

namespace {

using pipewright::Median;

PwStatus NoGemm(PwDevice*, PwStream*, const PwGemm*, const void*, const void*,
                const void*, void*) {
  return PW_OK;
}

class LayerBench {
 public:
  LayerBench(PwStyle style, int64_t tokens) {
    kernels_ = *pw_cpu_kernels();
    without_ = kernels_;
    without_.gemm = NoGemm;
    kernels_.open(0, &device_);
    kernels_.create_event(device_, &before_);
    kernels_.create_event(device_, &after_);
    model_ = {style, PW_FP32, 1024, 16, 16, 64,    4096,
              1024,  tokens,  1,    1,  0,  1e-5f, 10000};
    if (style == PW_LLAMA) model_.ffn = 2816;
    work_ = {1, tokens, 0, tokens};
    PwPartSize size{};
    pw_part_size(&kernels_, device_, &model_, &work_, PW_LAYER, &size);
    memory_.weights = Make(size.parameters * sizeof(float));
    memory_.gradients =
        static_cast<float*>(Make(size.parameters * sizeof(float)));
    memory_.input = Make(size.boundary);
    memory_.output = Make(size.boundary);
    memory_.output_gradient = Make(size.boundary);
    memory_.input_gradient = Make(size.boundary);
    memory_.saved = Make(size.saved);
    memory_.inputs = Make(size.inputs);
    memory_.grads = Make(size.grads);
    memory_.workspace = Make(size.workspace);
    scratch_ = Make(size.parameters * sizeof(float));
    pw_initialize(&kernels_, device_, nullptr, &model_, PW_LAYER, 1,
                  static_cast<float*>(const_cast<void*>(memory_.weights)),
                  nullptr);
  }
  ~LayerBench() {
    for (void* block : blocks_) kernels_.release(device_, block);
    kernels_.destroy_event(device_, before_);
    kernels_.destroy_event(device_, after_);
    kernels_.close(device_);
  }

  double Pass(PwPassKind pass, bool gemms) {
    const PwKernels* kernels = gemms ? &kernels_ : &without_;
    const auto run = pass == PW_PASS_F   ? pw_forward
                     : pass == PW_PASS_B ? pw_backward_input
                                         : pw_backward_weight;
    return Time([&] {
      run(kernels, device_, nullptr, &model_, &work_, PW_LAYER, &memory_);
    });
  }

  // The pass's own GEMMs on memory of the same size, weights where they are.
  double Gemms(PwPassKind pass) {
    PwGemm gemms[8];
    const int32_t count = pw_pass_gemms(&model_, &work_, PW_LAYER, pass, gemms);
    return Time([&] {
      const float* weights = static_cast<const float*>(memory_.weights);
      for (int32_t index = 0; index < count; ++index) {
        const bool weight = pass == PW_PASS_W;
        kernels_.gemm(
            device_, nullptr, &gemms[index], memory_.inputs,
            weight ? memory_.grads : static_cast<const void*>(weights), nullptr,
            weight ? scratch_ : memory_.workspace);
        weights += gemms[index].inputs * gemms[index].outputs;
      }
    });
  }

 private:
  void* Make(size_t bytes) {
    void* memory = nullptr;
    bytes = std::max<size_t>(bytes, size_t{1} << 24);
    kernels_.allocate(device_, bytes, &memory);
    kernels_.random(device_, nullptr, PW_FP32, memory, bytes / sizeof(float),
                    blocks_.size(), 1.0f);
    blocks_.push_back(memory);
    return memory;
  }
  template <typename Run>
  double Time(Run run) {
    double seconds = 0;
    kernels_.record(device_, nullptr, before_);
    run();
    kernels_.record(device_, nullptr, after_);
    kernels_.elapsed(device_, before_, after_, &seconds);
    return seconds;
  }

  PwKernels kernels_;
  PwKernels without_;
  PwDevice* device_ = nullptr;
  PwEvent* before_ = nullptr;
  PwEvent* after_ = nullptr;
  PwModel model_;
  PwWork work_;
  PwPartMemory memory_{};
  void* scratch_;
  std::vector<void*> blocks_;
};

// Arguments: style, pass. Hidden 1024, 512 tokens.
void BM_LayerPass(benchmark::State& state) {
  const auto pass = static_cast<PwPassKind>(state.range(1));
  LayerBench bench(static_cast<PwStyle>(state.range(0)), 512);
  for (const PwPassKind before : {PW_PASS_F, PW_PASS_B, PW_PASS_W}) {
    bench.Pass(before, true);
  }
  std::vector<double> whole;
  std::vector<double> gemms;
  std::vector<double> rest;
  for (auto _ : state) {
    whole.push_back(bench.Pass(pass, true));
    gemms.push_back(bench.Gemms(pass));
    rest.push_back(bench.Pass(pass, false));
  }
  state.counters["pass_ms"] = 1e3 * Median(whole);
  state.counters["gemm_ms"] = 1e3 * Median(gemms);
  state.counters["rest_ms"] = 1e3 * Median(rest);
  state.counters["over_gemm"] = (Median(whole) - Median(rest)) / Median(gemms);
  state.counters["rest_share"] = Median(rest) / Median(whole);
}
BENCHMARK(BM_LayerPass)
    ->ArgsProduct({{PW_GPT, PW_LLAMA}, {PW_PASS_F, PW_PASS_B, PW_PASS_W}})
    ->ArgNames({"style", "pass"})
    ->Unit(benchmark::kMillisecond);

}  // namespace
