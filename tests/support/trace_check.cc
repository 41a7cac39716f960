#include "tests/support/trace_check.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace pipewright {
namespace {

// Replica, stage, microbatch and slice of a pass, and its kind.
using Name = std::tuple<int, int, int, int, PassKind>;

struct Times {
  double start_s = 0;  // start of the pass, or of its block
  double end_s = 0;
};

class Checker {
 public:
  Checker(const Schedule& schedule, const PlanCosts& costs)
      : schedule_(schedule), costs_(costs) {}

  std::string Run(const std::vector<TraceOp>& ops) {
    std::vector<std::vector<TraceOp>> passes(schedule_.pp());
    std::vector<TraceOp> transfers;
    for (const TraceOp& op : ops) {
      if (op.replica != 0 || op.iteration != 0) Error("replica or iteration");
      if (op.kind == OpKind::kPass) {
        passes[op.rank].push_back(op);
      } else if (op.kind == OpKind::kSend || op.kind == OpKind::kReceive) {
        transfers.push_back(op);
      } else {
        Error("an operation that nobody asked for");
      }
    }
    for (int rank = 0; rank < schedule_.pp(); ++rank) {
      CheckOrder(rank, passes[rank]);
    }
    for (const TraceOp& op : transfers) AddTransfer(op);
    for (int rank = 0; rank < schedule_.pp(); ++rank) {
      CheckStarts(rank, passes[rank]);
    }
    for (const auto& [name, sides] : transfers_) {
      if (sides.size() != 2) Error("a transfer without its other side");
    }
    if (transfers_.size() != used_) Error("a transfer that nobody awaits");
    return errors_;
  }

 private:
  void Error(absl::string_view what) {
    if (errors_.size() < 500) absl::StrAppend(&errors_, what, "\n");
  }
  bool Same(double a, double b) const {
    return std::abs(a - b) <= 1e-12 * std::max(std::abs(a), std::abs(b));
  }
  Name NameOf(Pass pass, int stage) const {
    return {pass.direction(), stage, pass.microbatch(), pass.slice(),
            pass.kind()};
  }
  double Seconds(PassKind kind) const {
    const double share = schedule_.vpp() * schedule_.slices;
    switch (kind) {
      case PassKind::kBackwardInput:
        return costs_.backward_input / share;
      case PassKind::kBackwardWeight:
        return costs_.backward_weight / share;
      case PassKind::kBackwardFull:
        return (costs_.backward_input + costs_.backward_weight) / share;
      default:
        return costs_.forward / share;
    }
  }

  // The passes in the order of the rank, without a gap in the list, without
  // an overlap in time.
  void CheckOrder(int rank, const std::vector<TraceOp>& passes) {
    std::vector<Pass> expected;
    for (const Pass pass : schedule_.order(rank)) {
      if (IsComputePass(pass.kind())) expected.push_back(pass);
    }
    if (passes.size() != expected.size()) {
      return Error(absl::StrCat("rank ", rank, " ran ", passes.size(),
                                " passes of ", expected.size()));
    }
    for (size_t index = 0; index < passes.size(); ++index) {
      const TraceOp& op = passes[index];
      const std::string name = PassToString(schedule_, expected[index]);
      if (op.pass.WithJoint(false) != expected[index].WithJoint(false)) {
        Error(absl::StrCat("rank ", rank, " is out of order at ", name));
      }
      if (op.stream != Stream::kCompute ||
          op.stage != schedule_.placement.StageOf(rank, op.pass.chunk(),
                                                  op.pass.direction())) {
        Error(absl::StrCat(name, " is on another stream or stage"));
      }
      if (std::abs(op.end_s - op.start_s - Seconds(op.pass.kind())) >
          1e-12 * op.end_s) {
        Error(absl::StrCat(name, " takes ", op.end_s - op.start_s));
      }
      if (index > 0 && op.start_s < passes[index - 1].end_s) {
        Error(absl::StrCat(name, " overlaps the pass before it"));
      }
      Times times = {op.start_s, op.end_s};
      const bool second = index > 0 && expected[index - 1].joint_with_next();
      if (expected[index].joint_with_next() && index + 1 < passes.size()) {
        times.end_s = passes[index + 1].end_s;
      }
      if (second) times.start_s = passes[index - 1].start_s;
      if (!times_.try_emplace(NameOf(op.pass, op.stage), times).second) {
        Error(absl::StrCat(name, " runs twice"));
      }
    }
  }

