// Parts of the replicas that run one after the other against all by the clock:
// same times.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "sim/engine/event_run.h"
#include "sim/engine/fluid_clock.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/program/program.h"
#include "tests/support/prepare.h"
#include "tests/support/random_program.h"

namespace pipewright::parts_test {
namespace {

constexpr int kNever = std::numeric_limits<int>::max();

// But for rounding: who comes first at one date may differ.
double Difference(const RunSummary& one, const RunSummary& other) {
  double largest = 0;
  const auto compare = [&](double a, double b) {
    largest = std::max(
        largest, std::abs(a - b) / std::max({1e-3, std::abs(a), std::abs(b)}));
  };
  REQUIRE(one.iterations() == other.iterations());
  for (int each = 0; each < one.iterations(); ++each) {
    compare(one.iteration_end_s[each], other.iteration_end_s[each]);
  }
  REQUIRE(one.times.size() == other.times.size());
  for (size_t replica = 0; replica < one.times.size(); ++replica) {
    for (size_t rank = 0; rank < one.times[replica].size(); ++rank) {
      const RankTimes& mine = one.times[replica][rank];
      const RankTimes& theirs = other.times[replica][rank];
      compare(mine.first_start_s, theirs.first_start_s);
      compare(mine.last_end_s, theirs.last_end_s);
      compare(mine.busy_s, theirs.busy_s);
      compare(mine.late_load_s, theirs.late_load_s);
    }
  }
  return largest;
}

TEST_CASE("parts: replicas that run one after the other have the same times",
          "[engine]") {
  int compared = 0;
  int apart = 0;
  int flows = 0;
  int folded = 0;
  for (uint32_t seed = 1; seed <= 1500; ++seed) {
    RandomOptions options;
    options.most_replicas = 8;
    options.most_classes = 1 + static_cast<int>(seed % 2);
    options.side_operations = seed % 3 != 0;
    absl::StatusOr<RandomProgram> made = MakeRandomProgram(seed, options);
    if (!made.ok()) continue;
    INFO(made->about);
    Program& program = made->program;
    // Every fifth is bound by its transfers, which then meet by many.
    if (seed % 5 == 0) {
      for (Channel& channel : program.channels) channel.bytes *= 25;
      for (DpClass& own : program.more_classes) {
        for (Channel& channel : own.channels) channel.bytes *= 25;
      }
    }
    if (seed % 2 != 0) {
      auto jitter = std::make_shared<Jitter>();
      jitter->seed = seed;
      jitter->sigma = 0.2;
      program.jitter = jitter;
    }
    const auto in_parts = RunOnFluidClock(program, {.least_in_parts = 1});
    const auto at_once = RunOnFluidClock(program, {.least_in_parts = kNever});
    REQUIRE(in_parts.ok() == at_once.ok());
    if (!in_parts.ok()) continue;
    CHECK(Difference(*in_parts, *at_once) <= 1e-9);
    if (in_parts->folded == 0) {
      CHECK(in_parts->simulated_ops == at_once->simulated_ops);
    } else {
      CHECK(in_parts->simulated_ops < at_once->simulated_ops);
      CHECK(program.jitter == nullptr);
      ++folded;
    }
    CHECK(at_once->apart == 0);
    CHECK(at_once->folded == 0);
    // To look for a horizon costs; it is done once in so many events at most.
    const int64_t devices = int64_t{program.pp()} * program.replicas;
    CHECK(in_parts->apart <=
          (in_parts->timers + in_parts->flows) / (8 * devices) + 1);
    ++compared;
    if (in_parts->apart == 0) continue;
    ++apart;
    if (in_parts->flows > 0) ++flows;
    if (seed % 8 != 0) continue;
    // Activities keep SimGrid's clock.
    const auto simgrid = RunSimgrid(program, {.least_in_parts = 1});
    REQUIRE(simgrid.ok());
    CHECK(simgrid->apart == 0);
    CHECK(Difference(*simgrid, *at_once) <= 1e-9);
  }
  UNSCOPED_INFO(compared << " programs, " << apart << " apart, " << flows
                         << " of them with flows, " << folded << " folded");
  CHECK(compared > 600);
  CHECK(apart > 40);
  CHECK(flows > 10);
  CHECK(folded > 10);
}

// Pipelines over a fat-tree whose trunks two nodes share, rings at the end.
std::string OverTrunks(int replicas, const std::string& more = "") {
  return absl::StrCat(
      "schedule: {name: 1f1b}\n"
      "strategy: {pp: 4, dp: ",
      replicas,
      ", microbatches: 8, data_parallel: ddp, mapping: [dp-pp]}\n"
      "system: {shape: fat-tree, nodes: ",
      replicas / 2,
      ", devices_per_node: 8, nics_per_node: 4, nvlink: {bandwidth: 450GBps, "
      "latency: 1us}, nic: {bandwidth: 25GBps, latency: 1us}, params: "
      "{nodes_per_leaf: 2, oversubscription: 2}}\n"
      "costs: {uniform: {forward: 5ms, backward: 10ms}, hop_bytes: 64MiB, "
      "gradient_bytes: 1GB}\niterations: 2\n",
      more);
}

// Groups of experts of one node each.
std::string OfExperts(int replicas, const std::string& more = "") {
  return absl::StrCat(
      "model: {preset: moe-tiny, hidden: 4096}\n"
      "strategy: {pp: 2, ep: 4, dp: ",
      replicas,
      ", microbatches: 4, data_parallel: ddp}\n"
      "system: {preset: dgx-h100, nodes: ",
      replicas / 4, ", devices_per_node: 8}\niterations: 2\n", more);
}

std::string Sharded(int replicas, const std::string& more = "") {
  return absl::StrCat(
      "model: {preset: llama3-8b}\nschedule: {name: zb-h1}\n"
      "strategy: {pp: 4, dp: ",
      replicas,
      ", microbatches: 8, data_parallel: fsdp}\n"
      "system: {preset: dgx-h100, nodes: ",
      replicas / 2, "}\niterations: 2\n", more);
}

RunSummary RunOf(const std::string& yaml, int least_in_parts) {
  const PreparedRun run = testing::Prepared(yaml);
  const absl::StatusOr<Program> program = LowerRun(run);
  INFO(program.status());
  REQUIRE(program.ok());
  const auto summary =
      RunOnFluidClock(*program, {.least_in_parts = least_in_parts});
  INFO(summary.status());
  REQUIRE(summary.ok());
  return *summary;
}

TEST_CASE("parts: those that do the same run once, with the same times",
          "[engine]") {
  const std::string slow = "slow: {links: ['node3*2']}\n";
  for (const std::string& yaml :
       {OverTrunks(64), OverTrunks(64, slow), OfExperts(16),
        OfExperts(16, slow), Sharded(16), Sharded(16, slow)}) {
    INFO(yaml);
    const RunSummary once = RunOf(yaml, 1);
    const RunSummary all = RunOf(yaml, kNever);
    CHECK(Difference(once, all) <= 1e-9);
    CHECK(all.folded == 0);
    CHECK(all.flows + all.timers > 0);
    CHECK(once.folded > 0);
    CHECK(once.simulated_ops < all.simulated_ops);
  }
}

// Rings over several parts, one of which has a slow device: who meets it waits,
// though his own links are like those of all others.
std::string InGroups(int replicas, const std::string& more = "") {
  return absl::StrCat(
      "schedule: {name: 1f1b}\n"
      "strategy: {pp: 4, dp: ",
      replicas,
      ", microbatches: 4, data_parallel: fsdp, shard_blocks: layer, "
      "shard_group: 8}\n"
      "system: {shape: fat-tree, memory: 10TiB, nodes: ",
      replicas / 2,
      ", devices_per_node: 8, nics_per_node: 4, nvlink: {bandwidth: 450GBps, "
      "latency: 1us}, nic: {bandwidth: 5GBps, latency: 1us}, params: "
      "{nodes_per_leaf: 2, oversubscription: 2}}\n"
      "model: {preset: llama3-8b, layers: 4}\n"
      "costs: {analytic: {device: h100}}\niterations: 1\n",
      more);
}

TEST_CASE("parts: who meets a slow one waits for it", "[engine]") {
  for (const char* devices : {"'replica12*1.5'",
                              "'replica30*3', "
                              "'replica12/rank2*1.5'"}) {
    const std::string yaml =
        InGroups(32, absl::StrCat("slow: {devices: [", devices, "]}\n"));
    INFO(yaml);
    CHECK(Difference(RunOf(yaml, 1), RunOf(yaml, kNever)) <= 1e-9);
  }
}

TEST_CASE("parts: in lock-step more replicas are no more events", "[engine]") {
  for (const auto& yaml_of : {OverTrunks, OfExperts, Sharded}) {
    const RunSummary few = RunOf(yaml_of(64, ""), 1);
    const RunSummary many = RunOf(yaml_of(256, ""), 1);
    const int64_t events = few.timers + few.flows;
    CHECK(events > 0);
    // Four times the replicas; rounding decides of some whether they meet.
    CHECK(many.timers + many.flows < 1.1 * static_cast<double>(events));
  }
}

// Links of many speeds, on which more than two transfers meet. Here a number
// that had left a link was taken for who is there: by then it was of another
// part, and the run came to a deadlock or crashed.
TEST_CASE("parts: what has left a link is not taken for who is there",
          "[engine]") {
  constexpr int kRanks = 32;
  constexpr int kReplicas = 16;
  std::mt19937 random(1);
  std::string mapping;
  for (int replica = 0; replica < kReplicas; ++replica) {
    std::vector<int> devices(kRanks);
    std::iota(devices.begin(), devices.end(), replica * kRanks);
    std::shuffle(devices.begin(), devices.end(), random);
    absl::StrAppend(&mapping, mapping.empty() ? "" : ", ",
                    absl::StrJoin(devices, ", "));
  }
  const PreparedRun run = testing::Prepared(absl::StrCat(
      "schedule: {name: interleaved-1f1b}\n"
      "strategy: {pp: 32, dp: 16, microbatches: 64, data_parallel: none, "
      "mapping: [",
      mapping,
      "]}\n"
      "system: {preset: dgx-a100, nics_per_node: 1, nic: {latency: 100us}}\n"
      "costs: {uniform: {forward: 10ms, backward: 20ms}, hop_bytes: 15MB, "
      "jitter: 30%}\n"
      "slow: {links_law: 'uniform:1-20'}\n"
      "iterations: 1\n"));
  const absl::StatusOr<Program> program = LowerRun(run);
  INFO(program.status());
  REQUIRE(program.ok());
  const auto in_parts = RunOnFluidClock(*program, {.least_in_parts = 1});
  const auto at_once = RunOnFluidClock(*program, {.least_in_parts = kNever});
  REQUIRE(at_once.ok());
  INFO(in_parts.status());
  REQUIRE(in_parts.ok());
  CHECK(in_parts->apart > 0);
  CHECK(Difference(*in_parts, *at_once) <= 1e-9);
}

}  // namespace
}  // namespace pipewright::parts_test
