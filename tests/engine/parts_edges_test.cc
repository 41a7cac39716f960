// Replicas that meet in ways that parts do not look at run by the clock, and a
// horizon is no later than the next meeting.
#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "sim/config/prepare.h"
#include "sim/engine/fluid_clock.h"
#include "sim/program/program.h"
#include "tests/support/prepare.h"

namespace pipewright::parts_edges_test {
namespace {

constexpr int kNever = std::numeric_limits<int>::max();

struct Runs {
  RunSummary in_parts;
  RunSummary at_once;
};

Runs RunBoth(const std::string& yaml) {
  const PreparedRun run = testing::Prepared(yaml);
  const absl::StatusOr<Program> program = LowerRun(run);
  INFO(program.status());
  REQUIRE(program.ok());
  const auto in_parts = RunOnFluidClock(*program, {.least_in_parts = 1});
  const auto at_once = RunOnFluidClock(*program, {.least_in_parts = kNever});
  INFO(in_parts.status() << " " << at_once.status());
  REQUIRE(in_parts.ok());
  REQUIRE(at_once.ok());
  REQUIRE(in_parts->iterations() == at_once->iterations());
  for (int each = 0; each < at_once->iterations(); ++each) {
    CHECK(in_parts->iteration_end_s[each] ==
          Approx(at_once->iteration_end_s[each]).epsilon(1e-9));
  }
  return {*in_parts, *at_once};
}

// Replicas of gpt-tiny beside each other on two nodes, their passes uneven.
std::string RunText(const std::string& strategy,
                    const std::string& schedule = "1f1b",
                    const std::string& more = "") {
  return absl::StrCat("schedule: {name: ", schedule,
                      "}\nmodel: {preset: gpt-tiny}\n",
                      "strategy: {microbatches: 64, ", strategy, "}\n",
                      "system: {preset: dgx-h100", more, "}\n",
                      "costs: {uniform: {forward: 10ms, backward_input: 10ms, "
                      "backward_weight: 10ms}, jitter: 30%}\niterations: 1\n");
}

TEST_CASE("parts: edges: replicas that meet at the end run apart before",
          "[engine]") {
  for (const char* mode : {"ddp", "zero1"}) {
    const Runs runs =
        RunBoth(RunText(absl::StrCat("pp: 2, dp: 8, data_parallel: ", mode)));
    CHECK(runs.in_parts.apart > 0);
    CHECK(runs.at_once.apart == 0);
  }
}

TEST_CASE("parts: edges: replicas that gather with their passes do not",
          "[engine]") {
  for (const char* mode : {"zero2", "fsdp", "fsdp, shard_blocks: layer"}) {
    INFO(mode);
    CHECK(RunBoth(RunText(absl::StrCat("pp: 2, dp: 8, data_parallel: ", mode)))
              .in_parts.apart == 0);
  }
}

TEST_CASE("parts: edges: replicas that pull from each other do not",
          "[engine]") {
  CHECK(RunBoth(RunText("pp: 2, dp: 8, data_parallel: odc")).in_parts.apart ==
        0);
}

// Two of them share each switch, and nobody anything behind it.
TEST_CASE("parts: edges: replicas whose copies take turns do not", "[engine]") {
  const auto run = [](const std::string& sharing) {
    return RunBoth(absl::StrCat(
        "schedule: {name: 1f1b}\nmodel: {preset: gpt-tiny}\n"
        "strategy: {pp: 2, dp: 4, microbatches: 64, data_parallel: ddp, "
        "offload: full, offload_sharing: ",
        sharing,
        "}\nsystem: {shape: nic-switch, devices_per_node: 4, "
        "pcie_per_switch: 2, host_memory: 1TiB, memory: 80GiB, "
        "nvlink: {bandwidth: 300GBps, latency: 1us}, "
        "nic: {bandwidth: 25GBps, latency: 1us}, "
        "pcie: {bandwidth: 1GBps, latency: 1us}}\n"
        "costs: {uniform: {forward: 10ms, backward_input: 10ms, "
        "backward_weight: 10ms}, jitter: 30%}\niterations: 1\n"));
  };
  CHECK(run("in-turn").in_parts.apart == 0);
}

// Chunk by chunk: the reduction of the last chunk is under way while all
// microbatches go back through the others.
TEST_CASE("parts: edges: a reduction under way keeps replicas together",
          "[engine]") {
  const Runs runs = RunBoth(
      "schedule: {name: looped-bfs}\nmodel: {preset: gpt-tiny}\n"
      "strategy: {pp: 2, vpp: 4, dp: 8, microbatches: 16, data_parallel: ddp, "
      "mapping: pp-dp}\n"
      "system: {preset: dgx-h100, nics_per_node: 1}\n"
      "costs: {uniform: {forward: 10ms, backward_input: 10ms, "
      "backward_weight: 10ms}, gradient_bytes: 100GB, jitter: 30%}\n"
      "iterations: 1\n");
  CHECK(runs.in_parts.apart > 0);
}

TEST_CASE("parts: edges: a pair takes its common time until a meeting",
          "[engine]") {
  const Runs runs = RunBoth(absl::StrCat(
      "schedule: {name: dualpipe-v}\nmodel: {preset: gpt-tiny}\n",
      "strategy: {pp: 2, dp: 8, microbatches: 64, data_parallel: ddp}\n",
      "system: {preset: dgx-h100}\n",
      "costs: {uniform: {forward: 10ms, backward_input: 10ms, "
      "backward_weight: 10ms}, pair_factor: 0.5, jitter: 30%}\n"
      "iterations: 1\n"));
  CHECK(runs.in_parts.apart > 0);
}

}  // namespace
}  // namespace pipewright::parts_edges_test
