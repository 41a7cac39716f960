// Linear layers, alone and grouped by expert.
#include "tests/support/kernel_checks.h"

namespace pipewright {
namespace {

void RunGemm(KernelRig* rig, KernelCompare* compare, PwType type,
             int64_t tokens, int64_t inputs, int64_t outputs) {
  const PwKernels& kernels = *rig->kernels();
  PwDevice* device = rig->device();
  Values x = RandomValues(tokens * inputs, 1, 1);
  Values w = RandomValues(outputs * inputs, 2, 1);
  Values dy = RandomValues(tokens * outputs, 3, 1);
  Values bias = RandomValues(outputs, 4, 1);
  Values dw = RandomValues(outputs * inputs, 5, 1);
  void* x_there = rig->Put(&x, type);
  void* w_there = rig->Put(&w, type);
  void* dy_there = rig->Put(&dy, type);
  void* bias_there = rig->Put(&bias, type);
  void* dw_there = rig->Put(&dw, PW_FP32);
  PwGemm gemm = {PW_GEMM_FORWARD, type, tokens, inputs, outputs};
  for (const bool biased : {false, true}) {
    void* y = rig->Space(tokens * outputs, type);
    rig->Ok(kernels.gemm(device, nullptr, &gemm, x_there, w_there,
                         biased ? bias_there : nullptr, y),
            "gemm forward");
    compare->Device(
        "y", y, type,
        RefLinear(x, w, biased ? bias : Values(), tokens, inputs, outputs));
  }
  void* dx = rig->Space(tokens * inputs, type);
  gemm.pass = PW_GEMM_BACKWARD_INPUT;
  rig->Ok(kernels.gemm(device, nullptr, &gemm, dy_there, w_there, nullptr, dx),
          "gemm backward input");
  compare->Device("dx", dx, type,
                  RefLinearInput(dy, w, tokens, inputs, outputs));
  gemm.pass = PW_GEMM_BACKWARD_WEIGHT;
  rig->Ok(kernels.gemm(device, nullptr, &gemm, x_there, dy_there, nullptr,
                       dw_there),
          "gemm backward weight");
  Values want = RefLinearWeight(x, dy, tokens, inputs, outputs);
  for (size_t index = 0; index < want.size(); ++index) want[index] += dw[index];
  compare->Device("dw", dw_there, PW_FP32, want);
}

// Values of rows [first, first + count) of `columns` each.
Values Rows(const Values& all, int64_t first, int64_t count, int64_t columns) {
  return Values(all.begin() + first * columns,
                all.begin() + (first + count) * columns);
}

void RunGrouped(KernelRig* rig, KernelCompare* compare, PwType type) {
  const std::vector<int64_t> tokens_of = {5, 0, 17, 2};
  const int64_t tokens = 24;
  const int64_t inputs = 40;
  const int64_t outputs = 24;
  const int64_t expert = inputs * outputs;
  Values x = RandomValues(tokens * inputs, 1, 1);
  Values w = RandomValues(4 * expert, 2, 1);
  Values dy = RandomValues(tokens * outputs, 3, 1);
  Values dw = RandomValues(4 * expert, 5, 1);
  Values y_want;
  Values dx_want;
  Values dw_want;
  int64_t first = 0;
  for (size_t group = 0; group < tokens_of.size(); ++group) {
    const int64_t count = tokens_of[group];
    const Values own = Rows(w, group, 1, expert);
    const Values x_own = Rows(x, first, count, inputs);
    const Values dy_own = Rows(dy, first, count, outputs);
    const auto append = [](Values* to, const Values& from) {
      to->insert(to->end(), from.begin(), from.end());
    };
    append(&y_want, RefLinear(x_own, own, {}, count, inputs, outputs));
    append(&dx_want, RefLinearInput(dy_own, own, count, inputs, outputs));
    append(&dw_want, RefLinearWeight(x_own, dy_own, count, inputs, outputs));
    first += count;
  }
  // What the device starts from is rounded: compare from that.
  void* x_there = rig->Put(&x, type);
  void* w_there = rig->Put(&w, type);
  void* dy_there = rig->Put(&dy, type);
  void* dw_there = rig->Put(&dw, PW_FP32);
  for (size_t index = 0; index < dw.size(); ++index)
    dw_want[index] += dw[index];
  void* y = rig->Space(tokens * outputs, type);
  void* dx = rig->Space(tokens * inputs, type);
  PwGemm gemm = {PW_GEMM_FORWARD, type, tokens, inputs, outputs};
  const PwKernels& kernels = *rig->kernels();
  rig->Ok(kernels.grouped_gemm(rig->device(), nullptr, &gemm, 4,
                               tokens_of.data(), x_there, w_there, y),
          "grouped_gemm forward");
  gemm.pass = PW_GEMM_BACKWARD_INPUT;
  rig->Ok(kernels.grouped_gemm(rig->device(), nullptr, &gemm, 4,
                               tokens_of.data(), dy_there, w_there, dx),
          "grouped_gemm backward input");
  gemm.pass = PW_GEMM_BACKWARD_WEIGHT;
  rig->Ok(kernels.grouped_gemm(rig->device(), nullptr, &gemm, 4,
                               tokens_of.data(), x_there, dy_there, dw_there),
          "grouped_gemm backward weight");
  compare->Device("y", y, type, y_want);
  compare->Device("dx", dx, type, dx_want);
  compare->Device("dw", dw_there, PW_FP32, dw_want);
}

}  // namespace

std::vector<KernelCheck> GemmChecks() {
  std::vector<KernelCheck> checks;
  const int64_t shapes[][3] = {{1, 8, 8},      {64, 96, 128}, {128, 64, 32},
                               {37, 53, 29},   {1, 1, 1},     {3, 400, 5},
                               {50, 1024, 48}, {200, 33, 130}};
  for (const int64_t(&shape)[3] : shapes) {
    const int64_t tokens = shape[0];
    const int64_t inputs = shape[1];
    const int64_t outputs = shape[2];
    const bool odd = inputs % 8 != 0 || outputs % 8 != 0;
    checks.push_back(MakeKernelCheck(
        "gemm" + ShapeText({tokens, inputs, outputs}), true, odd,
        [=](KernelRig* rig, KernelCompare* compare, PwType type) {
          RunGemm(rig, compare, type, tokens, inputs, outputs);
        }));
  }
  checks.push_back(MakeKernelCheck("grouped gemm", true, false, RunGrouped));
  return checks;
}

}  // namespace pipewright
