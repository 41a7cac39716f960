// strategy.framework: defaults, what wins over them, and what is said.
#include "sim/config/framework.h"

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "sim/config/prepare.h"

namespace pipewright {
namespace {

RunConfig Run(Framework framework) {
  RunConfig config;
  config.model.preset = "llama3-8b";
  config.system.preset = "dgx-h100";
  config.schedule.name = "1f1b";
  config.strategy.pp = 2;
  config.strategy.dp = 4;
  config.strategy.microbatches = 4;
  config.strategy.recompute = Recompute::kFull;
  config.costs.analytic = true;
  config.strategy.framework = framework;
  return config;
}

TEST_CASE("framework: torchtitan's defaults", "[config]") {
  const auto run = Prepare(Run(Framework::kTorchtitan));
  REQUIRE(run.ok());
  const TrainingSpec& training = run->prepared_model->training;
  CHECK(training.weight_bytes == 4);
  CHECK(training.gradient_bytes == 4);
  CHECK(training.master_bytes == 0);
  CHECK(training.moment_bytes == 8);
  CHECK(training.zero == 3);
  CHECK(training.whole_gradients);
  CHECK(training.stops_early);
  CHECK(training.plain_cross_entropy);
  CHECK_FALSE(training.fused_cross_entropy);
  CHECK_FALSE(run->lower.layers.reshard_after_forward);
  CHECK(run->lower.layers.reduces_once);
  CHECK(run->costs.analytic->kernels == FrameworkKernels::kEager);
  const std::string warnings = absl::StrJoin(run->warnings, "\n");
  INFO(warnings);
  // Each default is said with its source, and none is called idle.
  CHECK(absl::StrContains(warnings, "strategy.framework torchtitan sets "));
  CHECK(absl::StrContains(warnings, "strategy.reshard_after_forward false"));
  CHECK(absl::StrContains(warnings, "pytorch/torchtitan"));
  CHECK_FALSE(absl::StrContains(warnings, "has no effect"));
}

TEST_CASE("framework: Megatron's and DeepSpeed's defaults", "[config]") {
  const auto megatron = Prepare(Run(Framework::kMegatron));
  REQUIRE(megatron.ok());
  CHECK(megatron->lower.data_parallel == DataParallel::kDdp);
  CHECK(megatron->prepared_model->training.gradient_bytes == 4);
  CHECK_FALSE(megatron->prepared_model->training.stops_early);
  CHECK_FALSE(megatron->prepared_model->training.plain_cross_entropy);
  const auto deepspeed = Prepare(Run(Framework::kDeepSpeed));
  REQUIRE(deepspeed.ok());
  CHECK(deepspeed->lower.data_parallel == DataParallel::kZero1);
  CHECK(deepspeed->prepared_model->training.plain_cross_entropy);
  for (const auto* run : {&*megatron, &*deepspeed}) {
    CHECK(absl::StrContains(absl::StrJoin(run->warnings, "\n"),
                            "strategy.fragmentation 0.058"));
    CHECK_FALSE(
        absl::StrContains(absl::StrJoin(run->warnings, "\n"), "has no effect"));
  }
}

TEST_CASE("framework: what is given wins", "[config]") {
  RunConfig config = Run(Framework::kTorchtitan);
  config.strategy.data_parallel = DataParallel::kDdp;
  config.strategy.gradient_bytes_per_parameter = 2;
  config.strategy.fused_cross_entropy = true;
  config.strategy.recompute_stops_early = false;
  config.strategy.fragmentation = 0;
  config.costs.analytic_kernels = FrameworkKernels::kFused;
  const auto run = Prepare(config);
  REQUIRE(run.ok());
  const TrainingSpec& training = run->prepared_model->training;
  CHECK(run->lower.data_parallel == DataParallel::kDdp);
  CHECK(training.gradient_bytes == 2);
  CHECK(training.fused_cross_entropy);
  CHECK_FALSE(training.stops_early);
  CHECK(run->costs.analytic->kernels == FrameworkKernels::kFused);
  const std::string warnings = absl::StrJoin(run->warnings, "\n");
  for (const char* field :
       {"sets strategy.data_parallel", "strategy.gradient_bytes_per_parameter",
        "strategy.fragmentation", "costs.analytic.kernels"}) {
    CHECK_FALSE(absl::StrContains(warnings, field));
  }
}

TEST_CASE("framework: none, no defaults", "[config]") {
  RunConfig config = Run(Framework::kMegatron);
  config.strategy.framework.reset();
  const RunConfig same = WithFramework(config, RunSizes());
  CHECK(same.notes.empty());
  CHECK(same.defaulted.empty());
  CHECK_FALSE(same.strategy.fragmentation);
}

TEST_CASE("framework: a run that fits without fragmentation fits tightly",
          "[config][memory]") {
  RunConfig config = Run(Framework::kMegatron);
  config.strategy.data_parallel = DataParallel::kZero1;
  const auto run = Prepare(config);
  REQUIRE(run.ok());
  const MemoryReport& wide = *run->memory;
  const RankMemory& worst = wide.memory->ranks[wide.memory->WorstRank()];
  CHECK(static_cast<double>(worst.fragmentation) ==
        Approx(0.058 * static_cast<double>(worst.peak())));
  CHECK_FALSE(wide.fits_tightly());
  const double needed = static_cast<double>(worst.needed());
  const double bare = needed - static_cast<double>(worst.fragmentation);
  MemoryReport tight = wide;
  tight.limit_bytes = 0.5 * (needed + bare);
  CHECK(tight.fits());
  CHECK(tight.fits_tightly());
  CHECK(absl::StrContains(MemoryVerdictLine(tight), "fits tightly"));
  tight.limit_bytes = 0.99 * bare;
  CHECK_FALSE(tight.fits());
  CHECK_FALSE(tight.fits_tightly());
  tight.limit_bytes = 1.01 * needed;
  CHECK(tight.fits());
  CHECK_FALSE(tight.fits_tightly());
}

}  // namespace
}  // namespace pipewright
