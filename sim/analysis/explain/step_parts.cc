#include "sim/analysis/explain/step_parts.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/status.h"
#include "sim/program/program.h"
#include "sim/trace/timeline.h"

namespace pipewright {
namespace {

struct PartRow {
  absl::string_view key;
  absl::string_view name;
  PartGroup group;
};

constexpr PartRow kPartRows[kNumStepParts] = {
    {"F", "F", PartGroup::kCompute},
    {"B", "B", PartGroup::kCompute},
    {"W", "W", PartGroup::kCompute},
    {"BW", "BW", PartGroup::kCompute},
    {"R", "R", PartGroup::kCompute},
    {"optimizer", "optimizer step", PartGroup::kCompute},
    {"warm_up", "warm-up", PartGroup::kBubble},
    {"cool_down", "cool-down", PartGroup::kBubble},
    {"imbalance", "imbalance", PartGroup::kBubble},
    {"transfer", "waiting for transfer", PartGroup::kBubble},
    {"offload", "waiting for offload", PartGroup::kBubble},
    {"optimizer", "waiting for optimizer", PartGroup::kBubble},
    {"all_reduce", "all-reduce", PartGroup::kCommunication},
    {"reduce_scatter", "reduce-scatter", PartGroup::kCommunication},
    {"all_gather", "all-gather", PartGroup::kCommunication},
    {"barrier", "barrier", PartGroup::kCommunication},
    {"pull", "pull", PartGroup::kCommunication},
    {"push", "push", PartGroup::kCommunication},
};

// Engines agree to 1e-9 of the run; what starts later than that after all
// that it waits for has waited for something else.
constexpr double kHole = 1e-8;

StepPart PartOfPass(PassKind kind) {
  switch (kind) {
    case PassKind::kBackwardInput:
      return StepPart::kBackwardInput;
    case PassKind::kBackwardWeight:
      return StepPart::kBackwardWeight;
    case PassKind::kBackwardFull:
      return StepPart::kBackwardFull;
    case PassKind::kRecompute:
      return StepPart::kRecompute;
    default:
      return StepPart::kForward;
  }
}

// What an operation is to a stream that does nothing else, passes left out.
StepPart PartOfWait(OpKind kind) {
  switch (kind) {
    case OpKind::kSend:
    case OpKind::kReceive:
    case OpKind::kDrop:
      return StepPart::kTransfer;
    case OpKind::kOffload:
    case OpKind::kLoad:
      return StepPart::kOffload;
    case OpKind::kAllReduce:
      return StepPart::kAllReduce;
    case OpKind::kReduceScatter:
      return StepPart::kReduceScatter;
    case OpKind::kAllGather:
      return StepPart::kAllGather;
    case OpKind::kBarrier:
      return StepPart::kBarrier;
    case OpKind::kPull:
      return StepPart::kPull;
    case OpKind::kPush:
      return StepPart::kPush;
    default:
      return StepPart::kStep;
  }
}

// What it is on its own compute stream, and on the critical path.
StepPart PartOfWork(const DependencyGraph::Node& node) {
  switch (node.kind) {
    case OpKind::kPass:
      return PartOfPass(node.pass.kind());
    case OpKind::kOptimizer:
    case OpKind::kValidate:
    case OpKind::kRollback:
    case OpKind::kPredict:
    case OpKind::kCast:
      return StepPart::kOptimizer;
    default:
      return PartOfWait(node.kind);
  }
}

// The passes of one rank in one iteration that bound its phases.
struct Phases {
  double first_backward_s = std::numeric_limits<double>::infinity();
  double last_forward_s = 0;
};

class Explainer {
 public:
  Explainer(const Program& program, const DependencyGraph& graph,
            const RunSummary& summary)
      : program_(program),
        graph_(graph),
        iteration_(summary.iterations() - 1),
        step_s_(summary.iteration_s()),
        end_s_(summary.iteration_end_s.back()) {}

  absl::StatusOr<StepExplanation> Run();

 private:
  using Node = DependencyGraph::Node;
  // What a chain of dependencies did in one piece of time.
  struct Piece {
    double start_s = 0;
    double end_s = 0;
    int32_t node = -1;
  };

