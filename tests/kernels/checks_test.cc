// The checks of kernels can fail: what they say of planted errors.
#include <math.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/support/kernel_checks.h"

namespace pipewright::checks_test {
namespace {

KernelResult ResultOf(const std::vector<Values>& tensors) {
  PwDevice* device = nullptr;
  REQUIRE(pw_cpu_kernels()->open(0, &device) == PW_OK);
  const KernelCheck check = MakeKernelCheck(
      "planted", false, false, [&](KernelRig*, KernelCompare* compare, PwType) {
        for (size_t index = 0; index < tensors.size(); ++index) {
          compare->Tensor(std::to_string(index), tensors[index],
                          {1, 2, 3, 4, 5});
        }
      });
  const KernelResult result =
      check.run(pw_cpu_kernels(), device, PwType::PW_FP32);
  pw_cpu_kernels()->close(device);
  return result;
}

TEST_CASE("kernels: a check keeps a NaN whatever comes behind it",
          "[kernels]") {
  const Values right = {1, 2, 3, 4, 5};
  const Values wrong = {1, 2, 3.5, 4, 5};
  CHECK(ResultOf({right, right, right}).ok());
  CHECK(ResultOf({right, wrong, right}).error == Approx(0.1));
  CHECK(ResultOf({right, wrong, right}).tensor == "1");
  // In the first, a middle and the last element of the first, a middle and the
  // last tensor; the others are right, or off by a finite error.
  for (const Values& others : {right, wrong}) {
    for (const size_t element : {0, 2, 4}) {
      for (const size_t tensor : {0, 1, 2}) {
        std::vector<Values> tensors(3, others);
        tensors[tensor] = right;
        tensors[tensor][element] = NAN;
        const KernelResult result = ResultOf(tensors);
        INFO("element " << element << " of tensor " << tensor);
        CHECK(isnan(result.error));
        CHECK_FALSE(result.ok());
        CHECK(result.tensor == std::to_string(tensor));
      }
    }
  }
}

}  // namespace
}  // namespace pipewright::checks_test
