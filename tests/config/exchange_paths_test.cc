// Exchanges inside passes by the links that they cross: trunks of leaves, links
// between sites, links that are slow; and what slow devices send.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/config/prepare.h"
#include "sim/cost/device.h"
#include "sim/program/lane_exchanges.h"
#include "sim/program/program.h"
#include "sim/run/monte_carlo.h"
#include "sim/run/simulated_run.h"
#include "tests/support/prepare.h"

namespace pipewright::exchange_paths_test {
namespace {

using testing::Prepared;

std::string Run(const std::string& strategy, const std::string& system = "",
                const std::string& model = "llama3-8b") {
  return absl::StrCat("schedule: {name: 1f1b}\nmodel: {preset: ", model,
                      "}\nsystem: {preset: dgx-h100", system,
                      "}\ncosts: {analytic: {}}\nstrategy: {microbatches: 4, ",
                      strategy, "}\n");
}

double StepSeconds(const std::string& run, const std::string& engine) {
  RunContext context;
  const std::string all = absl::StrCat(run, "engine: ", engine, "\n");
  const auto made = Simulate(ReadConfig(all, "test.yaml").value(), &context);
  INFO(all << made.status());
  REQUIRE(made.ok());
  return made->report.iteration_s;
}

// Two nodes of eight, each below a leaf of its own: a group of 16 has eight
// rings, all of them over both trunks.
constexpr char kTwoLeaves[] =
    ", shape: fat-tree, params: {nodes_per_leaf: 1, oversubscription: ";

TEST_CASE("exchanges: a trunk narrower than the cards decides", "[config]") {
  const auto exchange = [](const std::string& system) {
    const StageExchanges own =
        Prepared(Run("pp: 1, tp: 16, sequence: 65536, sequence_parallel: true",
                     system))
            .costs.passes.exchanges[0];
    REQUIRE(own.forward.size() == 1);
    return own.forward[0];
  };
  const auto moving_s = [](const PassExchange& each) {
    return each.seconds - each.latency_s;
  };
  const PassExchange plain = exchange("");
  double before_s = 0;
  for (const double over : {2, 4, 16}) {
    const PassExchange narrow = exchange(absl::StrCat(kTwoLeaves, over, "}"));
    // Eight cards of 50 GB/s have this trunk.
    const double trunk_s = narrow.bytes / (8 * 50e9 / over);
    CHECK(narrow.bytes == plain.bytes);
    // A protocol for large buffers starts more slowly.
    CHECK(moving_s(narrow) == Approx(trunk_s).epsilon(0.05));
    if (before_s > 0) {
      CHECK(moving_s(narrow) - before_s ==
            Approx(trunk_s * (1 - (over == 4 ? 2 : 4) / over)).epsilon(1e-4));
    }
    before_s = moving_s(narrow);
  }
  // One as wide as the cards, and one that the group stays below.
  CHECK(moving_s(exchange(absl::StrCat(kTwoLeaves, "1}"))) ==
        Approx(moving_s(plain)).epsilon(1e-9));
  const std::string below =
      ", shape: fat-tree, params: {nodes_per_leaf: 2, oversubscription: 16}";
  CHECK(exchange(below).seconds == plain.seconds);
  CHECK(exchange(below).latency_s == plain.latency_s);
}

TEST_CASE("exchanges: groups that cross a trunk at once share it", "[config]") {
  // Two leaves of two nodes; with pp-tp-dp both ranks have four devices on each
  // of the four nodes, so their groups have 8 rings on each trunk, not 4.
  const auto moving_s = [](const char* order) {
    const StageExchanges own =
        Prepared(Run(absl::StrCat("pp: 2, tp: 16, sequence: 65536, mapping: ",
                                  order),
                     ", nodes: 4, shape: fat-tree, params: {nodes_per_leaf: 2, "
                     "oversubscription: 16}"))
            .costs.passes.exchanges[0];
    double seconds = 0;
    double bytes = 0;
    for (const PassExchange& each : own.forward) {
      seconds += each.seconds - each.latency_s;
      bytes += each.bytes;
    }
    return seconds / bytes;
  };
  // A trunk has 16 / 16 cards.
  CHECK(moving_s("pp-tp-dp") == Approx(2 / 50e9).epsilon(0.02));
  // Each group stays below one leaf.
  CHECK(moving_s("tp-dp-pp") < 1 / 300e9);
}

TEST_CASE("exchanges: engines agree over trunks and between sites",
          "[config]") {
  const std::string trunk = absl::StrCat(kTwoLeaves, "8}");
  const std::string sites =
      ", shape: multi-site, params: {nodes_per_site: 1, site_bandwidth: "
      "100Gbps, site_latency: 1ms}";
  for (const std::string& system : {trunk, sites}) {
    for (const char* strategy :
         {"pp: 1, tp: 16, dp: 1", "pp: 1, tp: 8, cp: 2, sequence: 8192",
          "pp: 1, tp: 4, cp: 4, sequence: 8192, context: all-to-all"}) {
      const std::string run = Run(strategy, system);
      const double fast_s = StepSeconds(run, "fast");
      INFO(run);
      CHECK(fast_s > 1.02 * StepSeconds(Run(strategy), "fast"));
      CHECK(StepSeconds(run, "fluid") == Approx(fast_s).epsilon(1e-9));
      CHECK(StepSeconds(run, "simgrid") == Approx(fast_s).epsilon(1e-9));
    }
    const std::string experts =
        Run("pp: 1, tp: 1, dp: 16, ep: 16, data_parallel: none", system,
            "qwen3-30b-a3b");
    const double fast_s = StepSeconds(experts, "fast");
    CHECK(fast_s > 1.02 * StepSeconds(Run("pp: 1, tp: 1, dp: 16, ep: 16, "
                                          "data_parallel: none",
                                          "", "qwen3-30b-a3b"),
                                      "fast"));
    CHECK(StepSeconds(experts, "fluid") == Approx(fast_s).epsilon(1e-9));
  }
}

TEST_CASE("exchanges: they load trunks, and meet hops there", "[config]") {
  // Two ranks of 16 devices, each on one node of either leaf; their hops stay
  // below a leaf, those of pp-tp-dp cross cards alone.
  const std::string apart =
      ", nodes: 4, shape: fat-tree, params: {nodes_per_leaf: 2, "
      "oversubscription: 8}";
  const std::string run = Run("pp: 2, tp: 16, dp: 1, mapping: pp-tp-dp", apart);
  const absl::StatusOr<Program> program = LowerRun(Prepared(run));
  REQUIRE(program.ok());
  const Cluster& cluster = *program->network.cluster;
  double on_trunks = 0;
  for (const LinkLoad& load :
       FlowsOfExchange(*program, program->exchanges[0].each[0], 0, 0).loads) {
    if (cluster.links()[load.link].kind == LinkKind::kFabric) {
      on_trunks += load.flows;
    }
  }
  // Four rings each way over both trunks.
  CHECK(on_trunks == 4 * 4);
  // Alone on them they take what they are estimated to. Hops between leaves, of
  // which a trunk then is short, slow them.
  CHECK(StepSeconds(run, "fluid") ==
        Approx(StepSeconds(run, "fast")).epsilon(0.01));
  const std::string met =
      Run("pp: 2, tp: 16, dp: 1, mapping: [0, 16]",
          ", nodes: 4, shape: fat-tree, params: {nodes_per_leaf: 1, "
          "oversubscription: 8}");
  CHECK(StepSeconds(met, "fluid") > 1.0001 * StepSeconds(met, "fast"));
}

TEST_CASE("exchanges: all to all over a trunk takes what crosses it",
          "[config]") {
  const auto exchange = [](const std::string& system) {
    return Prepared(Run("pp: 1, tp: 1, dp: 16, ep: 16, data_parallel: none",
                        system, "qwen3-30b-a3b"))
        .costs.passes.exchanges[0]
        .forward[0];
  };
  const PassExchange plain = exchange("");
  const PassExchange narrow = exchange(absl::StrCat(kTwoLeaves, "4}"));
  REQUIRE(narrow.to_all);
  // Each of eight devices sends to eight on the other node.
  CHECK(narrow.seconds - narrow.latency_s ==
        Approx(narrow.bytes * 64 / (8 * 50e9 / 4)).epsilon(1e-6));
  CHECK(narrow.bytes == plain.bytes);
  // Both ways over a trunk are one step.
  CHECK(narrow.latency_s > plain.latency_s);
}

// What exchanges of a pass of F and BW take, with bytes and without.
struct InStep {
  double moving_s = 0;
  double rounds = 0;
};

InStep ExchangedIn(const PreparedRun& run) {
  InStep in;
  const StageExchanges& own = run.costs.passes.exchanges[0];
  for (const auto* each :
       {&own.forward, &own.backward_input, &own.backward_weight}) {
    for (const PassExchange& exchange : *each) {
      in.moving_s += exchange.seconds - exchange.latency_s;
      in.rounds += exchange.rounds;
    }
  }
  return in;
}

TEST_CASE("exchanges: a slow link lengthens those that cross it", "[config]") {
  // Four cards of a node: half of the rate of NVLink, and less.
  const std::string plain = Run("pp: 1, tp: 16, dp: 1", ", nics_per_node: 4");
  const double before_s = StepSeconds(plain, "fast");
  const InStep in = ExchangedIn(Prepared(plain));
  const auto slowed = [&](const std::string& links) {
    const std::string run =
        absl::StrCat(plain, "slow: {links: [", links, "]}\n");
    const double fast_s = StepSeconds(run, "fast");
    INFO(links);
    CHECK(StepSeconds(run, "fluid") == Approx(fast_s).epsilon(1e-9));
    CHECK(StepSeconds(run, "simgrid") == Approx(fast_s).epsilon(1e-9));
    return fast_s;
  };
  // Four microbatches; a card has 1.35 us.
  const double three_s = before_s + 4 * 2 * (in.moving_s + in.rounds * 1.35e-6);
  CHECK(slowed("'node0/nic2/up*3'") == Approx(three_s).epsilon(1e-9));
  CHECK(slowed("'node1/nic3/down*3'") == Approx(three_s).epsilon(1e-9));
  const PassExchange one = Prepared(plain).costs.passes.exchanges[0].forward[0];
  const double share = one.on_links_s[static_cast<int>(LinkKind::kNvlink)] /
                       (one.seconds - one.latency_s);
  const double rate = 450e9 * FindDevice("h100").value().collective_sustained;
  CHECK(share == Approx(4 * 50e9 / rate));
  // What crosses NVLink gets longer once NVLink is the narrowest.
  CHECK(slowed("'node1/gpu3/nvlink-up*4'") ==
        Approx(before_s +
               4 * ((4 * share - 1) * in.moving_s + 3 * in.rounds * 0.3e-6))
            .epsilon(1e-9));
  // Nothing is on links of the host.
  CHECK(slowed("'node0/pcie0*8'") == before_s);
}

TEST_CASE("exchanges: a slow link is nothing to other groups", "[config]") {
  const std::string text =
      absl::StrCat(Run("pp: 1, tp: 16, dp: 2, data_parallel: none"),
                   "slow: {links: ['node3/nic0/up*2']}\n");
  const PreparedRun run = Prepared(text);
  const absl::StatusOr<Program> program = LowerRun(run);
  REQUIRE(program.ok());
  REQUIRE(program->num_classes() == 2);
  const absl::StatusOr<Program> plain =
      LowerRun(Prepared(Run("pp: 1, tp: 16, dp: 2, data_parallel: none")));
  REQUIRE(plain.ok());
  const int lane = Pass::LaneOf(PassKind::kForward, 0, 0);
  const auto seconds = [&](const Program& of, int replica) {
    return of.OfReplica(replica).ranks[0].lanes[lane].seconds;
  };
  CHECK(seconds(*program, 0) == seconds(*plain, 0));
  CHECK(seconds(*program, 1) > 1.01 * seconds(*plain, 1));
  for (const UnusedField& field : run.unused) INFO(field.warning);
  CHECK(run.unused.empty());
  // Experts wait for the slowest of their group.
  const PreparedRun experts = Prepared(
      absl::StrCat(Run("pp: 1, tp: 1, dp: 32, ep: 16, data_parallel: none", "",
                       "qwen3-30b-a3b"),
                   "slow: {links: ['node3/nic0/up*2']}\n"));
  const absl::StatusOr<Program> two = LowerRun(experts);
  REQUIRE(two.ok());
  REQUIRE(two->num_classes() == 2);
  CHECK(two->class_of_replica[15] != two->class_of_replica[16]);
  CHECK(two->class_of_replica[16] == two->class_of_replica[31]);
}

TEST_CASE("exchanges: every draw of slow links has its own", "[config]") {
  const std::string text =
      absl::StrCat(Run("pp: 1, tp: 16, dp: 1"),
                   "engine: fast\nslow: {links_law: 'uniform:1-3', seed: ");
  RunContext context;
  const RunConfig config = ReadConfig(text + "1}\n", "test.yaml").value();
  const auto drawn = RunMonteCarlo({{"", config}}, 3, 1, &context);
  INFO(drawn.status());
  REQUIRE(drawn.ok());
  for (int seed = 0; seed < 3; ++seed) {
    const RunConfig own =
        ReadConfig(absl::StrCat(text, seed + 1, "}\n"), "test.yaml").value();
    CHECK(drawn->strategies[0].iterations_s[seed] ==
          Simulate(own, &context)->report.iteration_s);
  }
  CHECK(drawn->strategies[0].iterations_s[0] !=
        drawn->strategies[0].iterations_s[1]);
}

TEST_CASE("exchanges: a slow device computes longer, its bytes stay",
          "[config]") {
  for (const std::string& strategy :
       {std::string("pp: 1, tp: 16, dp: 1"),
        std::string("pp: 1, tp: 4, cp: 4, sequence: 16384")}) {
    const std::string plain = Run(strategy);
    const std::string slow =
        absl::StrCat(plain, "slow: {devices: ['rank0*1.5']}\n");
    const absl::StatusOr<Program> before = LowerRun(Prepared(plain));
    const absl::StatusOr<Program> after = LowerRun(Prepared(slow));
    REQUIRE(before.ok());
    REQUIRE(after.ok());
    double more_s = 0;
    for (const PassKind kind : {PassKind::kForward, PassKind::kBackwardFull}) {
      const int lane = Pass::LaneOf(kind, 0, 0);
      const Lane& was = before->ranks[0].lanes[lane];
      const Lane& is = after->ranks[0].lanes[lane];
      REQUIRE(was.exchanges >= 0);
      const std::vector<PassExchange>& old =
          before->exchanges[was.exchanges].each;
      const std::vector<PassExchange>& now =
          after->exchanges[is.exchanges].each;
      REQUIRE(now.size() == old.size());
      double computed = 1;
      for (size_t index = 0; index < old.size(); ++index) {
        CHECK(is.seconds * now[index].bytes ==
              Approx(was.seconds * old[index].bytes).epsilon(1e-12));
        CHECK(is.seconds * now[index].seconds ==
              Approx(was.seconds * old[index].seconds).epsilon(1e-12));
        // What hides it is slower, too.
        computed -=
            old[index].is_beside
                ? std::max(0.0, old[index].seconds - old[index].compute_s)
                : old[index].seconds;
      }
      CHECK(is.seconds <= was.seconds * (1 + 0.5 * computed) * (1 + 1e-12));
      CHECK(is.seconds > was.seconds * 1.1);
      more_s += is.seconds - was.seconds;
    }
    more_s = 4 * more_s + 0.5 * Prepared(plain).costs.passes.optimizer_s;
    CHECK(StepSeconds(slow, "fast") ==
          Approx(StepSeconds(plain, "fast") + more_s).epsilon(1e-9));
    for (const char* engine : {"fluid", "simgrid"}) {
      CHECK(StepSeconds(slow, engine) ==
            Approx(StepSeconds(slow, "fast")).epsilon(1e-9));
    }
  }
}

}  // namespace
}  // namespace pipewright::exchange_paths_test
