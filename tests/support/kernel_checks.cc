#include "tests/support/kernel_checks.h"

#include <math.h>

#include <algorithm>

#include "kernels/random.h"
#include "sim/base/worst.h"

namespace pipewright {

Values RandomValues(int64_t count, uint64_t seed, double scale) {
  Values values(count);
  for (int64_t index = 0; index < count; ++index) {
    values[index] = pw_random_value(seed, index, static_cast<float>(scale));
  }
  return values;
}

KernelCheck MakeKernelCheck(
    const std::string& name, bool gemm, bool odd,
    std::function<void(KernelRig*, KernelCompare*, PwType)> run,
    double looser) {
  const auto check = [run, looser](const PwKernels* kernels, PwDevice* device,
                                   PwType type) {
    KernelRig rig(kernels, device);
    KernelCompare compare(&rig, looser * (type == PW_FP32 ? 2e-6 : 8e-3));
    run(&rig, &compare, type);
    return compare.Result();
  };
  return {name, gemm, odd, check};
}

std::string ShapeText(const std::vector<int64_t>& sizes) {
  std::string text;
  for (const int64_t size : sizes) {
    text.append(text.empty() ? " " : "x").append(std::to_string(size));
  }
  return text;
}

void KernelCompare::Tensor(const std::string& name, const Values& got,
                           const Values& want) {
  double largest = 0;
  for (const double value : want) largest = std::max(largest, fabs(value));
  if (largest == 0) largest = 1;
  double error = got.size() == want.size() ? 0 : INFINITY;
  for (size_t index = 0; index < std::min(got.size(), want.size()); ++index) {
    error = WorseOf(error, fabs(got[index] - want[index]) / largest);
  }
  if (IsWorse(error, result_.error)) {
    result_.error = error;
    result_.tensor = name;
  }
}

void KernelCompare::Device(const std::string& name, const void* got,
                           PwType type, const Values& want) {
  Tensor(name, rig_.Get(got, want.size(), type), want);
}

void KernelCompare::WithFp8Cores(double tolerance) {
  PwDeviceInfo info = {};
  rig_.Ok(rig_.kernels()->info(rig_.device(), &info), "info");
  if (info.fp8_gemm == 1) result_.tolerance = tolerance;
}

void KernelCompare::Bits(const std::string& name,
                         const std::vector<uint8_t>& first,
                         const std::vector<uint8_t>& second) {
  if (first == second || !result_.problem.empty()) return;
  result_.problem = name + ": bits differ";
}

KernelResult KernelCompare::Result() {
  result_.refused = rig_.refused();
  const std::string problem = rig_.Problem();
  if (!problem.empty()) result_.problem = problem;
  return result_;
}

}  // namespace pipewright
