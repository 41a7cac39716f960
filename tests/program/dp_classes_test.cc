// Programs of several classes of replicas: what joins, and what is refused.
#include "sim/program/dp_classes.h"

#include <catch2/catch.hpp>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "sim/program/cursor.h"
#include "sim/program/lower.h"
#include "tests/support/lowering.h"
#include "tests/support/random_program.h"

namespace pipewright::dp_classes_test {
namespace {

LowerOptions Options(DataParallel mode, int replicas = 2) {
  LowerOptions options;
  options.costs = PassCosts::Uniform(
      2, 1, {.forward_s = 1, .backward_input_s = 1, .backward_weight_s = 1});
  options.replicas = replicas;
  options.data_parallel = mode;
  options.gradient_bytes = {8, 8};
  options.parameter_bytes = {4, 4};
  options.iterations = 2;
  return options;
}

Program Of(int microbatches, DataParallel mode = DataParallel::kDdp,
           const char* schedule = "1f1b") {
  return Lowered(Registered(schedule, 2, microbatches), Options(mode));
}

absl::StatusOr<Program> Join(Program first, Program second) {
  std::vector<Program> classes;
  classes.push_back(std::move(first));
  classes.push_back(std::move(second));
  return JoinClasses(std::move(classes), {0, 1});
}

TEST_CASE("dp_classes: one class is the Program itself", "[dp_classes]") {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    const auto made = MakeRandomProgram(seed, {});
    if (!made.ok()) continue;
    const absl::StatusOr<Program> joined = JoinClasses(
        {made->program}, std::vector<int>(made->program.replicas, 0));
    REQUIRE(joined.ok());
    CHECK(joined->num_classes() == 1);
    CHECK(joined->class_of_replica.empty());
    CHECK(ToString(*joined) == ToString(made->program));
  }
}

TEST_CASE("dp_classes: orders, lanes and counts of each", "[dp_classes]") {
  const absl::StatusOr<Program> joined = Join(Of(4), Of(2));
  REQUIRE(joined.ok());
  CHECK(joined->num_classes() == 2);
  CHECK(joined->dp_class(0).schedule->microbatches == 4);
  CHECK(joined->OfReplica(1).schedule->microbatches == 2);
  CHECK(joined->num_passes() == 16);
  CHECK(joined->dp_class(1).num_passes() == 8);
  CHECK(joined->ReplicasOfClasses() == std::vector<int>{1, 1});
  CHECK(joined->FirstReplicas() == std::vector<int>{0, 1});
  // The operations of a class are those that it has alone.
  const Program alone = Of(2);
  OpCursor own(*joined, 1, 2, 1);
  OpCursor same(alone, 1, 2);
  for (Op left, right; same.Next(&right);) {
    REQUIRE(own.Next(&left));
    CHECK(OpToString(*joined, left) == OpToString(alone, right));
    CHECK(left.position == right.position);
  }
  const std::string text = ToString(*joined);
  CHECK(absl::StrContains(text, "class 0 replicas 0\n"));
  CHECK(absl::StrContains(text, "class 1 replicas 1\n"));
}

TEST_CASE("dp_classes: factors multiply", "[dp_classes]") {
  Program program = Of(2);
  program.microbatch_factor = {1, 3};
  program.lane_factors = {{2, 0.5}};
  const Pass forward(PassKind::kForward, 1, 0, 0, 0);
  const Pass backward(PassKind::kBackwardFull, 1, 0, 0, 0);
  program.ranks[1].lanes[forward.lane()].factors = 0;
  REQUIRE(VerifyProgram(program).ok());
  CHECK(program.Factor(1, forward) == 1.5);
  CHECK(program.Factor(0, forward) == 3);
  CHECK(program.Factor(1, backward) == 3);
  // F = 1, BW = 2: (2 + 1.5) + (2 + 6), and without the lane's own 4 + 8.
  CHECK(program.BusySeconds(1) == 11.5);
  CHECK(program.BusySeconds(0) == 12);
}

TEST_CASE("dp_classes: what cannot run together is refused", "[dp_classes]") {
  SECTION("a gather a pass, and numbers of passes that differ") {
    const absl::StatusOr<Program> joined =
        Join(Of(4, DataParallel::kFsdp), Of(2, DataParallel::kFsdp));
    REQUIRE(joined.status().code() == absl::StatusCode::kFailedPrecondition);
    CHECK(absl::StrContains(joined.status().message(), "deadlock"));
    CHECK(absl::StrContains(joined.status().message(), "in class 0"));
    CHECK(absl::StrContains(joined.status().message(), "in class 1"));
    CHECK(Join(Of(4, DataParallel::kFsdp), Of(4, DataParallel::kFsdp)).ok());
  }
  SECTION("other groups") {
    CHECK(Join(Of(4), Of(4, DataParallel::kNone)).status().code() ==
          absl::StatusCode::kInvalidArgument);
  }
  SECTION("other algorithms of collectives") {
    Program second = Of(4);
    second.network.collectives = CollectiveAlgorithm::kTree;
    CHECK(Join(Of(4), std::move(second)).status().code() ==
          absl::StatusCode::kInvalidArgument);
  }
  SECTION("stages elsewhere") {
    const auto of = [](const char* name) {
      LowerOptions options = Options(DataParallel::kDdp);
      options.costs = PassCosts::Uniform(2, 2, {});
      options.gradient_bytes = {8, 8, 8, 8};
      options.parameter_bytes = {4, 4, 4, 4};
      return Lowered(Registered(name, 2, 4, 2), options);
    };
    CHECK(Join(of("interleaved-1f1b"), of("1f1b-v")).status().code() ==
          absl::StatusCode::kInvalidArgument);
  }
}

// Faults planted into a good Program of two classes: each must be found.
TEST_CASE("dp_classes: VerifyProgram finds faults in any class",
          "[dp_classes]") {
  const absl::StatusOr<Program> good = Join(Of(4), Of(2));
  REQUIRE(good.ok());
  REQUIRE(VerifyProgram(*good).ok());
  Program bad = *good;
  DpClass& second = bad.more_classes[0];
  SECTION("a replica of no class") { bad.class_of_replica[1] = 2; }
  SECTION("a class of no replica") { bad.class_of_replica = {0, 0}; }
  SECTION("a list of another length") { bad.class_of_replica.push_back(1); }
  SECTION("no list") { bad.class_of_replica.clear(); }
  SECTION("fewer ranks") { second.ranks.pop_back(); }
  SECTION("a member that comes once less") {
    RankProgram& rank = second.ranks[0];
    for (SideOp& op : rank.side_ops) {
      if (!IsCollective(op.kind)) continue;
      op.kind = OpKind::kWait;
      op.group = -1;
    }
  }
  SECTION("a member that brings other bytes") {
    second.ranks[1].side_ops[0].bytes += 1;
  }
  SECTION("another kind of meeting") {
    second.ranks[1].side_ops[0].kind = OpKind::kBarrier;
  }
  SECTION("a channel that is fed too often") {
    for (Lane& lane : second.ranks[0].lanes) {
      if (lane.output >= 0) ++lane.passes;
    }
  }
  SECTION("a channel of the first class alone") { second.channels.pop_back(); }
  SECTION("factors of other microbatches") {
    second.lane_factors = {{1, 1, 1}};
    for (Lane& lane : second.ranks[0].lanes) lane.factors = 0;
  }
  SECTION("factors that are not there") {
    for (Lane& lane : second.ranks[0].lanes) lane.factors = 0;
  }
  SECTION("an attachment beyond the shorter order") {
    second.ranks[0].attachments[0].position = 16;
  }
  SECTION("a weight below zero") { second.gradient_weight = -1; }
  CHECK(VerifyProgram(bad).code() == absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace pipewright::dp_classes_test