  void AddTransfer(const TraceOp& op) {
    const Name name = NameOf(op.pass, op.stage);
    const auto producer = times_.find(name);
    if (producer == times_.end()) return Error("a transfer of no pass");
    if (!Same(op.start_s, producer->second.end_s) ||
        !Same(op.end_s, op.start_s + costs_.hop)) {
      Error("a transfer at the wrong time");
    }
    const int step = op.pass.kind() == PassKind::kForward ? 1 : -1;
    const int stage = op.kind == OpKind::kSend ? op.stage : op.stage + step;
    if (stage < 0 || stage >= schedule_.stages() ||
        op.rank != schedule_.placement.RankOf(stage, op.pass.direction())) {
      return Error("a transfer on the wrong rank");
    }
    std::vector<TraceOp>& sides = transfers_[name];
    for (const TraceOp& side : sides) {
      if (side.kind == op.kind) Error("one side of a transfer told twice");
      if (side.start_s != op.start_s || side.end_s != op.end_s) {
        Error("the sides of a transfer disagree");
      }
    }
    sides.push_back(op);
  }

  // When the result of the backward of (replica, stage, ...) is there, or -1.
  const Times* Backward(Name name) const {
    for (const PassKind kind :
         {PassKind::kBackwardInput, PassKind::kBackwardFull}) {
      std::get<4>(name) = kind;
      const auto found = times_.find(name);
      if (found != times_.end()) return &found->second;
    }
    return nullptr;
  }

  // The earliest start that the inputs of a pass allow.
  double InputsReady(const TraceOp& op) {
    Name name = NameOf(op.pass, op.stage);
    const Placement& placement = schedule_.placement;
    const auto of = [&](PassKind kind, int stage) -> const Times* {
      std::get<1>(name) = stage;
      if (IsBackward(kind)) return Backward(name);
      std::get<4>(name) = kind;
      const auto found = times_.find(name);
      return found == times_.end() ? nullptr : &found->second;
    };
    double ready_s = 0;
    const auto need = [&](const Times* times, int stage) {
      if (times == nullptr) return Error("a pass without its input");
      const bool hops = placement.RankOf(stage, op.pass.direction()) != op.rank;
      ready_s = std::max(ready_s, times->end_s + (hops ? costs_.hop : 0));
      used_ += hops ? 1 : 0;
    };
    if (op.pass.kind() == PassKind::kForward) {
      if (op.stage > 0) {
        need(of(PassKind::kForward, op.stage - 1), op.stage - 1);
      }
      return ready_s;
    }
    need(of(PassKind::kForward, op.stage), op.stage);
    if (op.pass.kind() == PassKind::kBackwardWeight) {
      need(of(PassKind::kBackwardInput, op.stage), op.stage);
    } else if (IsBackward(op.pass.kind()) &&
               op.stage + 1 < schedule_.stages()) {
      need(of(PassKind::kBackwardInput, op.stage + 1), op.stage + 1);
    }
    return ready_s;
  }

  // Every pass or block starts when the one before it has ended and its
  // inputs are there: at that very time.
  void CheckStarts(int rank, const std::vector<TraceOp>& passes) {
    double free_s = 0;
    for (size_t index = 0; index < passes.size(); ++index) {
      double start_s = std::max(free_s, InputsReady(passes[index]));
      const double began_s = passes[index].start_s;
      if (passes[index].joint && index + 1 < passes.size()) {
        start_s = std::max(start_s, InputsReady(passes[++index]));
      }
      if (!Same(began_s, start_s)) {
        Error(absl::StrCat("rank ", rank, " ",
                           PassToString(schedule_, passes[index].pass),
                           " starts at ", began_s, " instead of ", start_s));
      }
      free_s = passes[index].end_s;
    }
  }

  const Schedule& schedule_;
  const PlanCosts& costs_;
  std::map<Name, Times> times_;
  std::map<Name, std::vector<TraceOp>> transfers_;
  size_t used_ = 0;  // transfers that some pass awaits
  std::string errors_;
};

}  // namespace

std::string TraceErrors(const Schedule& schedule, const PlanCosts& costs,
                        const std::vector<TraceOp>& ops) {
  return Checker(schedule, costs).Run(ops);
}

}  // namespace pipewright
