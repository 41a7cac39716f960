// DualPipe and DualPipeV: eight steps of a rank whose work comes in two phases,
// and the bubbles that they leave. Source of the steps: deepseek-ai/DualPipe
// 3da1bbe, step().
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/check.h"
#include "sim/base/fifo.h"
#include "sim/base/nearest.h"
#include "sim/base/status.h"
#include "sim/schedule/builder.h"
#include "sim/schedule/params.h"
#include "sim/schedule/registry.h"

namespace pipewright::dualpipe {
namespace {

// One rank. Its work comes in two phases that run against each other: the two
// directions (DualPipe), or the two chunks of a V (DualPipeV).
struct DualPipeRank {
  // Chunk and direction of each phase; phase 0 is the one that enters nearer.
  struct Phase {
    int chunk = 0;
    int direction = 0;
  };
  Phase phases[2];
  int distance = 0;      // ranks between this one and the entry of phase 0
  int half = 1;          // ranks from that entry to the turn
  int microbatches = 0;  // in each phase, at least 2 * half
};

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

// Appends the order of `rank`: F, BW, split B and W, and joint (F&BW).
void AddDualPipeRank(int rank, const DualPipeRank& shape,
                     ScheduleBuilder& builder) {
  Steps(rank, shape, builder).Run();
}

bool WithoutBlocks(const ScheduleParams& params) {
  const auto pair = params.own.find("pair");
  return pair != params.own.end() && pair->second == "dependencies";
}

// F = B >= W, no hops, pairs that take as long as their passes; without blocks
// (pair=dependencies) F = B = W.
bool IsDualPipeBalanced(const ScheduleParams& params) {
  const PlanCosts& costs = params.costs;
  return costs.hop == 0 && costs.pair_factor == 1 &&
         costs.forward == costs.backward_input &&
         (WithoutBlocks(params) ? costs.backward_weight == costs.forward
                                : costs.backward_weight <= costs.forward);
}

// Gap that each step of the fill leaves: F&BW + BW - 3W, in the unit of the
// costs; F without blocks. Source: as of the bubbles below.
double DualPipeGap(const ScheduleParams& params) {
  const PlanCosts& costs = params.costs;
  return WithoutBlocks(params)
             ? costs.forward
             : costs.work() + costs.backward_input - 2 * costs.backward_weight;
}

}  // namespace

// DualPipe: the pipeline in two opposite directions. In the steady phase a
// forward of one runs together with a backward of the other.
namespace two_directions {
namespace {

constexpr char kName[] = "dualpipe";

absl::Status CheckSizes(const ScheduleParams& params) {
  PW_RETURN_IF_ERROR(RequireOnly(kName, "strategy.vpp", params.vpp, 1));
  PW_RETURN_IF_ERROR(RequireOnly(kName, "strategy.slices", params.slices, 1));
  const int microbatches = params.microbatches;
  if (params.pp % 2 != 0) {
    // If no pp fits the microbatches, the next message is about them.
    const bool any = microbatches % 2 != 0 || microbatches < 4;
    return BadSize(
        "strategy.pp", params.pp,
        [&](int pp) { return pp % 2 == 0 && (any || microbatches >= 2 * pp); },
        "schedule dualpipe: even, and at most microbatches/2");
  }
  if (microbatches % 2 != 0 || microbatches < 2 * params.pp) {
    return BadSize(
        "strategy.microbatches", microbatches,
        [&](int count) { return count % 2 == 0 && count >= 2 * params.pp; },
        absl::StrCat("schedule dualpipe: even, and at least 2*pp = ",
                     2 * params.pp));
  }
  return absl::OkStatus();
}

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  PW_RETURN_IF_ERROR(CheckSizes(params));
  ScheduleBuilder builder(kName, Placement::Plain(params.pp),
                          params.microbatches, 1, 2);
  for (int rank = 0; rank < params.pp; ++rank) {
    const int near = rank < params.pp / 2 ? 0 : 1;
    const int distance = std::min(rank, params.pp - 1 - rank);
    // As many backwards are split.
    const int split = params.pp - 1 - distance;
    builder.Reserve(rank, int64_t{2} * params.microbatches + split);
    AddDualPipeRank(rank,
                    {.phases = {{.direction = near}, {.direction = 1 - near}},
                     .distance = distance,
                     .half = params.pp / 2,
                     .microbatches = params.microbatches / 2},
                    builder);
  }
  return std::move(builder).Finish();
}

double Bubble(const ScheduleParams& params, int) {
  return (params.pp / 2 - 1) * DualPipeGap(params);
}

constexpr char kBubble[] =
    "(p/2-1)(F&BW + BW - 3W), F&BW = F+B+W; pair=dependencies: (p/2-1)F";
constexpr char kSource[] =
    "README of deepseek-ai/DualPipe (its B is our BW); dependencies: counted "
    "in replays; F = B >= W (dependencies: = W), no hops";

const RegisterSchedule kRow({
    .name = kName,
    .summary = "two directions, forwards overlapped with "
               "backwards; weights twice",
    .source = "DeepSeek-V3, arXiv 2412.19437, section 3.2.1; order of "
              "deepseek-ai/DualPipe 3da1bbe",
    .torch_name = "",
    .torch_params = {},
    .default_vpp = 1,
    .params = {},
    .build = Build,
    .claims =
        BubbleClaims({.metric = Claim::Metric::kBubblePerRank,
                      .formula = kBubble,
                      .source = kSource,
                      .domain = IsDualPipeBalanced,
                      .value = Bubble},
                     {{.metric = Claim::Metric::kPeakActivations,
                       .formula = "p+1",
                       .source = "README of deepseek-ai/DualPipe",
                       .domain = [](const ScheduleParams&) { return true; },
                       .value = [](const ScheduleParams& params,
                                   int) -> double { return params.pp + 1; }}}),
});

}  // namespace
}  // namespace two_directions

