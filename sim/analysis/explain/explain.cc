#include "sim/analysis/explain/explain.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sim/analysis/explain/dependency_graph.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"
#include "sim/program/lower.h"
#include "sim/program/program.h"

namespace pipewright {
namespace {

// About 200 bytes each with its dependencies.
constexpr double kMaxExplainedOps = 10e6;
// Stages beyond this have no sensitivity of their own: two runs each.
constexpr int kMaxStageRuns = 16;

absl::Status CheckExplainable(const PreparedRun&, const Program& program) {
  // A trace tells such passes whole, so the waits inside are not seen.
  for (int replica = 0; replica < program.replicas; ++replica) {
    for (const RankProgram& rank : program.OfReplica(replica).ranks) {
      if (rank.layers.empty()) continue;
      return absl::InvalidArgumentError(
          "strategy.data_parallel: explain does not take passes that wait for "
          "the parameters of each layer; allowed: a mode that gathers them by "
          "stage");
    }
  }
  const double ops = static_cast<double>(program.num_ops()) * program.replicas *
                     program.iterations;
  if (ops <= kMaxExplainedOps) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "up to ", ops, " operations would be kept; allowed: ", kMaxExplainedOps,
      " (fewer microbatches or replicas, or --iterations 2)"));
}

// The kinds of time that this run has, by their names in --what-if.
std::vector<std::string> KindsOf(const SimulatedRun& run) {
  std::vector<std::string> kinds;
  const Program& program = *run.program;
  std::array<bool, kNumPassKinds> has{};
  bool optimizer = false;
  for (const RankProgram& rank : program.ranks) {
    for (size_t lane = 0; lane < rank.lanes.size(); ++lane) {
      if (rank.lanes[lane].passes > 0 && rank.lanes[lane].seconds > 0) {
        has[static_cast<size_t>(Pass::KindOf(lane))] = true;
      }
    }
    for (const SideOp& op : rank.side_ops) {
      optimizer |= op.kind == OpKind::kOptimizer && op.seconds > 0;
    }
  }
  const CostChoice& costs = run.prepared.config.costs;
  for (int kind = 0; kind < kNumPassKinds; ++kind) {
    const auto pass = static_cast<PassKind>(kind);
    const bool copy = pass == PassKind::kOffload || pass == PassKind::kLoad;
    if (!has[kind] || (copy && !costs.offload_s && !costs.load_s)) continue;
    kinds.push_back(std::string(PassKindName(pass)));
  }
  if (program.network.cluster != nullptr) {
    kinds.push_back("network");
  } else if (program.network.hop_s > 0) {
    kinds.push_back("p2p");
  }
  if (optimizer) kinds.push_back("optimizer");
  const int stages = run.schedule().pp() * run.schedule().vpp();
  if (stages > 1 && stages <= kMaxStageRuns) {
    for (int stage = 0; stage < stages; ++stage) {
      kinds.push_back(absl::StrCat("stage", stage));
    }
  }
  return kinds;
}

// Stages are checked with the times.
absl::Status CheckNamesHaveTime(const TimeScales& scales,
                                const std::vector<std::string>& kinds) {
  const auto has = [&](absl::string_view name) {
    return std::find(kinds.begin(), kinds.end(), name) != kinds.end();
  };
  for (const absl::string_view part : absl::StrSplit(ToString(scales), ", ")) {
    const absl::string_view name = part.substr(0, part.find('*'));
    // A full backward takes as long as its parts.
    const bool is_part = (name == "B" || name == "W") && has("BW");
    if (has(name) || is_part || absl::StartsWith(name, "stage")) continue;
    return BadValue("--what-if", name,
                    absl::StrCat("names for which this run has time: ",
                                 absl::StrJoin(kinds, ", ")));
  }
  return absl::OkStatus();
}

absl::StatusOr<Report> ReportWith(const RunConfig& config,
                                  const TimeScales& scales,
                                  RunContext* context) {
  PW_ASSIGN_OR_RETURN(PreparedRun prepared,
                      PrepareScaled(config, scales, context));
  PW_ASSIGN_OR_RETURN(SimulatedRun run, Simulate(std::move(prepared)));
  return std::move(run.report);
}

