// The passes of the parts of a model on the CPU backend.
#include <catch2/catch.hpp>

#include "kernels/kernels.h"
#include "tests/support/kernel_checks.h"

namespace pipewright::pass_test {
namespace {

void RunAll(const std::vector<KernelCheck>& checks, PwType type) {
  const PwKernels* kernels = pw_cpu_kernels();
  PwDevice* device = nullptr;
  REQUIRE(kernels->open(0, &device) == PW_OK);
  for (const KernelCheck& check : checks) {
    const KernelResult result = check.run(kernels, device, type);
    INFO(check.name << ": " << result.tensor << " error " << result.error
                    << " of " << result.tolerance << " " << result.problem);
    CHECK(result.ok());
  }
  kernels->close(device);
}

TEST_CASE("kernels: every pass is that of the reference", "[kernels]") {
  RunAll(PassChecks(), PW_FP32);
}

// Emulated; beside fp32, and beside bf16, of which a layer needs no product.
TEST_CASE("kernels: fp8 is quantised and multiplied as it should",
          "[kernels]") {
  RunAll(Fp8Checks(), PW_FP32);
  RunAll(Fp8Checks(), PW_BF16);
}

TEST_CASE("kernels: a layer in fp8 is that of the reference", "[kernels]") {
  RunAll(Fp8LayerChecks(), PW_FP32);
  RunAll(Fp8LayerChecks(), PW_BF16);
}

TEST_CASE("kernels: B and W are the numeric gradient", "[kernels][long]") {
  RunAll(GradientChecks(), PW_FP32);
}

}  // namespace
}  // namespace pipewright::pass_test
