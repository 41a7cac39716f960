// Turns of copies on one PCIe switch: against every possible order, and in runs
// whose passes must not wait.
#include "sim/offload/copy_turns.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <random>
#include <set>
#include <vector>

#include "sim/engine/fast_engine.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/topology/registry.h"
#include "tests/support/lowering.h"
#include "tests/support/random_program.h"

namespace pipewright {
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

// Of all orders that keep those of the ranks.
double LeastLateness(const Jobs& jobs, double hand_over_s) {
  double least_s = 1e300;
  std::vector<TurnJob> turns;
  std::vector<size_t> next(jobs.size());
  const std::function<void()> extend = [&] {
    bool any = false;
    for (size_t rank = 0; rank < jobs.size(); ++rank) {
      if (next[rank] == jobs[rank].size()) continue;
      any = true;
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
    const int count = 1 + static_cast<int>(random() % 6);
    for (int job = 0; job < count; ++job) {
      ready_s += static_cast<double>(random() % 5);
      const double takes_s = 1 + static_cast<double>(random() % 3);
      jobs[rank].push_back(
          {.rank = rank,
           .position = job,
           .ready_s = ready_s,
           .due_s = ready_s + takes_s + static_cast<double>(random() % 12),
           .takes_s = takes_s});
    }
  }
  return jobs;
}

TEST_CASE("offload: turns of two ranks are in time where any order is",
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
    }
    for (int rank = 0; rank < 4; ++rank) CHECK(next[rank] == jobs[rank].size());
  }
  CHECK(DealTurns({{}, {}}, 0).empty());
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

}  // namespace
}  // namespace pipewright
