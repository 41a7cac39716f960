// What a choice of activations names, what a plan that is known already depends
// on, and where FREE stands in a written order.
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/base/status.h"
#include "sim/config/prepare.h"
#include "sim/program/activation_plan.h"
#include "sim/program/deal_turns.h"
#include "sim/program/optimizer_plan.h"
#include "sim/program/pass_times.h"
#include "sim/program/rank_plan.h"
#include "sim/schedule/builder.h"
#include "tests/support/lowering.h"
#include "tests/support/prepare.h"

namespace pipewright::offload_choice_test {
namespace {

using testing::Prepared;
using testing::PrepareText;

// Passes of a stage take 1 s each, a copy `copy_s`.
struct Setting {
  Setting(std::shared_ptr<const Schedule> of, double copy_s)
      : schedule(std::move(of)) {
    const int stages = schedule->stages();
    LowerOptions options;
    options.costs.stages.assign(
        stages,
        {.forward_s = 1, .backward_input_s = 1, .backward_weight_s = 1});
    options.iterations = 1;
    program = std::make_unique<Program>(Lowered(schedule, options));
    costs.out_s.assign(stages, copy_s);
    costs.in_s = costs.out_s;
    costs.weight.assign(stages, 1);
  }

  std::vector<int32_t> Candidates(int rank, const OffloadChoice& choice) const {
    const auto times = EarliestTimes(*program);
    REQUIRE(times.ok());
    return RankPlan(*schedule, rank, (*times)[rank], costs).Candidates(choice);
  }
  OffloadPlan Plan(const OffloadChoice& choice) const {
    absl::StatusOr<OffloadPlan> plan =
        PlanOffload(schedule, *program, choice, costs);
    INFO(plan.status());
    REQUIRE(plan.ok());
    return *std::move(plan);
  }

