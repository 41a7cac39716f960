// An optimizer on the host, from the configuration to what is lowered.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/memory/schedule_memory.h"
#include "tests/support/prepare.h"

namespace pipewright::prepare_optimizer_test {
namespace {

using testing::Prepared;
using testing::PrepareText;
using testing::Warns;

constexpr char kHost[] =
    "system: {shape: node, devices_per_node: 2, nvlink: {bandwidth: 100GBps}, "
    "pcie: {bandwidth: 16GBps}, host: {memory_bandwidth: 28GBps, "
    "flush_rate: 1e9}}\n";
constexpr char kTimes[] =
    "costs: {uniform: {forward: 1s, backward: 2s}, hop_bytes: 1MiB, "
    "gradient_bytes: 8GB}\n";

// 8e9 bytes of fp32 gradients: 2e9 parameters a rank.
std::string Run(const std::string& strategy, const std::string& system = kHost,
                const std::string& rest = "") {
  return absl::StrCat("schedule: {name: 1f1b}\n", system, kTimes,
                      "strategy: {pp: 2, microbatches: 4, ", strategy, "}\n",
                      rest);
}

TEST_CASE("prepare: an optimizer on the host", "[config][offload]") {
  const PreparedRun run = Prepared(
      Run("optimizer_placement: deep-optimizer-states, subgroup_size: 1e8"));
  const OptimizerOffload& offload = run.lower.offload;
  CHECK(run.lower.optimizer == OptimizerMode::kSynchronised);
  CHECK(offload.flush == GradientFlush::kAsynchronous);
  CHECK(offload.parameters == std::vector<double>{2e9, 2e9});
  CHECK(offload.adam_bytes == 28);
  // 28e9 / 28 parameters a second, 16e9 bytes each way: 1 + 1e9 * 16 / 16e9.
  CHECK(offload.stride == 2);
  CHECK_FALSE(Warns(run, "not shared"));

  const PreparedRun plain = Prepared(
      Run("optimizer_placement: zero-offload", kHost, "engine: fast\n"));
  CHECK(plain.lower.offload.flush == GradientFlush::kBlocking);
  CHECK(Warns(plain, "takes what it takes alone"));
  CHECK_FALSE(Prepared(Run("max_activations: 8")).lower.offload.active());
}

// Of the host its memory's bandwidth alone is given.
TEST_CASE("prepare: an optimizer on the hosts of shipped systems",
          "[config][offload]") {
  for (const char* system : {"dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200"}) {
    for (const char* placement : {"zero-offload", "twinflow",
                                  "deep-optimizer-states", "superoffload"}) {
      CAPTURE(system, placement);
      const PreparedRun run = Prepared(absl::StrCat(
          "schedule: {name: 1f1b}\nmodel: {preset: llama3-8b}\n"
          "system: {preset: ",
          system,
          ", host: {memory_bandwidth: 50GBps}}\ncosts: {analytic: {}}\n"
          "engine: simgrid\n"
          "strategy: {pp: 4, microbatches: 4, optimizer_placement: ",
          placement, "}\n"));
      CHECK(run.lower.offload.active());
    }
  }
}

// zero1 steps a replica's half.
TEST_CASE("prepare: replicas step their part", "[config][offload]") {
  const std::string system = absl::StrCat(
      "system: {shape: node, devices_per_node: 4, nvlink: {bandwidth: "
      "100GBps}, pcie: {bandwidth: 16GBps}, host: {memory_bandwidth: 28GBps, "
      "flush_rate: 1e9}}\n");
  const std::string strategy = "dp: 2, optimizer_placement: zero-offload, ";
  CHECK(Prepared(Run(strategy + "data_parallel: ddp", system))
            .lower.offload.parameters[0] == 2e9);
  for (const char* mode : {"zero1", "zero2", "fsdp"}) {
    CHECK(Prepared(Run(absl::StrCat(strategy, "data_parallel: ", mode), system))
              .lower.offload.parameters[0] == 1e9);
  }
}

TEST_CASE("prepare: refusals of an optimizer on the host",
          "[config][offload]") {
  const auto check = [](const std::string& yaml, const std::string& field,
                        const std::string& allowed) {
    const absl::Status status = PrepareText(yaml).status();
    INFO(yaml << "\n" << status);
    CHECK(absl::IsInvalidArgument(status));
    CHECK(absl::StrContains(status.message(), field));
    CHECK(absl::StrContains(status.message(), allowed));
  };
  const std::string dos =
      "optimizer_placement: deep-optimizer-states, subgroup_size: 1e9, ";
  check(Run(dos + "optimizer_ratio: 1.5"), "strategy.optimizer_ratio", "0");
  check(Run(dos + "optimizer_stride: 1"), "strategy.optimizer_stride",
        "2 to 2");
  check(Run(dos + "optimizer_stride: 3"), "strategy.optimizer_stride",
        "2 to 2");
  check(Run(dos + "optimizer_stride: -1"), "strategy.optimizer_stride", "0");
  check(Run(dos + "optimizer: none"), "strategy.optimizer_placement",
        "synchronised");
  check(Run("optimizer_placement: somewhere"), "strategy.optimizer_placement",
        "zero-offload");
  check(Run("optimizer_placement: zero-offload", ""),
        "strategy.optimizer_placement", "gpu without a system");
  const std::string nvlink =
      "system: {shape: node, devices_per_node: 2, nvlink: {bandwidth: "
      "100GBps}";
  check(Run(dos, nvlink + "}\n"), "system.pcie.bandwidth", "above 0");
  check(Run(dos, nvlink + ", pcie: {bandwidth: 16GBps}}\n"),
        "system.host.memory_bandwidth", "system.host.adam_rate");
  check(Run("optimizer_placement: twinflow",
            nvlink + ", pcie: {bandwidth: 16GBps}, host: {memory_bandwidth: "
                     "28GBps}}\n"),
        "system.host.flush_rate", "above 0");
  check("schedule: {name: 1f1b}\n" + std::string(kHost) +
            "costs: {uniform: {forward: 1s, backward: 2s}, hop_bytes: 1MiB}\n"
            "strategy: {pp: 2, microbatches: 4, optimizer_placement: "
            "deep-optimizer-states}\n",
        "strategy.optimizer_placement", "costs.gradient_bytes");
  check(Run("optimizer_placement: zero-offload, subgroup_size: 1"),
        "strategy.subgroup_size", "at least");
}

// By hand, of the bytes without offload: 4 of a master weight and 8 of the
// moments go, 16 come on the host.
TEST_CASE("prepare: memory of an optimizer on the host",
          "[config][offload][memory]") {
  const auto memory = [](const std::string& strategy) {
    const PreparedRun run = Prepared(absl::StrCat(
        "schedule: {name: 1f1b}\nmodel: {preset: gpt-tiny}\n", kHost,
        "costs: {uniform: {forward: 1s, backward: 2s}}\n"
        "strategy: {pp: 2, microbatches: 4, subgroup_size: 1e5, ",
        strategy, "}\n"));
    return run.memory->memory->ranks[1];
  };
  const RankMemory on_device = memory("optimizer: synchronised");
  CHECK(on_device.host_optimizer == 0);
  const int64_t moments =
      on_device.fixed.of[static_cast<int>(MemoryKind::kMoments)];
  const int64_t parameters = moments / 8;
  REQUIRE(parameters > 1000000);

  const RankMemory on_host = memory("optimizer_placement: zero-offload");
  CHECK(on_host.fixed.of[static_cast<int>(MemoryKind::kMaster)] == 0);
  CHECK(on_host.fixed.of[static_cast<int>(MemoryKind::kMoments)] == 0);
  CHECK(on_host.host_optimizer == 16 * parameters);
  CHECK(on_device.peak() - on_host.peak() == 12 * parameters);

  const RankMemory half =
      memory("optimizer_placement: twinflow, optimizer_ratio: 0.5");
  const auto subgroups = NumSubgroups(static_cast<double>(parameters), 1e5);
  const double stays =
      static_cast<double>(subgroups - subgroups / 2) / subgroups;
  CHECK(half.fixed.of[static_cast<int>(MemoryKind::kMoments)] ==
        Approx(stays * moments).margin(1));
  CHECK(half.host_optimizer == Approx(16 * (1 - stays) * parameters).margin(1));

  const RankMemory visited =
      memory("optimizer_placement: deep-optimizer-states, optimizer_stride: 2");
  const double size = static_cast<double>(parameters) / subgroups;
  CHECK(visited.host_optimizer == 16 * parameters);
  CHECK(visited.peak() - on_host.peak() ==
        Approx(16 * size + 2 * size * (subgroups / 2)).margin(1));

  // All weights wait in fp32 for the norm.
  const RankMemory early = memory("optimizer_placement: superoffload");
  CHECK(early.host_optimizer == 16 * parameters);
  CHECK(early.peak() - on_host.peak() ==
        Approx(4 * parameters + 4 * size).margin(1));
}

}  // namespace
}  // namespace pipewright::prepare_optimizer_test
