#include "schedules/dualpipe_steps.h"

#include "sim/base/check.h"
#include "sim/base/fifo.h"

namespace pipewright {
namespace {

class Steps {
 public:
  Steps(int rank, const DualPipeRank& shape, ScheduleBuilder& builder)
      : rank_(rank), shape_(shape), builder_(builder) {}

  void Run() {
    const int behind = shape_.half - shape_.distance - 1;
    const int own = shape_.distance + 1;
    for (int step = 0; step < 2 * behind; ++step) Forward(0);
    for (int step = 0; step < own; ++step) {
      Forward(0);
      Forward(1);
    }
    for (int step = 0; step < behind; ++step) {
      BackwardInput(1);
      Weight();
      Forward(1);
    }
    for (int step = 0; step < shape_.microbatches - 2 * shape_.half + own;
         ++step) {
      // Next to the turn, F feeds the BW that it would run with.
      if (step == 0 && behind == 0) {
        Forward(0);
        Backward(1);
      } else {
        Pair(0, 1);
      }
      Pair(1, 0);
    }
    for (int step = 0; step < behind; ++step) {
      Backward(1);
      Pair(1, 0);
    }
    // From the middle on the weight gradients wait for the end.
    for (int step = 0; step < 2 * own; ++step) {
      const int phase = step % 2 == 0 ? 1 : 0;
      if (step < own) {
        Backward(phase);
      } else {
        BackwardInput(phase);
      }
    }
    for (int step = 0; step < behind; ++step) {
      Weight();
      BackwardInput(0);
    }
    for (int step = 0; step < own; ++step) Weight();
    PW_CHECK(deferred_.empty());
  }

 private:
  Pass Next(PassKind kind, int phase, int* count) const {
    const DualPipeRank::Phase& of = shape_.phases[phase];
    return Pass(kind, (*count)++, of.chunk, 0, of.direction);
  }
  Pass NextForward(int phase) {
    return Next(PassKind::kForward, phase, &forwards_[phase]);
  }
  Pass NextBackward(int phase) {
    return Next(PassKind::kBackwardFull, phase, &backwards_[phase]);
  }
  void Forward(int phase) { builder_.Add(rank_, NextForward(phase)); }
  void Backward(int phase) { builder_.Add(rank_, NextBackward(phase)); }
  void Pair(int forward, int backward) {
    const Pass first = NextForward(forward);
    builder_.AddJoint(rank_, first, NextBackward(backward));
  }
  // Puts its weight gradient off.
  void BackwardInput(int phase) {
    const Pass full = NextBackward(phase);
    const auto of_kind = [&](PassKind kind) {
      return Pass(kind, full.microbatch(), full.chunk(), 0, full.direction());
    };
    builder_.Add(rank_, of_kind(PassKind::kBackwardInput));
    deferred_.push_back(of_kind(PassKind::kBackwardWeight));
  }
  // The one that was put off longest.
  void Weight() {
    builder_.Add(rank_, deferred_.front());
    deferred_.pop_front();
  }

  const int rank_;
  const DualPipeRank& shape_;
  ScheduleBuilder& builder_;
  int forwards_[2] = {};
  int backwards_[2] = {};
  Fifo<Pass> deferred_;
};

}  // namespace

void AddDualPipeRank(int rank, const DualPipeRank& shape,
                     ScheduleBuilder& builder) {
  Steps(rank, shape, builder).Run();
}

namespace {

bool WithoutBlocks(const ScheduleParams& params) {
  const auto pair = params.own.find("pair");
  return pair != params.own.end() && pair->second == "dependencies";
}

}  // namespace

bool IsDualPipeBalanced(const ScheduleParams& params) {
  const PlanCosts& costs = params.costs;
  return costs.hop == 0 && costs.pair_factor == 1 &&
         costs.forward == costs.backward_input &&
         (WithoutBlocks(params) ? costs.backward_weight == costs.forward
                                : costs.backward_weight <= costs.forward);
}

double DualPipeGap(const ScheduleParams& params) {
  const PlanCosts& costs = params.costs;
  return WithoutBlocks(params)
             ? costs.forward
             : costs.work() + costs.backward_input - 2 * costs.backward_weight;
}

}  // namespace pipewright
