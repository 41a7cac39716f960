// experiments/papers/mlperf_405b and mlperf_gpt3: derived step times, not an
// MLPerf metric, not verified by MLCommons.
#include "sim/reproduce/steps.h"

namespace pipewright::mlperf {
namespace {

// grad_reduce_in_fp32=False: gradients are kept and reduced in bf16
// (NVIDIA/benchmarks/llama31_405b, pretrain.py of both rounds).
void HalfGradients(const TableRow&, RunConfig* config) {
  config->strategy.gradient_bytes_per_parameter = 2;
}

void AsGpt(const TableRow& row, RunConfig* config) {
  HalfGradients(row, config);
  config->model.vocabulary = 51200;  // as the logs of the runs have it
}

const RegisterPaper kLlama({
    .name = "mlperf-405b",
    .summary = "MLPerf Training v5.0 and v5.1, Llama-3.1-405B: derived step "
               "times, not an MLPerf metric, not verified by MLCommons",
    .metric = "seconds of a step by the analytic cost model",
    .run =
        [](const std::string& engine) {
          return ReproduceSteps(
              {.folder = "mlperf_405b", .adjust = &HalfGradients}, engine);
        },
});

const RegisterPaper kGpt({
    .name = "mlperf-gpt3",
    .summary = "MLPerf Training v4.1, GPT-3 175B: derived step times, not an "
               "MLPerf metric, not verified by MLCommons",
    .metric = "seconds of a step by the analytic cost model",
    .run =
        [](const std::string& engine) {
          return ReproduceSteps({.folder = "mlperf_gpt3", .adjust = &AsGpt},
                                engine);
        },
});

}  // namespace
}  // namespace pipewright::mlperf
