// libFuzzer target over PyTorch's schedule files; built with
// PIPEWRIGHT_FUZZERS.
#include <cstddef>
#include <cstdint>

#include "tests/support/torch_csv_fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pipewright::testing::FuzzTorchCsv(
      absl::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
