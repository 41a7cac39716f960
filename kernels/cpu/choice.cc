#include "kernels/cpu/choice.h"

#include <stdlib.h>

namespace pipewright {
namespace {

std::string Variable(const char* name) {
  const char* const value = getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::vector<const Loops*> AllLoops() {
  std::vector<const Loops*> all = {&PortableLoops()};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    all.push_back(&Avx2Loops());
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    all.push_back(&Avx512Loops());
  }
#endif
  return all;
}

CpuChoice ChooseCpu() {
  const std::vector<const Loops*> all = AllLoops();
  CpuChoice choice = {.loops = all.back()};
  const std::string loops = Variable("PIPEWRIGHT_CPU_LOOPS");
  if (!loops.empty()) {
    choice.loops = nullptr;
    std::string known;
    for (const Loops* each : all) {
      if (loops == each->name) choice.loops = each;
      known.append(known.empty() ? "" : ", ").append(each->name);
    }
    if (choice.loops == nullptr) {
      choice.loops = all.back();
      choice.problem = "PIPEWRIGHT_CPU_LOOPS: '" + loops +
                       "' is not on this processor; allowed: " + known;
    }
  }
  const std::string bf16 = Variable("PIPEWRIGHT_CPU_BF16");
  if (bf16 == "off") {
    choice.bf16 = Bf16Products::kOff;
  } else if (bf16 == "on") {
    choice.bf16 = Bf16Products::kOn;
  } else if (!bf16.empty()) {
    choice.problem =
        "PIPEWRIGHT_CPU_BF16: unknown '" + bf16 + "'; allowed: on, off";
  }
  return choice;
}

}  // namespace pipewright
