// libFuzzer target over configurations; built with PIPEWRIGHT_FUZZERS.
#include <cstddef>
#include <cstdint>

#include "tests/support/config_fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pipewright::testing::FuzzConfig(
      absl::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
