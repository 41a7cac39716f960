#include "sim/analysis/explain/page_extras.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/analysis/explain/dependency_graph.h"
#include "sim/engine/fast_engine.h"
#include "sim/program/program.h"

namespace pipewright {
namespace {

// A graph takes 200 bytes for each, and a page some tens.
constexpr int64_t kMostPathOps = 3'000'000;
constexpr double kMostReplayOps = 300'000;
// Times of a trace and sums of its dependencies differ by rounding alone.
constexpr double kSameStart = 1e-12;

using Nodes = std::vector<DependencyGraph::Node>;

// "" where the replay is that of simulate.
std::string WhyNoReplay(const SimulatedRun& run) {
  const Program& program = *run.program;
  if (run.prepared.config.engine != "fast") {
    return "the engine shares links, and a replay does not; engine fast has "
           "them";
  }
  if (program.jitter != nullptr) return "the times have noise";
  if (program.num_classes() > 1 || run.summary.times.size() > 1) {
    return "the data-parallel replicas differ";
  }
  if (!program.false_starts.empty() || !program.undone_steps.empty()) {
    return "a step is undone";
  }
  if (program.interference != nullptr) {
    return "passes and what runs beside them slow each other down";
  }
  for (const RankProgram& rank : program.ranks) {
    if (!rank.layers.empty()) {
      return "passes wait for the parameters of each layer";
    }
  }
  const double ops =
      static_cast<double>(program.num_ops()) * program.iterations;
  if (ops > kMostReplayOps) {
    return absl::StrCat("the run has up to ", ops,
                        " operations; allowed: ", kMostReplayOps);
  }
  return "";
}

// Each behind all that it waits for; empty where they wait in a circle.
std::vector<int32_t> Sorted(const DependencyGraph& graph,
                            const std::vector<std::vector<uint32_t>>& from) {
  const size_t count = graph.nodes().size();
  std::vector<std::vector<int32_t>> behind(count);
  std::vector<size_t> missing(count);
  std::vector<int32_t> order;
  for (size_t node = 0; node < count; ++node) {
    missing[node] = from[node].size();
    for (const uint32_t each : from[node]) {
      behind[each].push_back(static_cast<int32_t>(node));
    }
    if (missing[node] == 0) order.push_back(static_cast<int32_t>(node));
  }
  for (size_t index = 0; index < order.size(); ++index) {
    for (const int32_t each : behind[order[index]]) {
      if (--missing[each] == 0) order.push_back(each);
    }
  }
  if (order.size() != count) order.clear();
  return order;
}

// Do the links of a system make all times but those of passes, and none of
// those? Then one factor is that of all links (`network` of --what-if).
bool LinksAreApart(const SimulatedRun& run) {
  if (run.program->network.cluster == nullptr) return false;
  // Estimated and measured passes have messages inside.
  if (run.prepared.costs.follow_model()) return false;
  // Copies wait for the host, too.
  return !run.prepared.offload && !run.prepared.lower.offload.active() &&
         !run.program->schedule->Has(PassKind::kOffload);
}

// `hops`: whether what crosses the network has a factor.
ReplayFactor FactorOf(const DependencyGraph::Node& node, const PassCosts& costs,
                      bool hops) {
  if (node.kind == OpKind::kSend || IsCollective(node.kind) ||
      IsOneSided(node.kind)) {
    return hops ? ReplayFactor::kHop : ReplayFactor::kNone;
  }
  if (node.kind != OpKind::kPass) return ReplayFactor::kNone;
  switch (node.pass.kind()) {
    case PassKind::kForward:
      return ReplayFactor::kForward;
    case PassKind::kBackwardInput:
      return ReplayFactor::kBackwardInput;
    case PassKind::kBackwardWeight:
      return ReplayFactor::kBackwardWeight;
    case PassKind::kBackwardFull:
      // Given as one time, it is no sum of the two.
      return costs.stages[node.stage].backward_full_s > 0
                 ? ReplayFactor::kNone
                 : ReplayFactor::kBackwardFull;
    case PassKind::kRecompute:
      return ReplayFactor::kRecompute;
    default:
      return ReplayFactor::kNone;
  }
}

// Time of one microbatch through the stages of a rank; 0 where ranks differ.
double PassTime(const PassCosts& costs, const Placement& placement, int pp,
                double StageCosts::*seconds) {
  std::vector<double> ranks(pp);
  for (size_t stage = 0; stage < costs.stages.size(); ++stage) {
    ranks[placement.RankOf(static_cast<int>(stage))] +=
        costs.stages[stage].*seconds;
  }
  const auto [low, high] = std::minmax_element(ranks.begin(), ranks.end());
  return *high - *low <= 1e-9 * *high ? ranks[0] : 0;
}

std::vector<PageReplay::Slider> SlidersOf(const SimulatedRun& run,
                                          const PageReplay& replay) {
  std::array<bool, 8> has{};
  for (const PageReplay::Node& node : replay.nodes) {
    has[static_cast<size_t>(node.factor)] |= node.seconds > 0;
  }
  const auto any = [&has](ReplayFactor one, ReplayFactor other) {
    return has[static_cast<size_t>(one)] || has[static_cast<size_t>(other)];
  };
  const PassCosts& costs = run.prepared.costs.passes;
  const Placement& placement = run.program->schedule->placement;
  const int pp = run.program->pp();
  std::vector<PageReplay::Slider> sliders;
  const auto add = [&](const char* key, const char* name, double seconds,
                       double least = 0) {
    sliders.push_back({key, name, seconds, least});
  };
  if (has[static_cast<size_t>(ReplayFactor::kForward)]) {
    add("F", "F forward",
        PassTime(costs, placement, pp, &StageCosts::forward_s));
  }
  if (any(ReplayFactor::kBackwardInput, ReplayFactor::kBackwardFull)) {
    add("B", "B gradient of input",
        PassTime(costs, placement, pp, &StageCosts::backward_input_s));
  }
  if (any(ReplayFactor::kBackwardWeight, ReplayFactor::kBackwardFull)) {
    add("W", "W gradient of weights",
        PassTime(costs, placement, pp, &StageCosts::backward_weight_s));
  }
  // Links carry collectives too, so there it is one factor for both.
  if (has[static_cast<size_t>(ReplayFactor::kHop)]) {
    if (run.program->network.cluster == nullptr) {
      add("hop", "hop", run.program->network.hop_s);
    } else {
      // It divides bandwidths, so simulate refuses 0.
      add("hop", "network, all links", 0, 0.01);
    }
  }
  return sliders;
}

// Nothing where the trace does not begin when the graph says.
std::optional<PageReplay> ReplayOf(const SimulatedRun& run) {
  Program whole = *run.program;
  whole.until_steady = false;
  FullTrace trace;
  EngineOptions options;
  options.trace = &trace;
  const absl::StatusOr<RunSummary> summary = RunFast(whole, options);
  if (!summary.ok()) return std::nullopt;
  const absl::StatusOr<DependencyGraph> graph =
      BuildDependencyGraph(whole, trace.ops(), summary->iterations());
  if (!graph.ok()) return std::nullopt;
  const PassCosts& costs = run.prepared.costs.passes;
  const bool holds = whole.wait_rule != WaitRule::kBuffered;
  const bool hops = whole.network.cluster == nullptr || LinksAreApart(run);
  const Nodes& nodes = graph->nodes();
  std::vector<std::vector<uint32_t>> from(nodes.size());
  for (size_t node = 0; node < nodes.size(); ++node) {
    for (const int32_t each : graph->Before(static_cast<int32_t>(node))) {
      from[node].push_back(static_cast<uint32_t>(each));
    }
  }
  const std::vector<int32_t> order = Sorted(*graph, from);
  if (order.size() != nodes.size()) return std::nullopt;
  std::vector<uint32_t> place(nodes.size());
  for (size_t index = 0; index < order.size(); ++index) {
    place[order[index]] = static_cast<uint32_t>(index);
  }
  PageReplay replay;
  replay.iterations = summary->iterations();
  replay.until_steady = run.program->until_steady;
  const CostChoice& given = run.prepared.config.costs;
  replay.recompute_follows =
      !given.recompute_s && (given.forward_s || !given.stage_forward_s.empty());
  const double allowed_s = kSameStart * summary->iteration_end_s.back();
  for (const int32_t index : order) {
    const DependencyGraph::Node& node = nodes[index];
    PageReplay::Node& out = replay.nodes.emplace_back();
    double begin_s = 0;
    for (const uint32_t each : from[index]) {
      begin_s = std::max(begin_s, nodes[each].end_s);
      out.from.push_back(place[each]);
    }
    if (std::abs(begin_s - node.start_s) > allowed_s) return std::nullopt;
    out.seconds = node.end_s - node.start_s;
    out.rank = node.rank;
    out.iteration = static_cast<uint8_t>(node.iteration);
    out.factor = FactorOf(node, costs, hops);
    if (out.factor == ReplayFactor::kBackwardFull) {
      const StageCosts& stage = costs.stages[node.stage];
      const double sum_s = stage.backward_input_s + stage.backward_weight_s;
      out.part = sum_s > 0 ? stage.backward_input_s / sum_s : 0.5;
    }
    out.is_pass = node.kind == OpKind::kPass;
    out.ends_step = holds || node.kind != OpKind::kSend;
    out.stream = node.stream;
    out.kind = node.kind;
    out.pass = node.pass;
    out.start_s = node.start_s;
  }
  replay.sliders = SlidersOf(run, replay);
  return replay;
}

}  // namespace

std::vector<PagePiece> CriticalPathOf(const Program& program,
                                      const std::vector<TraceOp>& ops) {
  std::vector<TraceOp> first;
  for (const TraceOp& op : ops) {
    if (op.iteration == 0) first.push_back(op);
  }
  if (first.empty() || static_cast<int64_t>(first.size()) > kMostPathOps) {
    return {};
  }
  const absl::StatusOr<DependencyGraph> graph =
      BuildDependencyGraph(program, first, 1);
  if (!graph.ok()) return {};
  std::vector<PagePiece> path;
  for (int32_t node = graph->LastOf(0); node >= 0; node = graph->Last(node)) {
    const DependencyGraph::Node& own = graph->node(node);
    path.push_back({own.rank, own.start_s, own.end_s});
  }
  std::reverse(path.begin(), path.end());
  return path;
}

PageExtras PageExtrasOf(const SimulatedRun& run,
                        const std::vector<TraceOp>& ops) {
  PageExtras extras;
  extras.path = CriticalPathOf(*run.program, ops);
  extras.no_replay = WhyNoReplay(run);
  if (extras.no_replay.empty()) {
    extras.replay = ReplayOf(run);
    if (!extras.replay) {
      extras.no_replay =
          "operations of this run begin later than what they "
          "wait for";
    }
  }
  return extras;
}

}  // namespace pipewright
