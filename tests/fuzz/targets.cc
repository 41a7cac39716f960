#include "tests/fuzz/targets.h"

namespace pipewright::testing {

absl::Span<const FuzzTarget> FuzzTargets() {
  // tests/CMakeLists.txt makes an executable of each.
  static constexpr FuzzTarget kTargets[] = {
      {"config", FuzzConfig},
      {"hugging_face", FuzzHuggingFace},
      {"schedule", FuzzSchedule},
      {"torch_csv", FuzzTorchCsv},
      {"profile", FuzzProfile},
      {"nccl_tests", FuzzNcclTests},
      {"nvbandwidth", FuzzNvbandwidth},
      {"kineto", FuzzKineto},
      {"chrome_trace", FuzzChromeTrace},
      {"lengths", FuzzLengths},
      {"job_table", FuzzJobTable},
      {"training_log", FuzzTrainingLog},
      {"frames", FuzzFrames},
      {"program", FuzzProgram},
  };
  return kTargets;
}

}  // namespace pipewright::testing
