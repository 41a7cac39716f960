// strategy.framework: defaults, what wins over them, and what is said.
#include "sim/config/framework.h"

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "sim/config/prepare.h"

namespace pipewright::framework_test {
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
  CHECK(training.stage_buffers == StageBuffers::kReceived);
  CHECK_FALSE(training.execution.repeats_keys);
  CHECK_FALSE(training.keeps_gathered);
  CHECK_FALSE(run->lower.layers.reshard_after_forward);
  CHECK(run->lower.layers.reduces_once);
  const DeviceSpec& device = run->costs.analytic->device;
  CHECK(run->lower.layers.copies_bytes_per_s ==
        device.hbm_bytes_per_s * device.hbm_sustained);
  CHECK(run->lower.layers.made_part == 0.5);
  CHECK(run->costs.analytic->kernels == FrameworkKernels::kEager);
  const std::string warnings = absl::StrJoin(run->warnings, "\n");
  INFO(warnings);
  // Each default is said with its source, and none is called idle.
  CHECK(absl::StrContains(warnings, "strategy.framework torchtitan sets "));
  CHECK(absl::StrContains(warnings, "strategy.reshard_after_forward false"));
  CHECK(absl::StrContains(warnings, "pytorch/torchtitan"));
  CHECK_FALSE(absl::StrContains(warnings, "has no effect"));
}

