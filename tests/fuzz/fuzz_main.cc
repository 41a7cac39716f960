// The libFuzzer executable of one target, PIPEWRIGHT_FUZZ_TARGET; built with
// PIPEWRIGHT_FUZZERS.
#include <cstddef>
#include <cstdint>

#include "sim/base/check.h"
#include "tests/fuzz/targets.h"

namespace {

const pipewright::testing::FuzzTarget& Target() {
  for (const auto& target : pipewright::testing::FuzzTargets()) {
    if (target.name == PIPEWRIGHT_FUZZ_TARGET) return target;
  }
  PW_CHECK(false);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const pipewright::testing::FuzzTarget& target = Target();
  target.run(absl::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
