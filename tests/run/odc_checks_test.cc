// odc against fsdp layer by layer as configurations ask for them: what must
// hold of the two whatever the system.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/run/monte_carlo.h"
#include "sim/run/simulated_run.h"

namespace pipewright::odc_checks_test {
namespace {

struct Asked {
  int devices = 8;
  std::string lengths = "longalign";
  int minibatch = 4;
  std::string strategy;  // more of it
};

RunConfig AskedConfig(const Asked& asked, const std::string& mode,
                      const std::string& packer) {
  const std::string yaml = absl::StrCat(
      "schedule: {name: 1f1b}\nengine: fast\nmodel: {preset: llama3-8b, "
      "layers: 6}\nsystem: {preset: dgx-a100, nodes: ",
      (asked.devices + 7) / 8, "}\nstrategy: {pp: 1, dp: ", asked.devices,
      ", data_parallel: ", mode, asked.strategy, "}\nsequences: {lengths: \"",
      asked.lengths, "\", minibatch: ", asked.minibatch, ", packer: ", packer,
      ", packer_cost: fit, seed: 1}\n");
  absl::StatusOr<RunConfig> config = ReadConfig(yaml, "a.yaml");
  INFO(yaml);
  INFO(config.status().message());
  REQUIRE(config.ok());
  config->costs.analytic = true;
  // It knows nothing of odc's pulls.
  config->costs.analytic_contention = 1;
  return *config;
}

constexpr char kFsdp[] = "fsdp, shard_blocks: layer";

// Mean steps of fsdp with LB-Micro, odc with LB-Micro, odc with LB-Mini.
std::vector<double> StepsOf(const Asked& asked, int draws = 24) {
  std::vector<NamedConfig> strategies = {
      {"fsdp", AskedConfig(asked, kFsdp, "lb-micro")},
      {"odc", AskedConfig(asked, "odc", "lb-micro")},
      {"odc mini", AskedConfig(asked, "odc", "lb-mini")}};
  RunContext context;
  const auto result = RunMonteCarlo(std::move(strategies), draws, 2, &context);
  INFO(result.status());
  REQUIRE(result.ok());
  std::vector<double> means;
  for (const SeedSample& sample : result->strategies) {
    means.push_back(sample.mean_s);
  }
  return means;
}

TEST_CASE("odc: equal lengths gain nothing", "[sequences]") {
  // In bf16 a pull takes what a ring's gather takes. What is left is the
  // owners' polls and additions behind the last layer; without both the two are
  // equal to the last bit (tests/engine/layers_test.cc).
  const std::vector<double> steps = StepsOf(
      {.lengths = "constant:8192", .strategy = ", gather_type: bf16"}, 1);
  CHECK(steps[1] >= steps[0]);
  CHECK(steps[1] == Approx(steps[0]).epsilon(0.015));
  CHECK(steps[2] == steps[1]);
}

TEST_CASE("odc: one sample a device gains nothing, several do", "[sequences]") {
  const std::vector<double> one = StepsOf({.minibatch = 1});
  CHECK(one[0] / one[2] == Approx(1).margin(0.01));
  const std::vector<double> four = StepsOf({.minibatch = 4});
  CHECK(four[0] / four[1] > 1.05);
  CHECK(four[0] / four[2] > four[0] / four[1]);
  const std::vector<double> many = StepsOf({.minibatch = 16}, 12);
  CHECK(four[0] / four[2] > many[0] / many[2]);
}

TEST_CASE("odc: the gain grows with the spread of lengths and with devices",
          "[sequences]") {
  double before = 1.005;
  for (const char* sigma : {"0.4", "0.7", "1.0"}) {
    const std::vector<double> steps = StepsOf(
        {.lengths = absl::StrCat("lognormal:12000,", sigma, ",100,65536")});
    INFO(sigma);
    CHECK(steps[0] / steps[2] > before);
    before = steps[0] / steps[2];
  }
  const std::vector<double> two = StepsOf({.devices = 2});
  const std::vector<double> eight = StepsOf({.devices = 8});
  CHECK(eight[0] / eight[2] > two[0] / two[2] + 0.03);
}

TEST_CASE("odc: short samples across nodes lose, long ones win",
          "[sequences]") {
  const Asked is_short = {.devices = 16,
                          .lengths = "lognormal:344,0.75,250,2048"};
  Asked is_long = {.devices = 16};
  const std::vector<double> lost = StepsOf(is_short);
  CHECK(lost[0] / lost[2] < 0.8);
  const std::vector<double> won = StepsOf(is_long);
  CHECK(won[0] / won[2] > 1.1);
  // Inside a node the same short samples lose less.
  Asked near = is_short;
  near.devices = 8;
  const std::vector<double> steps = StepsOf(near);
  CHECK(steps[0] / steps[2] > lost[0] / lost[2] + 0.1);
  // Over the cards hpZ pulls once a minibatch and HSDP never.
  for (const char* part : {", near_group: 8", ", shard_group: 8"}) {
    Asked inside = is_short;
    inside.strategy = part;
    const auto config = AskedConfig(inside, "odc", "lb-mini");
    RunContext context;
    const auto run = Simulate(config, &context);
    INFO(part << " " << run.status());
    REQUIRE(run.ok());
    CHECK(run->report.iteration_s < lost[2]);
  }
}

// With the same times of gathers and reductions on both sides.
TEST_CASE("odc: never slower than fsdp at equal times of operations",
          "[sequences]") {
  for (const char* packer : {"none", "local-sort", "lb-micro"}) {
    for (const char* lengths : {"longalign", "aime", "constant:4096"}) {
      Asked asked = {.lengths = lengths, .strategy = ", gather_type: bf16"};
      RunConfig odc = AskedConfig(asked, "odc", packer);
      odc.strategy.owner_poll_s = 0;
      RunConfig fsdp = AskedConfig(asked, kFsdp, packer);
      for (RunConfig* const config : {&odc, &fsdp}) {
        // Every transfer is a pure delay, and owners add at once.
        config->system = {};
        config->costs.analytic = false;
        config->costs.forward_s = 1;
        config->costs.backward_input_s = 1;
        config->costs.backward_weight_s = 1;
        config->costs.p2p_s = 0.01;
      }
      RunContext context;
      const auto slow = Simulate(fsdp, &context);
      const auto fast = Simulate(odc, &context);
      INFO(packer << " " << lengths << " " << slow.status() << " "
                  << fast.status());
      REQUIRE((slow.ok() && fast.ok()));
      CHECK(fast->report.iteration_s <= slow->report.iteration_s * (1 + 1e-9));
    }
  }
}

}  // namespace
}  // namespace pipewright::odc_checks_test
