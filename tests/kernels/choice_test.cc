// What of the processor the environment lets the CPU backend use.
#include "kernels/cpu/choice.h"

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <string>

#include "kernels/cpu/bf16_gemm.h"
#include "kernels/kernels.h"

namespace pipewright::choice_test {
namespace {

// Set while it lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    const char* const before = getenv(name);
    if (before != nullptr) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (before_.empty()) {
      unsetenv(name_);
    } else {
      setenv(name_, before_.c_str(), 1);
    }
  }

 private:
  const char* name_;
  std::string before_;
};

// Types of the opened device.
int32_t Types() {
  PwDevice* device = nullptr;
  REQUIRE(pw_cpu_kernels()->open(0, &device) == PW_OK);
  PwDeviceInfo info;
  REQUIRE(pw_cpu_kernels()->info(device, &info) == PW_OK);
  pw_cpu_kernels()->close(device);
  return info.types;
}

TEST_CASE("kernels: the environment chooses loops", "[kernels]") {
  for (const Loops* loops : AllLoops()) {
    const Variable chosen("PIPEWRIGHT_CPU_LOOPS", loops->name);
    CHECK(ChooseCpu().loops == loops);
    CHECK(ChooseCpu().problem.empty());
    PwDevice* device = nullptr;
    CHECK(pw_cpu_kernels()->open(0, &device) == PW_OK);
    pw_cpu_kernels()->close(device);
  }
  const Variable unset("PIPEWRIGHT_CPU_LOOPS", "");
  CHECK(ChooseCpu().loops == AllLoops().back());
  CHECK(std::string(AllLoops().front()->name) == "portable");
}

TEST_CASE("kernels: the environment says whether bf16 is offered",
          "[kernels]") {
  {
    const Variable off("PIPEWRIGHT_CPU_BF16", "off");
    CHECK(Types() == 1 << PW_FP32);
  }
  const bool any = Bf16Gemm::Create(Bf16Products::kOn) != nullptr;
  const Variable on("PIPEWRIGHT_CPU_BF16", "on");
  CHECK((Types() >> PW_BF16 & 1) == (any ? 1 : 0));
}

TEST_CASE("kernels: what the environment names wrongly is refused",
          "[kernels]") {
  PwDevice* device = nullptr;
  {
    const Variable wrong("PIPEWRIGHT_CPU_LOOPS", "mmx");
    CHECK(pw_cpu_kernels()->open(0, &device) == PW_INVALID);
    CHECK(std::string(pw_cpu_kernels()->error())
              .find("PIPEWRIGHT_CPU_LOOPS: 'mmx' is not on this processor; "
                    "allowed: portable") == 0);
  }
  const Variable wrong("PIPEWRIGHT_CPU_BF16", "yes");
  CHECK(pw_cpu_kernels()->open(0, &device) == PW_INVALID);
  CHECK(std::string(pw_cpu_kernels()->error()) ==
        "PIPEWRIGHT_CPU_BF16: unknown 'yes'; allowed: on, off");
}

}  // namespace
}  // namespace pipewright::choice_test