  std::shared_ptr<const Schedule> schedule;
  std::unique_ptr<Program> program;
  OffloadCosts costs;
};

std::set<int> ChunksOf(const Setting& setting, int rank,
                       const std::vector<int32_t>& candidates) {
  std::vector<Pass> forwards;
  for (const Pass pass : setting.schedule->order(rank)) {
    if (pass.kind() == PassKind::kForward) forwards.push_back(pass);
  }
  std::set<int> chunks;
  for (const int32_t index : candidates) {
    chunks.insert(forwards[index].chunk());
  }
  return chunks;
}

TEST_CASE("offload choice: half of an odd number of chunks is the larger half",
          "[offload]") {
  const Setting three(Registered("interleaved-1f1b", 2, 4, 3), 0.5);
  const std::vector<int32_t> half = three.Candidates(0, {.half = true});
  CHECK(half.size() == 8);
  // The first chunk of a rank lives longest.
  CHECK(ChunksOf(three, 0, half) == std::set<int>{0, 1});
  const Setting two(Registered("interleaved-1f1b", 2, 4, 2), 0.5);
  CHECK(ChunksOf(two, 0, two.Candidates(0, {.half = true})) ==
        std::set<int>{0});
  CHECK(two.Candidates(0, {.half = true}).size() == 4);
}

TEST_CASE("offload choice: parts are of all activations, rounded up",
          "[offload]") {
  const Setting one(Registered("1f1b", 4, 8), 0.5);
  const auto count = [](const Setting& setting, const OffloadChoice& choice) {
    return setting.Candidates(0, choice).size();
  };
  CHECK(count(one, {}) == 8);
  CHECK(count(one, {.half = true}) == 4);
  CHECK(count(one, {.fraction = 0.3}) == 3);
  CHECK(count(one, {.fraction = 0.25}) == 2);
  CHECK(count(one, {.fraction = 1.0 / 8}) == 1);
  CHECK(count(one, {.fraction = 0}) == 0);
  CHECK(count(Setting(Registered("1f1b", 4, 5), 0.5), {.half = true}) == 3);
  const Setting chunks(Registered("interleaved-1f1b", 2, 4, 2), 0.5);
  CHECK(count(chunks, {.chunks = {1}}) == 4);
  CHECK(ChunksOf(chunks, 0, chunks.Candidates(0, {.chunks = {1}})) ==
        std::set<int>{1});
  CHECK(count(chunks, {.chunks = {1}, .fraction = 0.25}) == 2);
  CHECK(count(chunks, {.chunks = {1}, .fraction = 0.75}) == 4);
}

TEST_CASE("offload choice: of equals the first ones go", "[offload]") {
  // The last rank runs each backward behind its forward.
  const Setting last(Registered("1f1b", 4, 8), 0.5);
  CHECK(last.Candidates(3, {.fraction = 0.5}) ==
        std::vector<int32_t>{0, 1, 2, 3});
}

TEST_CASE(
    "offload choice: a plan counts what was chosen, and makes no copy in "
    "vain",
    "[offload]") {
  const Setting setting(Registered("1f1b", 4, 8), 0.1);
  const OffloadPlan one = setting.Plan({.fraction = 1.0 / 8});
  CHECK(one.ranks[0].activations == 8);
  CHECK(one.ranks[0].candidates == 1);
  // Four are there at other times, too.
  CHECK(one.ranks[0].peak_before == 4);
  CHECK(one.ranks[0].peak_after == 4);
  CHECK(one.ranks[0].offloaded == 0);
  CHECK_FALSE(one.schedule->Has(PassKind::kOffload));
  const OffloadPlan all = setting.Plan({});
  CHECK(all.ranks[0].candidates == 8);
  CHECK(all.ranks[0].peak_after < 4);
  CHECK(all.ranks[0].offloaded > 1);
}

// Each input is changed alone, behind the plan that is known.
TEST_CASE("offload choice: a known plan is one of the same inputs",
          "[offload]") {
  const auto schedule = Registered("interleaved-1f1b", 2, 6, 3);
  const Setting base(schedule, 0.25);
  OffloadPlan known = base.Plan({});
  const auto is_known = [&](const OffloadPlan& plan) {
    bool same = plan.turns.size() == known.turns.size();
    for (size_t rank = 0; rank < plan.ranks.size(); ++rank) {
      same = same &&
             plan.schedule->order(rank) == known.schedule->order(rank) &&
             plan.ranks[rank].candidates == known.ranks[rank].candidates &&
             plan.ranks[rank].peak_before == known.ranks[rank].peak_before &&
             plan.ranks[rank].peak_after == known.ranks[rank].peak_after;
    }
    return same;
  };
  CHECK(is_known(base.Plan({})));
  CHECK_FALSE(is_known(base.Plan({.half = true})));
  CHECK_FALSE(is_known(base.Plan({.chunks = {2}})));
  CHECK_FALSE(is_known(base.Plan({.fraction = 0.1})));
  const auto changed = [&](const std::function<void(OffloadCosts*)>& change) {
    Setting other(schedule, 0.25);
    change(&other.costs);
    return other.Plan({});
  };
  CHECK(is_known(changed([](OffloadCosts*) {})));
  CHECK_FALSE(is_known(
      changed([](OffloadCosts* costs) { costs->out_s.assign(6, 1e6); })));
  CHECK_FALSE(is_known(
      changed([](OffloadCosts* costs) { costs->in_s.assign(6, 1e6); })));
  CHECK_FALSE(is_known(
      changed([](OffloadCosts* costs) { costs->weight.assign(6, 2); })));
  CHECK_FALSE(is_known(
      changed([](OffloadCosts* costs) { costs->moved.assign(6, 0.5); })));
  CHECK_FALSE(is_known(changed([](OffloadCosts* costs) {
    costs->switch_of_rank = {0, 0};
  })));
  const auto split = Registered("zb-h1", 4, 8);
  const Setting whole(split, 0.25);
  known = whole.Plan({});
  Setting half(split, 0.25);
  half.costs.held_until_weight = 0.5;
  CHECK_FALSE(is_known(half.Plan({})));
  Setting more(split, 0.25);
  more.costs.until_weight.assign(4, 2);
  CHECK_FALSE(is_known(more.Plan({})));
}

// What stands behind FREE of each microbatch and slice.
std::string BehindFree(const RankOrder& order, int microbatch, int slice = 0) {
  for (size_t at = 0; at + 1 < order.size(); ++at) {
    if (order[at].kind() != PassKind::kFree ||
        order[at].microbatch() != microbatch || order[at].slice() != slice) {
      continue;
    }
    const Pass next = order[at + 1];
    return absl::StrCat(next.kind() == PassKind::kForward ? "F" : "other",
                        next.microbatch(), ".", next.slice());
  }
  return "none";
}

TEST_CASE("offload choice: FREE of a written order waits for its own copy",
          "[offload]") {
  ScheduleBuilder builder("written", Placement::Plain(1), 8);
  for (int microbatch = 0; microbatch < 8; ++microbatch) {
    builder.Add(0, PassKind::kForward, microbatch);
    if (microbatch < 2) builder.Add(0, PassKind::kOffload, microbatch);
  }
  for (int microbatch = 7; microbatch >= 0; --microbatch) {
    if (microbatch < 2) builder.Add(0, PassKind::kLoad, microbatch);
    builder.Add(0, PassKind::kBackwardFull, microbatch);
  }
  const Setting setting(
      std::make_shared<const Schedule>(std::move(builder).Finish()), 2);
  const auto with =
      WithFrees(setting.schedule, *setting.program, setting.costs);
  REQUIRE(with.ok());
  const RankOrder& order = (*with)->order(0);
  // The first copy runs from 1 to 3 s, and then the second one.
  CHECK(BehindFree(order, 0) == "F3.0");
  CHECK(BehindFree(order, 1) == "F5.0");
}

TEST_CASE("offload choice: FREE of a slice waits for the copy of a slice",
          "[offload]") {
  ScheduleBuilder builder("written", Placement::Plain(1), 4, /*slices=*/2);
  for (int microbatch = 0; microbatch < 4; ++microbatch) {
    for (const int slice : {0, 1}) {
      builder.Add(0, PassKind::kForward, microbatch, 0, slice);
      if (microbatch + slice == 0) builder.Add(0, PassKind::kOffload, 0);
    }
  }
  for (int microbatch = 0; microbatch < 4; ++microbatch) {
    for (const int slice : {1, 0}) {
      if (microbatch + slice == 0) builder.Add(0, PassKind::kLoad, 0);
      builder.Add(0, PassKind::kBackwardFull, microbatch, 0, slice);
    }
  }
  const Setting setting(
      std::make_shared<const Schedule>(std::move(builder).Finish()), 2);
  const auto with =
      WithFrees(setting.schedule, *setting.program, setting.costs);
  REQUIRE(with.ok());
  // A forward of a slice takes half a second, its copy one.
  CHECK(BehindFree((*with)->order(0), 0) == "F1.1");
}

// Both ranks: F 1 s, BW 2 s, a hop of 0.5 s. The last rank runs F1 from 4.5 s
// on, so the first one's may end at 4, and no sooner its BW0 begins at 5.
TEST_CASE("offload choice: a late warm-up leaves a hop its time", "[offload]") {
  const auto schedule = Registered("1f1b", 2, 2);
  LowerOptions options;
  options.costs.stages.assign(
      2, {.forward_s = 1, .backward_input_s = 1, .backward_weight_s = 1});
  options.network.hop_s = 0.5;
  options.iterations = 1;
  const Program program = Lowered(schedule, options);
  auto times = EarliestTimes(program);
  REQUIRE(times.ok());
  CHECK((*times)[1].start_s == std::vector<double>{1.5, 2.5, 4.5, 5.5});
  CHECK((*times)[0].start_s == std::vector<double>{0, 1, 5, 8});
  DelayWarmUp(program, &*times);
  CHECK((*times)[0].start_s == std::vector<double>{0, 3, 5, 8});
  CHECK((*times)[0].end_s == std::vector<double>{1, 4, 7, 10});
}

std::vector<std::pair<int, int64_t>> Dealt(
    const std::vector<std::vector<TurnJob>>& jobs, double hand_over_s) {
  std::vector<std::pair<int, int64_t>> turns;
  for (const TurnJob& job : DealTurns(jobs, hand_over_s)) {
    turns.emplace_back(job.rank, job.position);
  }
  return turns;
}

TEST_CASE("offload choice: of three ranks the one due first copies first",
          "[offload]") {
  using Turns = std::vector<std::pair<int, int64_t>>;
  const auto job = [](int rank, int64_t position, double due_s) {
    return TurnJob{.rank = rank,
                   .position = position,
                   .due_s = due_s,
                   .takes_s = 1,
                   .done_s = 50};
  };
  const std::vector<std::vector<TurnJob>> jobs = {
      {job(0, 0, 10)}, {job(1, 0, 2), job(1, 1, 20)}, {job(2, 0, 5)}};
  CHECK(Dealt(jobs, 0) == Turns{{1, 0}, {2, 0}, {0, 0}, {1, 1}});
  // A rank that goes on loses no time to a turn.
  CHECK(Dealt(jobs, 0.5) == Turns{{1, 0}, {1, 1}, {2, 0}, {0, 0}});
}

TEST_CASE("offload choice: the host steps what triggers copies, too",
          "[offload]") {
  CHECK(BestStride(1, 1e12) == 2);
  const SubgroupPlan every_second = PlanStrides(4, 2, 4);
  CHECK(every_second.HostShare() == 0.5);
  CHECK(PlanStrides(6, 3, 6).HostShare() == Approx(4.0 / 6));
  CHECK(PlanStrides(4, 2, 2).HostShare() == 0.25);
  CHECK(PlanRatio(4, 0.5).HostShare() == 0.5);
  // The last on the device comes behind the last trigger, and is flushed.
  REQUIRE(every_second.last_flush == 3);
}

std::string RunText(const std::string& strategy, const std::string& costs,
                    const std::string& schedule = "1f1b") {
  return absl::StrCat(
      "schedule: {name: ", schedule, "}\nengine: fast\nstrategy: {pp: 4, ",
      "microbatches: 8, ", strategy, "}\n",
      "costs: {uniform: {forward: 1s, backward_input: 1s, backward_weight: "
      "1s}, p2p: 0s, ",
      costs, "}\n");
}

TEST_CASE("offload choice: what a configuration chooses", "[offload]") {
  const auto candidates = [](const std::string& strategy) {
    const PreparedRun run = Prepared(RunText(strategy, "offload_ratio: 0.01"));
    return run.offload->ranks[0].candidates;
  };
  CHECK(candidates("offload: full") == 8);
  CHECK(candidates("offload: selective") == 4);
  CHECK(candidates("offload: selective, offload_fraction: 0.75") == 6);
  CHECK(candidates("offload: full, offload_fraction: 0.75") == 6);
  CHECK(candidates("offload: full, offload_chunks: [0]") == 8);
  CHECK_THAT(
      std::string(PrepareText(RunText("offload: full, offload_chunks: [1]",
                                      "offload_ratio: 0.01"))
                      .status()
                      .message()),
      Catch::Contains("strategy.offload_chunks") && Catch::Contains("0..0"));
}

// O and L together take that part of F, B and W.
TEST_CASE("offload choice: a ratio is of both copies", "[offload]") {
  const PreparedRun run =
      Prepared(RunText("offload: full", "offload_ratio: 0.5"));
  for (const StageCosts& stage : run.costs.passes.stages) {
    CHECK(stage.offload_s == Approx(0.75));
    CHECK(stage.load_s == Approx(0.75));
  }
  CHECK(run.offload->least_ratio == Approx(0.5));
  CHECK(run.offload->most_ratio == Approx(0.5));
}

}  // namespace
}  // namespace pipewright::offload_choice_test
