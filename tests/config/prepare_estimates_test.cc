// What an estimated run takes from the device that it names.
#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "sim/config/prepare.h"

namespace pipewright::prepare_estimates_test {
namespace {

RunConfig Estimated(const std::string& device) {
  RunConfig config;
  config.model.preset = "llama3-8b";
  config.schedule.name = "1f1b";
  config.strategy.pp = 4;
  config.strategy.microbatches = 8;
  config.costs.analytic = true;
  config.costs.analytic_device = device;
  return config;
}

TEST_CASE("prepare: the device that is estimated sets the memory", "[config]") {
  const auto alone = Prepare(Estimated("a100-40gb"));
  REQUIRE(alone.ok());
  CHECK(alone->memory->limit_bytes == Approx(40.0 * (1 << 30)));
  RunConfig config = Estimated("b200");
  config.system.preset = "dgx-h100";
  const auto other = Prepare(config);
  REQUIRE(other.ok());
  CHECK(other->memory->limit_bytes == Approx(180e9));
  CHECK(absl::StrContains(absl::StrJoin(other->warnings, "\n"),
                          "links those of dgx-h100"));
  config.costs.analytic_device = "auto";
  const auto own = Prepare(config);
  REQUIRE(own.ok());
  CHECK(own->memory->limit_source == "H100 SXM5 80GB");
}

TEST_CASE("prepare: fp8 needs a device that has it", "[config]") {
  RunConfig config = Estimated("a100-80gb");
  config.strategy.precision = Precision::kFp8;
  CHECK(absl::StrContains(Prepare(config).status().message(),
                          "strategy.precision: fp8 is not allowed; allowed: "
                          "bf16 (a100-80gb has no fp8)"));
  config.costs.analytic_device = "h100";
  CHECK(Prepare(config).ok());
}

TEST_CASE("prepare: attention in 8 bit beside bf16 is warned of", "[config]") {
  RunConfig config = Estimated("h100");
  config.strategy.fp8_attention = true;
  constexpr char kWords[] = "fp8_attention: true with strategy.precision bf16";
  const auto warns = [&] {
    const auto run = Prepare(config);
    INFO(run.status());
    REQUIRE(run.ok());
    return absl::StrContains(absl::StrJoin(run->warnings, "\n"), kWords);
  };
  CHECK(warns());
  config.strategy.precision = Precision::kFp8;
  CHECK_FALSE(warns());
}

TEST_CASE("prepare: the host takes at most a second for a launch", "[config]") {
  RunConfig config = Estimated("h100");
  config.costs.analytic_launch_s = 1;
  CHECK(Prepare(config).ok());
  config.costs.analytic_launch_s = 1.01;
  const auto refused = Prepare(config);
  CHECK(refused.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(absl::StrContains(refused.status().message(),
                          "costs.analytic.launch_time"));
  CHECK(absl::StrContains(refused.status().message(), "0 to 1 s"));
}

TEST_CASE("prepare: both directions of a schedule are stepped", "[config]") {
  RunConfig config = Estimated("h100");
  const auto one = Prepare(config);
  config.schedule.name = "chimera";
  const auto both = Prepare(config);
  REQUIRE(one.ok());
  REQUIRE(both.ok());
  // The heaviest rank has the embedding; the one opposite has the head.
  CHECK(both->lower.costs.optimizer_s ==
        Approx(2 * one->lower.costs.optimizer_s).epsilon(0.001));
}

TEST_CASE("prepare: recomputation with given times is said, or added",
          "[config]") {
  RunConfig config = Estimated("h100");
  config.costs.analytic = false;
  config.costs.analytic_device.reset();
  config.costs.forward_s = config.costs.backward_input_s =
      config.costs.backward_weight_s = 1;
  config.strategy.recompute = Recompute::kFull;
  const auto said = Prepare(config);
  REQUIRE(said.ok());
  CHECK(said->lower.costs.stages[0].backward_input_s == 1);
  CHECK(absl::StrContains(absl::StrJoin(said->warnings, "\n"),
                          "strategy.recompute: saves memory, but"));
  config.costs.recompute_s = 0.5;
  const auto added = Prepare(config);
  REQUIRE(added.ok());
  CHECK(added->lower.costs.stages[0].backward_input_s == 1.5);
  CHECK_FALSE(absl::StrContains(absl::StrJoin(added->warnings, "\n"),
                                "strategy.recompute"));
}

TEST_CASE("prepare: ZeRO's stage and data parallelism are one choice",
          "[config]") {
  RunConfig config = Estimated("h100");
  config.strategy.dp = 2;
  config.strategy.zero = 2;
  const auto by_stage = Prepare(config);
  REQUIRE(by_stage.ok());
  CHECK(by_stage->lower.data_parallel == DataParallel::kZero2);
  CHECK(by_stage->prepared_model->training.zero == 2);
  config.strategy.zero.reset();
  config.strategy.data_parallel = DataParallel::kFsdp;
  const auto by_kind = Prepare(config);
  REQUIRE(by_kind.ok());
  CHECK(by_kind->prepared_model->training.zero == 3);
  CHECK(by_kind->memory->memory->ranks[0].peak() <
        by_stage->memory->memory->ranks[0].peak());
  config.strategy.zero = 3;
  CHECK(Prepare(config).ok());
  config.strategy.zero = 1;
  CHECK(Prepare(config).status().message() ==
        "strategy.zero: 1 is not allowed; allowed: 3 with "
        "strategy.data_parallel fsdp, or one of the two left out");
}

TEST_CASE("prepare: an estimated step is no default where ranks step alone",
          "[config]") {
  RunConfig config = Estimated("h100");
  config.schedule.name = "pipedream-2bw";
  const auto run = Prepare(config);
  REQUIRE(run.ok());
  CHECK(run->lower.optimizer == OptimizerMode::kNone);
  CHECK(run->lower.costs.optimizer_s > 0);
  CHECK(run->lower.costs.rollback_s == run->lower.costs.optimizer_s);
}

TEST_CASE("prepare: ZeRO over one device changes no memory", "[config]") {
  RunConfig config = Estimated("h100");
  const auto without = Prepare(config);
  config.strategy.zero = 3;
  const auto with = Prepare(config);
  REQUIRE(without.ok());
  REQUIRE(with.ok());
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(with->memory->memory->ranks[rank].peak() ==
          without->memory->memory->ranks[rank].peak());
  }
  CHECK(absl::StrContains(absl::StrJoin(with->warnings, "\n"),
                          "strategy.zero has no effect with dp * cp = 1"));
}

}  // namespace
}  // namespace pipewright::prepare_estimates_test
