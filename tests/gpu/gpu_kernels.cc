// Every check of kernels on a CUDA device, against float64, as a table.
//
//   gpu_kernels [SUBSTRING]    only checks whose name has it
//
// Exit 0: all hold; 1: not, or the library is broken; 77: no CUDA device.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>

#include "kernels/loader.h"
#include "tests/gpu/cuda_checks.h"
#include "tests/support/kernel_checks.h"

namespace pipewright {
namespace {

struct Count {
  int passed = 0;
  int refused = 0;
  int failed = 0;
};

void RunAll(const PwKernels* kernels, PwDevice* device, const char* filter,
            const std::vector<KernelCheck>& checks, PwType type, Count* count) {
  for (const KernelCheck& check : checks) {
    if (check.name.find(filter) == std::string::npos) continue;
    const auto start = std::chrono::steady_clock::now();
    const KernelResult result = check.run(kernels, device, type);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
            .count();
    const char* verdict = "ok";
    // An odd shape that our own rules refuse is nothing to complain of.
    // cuBLASLt was only asked for what its manual allows.
    const auto says = [&result](const char* text) {
      return result.problem.find(text) != std::string::npos;
    };
    const bool allowed =
        check.odd && !says("CUBLAS_STATUS") && !says("has no algorithm");
    // cuDNN was asked and failed: right numbers, in tens of times the time.
    const std::string implementation = kernels->implementation(device);
    const bool slow = implementation.find("attention; ") != std::string::npos;
    if (result.refused && allowed) {
      verdict = "refused";
      ++count->refused;
    } else if (result.ok() && !result.refused && !slow) {
      ++count->passed;
    } else {
      verdict = "FAILED";
      ++count->failed;
    }
    std::printf("%-8s %-5s %-58s %9.2e of %7.1e %-18s %6.2f s %s %s\n", verdict,
                type == PW_BF16 ? "bf16" : "fp32", check.name.c_str(),
                result.error, result.tolerance, result.tensor.c_str(), seconds,
                implementation.c_str(), result.problem.c_str());
    std::fflush(stdout);
  }
}

int Main(const char* filter) {
  char error[1024] = "";
  const PwKernels* kernels = pw_load_kernels("cuda", error, sizeof(error));
  if (kernels == nullptr) {
    // A library that does not load is a failure: it was built for this.
    const bool no_device = std::strncmp(error, "no CUDA device", 14) == 0;
    std::printf("%s: %s\n", no_device ? "SKIP" : "FAILED", error);
    return no_device ? 77 : 1;
  }
  PwDevice* device = nullptr;
  PwDeviceInfo info;
  if (kernels->open(0, &device) != PW_OK ||
      kernels->info(device, &info) != PW_OK) {
    std::printf("FAILED: %s\n", kernels->error());
    return 1;
  }
  std::printf("%s, sm_%d, driver %s, %s\n", info.name, info.capability,
              info.driver, info.libraries);
  Count count;
  RunAll(kernels, device, filter, CudaChecks(), PW_BF16, &count);
  for (const PwType type : {PW_FP32, PW_BF16}) {
    RunAll(kernels, device, filter, PrimitiveChecks(), type, &count);
    RunAll(kernels, device, filter, PassChecks(), type, &count);
    RunAll(kernels, device, filter, Fp8Checks(), type, &count);
    RunAll(kernels, device, filter, Fp8LayerChecks(), type, &count);
  }
  // Numeric gradients need fp32.
  RunAll(kernels, device, filter, GradientChecks(), PW_FP32, &count);
  kernels->close(device);
  std::printf("%d passed, %d refused, %d failed\n", count.passed, count.refused,
              count.failed);
  return count.failed == 0 && count.passed > 0 ? 0 : 1;
}

}  // namespace
}  // namespace pipewright

int main(int count, char** arguments) {
  return pipewright::Main(count > 1 ? arguments[1] : "");
}