  absl::StatusOr<RankStep> Rank(const DependencyGraph::RankNodes& nodes);
  // The pieces of [from_s, to_s], the last one first: what ran on the chain
  // that ends at `to_s` with the start of `node`, or with its end if `itself`.
  absl::StatusOr<std::vector<Piece>> Chain(int32_t node, bool itself,
                                           double from_s, double to_s) const;
  absl::Status Wait(int32_t node, bool itself, double from_s, double to_s,
                    const Phases& phases, RankStep* step) const;
  StepPart CauseOf(const Node& cause, int iteration, double from_s, double to_s,
                   const Phases& phases) const;
  Phases PhasesOf(const DependencyGraph::RankNodes& nodes, int iteration) const;
  absl::Status FillPath(int32_t last, StepExplanation* out) const;

  const Program& program_;
  const DependencyGraph& graph_;
  const int iteration_;
  const double step_s_;
  const double end_s_;
  int32_t last_ = -1;
};

Phases Explainer::PhasesOf(const DependencyGraph::RankNodes& nodes,
                           int iteration) const {
  Phases phases;
  for (const int32_t index : nodes.compute) {
    const Node& node = graph_.node(index);
    if (node.iteration != iteration || node.kind != OpKind::kPass) continue;
    if (node.pass.kind() == PassKind::kForward) {
      phases.last_forward_s = std::max(phases.last_forward_s, node.end_s);
    } else if (IsBackward(node.pass.kind())) {
      phases.first_backward_s = std::min(phases.first_backward_s, node.start_s);
    }
  }
  return phases;
}

absl::StatusOr<std::vector<Explainer::Piece>> Explainer::Chain(
    int32_t node, bool itself, double from_s, double to_s) const {
  std::vector<Piece> pieces;
  double time_s = to_s;
  int32_t next = itself ? node : graph_.Last(node);
  int32_t waiting = node;
  while (time_s > from_s) {
    const double end_s = next < 0 ? 0 : graph_.node(next).end_s;
    // Nothing ended when this one began: it waited for its turn, as copies on
    // a shared link do.
    const double hole_s = time_s - std::max(end_s, from_s);
    if (hole_s > kHole * end_s_) {
      if (graph_.node(waiting).kind == OpKind::kPass || waiting == next) {
        return absl::InternalError(
            absl::StrCat("nothing explains why rank ",
                         graph_.node(waiting).rank, " does nothing from ",
                         std::max(end_s, from_s), " s to ", time_s, " s"));
      }
      pieces.push_back({std::max(end_s, from_s), time_s, waiting});
      time_s = pieces.back().start_s;
      if (time_s <= from_s) break;
    }
    if (next < 0) {
      // Less than the engines' own rounding.
      if (!pieces.empty())
        pieces.back().start_s = from_s;
      else
        pieces.push_back({from_s, time_s, waiting});
      break;
    }
    const double start_s = std::max(graph_.node(next).start_s, from_s);
    if (start_s < time_s) {
      pieces.push_back({start_s, time_s, next});
      time_s = start_s;
    }
    waiting = next;
    next = graph_.Last(next);
  }
  return pieces;
}

StepPart Explainer::CauseOf(const Node& cause, int iteration, double from_s,
                            double to_s, const Phases& phases) const {
  if (cause.kind != OpKind::kPass) return PartOfWait(cause.kind);
  // A pipeline that is never flushed is filled once, in the first iteration.
  if (program_.schedule->update_every > 0 && iteration > 0) {
    return StepPart::kImbalance;
  }
  if (cause.iteration < iteration) return StepPart::kCoolDown;
  const bool before_backward = to_s <= phases.first_backward_s;
  const bool after_forward = from_s >= phases.last_forward_s;
  if (before_backward && after_forward) {
    const PassKind kind = cause.pass.kind();
    return kind == PassKind::kForward || kind == PassKind::kRecompute
               ? StepPart::kWarmUp
               : StepPart::kCoolDown;
  }
  if (before_backward) return StepPart::kWarmUp;
  return after_forward ? StepPart::kCoolDown : StepPart::kImbalance;
}

absl::Status Explainer::Wait(int32_t node, bool itself, double from_s,
                             double to_s, const Phases& phases,
                             RankStep* step) const {
  const int iteration = graph_.node(node).iteration;
  PW_ASSIGN_OR_RETURN(const std::vector<Piece> pieces,
                      Chain(node, itself, from_s, to_s));
  for (const Piece& piece : pieces) {
    const StepPart cause =
        CauseOf(graph_.node(piece.node), iteration, from_s, to_s, phases);
    step->parts[cause] += piece.end_s - piece.start_s;
  }
  return absl::OkStatus();
}

absl::StatusOr<RankStep> Explainer::Rank(
    const DependencyGraph::RankNodes& nodes) {
  RankStep step = {.rank = nodes.rank};
  step.start_s = iteration_ == 0 ? 0 : nodes.end_s[iteration_ - 1];
  const double end_s = step.start_s + step_s_;
  const Phases phases = PhasesOf(nodes, iteration_);
  double time_s = step.start_s;
  for (const int32_t index : nodes.compute) {
    const Node& node = graph_.node(index);
    if (node.iteration < iteration_) continue;
    const double start_s = std::min(node.start_s, end_s);
    if (start_s > time_s) {
      PW_RETURN_IF_ERROR(
          Wait(index, /*itself=*/false, time_s, start_s, phases, &step));
      time_s = start_s;
    }
    const double until_s = std::min(node.end_s, end_s);
    if (until_s > time_s) {
      step.parts[PartOfWork(node)] += until_s - time_s;
      time_s = until_s;
    }
  }
  // The rank has ended and others have not.
  if (end_s > time_s) {
    PW_RETURN_IF_ERROR(
        Wait(last_, /*itself=*/true, time_s, end_s, phases, &step));
  }
  return step;
}

absl::Status Explainer::FillPath(int32_t last, StepExplanation* out) const {
  const double end_s = graph_.node(last).end_s;
  PW_ASSIGN_OR_RETURN(std::vector<Piece> pieces,
                      Chain(last, /*itself=*/true, end_s - step_s_, end_s));
  std::reverse(pieces.begin(), pieces.end());
  for (const Piece& piece : pieces) {
    const Node& node = graph_.node(piece.node);
    TraceOp op;
    op.kind = node.kind;
    op.stream = node.stream;
    op.rank = node.rank;
    op.stage = node.stage;
    op.channel = node.message ? -1 : node.channel;
    op.side_op = node.message ? -1 : node.side_op;
    op.pass = node.pass;
    out->critical_path.push_back(
        {.start_s = piece.start_s,
         .end_s = piece.end_s,
         .part = PartOfWork(node),
         .rank = node.rank,
         .what = node.message ? "message" : SliceName(program_, op)});
    out->path_parts[PartOfWork(node)] += piece.end_s - piece.start_s;
  }
  return absl::OkStatus();
}

absl::StatusOr<StepExplanation> Explainer::Run() {
  StepExplanation out = {.step_s = step_s_, .iteration = iteration_};
  last_ = graph_.LastOf(iteration_);
  if (last_ < 0) return absl::InternalError("the last iteration has no trace");
  out.replica = graph_.node(last_).replica;
  PW_RETURN_IF_ERROR(FillPath(last_, &out));
  for (const DependencyGraph::RankNodes& nodes : graph_.ranks()) {
    if (nodes.replica != out.replica) continue;
    PW_ASSIGN_OR_RETURN(RankStep step, Rank(nodes));
    out.ranks.push_back(std::move(step));
  }
  return out;
}

}  // namespace

PartGroup GroupOf(StepPart part) {
  return kPartRows[static_cast<int>(part)].group;
}
absl::string_view PartKey(StepPart part) {
  return kPartRows[static_cast<int>(part)].key;
}
absl::string_view PartName(StepPart part) {
  return kPartRows[static_cast<int>(part)].name;
}

double StepParts::Sum() const {
  double sum = 0;
  for (const double each : seconds) sum += each;
  return sum;
}

double StepParts::Sum(PartGroup group) const {
  double sum = 0;
  for (int part = 0; part < kNumStepParts; ++part) {
    if (GroupOf(static_cast<StepPart>(part)) == group) sum += seconds[part];
  }
  return sum;
}

absl::StatusOr<StepExplanation> ExplainStep(const Program& program,
                                            const DependencyGraph& graph,
                                            const RunSummary& summary) {
  if (summary.iteration_end_s.empty()) {
    return absl::InternalError("nothing has run");
  }
  return Explainer(program, graph, summary).Run();
}

}  // namespace pipewright
