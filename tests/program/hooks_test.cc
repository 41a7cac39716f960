// Side operations that come with the passes of a lane: where they stand, when
// they run, how many there are.
#include <catch2/catch.hpp>
#include <map>

#include "sim/engine/fast_engine.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/program/cursor.h"
#include "tests/support/lowering.h"
#include "tests/support/random_program.h"
#include "tests/support/reference_engine.h"

namespace pipewright::hooks_test {
namespace {

LowerOptions Options(const Schedule& schedule) {
  LowerOptions options;
  options.costs = CostsOf(
      schedule, {.forward = 4, .backward_input = 4, .backward_weight = 4});
  options.gradient_bytes.assign(schedule.stages(), 64);
  options.parameter_bytes.assign(schedule.stages(), 32);
  options.iterations = 1;
  return options;
}

// One rank whose passes are F0 .. F3, BW0 .. BW3.
Program FourForwards() {
  const auto schedule = Registered("gpipe", 1, 4);
  return Lowered(schedule, Options(*schedule));
}

void Hook(Program& program, LaneHook hook, SideOp op,
          std::vector<PassKind> kinds) {
  RankProgram& rank = program.ranks[0];
  hook.side_ops.assign(rank.lanes.size(), -1);
  for (const PassKind kind : kinds) {
    hook.side_ops[Pass::LaneOf(kind, 0, 0)] =
        static_cast<int32_t>(rank.side_ops.size());
  }
  rank.side_ops.push_back(std::move(op));
  rank.hooks.push_back(std::move(hook));
}

// What every engine says; they must agree to the bit.
double EndOf(const Program& program) {
  REQUIRE(VerifyProgram(program) == absl::OkStatus());
  const absl::StatusOr<RunSummary> fast = RunFast(program, {});
  const absl::StatusOr<RunSummary> events = RunSimgrid(program, {});
  const absl::StatusOr<RunSummary> naive = RunReference(program);
  REQUIRE(fast.ok());
  REQUIRE(events.ok());
  REQUIRE(naive.ok());
  CHECK(fast->iteration_end_s == naive->iteration_end_s);
  CHECK(events->iteration_end_s == naive->iteration_end_s);
  return fast->iteration_end_s.back();
}

std::string Line(const Program& program) {
  const std::string text = ToString(program);
  return text.substr(text.find("\n0:") + 1);
}

const SideOp kHostWork = {
    .kind = OpKind::kCpu, .stream = Stream::kCpu, .seconds = 5};

TEST_CASE("hooks: before every pass, so far ahead", "[program]") {
  constexpr double kBackwards = 4 * 8;
  const auto end = [](int window, double seconds) {
    Program program = FourForwards();
    SideOp op = {.kind = OpKind::kCpu, .stream = Stream::kCpu};
    op.seconds = seconds;
    Hook(program, {.window = window}, op, {PassKind::kForward});
    return EndOf(program) - kBackwards;
  };
  // Not ahead: each forward of 4 waits for its own 5, or 3.
  CHECK(end(0, 5) == 4 * (5 + 4));
  CHECK(end(0, 3) == 4 * (3 + 4));
  // One ahead: the longer of both, and the first 5, or 3, and the last 4.
  CHECK(end(1, 5) == 4 * 5 + 4);
  CHECK(end(1, 3) == 3 + 4 * 4);
  CHECK(end(3, 5) == 4 * 5 + 4);
  Program program = FourForwards();
  Hook(program, {.window = 1}, kHostWork, {PassKind::kForward});
  CHECK(Line(program) == "0: cpu cpu F0 cpu F1 cpu F2 F3 BW0 BW1 BW2 BW3\n");
}

TEST_CASE("hooks: behind every pass, with so many under way", "[program]") {
  const auto end = [](int window) {
    Program program = FourForwards();
    SideOp op = kHostWork;
    op.seconds = 10;
    Hook(program, {.place = LaneHook::Place::kAfter, .window = window}, op,
         {PassKind::kBackwardFull});
    return EndOf(program) - 4 * 4;
  };
  // Nobody waits: 8, and four times 10.
  CHECK(end(0) == 8 + 4 * 10);
  // Each backward waits for the one before it: 8, then 10 + 8 each, then 10.
  CHECK(end(1) == 8 + 3 * (10 + 8) + 10);
  CHECK(end(2) == 8 + 4 * 10);
  Program program = FourForwards();
  Hook(program, {.place = LaneHook::Place::kAfter}, kHostWork,
       {PassKind::kBackwardFull});
  program.ranks[0].hooks[0].output = AddSideChannel(program, 0, 0);
  AttachOp(
      program, 0, 8,
      {.kind = OpKind::kWait, .inputs = {program.ranks[0].hooks[0].output}});
  AttachOp(program, 0, 8, {.kind = OpKind::kOptimizer, .seconds = 1});
  CHECK(Line(program) ==
        "0: F0 F1 F2 F3 BW0 cpu BW1 cpu BW2 cpu BW3 cpu wait optimizer\n");
  CHECK(EndOf(program) == 4 * 4 + 4 * 8 + 5 + 1);
}

TEST_CASE("hooks: on the compute stream", "[program]") {
  Program program = FourForwards();
  SideOp op = {.kind = OpKind::kPredict};
  op.seconds = 1;
  Hook(program, {}, op, {PassKind::kForward});
  op.kind = OpKind::kOptimizer;
  Hook(program, {.place = LaneHook::Place::kAfter}, op,
       {PassKind::kBackwardFull});
  CHECK(Line(program) ==
        "0: predict F0 predict F1 predict F2 predict F3 BW0 optimizer BW1 "
        "optimizer BW2 optimizer BW3 optimizer\n");
  CHECK(EndOf(program) == 4 * 5 + 4 * 9);
}

TEST_CASE("hooks: runs and units", "[program]") {
  const auto schedule = Parsed(
      "pp 1 vpp 2 microbatches 3\n"
      "0: F0.0 F1.0 F0.1 F2.0 BW0.1 F1.1 BW0.0 F2.1 BW1.1 BW2.1 BW1.0 BW2.0");
  Program program = Lowered(schedule, Options(*schedule));
  RankProgram& rank = program.ranks[0];
  const auto add = [&](LaneHook hook, OpKind kind, PassKind pass) {
    hook.side_ops.assign(rank.lanes.size(), -1);
    for (int chunk = 0; chunk < 2; ++chunk) {
      hook.side_ops[Pass::LaneOf(pass, chunk, 0)] =
          static_cast<int32_t>(rank.side_ops.size());
      rank.side_ops.push_back({.kind = kind, .chunk = chunk});
    }
    rank.hooks.push_back(std::move(hook));
  };
  add({.fires = LaneHook::Fires::kEveryRun}, OpKind::kCpu, PassKind::kForward);
  add({.place = LaneHook::Place::kAfter, .fires = LaneHook::Fires::kEveryRun},
      OpKind::kOptimizer, PassKind::kBackwardFull);
  REQUIRE(VerifyProgram(program) == absl::OkStatus());
  // Chunks of forwards .0 .0 .1 .0 .1 .1, of backwards .1 .0 .1 .1 .0 .0.
  CHECK(Line(program) ==
        "0: cpu.0 F0.0 F1.0 cpu.1 F0.1 cpu.0 F2.0 BW0.1 optimizer.1 cpu.1 "
        "F1.1 BW0.0 optimizer.0 F2.1 BW1.1 BW2.1 optimizer.1 BW1.0 BW2.0 "
        "optimizer.0\n");
  // Every two microbatches of a chunk, and what is left.
  for (LaneHook& hook : rank.hooks) {
    hook.fires = LaneHook::Fires::kEveryPass;
    hook.every = 2;
  }
  REQUIRE(VerifyProgram(program) == absl::OkStatus());
  CHECK(Line(program) ==
        "0: cpu.0 F0.0 F1.0 cpu.1 F0.1 cpu.0 F2.0 BW0.1 F1.1 BW0.0 cpu.1 F2.1 "
        "BW1.1 optimizer.1 BW2.1 optimizer.1 BW1.0 optimizer.0 BW2.0 "
        "optimizer.0\n");
}

TEST_CASE("hooks: cost no memory a pass", "[program]") {
  const auto ops = [](int microbatches) {
    const auto schedule = Registered("zb-h1", 2, microbatches);
    LowerOptions options = Options(*schedule);
    options.replicas = 2;
    options.data_parallel = DataParallel::kFsdp;
    const Program program = Lowered(schedule, options);
    CHECK(program.num_ops() >= 14 * microbatches);
    return program.ranks[0].side_ops.size() +
           program.ranks[0].attachments.size() + program.channels.size();
  };
  CHECK(ops(8) == ops(4096));
}

TEST_CASE("hooks: a bad one is found", "[program]") {
  const std::vector<std::pair<const char*, void (*)(RankProgram&)>> wrong = {
      {"short", [](RankProgram& rank) { rank.hooks[0].side_ops.pop_back(); }},
      {"on copies",
       [](RankProgram& rank) {
         rank.hooks[0].side_ops[Pass::LaneOf(PassKind::kLoad, 0, 0)] = 0;
       }},
      {"of nothing", [](RankProgram& rank) { rank.hooks[0].side_ops[0] = 99; }},
      {"shared",
       [](RankProgram& rank) { rank.hooks.push_back(rank.hooks[0]); }},
      {"window", [](RankProgram& rank) { rank.hooks[0].window = -1; }},
      {"every", [](RankProgram& rank) { rank.hooks[0].every = 0; }},
      {"ahead of itself",
       [](RankProgram& rank) { rank.side_ops[0].stream = Stream::kCompute; }},
      {"no such channel", [](RankProgram& rank) { rank.hooks[0].output = 7; }},
  };
  for (const auto& [what, change] : wrong) {
    Program program = FourForwards();
    Hook(program, {.window = 1}, kHostWork, {PassKind::kForward});
    REQUIRE(VerifyProgram(program) == absl::OkStatus());
    change(program.ranks[0]);
    INFO(what);
    CHECK(VerifyProgram(program).code() == absl::StatusCode::kInternal);
  }
}

// Members of a group that a hook takes to it unequally often.
TEST_CASE("hooks: a group that meets unequally is found", "[program]") {
  const auto schedule = Registered("1f1b", 2, 4);
  Program program = Lowered(schedule, Options(*schedule));
  program.groups.push_back({.span = Group::Span::kRanks, .ranks = {0, 1}});
  for (int rank = 0; rank < 2; ++rank) {
    RankProgram& target = program.ranks[rank];
    target.side_ops.push_back(
        {.kind = OpKind::kBarrier, .stream = Stream::kCollective, .group = 0});
    LaneHook hook;
    hook.side_ops.assign(target.lanes.size(), -1);
    hook.side_ops[Pass::LaneOf(PassKind::kForward, 0, 0)] = 0;
    target.hooks.push_back(hook);
  }
  CHECK(VerifyProgram(program) == absl::OkStatus());
  program.ranks[1].hooks[0].every = 2;
  CHECK(VerifyProgram(program).code() == absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace pipewright::hooks_test
