// Turns of copies on one PCIe switch: against every order that is allowed, and
// in runs whose passes must not wait.
#include "sim/config/copy_turns.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "sim/engine/fast_engine.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/program/activation_plan.h"
#include "sim/program/deal_turns.h"
#include "sim/topology/registry.h"
#include "tests/support/lowering.h"
#include "tests/support/random_program.h"

namespace pipewright::copy_turns_test {
namespace {

using Jobs = std::vector<std::vector<TurnJob>>;

// How late the latest copy is when they run in this order.
double Lateness(const std::vector<TurnJob>& turns, double hand_over_s) {
  double now_s = 0;
  double late_s = 0;
  for (size_t index = 0; index < turns.size(); ++index) {
    const TurnJob& job = turns[index];
    if (index > 0 && turns[index - 1].rank != job.rank) now_s += hand_over_s;
    now_s = std::max(now_s, job.ready_s) + job.takes_s;
    late_s = std::max(late_s, now_s - job.due_s);
  }
  return late_s;
}

// May copy `job` run while `other` has not?
bool MayOvertake(const TurnJob& job, const TurnJob& other) {
  return other.done_s > job.ready_s || other.ready_s >= job.ready_s;
}

// Least lateness of all orders that keep those of the ranks and in which no
// copy overtakes one that it may wait for.
double LeastLateness(const Jobs& jobs, double hand_over_s) {
  double least_s = 1e300;
  std::vector<TurnJob> turns;
  std::vector<size_t> next(jobs.size());
  const std::function<void()> extend = [&] {
    bool any = false;
    for (size_t rank = 0; rank < jobs.size(); ++rank) {
      if (next[rank] == jobs[rank].size()) continue;
      any = true;
      bool may = true;
      for (size_t other = 0; other < jobs.size(); ++other) {
        may &= next[other] == jobs[other].size() ||
               MayOvertake(jobs[rank][next[rank]], jobs[other][next[other]]);
      }
      if (!may) continue;
      turns.push_back(jobs[rank][next[rank]++]);
      extend();
      --next[rank];
      turns.pop_back();
    }
    if (!any) least_s = std::min(least_s, Lateness(turns, hand_over_s));
  };
  extend();
  return least_s;
}

Jobs RandomJobs(std::mt19937& random, int ranks) {
  Jobs jobs(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    double ready_s = 0;
    double done_s = 0;
    const int count = 1 + static_cast<int>(random() % 6);
    for (int job = 0; job < count; ++job) {
      ready_s += static_cast<double>(random() % 5);
      const double takes_s = 1 + static_cast<double>(random() % 3);
      ready_s = std::max(ready_s, done_s);
      done_s = ready_s + takes_s;
      jobs[rank].push_back(
          {.rank = rank,
           .position = job,
           .ready_s = ready_s,
           .due_s = ready_s + takes_s + static_cast<double>(random() % 12),
           .takes_s = takes_s,
           .done_s = done_s});
    }
  }
  return jobs;
}

TEST_CASE("offload: turns of two ranks are in time where any allowed order is",
          "[offload]") {
  int in_time = 0;
  int first_ready_is_late = 0;
  for (uint32_t seed = 1; seed <= 400; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    const Jobs jobs = RandomJobs(random, 2);
    const double hand_over_s = seed % 3 == 0 ? 0.25 : 0;
    const std::vector<TurnJob> turns = DealTurns(jobs, hand_over_s);
    std::vector<size_t> next(2);
    for (const TurnJob& job : turns) {
      CHECK(job.position == static_cast<int64_t>(next[job.rank]++));
    }
    REQUIRE(next == std::vector<size_t>{jobs[0].size(), jobs[1].size()});
    if (LeastLateness(jobs, hand_over_s) > 1e-6) continue;
    ++in_time;
    CHECK(Lateness(turns, hand_over_s) < 1e-6);
    // Whoever can begin first, which is what happens without turns.
    std::vector<TurnJob> first = jobs[0];
    first.insert(first.end(), jobs[1].begin(), jobs[1].end());
    std::stable_sort(first.begin(), first.end(),
                     [](const TurnJob& one, const TurnJob& other) {
                       return one.ready_s < other.ready_s;
                     });
    first_ready_is_late += Lateness(first, hand_over_s) > 1e-6 ? 1 : 0;
  }
  // The cases tell the two apart.
  CHECK(in_time > 100);
  CHECK(first_ready_is_late > 20);
}

TEST_CASE("offload: turns of more ranks keep the orders of each", "[offload]") {
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    std::mt19937 random(seed);
    const Jobs jobs = RandomJobs(random, 4);
    std::vector<size_t> next(4);
    for (const TurnJob& job : DealTurns(jobs, 0)) {
      CHECK(job.position == static_cast<int64_t>(next[job.rank]++));
      for (int rank = 0; rank < 4; ++rank) {
        if (next[rank] == jobs[rank].size()) continue;
        CHECK(MayOvertake(job, jobs[rank][next[rank]]));
      }
    }
    for (int rank = 0; rank < 4; ++rank) CHECK(next[rank] == jobs[rank].size());
  }
  CHECK(DealTurns({{}, {}}, 0).empty());
}

// A table for two ranks with 40,000 copies each would have 1.6e9 cells.
TEST_CASE("offload: turns of very many copies are not searched", "[offload]") {
  for (const int count : {2, 4000}) {
    CAPTURE(count);
    // The second rank is in time only if the link idles for it.
    Jobs jobs = {{{.due_s = 100, .takes_s = 4, .done_s = 4}},
                 {{.rank = 1,
                   .ready_s = 0.5,
                   .due_s = 1.5,
                   .takes_s = 1,
                   .done_s = 1.5}}};
    for (int job = 1; job < count; ++job) {
      for (const int rank : {0, 1}) {
        const double ready_s = 8 * job + 2 * rank;
        jobs[rank].push_back({.rank = rank,
                              .position = job,
                              .ready_s = ready_s,
                              .due_s = ready_s + 2,
                              .takes_s = 1,
                              .done_s = ready_s + 1});
      }
    }
    const std::vector<TurnJob> turns = DealTurns(jobs, 0);
    CHECK(turns.front().rank == (count == 2 ? 1 : 0));
    std::vector<int64_t> next(2);
    for (const TurnJob& job : turns) CHECK(job.position == next[job.rank]++);
    CHECK(next == std::vector<int64_t>{count, count});
  }
}

// Rank 0 could copy first, but its memory is needed last: rank 1 gives back
// before its second forward.
TEST_CASE("offload: who is due first copies first, on every engine",
          "[offload][engine]") {
  const auto schedule = Parsed(
      "pp 2 vpp 1 microbatches 3 slices 1 replicas 1 placement plain\n"
      "0: F0 O0 F1 F2 FREE0 L0 BW0 BW1 BW2\n"
      "1: F0 O0 FREE0 F1 F2 L0 BW0 BW1 BW2");
  // F 4, O 3: rank 0 is ready at 4, rank 1 at 8; both O of rank 0 and of rank
  // 1 would be fine. With an O of 7, rank 0's ends at 11 and rank 1 gives back
  // at 18; the other way round rank 1 gives back at 15, rank 0 at 22.
  LowerOptions options;
  options.costs = CostsOf(
      *schedule, {.forward = 4, .backward_input = 2, .backward_weight = 2});
  ShapeParams params = SmallFabric(1, 2, 0);
  params.pcie_per_switch = 2;
  params.pcie = {.bytes_per_s = 8, .latency_s = 0};
  options.network = NetworkOf(
      std::make_shared<Cluster>(BuildCluster(params).value()), {0, 1}, 2, 1);
  options.activation_bytes = {56, 56};
  options.copies_in_turn = true;
  options.iterations = 1;
  const Program plain = Lowered(schedule, options);
  Program turns = plain;
  const SwitchCopies copies = {
      .ranks = {0, 1}, .out_s = {7, 7}, .in_s = {7, 7}};
  REQUIRE(HandTurns({copies}, &turns).ok());
  REQUIRE(VerifyProgram(turns) == absl::OkStatus());
  const RunSummary before = RunSimgrid(plain, {}).value();
  const RunSummary after = RunSimgrid(turns, {}).value();
  const double held_before_s = before.times[0][1].late_free_s;
  const double held_after_s = after.times[0][1].late_free_s;
  INFO("held back " << held_before_s << " s, with turns " << held_after_s);
  CHECK(held_after_s < held_before_s - 2);
  // Without copies that take time no token costs more than its way.
  Program free = turns;
  DropTurns(&free);
  CHECK(RunFast(free, {}).value().iteration_end_s ==
        RunFast(plain, {}).value().iteration_end_s);
}

// A schedule over switches of two devices, copies of `ratio` times the work of
// a chunk there and back.
struct OnSwitches {
  LowerOptions options;
  std::shared_ptr<const Schedule> schedule;
  OffloadPlan plan;
  std::vector<SwitchCopies> copies;
};

OnSwitches Planned(const std::string& name, int pp, double ratio,
                   double hop_s) {
  OnSwitches out;
  out.schedule =
      Registered(name, pp, 2 * pp, name == "po-f" || name == "zb-v" ? 2 : 1);
  LowerOptions& options = out.options;
  options.costs = CostsOf(
      *out.schedule, {.forward = 1, .backward_input = 1, .backward_weight = 1});
  ShapeParams params = SmallFabric(1, pp, 0);
  params.pcie_per_switch = 2;
  params.pcie = {.bytes_per_s = 8, .latency_s = 0};
  params.nvlink = {.bytes_per_s = 64, .latency_s = hop_s / 2};
  std::vector<int> devices(pp);
  std::iota(devices.begin(), devices.end(), 0);
  options.network =
      NetworkOf(std::make_shared<Cluster>(BuildCluster(params).value()),
                std::move(devices), pp, 1);
  options.copies_in_turn = true;
  options.iterations = 1;
  const int stages = out.schedule->stages();
  const double seconds = ratio / 2 * 3 * pp / stages;
  options.activation_bytes.assign(stages, 8 * seconds);
  const Program program = Lowered(out.schedule, options);
  OffloadCosts costs;
  costs.out_s.assign(stages, seconds + HandOverSeconds(program, {0, 1}));
  costs.in_s = costs.out_s;
  costs.weight.assign(stages, 1);
  for (int rank = 0; rank < pp; ++rank) {
    costs.switch_of_rank.push_back(rank / 2);
  }
  out.plan = PlanOffload(out.schedule, program, {}, costs).value();
  for (int rank = 0; rank < pp; rank += 2) {
    out.copies.push_back({.ranks = {rank, rank + 1},
                          .out_s = std::vector<double>(stages, seconds),
                          .in_s = std::vector<double>(stages, seconds),
                          .planned = out.plan.turns.at(rank / 2)});
  }
  return out;
}

// Turns were dealt out by times that left out the waits at FREE: 1F1B of 8
// ranks stood still at k from 0.40 to 0.93.
TEST_CASE("offload: in turn ranks never wait in a circle, no step is longer",
          "[offload][engine][long]") {
  int64_t offloaded = 0;
  for (const std::string name : {"1f1b", "po-f", "zb-v", "zb-h1"}) {
    for (const int pp : {4, 6, 8, 12, 16}) {
      for (const double ratio : {0.2, 0.4, 2 / 3.0, 0.8, 0.93, 1.0, 1.6, 2.5}) {
        const double hop_s = pp % 8 == 0 ? 0 : 0.125;
        CAPTURE(name, pp, ratio, hop_s);
        // Copies meet on SimGrid alone, where each run is a process and takes
        // most of the time. On `fast` a circle still stands still.
        const bool meet = pp % 4 == 0 && pp < 12 &&
                          (ratio == 0.4 || ratio == 0.8 || ratio == 1.6);
        const auto run_program = [meet](const Program& program) {
          return meet ? RunSimgrid(program, {}) : RunFast(program, {});
        };
        OnSwitches run = Planned(name, pp, ratio, hop_s);
        for (const RankOffload& rank : run.plan.ranks) {
          offloaded += rank.offloaded;
        }
        const double plain_s = run_program(Lowered(run.schedule, run.options))
                                   .value()
                                   .iteration_s();
        Program program = Lowered(run.plan.schedule, run.options);
        REQUIRE(HandTurns(run.copies, &program).ok());
        CHECK_FALSE(program.turns_dropped);
        const absl::StatusOr<RunSummary> summary = run_program(program);
        INFO(summary.status());
        REQUIRE(summary.ok());
        CHECK(summary->iteration_s() == Approx(plain_s).epsilon(1e-6));
        // The same orders as those of a file: turns are dealt out.
        for (SwitchCopies& copies : run.copies) copies.planned = {};
        program = Lowered(run.plan.schedule, run.options);
        REQUIRE(HandTurns(run.copies, &program).ok());
        CHECK_FALSE(program.turns_dropped);
        const absl::StatusOr<RunSummary> dealt = run_program(program);
        INFO(dealt.status());
        REQUIRE(dealt.ok());
        if (name == "1f1b") CHECK(dealt->iteration_s() < 1.15 * plain_s);
      }
    }
  }
  CHECK(offloaded > 1000);
}

TEST_CASE("offload: a program says where its turns are dropped", "[offload]") {
  OnSwitches run = Planned("1f1b", 4, 0.4, 0.125);
  // 1F1B stands still where hops block one by one.
  run.options.wait_rule = WaitRule::kRendezvous;
  Program program = Lowered(run.plan.schedule, run.options);
  REQUIRE(HandTurns(run.copies, &program).ok());
  CHECK(program.turns_dropped);
  // Nobody shares a switch.
  for (SwitchCopies& copies : run.copies) copies.ranks.resize(1);
  program.turns_dropped = false;
  REQUIRE(HandTurns(run.copies, &program).ok());
  CHECK_FALSE(program.turns_dropped);
}

}  // namespace
}  // namespace pipewright::copy_turns_test