TEST_CASE("framework: torchtitan's parallel sequences", "[config]") {
  RunConfig config = Run(Framework::kTorchtitan);
  config.strategy.pp = 1;
  config.strategy.dp = 1;
  config.strategy.cp = 4;
  config.strategy.tp = 2;
  const auto run = Prepare(config);
  REQUIRE(run.ok());
  const TrainingSpec& training = run->prepared_model->training;
  CHECK(training.execution.context == ContextExchange::kTorchGather);
  CHECK(training.execution.context_balanced);
  CHECK(training.keeps_gathered);
  CHECK(training.stage_buffers == StageBuffers::kNone);
  const std::string warnings = absl::StrJoin(run->warnings, "\n");
  INFO(warnings);
  CHECK(absl::StrContains(warnings, "strategy.context torch-gather"));
  CHECK_FALSE(absl::StrContains(warnings, "has no effect"));
  // What is given wins.
  config.strategy.context = ContextExchange::kRing;
  CHECK(Prepare(config)->prepared_model->training.execution.context ==
        ContextExchange::kRing);
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

std::string WarningsOf(const PreparedRun& run) {
  return absl::StrJoin(run.warnings, "\n");
}

TEST_CASE("framework: torchtitan shards over parts of a context, too",
          "[config]") {
  RunConfig config = Run(Framework::kTorchtitan);
  config.strategy.pp = 1;
  config.strategy.dp = 1;
  config.strategy.cp = 8;
  const auto run = Prepare(config);
  REQUIRE(run.ok());
  CHECK(run->lower.data_parallel == DataParallel::kFsdp);
  CHECK(run->lower.shard_blocks == ShardBlocks::kLayer);
  CHECK(run->prepared_model->training.zero == 3);
}

TEST_CASE("framework: PyTorch's exchanges of several stages", "[config]") {
  RunConfig config = Run(Framework::kTorchtitan);
  config.schedule.name = "interleaved-1f1b";
  config.strategy.vpp = 2;
  const auto stepped = Prepare(config);
  INFO(stepped.status());
  REQUIRE(stepped.ok());
  CHECK(stepped->lower.wait_rule == WaitRule::kStepped);
  CHECK(absl::StrContains(WarningsOf(*stepped), "strategy.waiting stepped"));
  config.strategy.waiting = WaitRule::kBuffered;
  const auto buffered = Prepare(config);
  REQUIRE(buffered.ok());
  CHECK(buffered->lower.wait_rule == WaitRule::kBuffered);
  config.strategy.waiting.reset();
  config.strategy.framework = Framework::kMegatron;
  const auto megatron = Prepare(config);
  REQUIRE(megatron.ok());
  CHECK(megatron->lower.wait_rule == WaitRule::kBuffered);
}

TEST_CASE("framework: strategy.zero is another word for fsdp", "[config]") {
  RunConfig config = Run(Framework::kTorchtitan);
  const auto fsdp = Prepare(config);
  config.strategy.zero = 3;
  const auto zero = Prepare(config);
  INFO(zero.status());
  REQUIRE(fsdp.ok());
  REQUIRE(zero.ok());
  CHECK(zero->lower.data_parallel == DataParallel::kFsdp);
  CHECK(zero->lower.shard_blocks == ShardBlocks::kLayer);
  CHECK(zero->lower.layers.reduces_once);
  CHECK(zero->lower.layers.stages.size() == fsdp->lower.layers.stages.size());
  CHECK(zero->lower.parameter_bytes == fsdp->lower.parameter_bytes);
  CHECK(zero->memory->memory->ranks[0].peak() ==
        fsdp->memory->memory->ranks[0].peak());
}

TEST_CASE("framework: zero 3 goes layer by layer without one, too",
          "[config]") {
  RunConfig config = Run(Framework::kTorchtitan);
  config.strategy.framework.reset();
  config.strategy.zero = 3;
  config.strategy.shard_blocks = ShardBlocks::kLayer;
  const auto run = Prepare(config);
  INFO(run.status());
  REQUIRE(run.ok());
  CHECK(run->lower.data_parallel == DataParallel::kFsdp);
  CHECK(run->lower.layers.stages.size() == 2);
  // Over parts of a context alone whole gradients matter as well.
  config.strategy.dp = 1;
  config.strategy.cp = 4;
  config.strategy.reshard_after_forward = false;
  const auto parts = Prepare(config);
  config.strategy.whole_gradients = true;
  const auto whole = Prepare(config);
  REQUIRE(parts.ok());
  REQUIRE(whole.ok());
  CHECK(whole->memory->memory->ranks[0].peak() >
        parts->memory->memory->ranks[0].peak());
  CHECK_FALSE(absl::StrContains(WarningsOf(*whole), "has no effect"));
}

TEST_CASE("framework: no default makes a run illegal", "[config]") {
  // A pure delay holds no rank.
  RunConfig alone = Run(Framework::kMegatron);
  alone.system.preset.reset();
  alone.costs.analytic = false;
  alone.strategy.dp.reset();
  alone.strategy.recompute.reset();
  alone.costs.forward_s = 1e-3;
  alone.costs.backward_input_s = 1e-3;
  alone.costs.backward_weight_s = 1e-3;
  const auto delay = Prepare(alone);
  INFO(delay.status());
  REQUIRE(delay.ok());
  CHECK(delay->lower.wait_rule == WaitRule::kBuffered);
  for (const Framework framework :
       {Framework::kTorchtitan, Framework::kDeepSpeed, Framework::kMegatron}) {
    // No sharded optimizer where a pipeline holds a stage twice.
    RunConfig both = Run(framework);
    both.schedule.name = "chimera";
    const auto chimera = Prepare(both);
    INFO(chimera.status());
    REQUIRE(chimera.ok());
    CHECK(chimera->lower.data_parallel == DataParallel::kDdp);
    // Copies to the host go with whole passes.
    RunConfig host = Run(framework);
    host.strategy.recompute.reset();
    host.strategy.offload = OffloadMode::kFull;
    const auto offload = Prepare(host);
    INFO(offload.status());
    REQUIRE(offload.ok());
    CHECK(offload->lower.shard_blocks != ShardBlocks::kLayer);
    CHECK(offload->lower.wait_rule == WaitRule::kBuffered);
  }
}

TEST_CASE("framework: a refused default names its framework", "[config]") {
  RunConfig config = Run(Framework::kTorchtitan);
  RunSizes sizes;
  sizes.pp = 2;
  sizes.dp = 4;
  const RunConfig with = WithFramework(config, sizes);
  CHECK(with.Field("strategy.shard_blocks") ==
        "default of strategy.framework torchtitan: strategy.shard_blocks");
  CHECK(with.Field("strategy.pp") == "strategy.pp");
}

TEST_CASE("framework: what is of layers alone is set with them alone",
          "[config]") {
  RunConfig config = Run(Framework::kTorchtitan);
  config.strategy.shard_blocks = ShardBlocks::kPass;
  const auto run = Prepare(config);
  REQUIRE(run.ok());
  CHECK(run->lower.data_parallel == DataParallel::kFsdp);
  CHECK_FALSE(absl::StrContains(WarningsOf(*run), "reshard_after_forward"));
  CHECK_FALSE(absl::StrContains(WarningsOf(*run), "whole_gradients"));
}

TEST_CASE("framework: Megatron's experts need sequence parallelism",
          "[config]") {
  RunConfig config = Run(Framework::kMegatron);
  config.strategy.dp = 2;
  config.strategy.tp = 2;
  const auto dense = Prepare(config);
  REQUIRE(dense.ok());
  CHECK_FALSE(dense->prepared_model->training.sequence_parallel);
  config.model.preset = "qwen3-30b-a3b";
  const auto experts = Prepare(config);
  INFO(experts.status());
  REQUIRE(experts.ok());
  CHECK(experts->prepared_model->training.sequence_parallel);
  CHECK(absl::StrContains(WarningsOf(*experts),
                          "strategy.sequence_parallel true"));
}

TEST_CASE("framework: DeepSpeed's gradients and checkpointing", "[config]") {
  RunConfig config = Run(Framework::kDeepSpeed);
  const auto sharded = Prepare(config);
  config.strategy.zero = 0;
  const auto whole = Prepare(config);
  REQUIRE(sharded.ok());
  REQUIRE(whole.ok());
  CHECK(sharded->prepared_model->training.gradient_bytes == 2);
  CHECK(whole->prepared_model->training.gradient_bytes == 4);
  CHECK_FALSE(sharded->prepared_model->training.stops_early);
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
}  // namespace pipewright::framework_test
