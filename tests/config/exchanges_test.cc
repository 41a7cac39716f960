// Exchanges inside passes in a prepared run: what the cost model says of them,
// and what engines make of it.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/config/prepare.h"
#include "sim/cost/analytic.h"
#include "sim/run/simulated_run.h"
#include "tests/support/prepare.h"

namespace pipewright::exchanges_test {
namespace {

using testing::Prepared;
using testing::PrepareText;

std::string Run(const std::string& strategy, const std::string& system = "",
                const std::string& model = "llama3-8b") {
  return absl::StrCat("schedule: {name: 1f1b}\nmodel: {preset: ", model,
                      "}\nsystem: {preset: dgx-h100", system,
                      "}\ncosts: {analytic: {}}\nstrategy: {microbatches: 4, ",
                      strategy, "}\n");
}

double Seconds(const std::vector<PassExchange>& exchanges) {
  double seconds = 0;
  for (const PassExchange& each : exchanges) seconds += each.seconds;
  return seconds;
}

double StepSeconds(const std::string& run, const std::string& engine) {
  RunContext context;
  const std::string all = absl::StrCat(run, "engine: ", engine, "\n");
  const auto made = Simulate(ReadConfig(all, "test.yaml").value(), &context);
  INFO(all << made.status());
  REQUIRE(made.ok());
  return made->report.iteration_s;
}

TEST_CASE("exchanges: fewer cards lengthen what spans nodes, and no more",
          "[config]") {
  const auto forward = [](const std::string& strategy, const char* cards) {
    return Prepared(Run(strategy, absl::StrCat(", nics_per_node: ", cards)))
        .costs.passes.stages[0]
        .forward_s;
  };
  CHECK(forward("pp: 2, tp: 8", "4") == forward("pp: 2, tp: 8", "8"));
  CHECK(forward("pp: 2, tp: 16", "4") > 1.2 * forward("pp: 2, tp: 16", "8"));
  // The same of a context that spans them.
  CHECK(forward("pp: 2, tp: 8, cp: 2, sequence: 8192", "1") >=
        forward("pp: 2, tp: 8, cp: 2, sequence: 8192", "8"));
}

TEST_CASE("exchanges: they are the part of a pass that is no computation",
          "[config]") {
  const PreparedRun run = Prepared(Run("pp: 2, tp: 8"));
  const PassCosts& passes = run.costs.passes;
  REQUIRE(passes.exchanges.size() == 2);
  CHECK(passes.exchanges[0].layers == 17);  // 16, and the embedding
  double forward_s = 0;
  double backward_s = 0;
  for (const StageBlock& block : run.prepared_model->layout.stages[0]) {
    for (const OpTime& op :
         run.costs.prices->Times(block.kind, block.first_layer)) {
      forward_s += static_cast<double>(block.count) * op.comm_seconds[0];
      backward_s += static_cast<double>(block.count) * op.comm_seconds[1];
    }
  }
  const StageExchanges& own = passes.exchanges[0];
  CHECK(forward_s > 0);
  CHECK(Seconds(own.forward) == Approx(forward_s).epsilon(1e-12));
  CHECK(Seconds(own.backward_input) == Approx(backward_s).epsilon(1e-12));
  for (const PassExchange& each : own.forward) {
    CHECK(each.group == CommGroup::kTensor);
    CHECK(each.members == 8);
    CHECK(each.latency_s > 0);
    CHECK(each.latency_s < each.seconds);
  }
  // No system says what tp runs over; no estimate, no exchanges.
  CHECK(Prepared("schedule: {name: 1f1b}\nstrategy: {pp: 2, microbatches: 4}\n"
                 "costs: {uniform: {forward: 1s, backward_input: 1s, "
                 "backward_weight: 1s}}\n")
            .costs.passes.exchanges.empty());
}

TEST_CASE("exchanges: what is run again is in the backward, or in R",
          "[config]") {
  const auto exchanges = [](const std::string& strategy) {
    return Prepared(Run("pp: 2, tp: 8, " + strategy)).costs.passes.exchanges[0];
  };
  const StageExchanges once = exchanges("recompute: none");
  CHECK(once.recompute.empty());
  const StageExchanges again = exchanges("recompute: full");
  CHECK(Seconds(again.recompute) > 0);
  CHECK(Seconds(again.backward_input) ==
        Approx(Seconds(once.backward_input) + Seconds(again.recompute)));
}

TEST_CASE("exchanges: a group that stands apart is on more nodes", "[config]") {
  const auto run = [](const std::string& order) {
    return Prepared(Run("pp: 8, tp: 8, mapping: " + order));
  };
  const PreparedRun usual = run("tp-cp-ep-dp-pp");
  const PreparedRun apart = run("pp-tp-dp");
  CHECK(usual.costs.analytic->network.nodes_of_group[0] == 0);
  CHECK(apart.costs.analytic->network.nodes_of_group[0] == 8);
  CHECK(apart.costs.passes.stages[0].forward_s >
        1.5 * usual.costs.passes.stages[0].forward_s);
  const auto refused = PrepareText(Run("pp: 8, tp: 8, cp: 2, mapping: tp-pp"));
  REQUIRE(!refused.ok());
  CHECK_THAT(std::string(refused.status().message()),
             Catch::Contains("strategy.mapping") &&
                 Catch::Contains("one with cp, which is 2"));
}

TEST_CASE("exchanges: a group is on as many nodes as the one on the most",
          "[config]") {
  const auto nodes = [](const std::string& strategy, const char* system = "") {
    return Prepared(Run(strategy, system))
        .costs.analytic->network.nodes_of_group[0];
  };
  // Of two ranks each straddles two nodes.
  CHECK(nodes("pp: 2, tp: 2, mapping: [7, 15]", ", nodes: 4") == 2);
  CHECK(nodes("pp: 2, tp: 2, mapping: [0, 8]", ", nodes: 4") == 0);
  // Only those of the second replica do.
  CHECK(nodes("pp: 3, tp: 2, dp: 2, split: balanced, mapping: pp-tp-dp") == 2);
}

TEST_CASE("exchanges: a node of one device has no NVLink and needs none",
          "[config]") {
  const auto forward = [](const std::string& strategy,
                          const char* model = "gpt-1.5b") {
    return Prepared(
               absl::StrCat("schedule: {name: 1f1b}\nmodel: {preset: ", model,
                            "}\nsystem: {preset: gh200}\n"
                            "costs: {analytic: {}}\n"
                            "strategy: {microbatches: 4, ",
                            strategy, "}\n"))
        .costs.passes.stages[0]
        .forward_s;
  };
  for (const char* strategy : {"pp: 1, tp: 2", "pp: 1, cp: 2"}) {
    INFO(strategy);
    CHECK(forward(strategy) > 0);
    CHECK(forward(strategy) < 1);
  }
  CHECK(forward("pp: 1, dp: 2, ep: 2", "moe-tiny") > 0);
  CHECK(forward("pp: 1, dp: 2, ep: 2", "moe-tiny") < 1);
}

TEST_CASE("exchanges: parts of a context alone shard layer by layer, too",
          "[config]") {
  const auto step = [](const char* more) {
    return StepSeconds(
        Run(absl::StrCat("pp: 1, tp: 8, cp: 2, dp: 1, data_parallel: fsdp, "
                         "shard_blocks: layer, ",
                         more)),
        "fast");
  };
  // Gathered again for the backward, or not.
  CHECK(step("reshard_after_forward: false") <
        step("reshard_after_forward: true"));
}

TEST_CASE("exchanges: engines agree where nothing meets", "[config]") {
  for (const std::string& run :
       {Run("pp: 2, tp: 8"), Run("pp: 1, tp: 16, dp: 1"),
        Run("pp: 1, tp: 4, cp: 4, sequence: 16384"),
        Run("pp: 1, tp: 2, dp: 4, ep: 4, data_parallel: none", "",
            "mixtral-8x7b")}) {
    const double fast_s = StepSeconds(run, "fast");
    CHECK(StepSeconds(run, "fluid") == Approx(fast_s).epsilon(1e-9));
    CHECK(StepSeconds(run, "simgrid") == Approx(fast_s).epsilon(1e-9));
  }
}

// Hops are on the same cards, at other times.
TEST_CASE("exchanges: what goes once to a node is as long alone", "[config]") {
  for (const char* dispatch : {"all-to-all", "once"}) {
    const std::string run = absl::StrCat(
        "schedule: {name: 1f1b}\nmodel: {preset: qwen3-30b-a3b}\n"
        "system: {preset: dgx-h100, nics_per_node: 2}\n"
        "costs: {analytic: {}}\nstrategy: {microbatches: 1, pp: 2, "
        "dp: 16, ep: 16, data_parallel: none, dispatch: ",
        dispatch, "}\n");
    const double fast_s = StepSeconds(run, "fast");
    CHECK(StepSeconds(run, "fluid") == Approx(fast_s).epsilon(0.01));
    CHECK(StepSeconds(run, "simgrid") == Approx(fast_s).epsilon(0.01));
  }
}

TEST_CASE("exchanges: groups over nodes meet hops and gradients", "[config]") {
  const std::string system = ", devices_per_node: 4, nics_per_node: 1";
  for (const char* strategy :
       {"pp: 2, tp: 8", "pp: 2, tp: 8, dp: 2, data_parallel: zero2"}) {
    const std::string run = Run(strategy, system);
    INFO(run);
    const double fast_s = StepSeconds(run, "fast");
    const double shared_s = StepSeconds(run, "fluid");
    CHECK(shared_s > 1.001 * fast_s);
    CHECK(StepSeconds(run, "simgrid") == Approx(shared_s).epsilon(1e-6));
  }
  // Two groups on all cards: the estimate leaves either its half of them, and
  // hops stay inside the nodes.
  const std::string halves = Run("pp: 2, tp: 8, mapping: pp-tp-dp", system);
  CHECK(StepSeconds(halves, "fluid") ==
        Approx(StepSeconds(halves, "fast")).epsilon(1e-6));
}

}  // namespace
}  // namespace pipewright::exchanges_test
