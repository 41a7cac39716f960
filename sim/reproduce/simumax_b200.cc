// experiments/papers/simumax_b200.
#include "sim/reproduce/steps.h"

namespace pipewright::simumax_b200 {
namespace {

const RegisterPaper kRow({
    .name = "simumax-b200",
    .summary = "MooreThreads/SimuMax 4dcaae513ba7, runs of Megatron-LM on "
               "eight B200",
    .metric = "seconds of a step by the analytic cost model",
    .run =
        [](const std::string& engine) {
          return ReproduceSteps({.folder = "simumax_b200"}, engine);
        },
});

}  // namespace
}  // namespace pipewright::simumax_b200
