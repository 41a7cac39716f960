// libFuzzer target over config.json files; built with PIPEWRIGHT_FUZZERS.
#include <cstddef>
#include <cstdint>

#include "tests/support/hf_config_fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pipewright::testing::FuzzHuggingFaceConfig(
      absl::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
