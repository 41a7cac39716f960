// What the sliders of a page replay: with any factors it reaches what simulate
// reaches with those times. The replay here is written anew; the page's own, in
// JavaScript, is held against the same numbers by tests/browser.
#include "sim/analysis/explain/page_extras.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sim/base/file.h"
#include "sim/config/time_scales.h"
#include "sim/report/html.h"

namespace pipewright::page_extras_test {
namespace {

struct Factors {
  double forward = 1;
  double input = 1;
  double weight = 1;
  double hop = 1;
};

RunConfig ConfigOf(const std::string& schedule) {
  RunConfig config;
  config.engine = "fast";
  config.schedule.name = schedule;
  config.strategy.pp = 4;
  config.strategy.microbatches = 12;
  config.costs.forward_s = 18.522e-3;
  config.costs.backward_input_s = 18.086e-3;
  config.costs.backward_weight_s = 9.337e-3;
  config.costs.p2p_s = 0.601e-3;
  return config;
}

struct Traced {
  SimulatedRun run;
  PageExtras extras;
  std::vector<TraceOp> ops;
};

Traced Trace(const RunConfig& config) {
  Traced out;
  FullTrace trace;
  SimulateOptions options;
  options.trace = &trace;
  RunContext context;
  absl::StatusOr<SimulatedRun> run = Simulate(config, &context, options);
  INFO(run.status());
  REQUIRE(run.ok());
  out.run = *std::move(run);
  out.ops = trace.ops();
  out.extras = PageExtrasOf(out.run, out.ops);
  return out;
}

Report Scaled(const RunConfig& config, const Factors& factors) {
  TimeScales scales;
  scales.pass[static_cast<size_t>(PassKind::kForward)] = factors.forward;
  scales.pass[static_cast<size_t>(PassKind::kBackwardInput)] = factors.input;
  scales.pass[static_cast<size_t>(PassKind::kBackwardWeight)] = factors.weight;
  (NamesSystem(config.system) ? scales.network : scales.p2p) = factors.hop;
  RunContext context;
  absl::StatusOr<PreparedRun> prepared =
      PrepareScaled(config, scales, &context);
  INFO(prepared.status());
  REQUIRE(prepared.ok());
  absl::StatusOr<SimulatedRun> run = Simulate(*std::move(prepared));
  REQUIRE(run.ok());
  return run->report;
}

double FactorOn(const PageReplay::Node& node, const PageReplay& replay,
                const Factors& factors) {
  switch (node.factor) {
    case ReplayFactor::kForward:
      return factors.forward;
    case ReplayFactor::kBackwardInput:
      return factors.input;
    case ReplayFactor::kBackwardWeight:
      return factors.weight;
    case ReplayFactor::kBackwardFull:
      return node.part * factors.input + (1 - node.part) * factors.weight;
    case ReplayFactor::kRecompute:
      return replay.recompute_follows ? factors.forward : 1;
    case ReplayFactor::kHop:
      return factors.hop;
    case ReplayFactor::kNone:
      return 1;
  }
  return 1;
}

struct Replayed {
  double iteration_s = 0;
  double span_s = 0;
};

Replayed Run(const PageReplay& replay, const Factors& factors) {
  std::vector<double> end;
  std::vector<double> iteration_end(replay.iterations);
  double first = INFINITY;
  double last = 0;
  for (const PageReplay::Node& node : replay.nodes) {
    double start = 0;
    for (const uint32_t from : node.from) {
      REQUIRE(from < end.size());
      start = std::max(start, end[from]);
    }
    end.push_back(start + node.seconds * FactorOn(node, replay, factors));
    if (node.ends_step) {
      double& own = iteration_end[node.iteration];
      own = std::max(own, end.back());
    }
    if (node.is_pass && node.iteration == 0) {
      first = std::min(first, start);
      last = std::max(last, end.back());
    }
  }
  Replayed out;
  out.span_s = last - first;
  const size_t count = iteration_end.size();
  out.iteration_s = iteration_end[0];
  if (count > 1) {
    out.iteration_s = iteration_end[count - 1] - iteration_end[count - 2];
  }
  return out;
}

constexpr Factors kFactors[] = {{1, 1, 1, 1},     {1.5, 1, 1, 1},
                                {1, 0.4, 1.7, 1}, {1, 1, 0, 1},
                                {1, 1, 1, 40},    {0.8, 1.3, 0.9, 3}};

void CheckReplay(const RunConfig& config, const Traced& traced,
                 const Factors& factors) {
  const Report report = Scaled(config, factors);
  const Replayed replayed = Run(*traced.extras.replay, factors);
  INFO(factors.forward << " " << factors.input << " " << factors.weight << " "
                       << factors.hop);
  CHECK(replayed.span_s ==
        Approx(report.span_s.global).epsilon(1e-9).margin(0));
  CHECK(replayed.iteration_s ==
        Approx(report.iteration_s).epsilon(1e-9).margin(0));
}

TEST_CASE("page: the replay of a run equals simulate with the same factors",
          "[explain]") {
  for (const char* schedule :
       {"1f1b", "gpipe", "zb-h1", "zb-h2", "interleaved-1f1b", "chimera",
        "dualpipe", "hanayo", "interleaved-zb"}) {
    const RunConfig config = ConfigOf(schedule);
    const Traced traced = Trace(config);
    INFO(schedule << ": " << traced.extras.no_replay);
    REQUIRE(traced.extras.replay);
    CHECK(traced.extras.replay->sliders.back().key == "hop");
    CHECK(traced.extras.replay->sliders.back().least == 0);
    for (const Factors& factors : kFactors)
      CheckReplay(config, traced, factors);
  }
}

// Hops follow from links there, and have one factor with all that crosses them;
// rendezvous blocks ranks.
TEST_CASE("page: the replay of a run on links equals simulate", "[explain]") {
  for (const WaitRule rule : {WaitRule::kBuffered, WaitRule::kRendezvous,
                              WaitRule::kBatched, WaitRule::kStepped}) {
    // 1f1b deadlocks where transfers block one by one; batches over several
    // chunks take time steps.
    RunConfig config =
        ConfigOf(rule == WaitRule::kRendezvous ? "gpipe"
                 : rule == WaitRule::kBatched  ? "interleaved-1f1b"
                                               : "1f1b");
    config.system.preset = "dgx-h100";
    config.costs.p2p_s.reset();
    config.costs.hop_bytes = 256e6;
    config.strategy.waiting = rule;
    const Traced traced = Trace(config);
    INFO(WaitRuleName(rule) << ": " << traced.extras.no_replay);
    REQUIRE(traced.extras.replay);
    CHECK(traced.extras.replay->sliders.back().name == "network, all links");
    for (const Factors& factors : kFactors) {
      CheckReplay(config, traced, factors);
    }
    // It ends where simulate still takes the factor.
    const double least = traced.extras.replay->sliders.back().least;
    CHECK(least == 0.01);
    CheckReplay(config, traced, {1, 1, 1, least});
    TimeScales none;
    none.network = 0;
    RunContext context;
    CHECK_FALSE(PrepareScaled(config, none, &context).ok());
  }
}

// Gradients cross the same links.
TEST_CASE("page: the slider of a network moves collectives too", "[explain]") {
  RunConfig config = ConfigOf("1f1b");
  config.system.preset = "dgx-h100";
  config.costs.p2p_s.reset();
  config.costs.hop_bytes = 256e6;
  config.strategy.dp = 2;
  config.strategy.data_parallel = DataParallel::kDdp;
  config.costs.gradient_bytes = 4e9;
  const Traced traced = Trace(config);
  REQUIRE(traced.extras.replay);
  for (const Factors& factors : kFactors) CheckReplay(config, traced, factors);
  // Without their factor the step is another one.
  PageReplay fixed = *traced.extras.replay;
  for (PageReplay::Node& node : fixed.nodes) {
    if (IsCollective(node.kind)) node.factor = ReplayFactor::kNone;
  }
  const Factors slow = {1, 1, 1, 40};
  CHECK(
      std::abs(Run(fixed, slow).iteration_s / Scaled(config, slow).iteration_s -
               1) > 1e-3);
}

// Estimated passes have messages of their own inside.
TEST_CASE("page: estimated times leave the network without a slider",
          "[explain]") {
  RunConfig config;
  config.engine = "fast";
  config.schedule.name = "1f1b";
  config.strategy.pp = 4;
  config.strategy.microbatches = 8;
  config.model.preset = "llama3-8b";
  config.system.preset = "dgx-h100";
  config.costs.analytic = true;
  const Traced traced = Trace(config);
  INFO(traced.extras.no_replay);
  REQUIRE(traced.extras.replay);
  CHECK(traced.extras.replay->sliders.back().key != "hop");
}

// A factor on the wrong passes, and a dependency less, must be seen.
TEST_CASE("page: a replay with a fault is another run", "[explain]") {
  const RunConfig config = ConfigOf("1f1b");
  const Factors factors = {0.8, 1.3, 0.9, 3};
  const Report report = Scaled(config, factors);
  PageReplay replay = *Trace(config).extras.replay;
  PageReplay swapped = replay;
  for (PageReplay::Node& node : swapped.nodes) node.part = 1 - node.part;
  CHECK(std::abs(Run(swapped, factors).span_s / report.span_s.global - 1) >
        1e-6);
  PageReplay alone = replay;
  for (PageReplay::Node& node : alone.nodes) {
    if (node.factor == ReplayFactor::kHop) node.from.clear();
  }
  CHECK(std::abs(Run(alone, factors).span_s / report.span_s.global - 1) > 1e-6);
}

TEST_CASE("page: sliders only where the replay is the run", "[explain]") {
  RunConfig config = ConfigOf("1f1b");
  config.engine = "simgrid";
  Traced traced = Trace(config);
  CHECK_FALSE(traced.extras.replay);
  CHECK(absl::StrContains(traced.extras.no_replay, "engine fast"));
  config = ConfigOf("1f1b");
  config.costs.jitter = "3%";
  config.costs.seed = 1;
  CHECK(absl::StrContains(Trace(config).extras.no_replay, "noise"));
}

TEST_CASE("page: the critical path is a chain that ends with the iteration",
          "[explain]") {
  for (const char* engine : {"fast", "simgrid"}) {
    RunConfig config = ConfigOf("1f1b");
    config.engine = engine;
    const Traced traced = Trace(config);
    const std::vector<PagePiece>& path = traced.extras.path;
    REQUIRE(path.size() > 8);
    CHECK(path.front().start_s == 0);
    CHECK(path.back().end_s ==
          Approx(traced.run.summary.iteration_end_s[0]).epsilon(1e-12));
    for (size_t index = 1; index < path.size(); ++index) {
      CHECK(path[index].start_s ==
            Approx(path[index - 1].end_s).epsilon(1e-9).margin(1e-12));
    }
  }
}

// Hidden: pages and what their sliders must show, for tests/browser.
TEST_CASE("page: pages with sliders for the browser test", "[.browser-pages]") {
  const char* folder = std::getenv("PIPEWRIGHT_BROWSER_PAGES");
  REQUIRE(folder != nullptr);
  for (const char* name : {"1f1b", "interleaved-1f1b", "zb-h1", "network"}) {
    const bool on_links = name == std::string("network");
    RunConfig config = ConfigOf(on_links ? "1f1b" : name);
    if (on_links) {
      config.system.preset = "dgx-h100";
      config.costs.p2p_s.reset();
      config.costs.hop_bytes = 256e6;
    }
    const Traced traced = Trace(config);
    const std::string base = absl::StrCat(folder, "/what-if-", name);
    REQUIRE(WriteFile(base + ".html",
                      ReportHtml(traced.run.report, *traced.run.program,
                                 traced.ops, "", &traced.extras))
                .ok());
    std::vector<std::string> rows;
    for (const Factors& factors : kFactors) {
      const Report report = Scaled(config, factors);
      rows.push_back(absl::StrFormat(
          R"({"factors": {"F": %.17g, "B": %.17g, "W": %.17g, "hop": %.17g},
  "iteration_s": %.17g,
  "span_global_s": %.17g, "span_per_rank_s": %.17g,
  "bubble_global": %.17g, "bubble_per_rank": %.17g})",
          factors.forward, factors.input, factors.weight, factors.hop,
          report.iteration_s, report.span_s.global, report.span_s.per_rank,
          report.bubble_fraction.global, report.bubble_fraction.per_rank));
    }
    REQUIRE(WriteFile(base + ".json",
                      absl::StrCat("[", absl::StrJoin(rows, ",\n"), "]\n"))
                .ok());
  }
}

}  // namespace
}  // namespace pipewright::page_extras_test