absl::StatusOr<double> StepWith(const RunConfig& config, absl::string_view kind,
                                double factor, RunContext* context) {
  PW_ASSIGN_OR_RETURN(
      const TimeScales scales,
      ParseTimeScales("--what-if", absl::StrCat(kind, "*", factor)));
  // The times of engine simgrid, sooner.
  RunConfig quick = config;
  if (quick.engine.value_or("simgrid") == "simgrid") quick.engine = "fluid";
  PW_ASSIGN_OR_RETURN(const Report report, ReportWith(quick, scales, context));
  return report.iteration_s;
}

double MeanBubble(const StepExplanation& step) {
  double sum = 0;
  for (const RankStep& rank : step.ranks) {
    sum += rank.parts.Sum(PartGroup::kBubble);
  }
  return sum / (step.step_s * static_cast<double>(step.ranks.size()));
}

// A run with its operations, and its step.
struct ExplainedRun {
  SimulatedRun run;
  StepExplanation step;
  FullTrace trace;
};

absl::StatusOr<ExplainedRun> RunAndExplain(const RunConfig& config,
                                           RunContext* context) {
  ExplainedRun out;
  PW_ASSIGN_OR_RETURN(out.run, Simulate(config, context,
                                        {.trace = &out.trace,
                                         .interval = true,
                                         .admit = &CheckExplainable}));
  PW_ASSIGN_OR_RETURN(const DependencyGraph graph,
                      BuildDependencyGraph(*out.run.program, out.trace.ops(),
                                           out.run.summary.iterations()));
  PW_ASSIGN_OR_RETURN(out.step,
                      ExplainStep(*out.run.program, graph, out.run.summary));
  return out;
}

// What is drawn.
std::vector<TraceOp> FirstOps(const ExplainedRun& explained) {
  std::vector<TraceOp> ops;
  for (const TraceOp& op : explained.trace.ops()) {
    if (op.iteration == 0 && op.replica == explained.step.replica) {
      ops.push_back(op);
    }
  }
  return ops;
}

absl::StatusOr<SearchedOrder> ExplainSearch(const RunConfig& config,
                                            const ExplainedRun& explained,
                                            RunContext* context) {
  SearchedOrder out = {.found = *explained.run.schedule().found};
  out.moves =
      CompareOrders(*out.found.from, *explained.run.prepared.schedule.written);
  PW_ASSIGN_OR_RETURN(
      ExplainedRun start,
      RunAndExplain(WithOrder(config, *out.found.from, context), context));
  out.start_step_s = start.step.step_s;
  out.start_bubble = MeanBubble(start.step);
  out.bubble = MeanBubble(explained.step);
  out.start_ops = FirstOps(start);
  out.ops = FirstOps(explained);
  out.start = std::move(start.run);
  return out;
}

}  // namespace

absl::StatusOr<Explanation> Explain(const RunConfig& config,
                                    const ExplainOptions& options,
                                    RunContext* context) {
  Explanation out;
  PW_ASSIGN_OR_RETURN(ExplainedRun explained, RunAndExplain(config, context));
  const std::optional<FoundOrder>& found = explained.run.schedule().found;
  if (found && found->from != nullptr) {
    PW_ASSIGN_OR_RETURN(out.searched,
                        ExplainSearch(config, explained, context));
  }
  out.run = std::move(explained.run);
  out.step = std::move(explained.step);
  if (options.what_if.any()) {
    PW_ASSIGN_OR_RETURN(Report report,
                        ReportWith(config, options.what_if, context));
    PW_RETURN_IF_ERROR(CheckNamesHaveTime(options.what_if, KindsOf(out.run)));
    out.what_if = WhatIf{ToString(options.what_if), std::move(report)};
  }
  if (!options.sensitivities) return out;
  for (const std::string& kind : KindsOf(out.run)) {
    Sensitivity& row = out.sensitivities.emplace_back();
    row.name = kind;
    PW_ASSIGN_OR_RETURN(row.shorter_s,
                        StepWith(config, kind, 1 - kSensitivityStep, context));
    PW_ASSIGN_OR_RETURN(row.longer_s,
                        StepWith(config, kind, 1 + kSensitivityStep, context));
  }
  std::stable_sort(out.sensitivities.begin(), out.sensitivities.end(),
                   [](const Sensitivity& one, const Sensitivity& other) {
                     return std::abs(one.longer_s - one.shorter_s) >
                            std::abs(other.longer_s - other.shorter_s);
                   });
  return out;
}

}  // namespace pipewright
