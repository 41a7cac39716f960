// Where the time of a step goes: the parts of every rank add up to the step,
// each cause is shown alone by a run that has only it, and hand arithmetic.
#include "sim/analysis/explain/step_parts.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/analysis/explain/dependency_graph.h"
#include "sim/engine/fast_engine.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/run/simulated_run.h"
#include "sim/schedule/registry.h"
#include "tests/support/lowering.h"
#include "tests/support/prepare.h"
#include "tests/support/random_program.h"

namespace pipewright::step_parts_test {
namespace {

constexpr double kSame = 1e-9;

StepExplanation ExplainedProgram(const Program& program,
                                 const EngineInfo& engine) {
  FullTrace trace;
  const auto summary = engine.run(program, {.trace = &trace});
  REQUIRE(summary.ok());
  const auto graph =
      BuildDependencyGraph(program, trace.ops(), summary->iterations());
  INFO(graph.status());
  REQUIRE(graph.ok());
  auto step = ExplainStep(program, *graph, *summary);
  INFO(step.status());
  REQUIRE(step.ok());
  CHECK(step->step_s == summary->iteration_s());
  return *std::move(step);
}

StepExplanation Explained(const std::string& yaml) {
  const PreparedRun prepared = testing::Prepared(yaml);
  const auto program = Lower(prepared.schedule.lowered, prepared.lower);
  REQUIRE(program.ok());
  return ExplainedProgram(*program, **FindEngine(prepared.engine));
}

// Every rank, and the critical path, to 1e-9 of the step.
bool AddsUp(const StepExplanation& step) {
  bool same = true;
  const auto near = [&](double sum) {
    return std::abs(sum - step.step_s) <= kSame * step.step_s;
  };
  for (const RankStep& rank : step.ranks) same &= near(rank.parts.Sum());
  same &= near(step.path_parts.Sum());
  double before_s = 0;
  for (const PathPiece& piece : step.critical_path) {
    if (before_s > 0) {
      same &= std::abs(piece.start_s - before_s) <= kSame * before_s;
    }
    before_s = piece.end_s;
  }
  return same;
}

// The parts beside compute that any rank has, by their names.
std::set<std::string> CausesOf(const StepExplanation& step) {
  std::set<std::string> causes;
  for (const RankStep& rank : step.ranks) {
    for (int index = 0; index < kNumStepParts; ++index) {
      const auto part = static_cast<StepPart>(index);
      if (GroupOf(part) == PartGroup::kCompute) continue;
      if (rank.parts[part] > kSame * step.step_s) {
        causes.insert(std::string(PartName(part)));
      }
    }
  }
  return causes;
}

using Causes = std::set<std::string>;

TEST_CASE("explain: the parts of 1f1b are those of hand arithmetic",
          "[explain]") {
  const StepExplanation step = Explained(
      "schedule: {name: 1f1b}\nstrategy: {pp: 4, microbatches: 8}\n"
      "costs: {uniform: {forward: 1s, backward: 2s}, p2p: 0s}\n"
      "engine: fast\n");
  REQUIRE(step.step_s == Approx(11 * 3));
  REQUIRE(step.ranks.size() == 4);
  for (const RankStep& rank : step.ranks) {
    INFO("rank " << rank.rank);
    CHECK(rank.parts[StepPart::kForward] == Approx(8));
    CHECK(rank.parts[StepPart::kBackwardFull] == Approx(16));
    // Rank d starts d forwards late and then waits for p - 1 - d backwards of
    // the ranks behind it. Once it has no forward left, gradients come every
    // F + B and take B; it ends d backwards early.
    const double behind = 3 - rank.rank;
    CHECK(rank.parts[StepPart::kWarmUp] == Approx(rank.rank + 2 * behind));
    CHECK(rank.parts[StepPart::kCoolDown] == Approx(behind + 2.0 * rank.rank));
    CHECK(rank.parts[StepPart::kImbalance] == 0);
    CHECK(rank.parts[StepPart::kTransfer] == 0);
  }
  // Up the ranks, eight microbatches of the last one, and down again.
  CHECK(step.path_parts[StepPart::kForward] == Approx(11));
  CHECK(step.path_parts[StepPart::kBackwardFull] == Approx(22));
}

TEST_CASE("explain: each cause is shown alone by a run that has only it",
          "[explain]") {
  struct Row {
    const char* cause;
    std::string yaml;
  };
  const std::vector<Row> rows = {
      {"warm-up",
       "schedule: {name: gpipe}\nstrategy: {pp: 4, microbatches: 4}\n"
       "costs: {uniform: {forward: 1s, backward: 0s}, p2p: 0s}\n"},
      {"cool-down",
       "schedule: {name: gpipe}\nstrategy: {pp: 4, microbatches: 4}\n"
       "costs: {uniform: {forward: 0s, backward: 1s}, p2p: 0s}\n"},
      // Never flushed, so that nothing fills and drains; one stage is slow.
      {"imbalance",
       "schedule: {name: pipedream-2bw}\n"
       "strategy: {pp: 2, microbatches: 4}\n"
       "costs: {per_stage: {forward: [1s, 2s], backward: [2s, 4s]}, "
       "p2p: 0s}\n"},
      {"waiting for transfer",
       "schedule: {name: pipedream-2bw}\n"
       "strategy: {pp: 2, microbatches: 4}\n"
       "costs: {uniform: {forward: 1ns, backward: 1ns}, p2p: 3000s}\n"},
      {"all-reduce",
       "schedule: {name: 1f1b}\n"
       "strategy: {pp: 1, dp: 2, microbatches: 2, data_parallel: ddp, "
       "overlap_gradients: false}\n"
       "costs: {uniform: {forward: 1ms, backward: 1ms}, gradient_bytes: 1GiB, "
       "hop_bytes: 1MiB}\nsystem: {preset: dgx-h100}\n"},
  };
  for (const Row& row : rows) {
    for (const char* engine : {"fast", "simgrid"}) {
      INFO(row.cause << " on " << engine);
      const StepExplanation step =
          Explained(absl::StrCat(row.yaml, "engine: ", engine, "\n"));
      CHECK(AddsUp(step));
      CHECK(CausesOf(step) == Causes{row.cause});
    }
  }
}

TEST_CASE("explain: waiting for offload is shown alone", "[explain]") {
  const auto schedule = Parsed("pp 1 vpp 1 microbatches 1\n0: F0 O0 L0 BW0");
  LowerOptions options;
  options.costs = CostsOf(*schedule, {.forward = 1, .backward_input = 1});
  options.costs.stages[0].offload_s = 3;
  options.costs.stages[0].load_s = 2;
  const Program program = Lowered(schedule, options);
  for (const EngineInfo& engine : AllEngines()) {
    const StepExplanation step = ExplainedProgram(program, engine);
    CHECK(AddsUp(step));
    CHECK(CausesOf(step) == Causes{"waiting for offload"});
    // Out and back, with nothing to do in between.
    CHECK(step.ranks[0].parts[StepPart::kOffload] == Approx(5));
  }
}

// Work of the host between two steps, which the device waits for.
Program WaitsForHost(OpKind kind, Stream stream, double seconds) {
  LowerOptions options;
  options.costs =
      CostsOf(*Registered("1f1b", 1, 2), {.forward = 1, .backward_input = 1});
  options.iterations = 4;
  Program program = Lowered(Registered("1f1b", 1, 2), options);
  const int64_t end = static_cast<int64_t>(program.ranks[0].order->size());
  const int32_t channel = AddSideChannel(program, 0, 0);
  SideOp work;
  work.kind = kind;
  work.stream = stream;
  work.seconds = seconds;
  work.outputs = {channel};
  AttachOp(program, 0, end, work);
  SideOp wait;
  wait.inputs = {channel};
  AttachOp(program, 0, end, wait);
  return program;
}

TEST_CASE("explain: waiting for the optimizer is shown alone", "[explain]") {
  for (const EngineInfo& engine : AllEngines()) {
    const StepExplanation step =
        ExplainedProgram(WaitsForHost(OpKind::kCpu, Stream::kCpu, 5), engine);
    CHECK(AddsUp(step));
    CHECK(CausesOf(step) == Causes{"waiting for optimizer"});
    CHECK(step.ranks[0].parts[StepPart::kStep] == Approx(5));
    // On the device itself it is work.
    const StepExplanation own = ExplainedProgram(
        WaitsForHost(OpKind::kOptimizer, Stream::kCompute, 5), engine);
    CHECK(AddsUp(own));
    CHECK(CausesOf(own).empty());
    CHECK(own.ranks[0].parts[StepPart::kOptimizer] == Approx(5));
  }
}

TEST_CASE("explain: parts add up on every rank, schedule and engine",
          "[explain]") {
  int explained = 0;
  for (const ScheduleInfo* info : AllSchedules()) {
    for (const auto& [pp, vpp, microbatches] :
         {std::tuple(1, 1, 3), std::tuple(4, 1, 8), std::tuple(4, 2, 8),
          std::tuple(3, 1, 7)}) {
      ScheduleParams params;
      params.pp = pp;
      params.vpp = vpp;
      params.microbatches = microbatches;
      params.costs = {.forward = 3,
                      .backward_input = 5,
                      .backward_weight = 7,
                      .hop = 2,
                      .given = true};
      auto schedule = BuildSchedule(info->name, params);
      if (!schedule.ok()) continue;
      LowerOptions options;
      options.costs = CostsOf(*schedule, params.costs);
      options.network.hop_s = params.costs.hop;
      const Program program = Lowered(
          std::make_shared<const Schedule>(*std::move(schedule)), options);
      for (const EngineInfo& engine : AllEngines()) {
        INFO(info->name << " pp " << pp << " vpp " << vpp << " on "
                        << engine.name);
        const StepExplanation step = ExplainedProgram(program, engine);
        CHECK(AddsUp(step));
        for (const RankStep& rank : step.ranks) {
          CHECK(rank.parts.Sum(PartGroup::kCompute) ==
                Approx(program.BusySeconds(rank.rank)).epsilon(kSame));
        }
        ++explained;
      }
    }
  }
  CHECK(explained > 150);
}

// Passes that are told whole and wait inside, which explain refuses.
bool HasLayers(const Program& program) {
  for (int replica = 0; replica < program.replicas; ++replica) {
    for (const RankProgram& rank : program.OfReplica(replica).ranks) {
      if (!rank.layers.empty()) return true;
    }
  }
  return false;
}

TEST_CASE("explain: parts add up in random programs", "[explain]") {
  int explained = 0;
  for (uint32_t seed = 1; seed <= 250; ++seed) {
    const absl::StatusOr<RandomProgram> made = MakeRandomProgram(seed, {});
    if (!made.ok() || HasLayers(made->program)) continue;
    for (const EngineInfo& engine : AllEngines()) {
      // A deadlock explains nothing.
      if (!engine.run(made->program, {}).ok()) continue;
      INFO("seed " << seed << " on " << engine.name << ": " << made->about);
      CHECK(AddsUp(ExplainedProgram(made->program, engine)));
      ++explained;
    }
  }
  CHECK(explained > 200);
}

}  // namespace
}  // namespace pipewright::step_parts_test
