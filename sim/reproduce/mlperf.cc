// experiments/papers/mlperf_405b and mlperf_gpt3: derived step times, not an
// MLPerf metric, not verified by MLCommons.
#include "sim/reproduce/steps.h"

namespace pipewright {
namespace {

void PadVocabulary(const TableRow&, RunConfig* config) {
  config->model.vocabulary = 51200;  // as the logs of the runs have it
}

const RegisterPaper kLlama({
    .name = "mlperf-405b",
    .summary = "MLPerf Training v5.0 and v5.1, Llama-3.1-405B: derived step "
               "times, not an MLPerf metric, not verified by MLCommons",
    .metric = "seconds of a step by the analytic cost model",
    .run =
        [](const std::string& engine) {
          return ReproduceSteps({.folder = "mlperf_405b"}, engine);
        },
});

const RegisterPaper kGpt({
    .name = "mlperf-gpt3",
    .summary = "MLPerf Training v4.1, GPT-3 175B: derived step times, not an "
               "MLPerf metric, not verified by MLCommons",
    .metric = "seconds of a step by the analytic cost model",
    .run =
        [](const std::string& engine) {
          return ReproduceSteps(
              {.folder = "mlperf_gpt3", .adjust = &PadVocabulary}, engine);
        },
});

}  // namespace
}  // namespace pipewright