// DualPipeV: DualPipe cut in half. One pipeline in a V of two chunks a rank;
// a forward of one chunk runs together with a backward of the other.
namespace dualpipe_v {
namespace {

constexpr char kName[] = "dualpipe-v";

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  PW_RETURN_IF_ERROR(RequireOnly(kName, "strategy.vpp", params.vpp, 2));
  PW_RETURN_IF_ERROR(RequireOnly(kName, "strategy.slices", params.slices, 1));
  const int least = 2 * params.pp;
  if (params.microbatches < least) {
    return BadSize(
        "strategy.microbatches", params.microbatches,
        [&](int count) { return count >= least; },
        absl::StrCat("schedule ", kName, ": at least 2*pp = ", least));
  }
  ScheduleBuilder builder(kName, Placement::V(params.pp), params.microbatches);
  for (int rank = 0; rank < params.pp; ++rank) {
    // As many backwards are split.
    const int split = 2 * params.pp - 1 - rank;
    builder.Reserve(rank, int64_t{4} * params.microbatches + split);
    AddDualPipeRank(rank,
                    {.phases = {{.chunk = 0}, {.chunk = 1}},
                     .distance = rank,
                     .half = params.pp,
                     .microbatches = params.microbatches},
                    builder);
  }
  return std::move(builder).Finish();
}

double Bubble(const ScheduleParams& params, int) {
  return (params.pp - 1) / 2.0 * DualPipeGap(params);
}

constexpr char kBubble[] =
    "(p-1)(F&BW + BW - 3W)/2, F&BW = F+B+W; pair=dependencies: (p-1)F/2";
constexpr char kSource[] =
    "README of deepseek-ai/DualPipe, PP = 2p stages (its B is our BW); "
    "dependencies: counted in replays; F = B >= W (dependencies: = W), no hops";

const RegisterSchedule kRow({
    .name = kName,
    .summary = "V of two chunks, forwards overlapped with backwards",
    .source = "order of deepseek-ai/DualPipe 3da1bbe, DualPipeV, and of "
              "PyTorch's ScheduleDualPipeV; after Sea AI Lab's \"cut in half\"",
    .torch_name = "DualPipeV",
    .torch_params = {},
    .default_vpp = 2,
    .params = {},
    .build = Build,
    .placement = WavePlacement,
    .claims = BubbleClaims(
        {.metric = Claim::Metric::kBubblePerRank,
         .formula = kBubble,
         .source = kSource,
         .domain = IsDualPipeBalanced,
         .value = Bubble},
        {{.metric = Claim::Metric::kPeakActivations,
          .formula = "(2p+1)/2",
          .source = "README of deepseek-ai/DualPipe, PP = 2p stages",
          .domain = [](const ScheduleParams&) { return true; },
          .value = [](const ScheduleParams& params, int) -> double {
            return params.pp + 0.5;
          }}}),
});

}  // namespace
}  // namespace dualpipe_v

}  // namespace pipewright::dualpipe
