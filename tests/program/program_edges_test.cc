// Steps whose last input is the one that is easily forgotten.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "sim/engine/fast_engine.h"
#include "sim/program/lower.h"
#include "tests/support/lowering.h"

namespace pipewright::program_edges_test {
namespace {

LowerOptions Options(const Schedule& schedule, int replicas) {
  LowerOptions options;
  options.costs = CostsOf(
      schedule, {.forward = 8, .backward_input = 8, .backward_weight = 8});
  options.replicas = replicas;
  options.gradient_bytes.assign(schedule.stages(), 64);
  options.parameter_bytes.assign(schedule.stages(), 32);
  options.iterations = 1;
  return options;
}

double IterationOf(const std::shared_ptr<const Schedule>& schedule,
                   const LowerOptions& options) {
  const absl::StatusOr<RunSummary> run =
      RunFast(Lowered(schedule, options), {});
  INFO(run.status());
  REQUIRE(run.ok());
  return run->iteration_s();
}

// F 8 s, BW 16 s, and behind each BW a scatter of 32 s: from 24 to 56 and from
// 56 to 88 s. Then parameters are gathered, before the next forward.
TEST_CASE("shards: edges: an iteration has its last scatter in it",
          "[program]") {
  const auto schedule = Registered("1f1b", 1, 2);
  LowerOptions options = Options(*schedule, 2);
  options.data_parallel = DataParallel::kZero2;
  options.network.hop_s = 32;
  options.iterations = 4;
  CHECK(IterationOf(schedule, options) == Approx(88 + 32));
}

TEST_CASE("lower: edges: a table is reduced when its head has added to it",
          "[program]") {
  const auto schedule =
      Parsed("pp 1 vpp 2 microbatches 1\n0: F0.0 F0.1 B0.1 B0.0 W0.0 W0.1");
  LowerOptions options = Options(*schedule, 2);
  options.data_parallel = DataParallel::kDdp;
  CHECK_THAT(ToString(Lowered(schedule, options)),
             Catch::Contains("W0.0 all-reduce.0@g0 W0.1 all-reduce.1@g0"));
  options.tied_bytes = 16;
  CHECK_THAT(ToString(Lowered(schedule, options)),
             Catch::Contains("W0.0 W0.1 all-reduce"));
}

// The rank in the middle holds both copies of its stage.
TEST_CASE(
    "lower: edges: both copies of the middle rank are reduced at the "
    "later one",
    "[program]") {
  const auto schedule = Parsed(
      "pp 3 vpp 1 microbatches 2 replicas 2\n"
      "0: aF0 bF0 bBW0 aBW0\n1: aF0 bF0 bBW0 aBW0\n2: bF0 aF0 aBW0 bBW0");
  LowerOptions options = Options(*schedule, 1);
  options.data_parallel = DataParallel::kDdp;
  const Program program = Lowered(schedule, options);
  int reductions = 0;
  for (const Attachment& each : program.ranks[1].attachments) {
    if (program.ranks[1].side_ops[each.side_op].kind != OpKind::kAllReduce) {
      continue;
    }
    ++reductions;
    CHECK(each.position == 4);
  }
  CHECK(reductions == 1);
}

TEST_CASE("validation: edges: as many iterations as a failing step needs",
          "[program]") {
  const auto schedule = Registered("zb-h1", 2, 4);
  LowerOptions options = Options(*schedule, 1);
  options.optimizer = OptimizerMode::kPostValidated;
  options.failing_steps = {1};
  options.iterations = 4;
  CHECK_THAT(std::string(Lower(schedule, options).status().message()),
             Catch::Contains("at least 5"));
  options.iterations = 5;
  const absl::StatusOr<Program> program = Lower(schedule, options);
  INFO(program.status());
  CHECK(program.ok());
}

}  // namespace
}  // namespace pipewright::program_edges_test
