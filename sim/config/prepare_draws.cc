// Programs of packed lengths: what draws share, and what each adds to it.
#include "sim/config/prepare_draws.h"

#include <utility>
#include <vector>

#include "sim/base/status.h"
#include "sim/config/prepare_parts.h"
#include "sim/program/dp_classes.h"
#include "sim/program/program.h"

namespace pipewright {
namespace {

// Lanes of one class share tables.
int32_t TableOf(const std::vector<double>& factors, DpClass* program) {
  for (size_t index = 0; index < program->lane_factors.size(); ++index) {
    if (program->lane_factors[index] == factors) {
      return static_cast<int32_t>(index);
    }
  }
  program->lane_factors.push_back(factors);
  return static_cast<int32_t>(program->lane_factors.size() - 1);
}

// Factors of a backward that is both B and W.
std::vector<double> Mixed(const MicrobatchFactors& factors,
                          const StageCosts& costs) {
  const double both = costs.backward_input_s + costs.backward_weight_s;
  const double part = both > 0 ? costs.backward_input_s / both : 0.5;
  std::vector<double> mixed;
  for (size_t index = 0; index < factors.forward.size(); ++index) {
    mixed.push_back(part * factors.backward_input[index] +
                    (1 - part) * factors.backward_weight[index]);
  }
  return mixed;
}

void TakeFactors(const MicrobatchFactors& factors, const PassCosts& costs,
                 DpClass* program) {
  program->lane_factors.clear();
  program->gradient_weight = static_cast<double>(factors.tokens);
  const int32_t forward = TableOf(factors.forward, program);
  const int32_t input = TableOf(factors.backward_input, program);
  const int32_t weight = TableOf(factors.backward_weight, program);
  for (RankProgram& rank : program->ranks) {
    for (size_t index = 0; index < rank.lanes.size(); ++index) {
      Lane& lane = rank.lanes[index];
      if (lane.stage < 0) continue;
      switch (Pass::KindOf(index)) {
        case PassKind::kForward:
        case PassKind::kRecompute:
          lane.factors = forward;
          break;
        case PassKind::kBackwardInput:
          lane.factors = input;
          break;
        case PassKind::kBackwardWeight:
          lane.factors = weight;
          break;
        case PassKind::kBackwardFull:
          lane.factors =
              TableOf(Mixed(factors, costs.stages[lane.stage]), program);
          break;
        default:
          break;
      }
    }
  }
}

}  // namespace

DrawPlan::DrawPlan()
    : programs_(std::make_unique<Kept<absl::StatusOr<Program>>>()) {}

DrawPlan::~DrawPlan() = default;

const absl::StatusOr<Program>& DrawPlan::ProgramOf(
    const std::shared_ptr<const Schedule>& schedule,
    const LowerOptions& options) {
  return programs_->Get(absl::StrCat(schedule->microbatches),
                        [&] { return Lower(schedule, options); });
}

absl::Status DrawPlan::Join(const Program& first, const Program& other) {
  const auto key = absl::StrCat(first.schedule->microbatches, " ",
                                other.schedule->microbatches);
  return joins_.Get(key, [&] {
    std::vector<int> class_of_replica(first.replicas, 0);
    class_of_replica.back() = 1;
    // Each has the noise of the draw that asked for it first.
    Program alike = other;
    alike.jitter = first.jitter;
    return JoinClasses({first, std::move(alike)}, std::move(class_of_replica))
        .status();
  });
}

absl::StatusOr<Program> LowerSequences(const PreparedRun& run, DrawPlan* plan) {
  const PreparedSequences& sequences = *run.sequences;
  DrawPlan alone;
  DrawPlan& shared = plan == nullptr ? alone : *plan;
  std::vector<const Program*> lowered;
  for (const std::shared_ptr<const Schedule>& own : sequences.schedules) {
    const auto& schedule = own != nullptr ? own : run.schedule.lowered;
    const absl::StatusOr<Program>& program =
        shared.ProgramOf(schedule, run.lower);
    PW_RETURN_IF_ERROR(program.status());
    lowered.push_back(&*program);
  }
  // Where classes of these numbers of microbatches have joined before, more of
  // them do: only their factors are other ones.
  bool joins = plan != nullptr;
  for (size_t index = 1; joins && index < lowered.size(); ++index) {
    joins = shared.Join(*lowered[0], *lowered[index]).ok();
  }
  if (!joins) {
    std::vector<Program> classes;
    for (size_t index = 0; index < lowered.size(); ++index) {
      classes.push_back(*lowered[index]);
      classes.back().jitter = run.lower.jitter;
      TakeFactors(sequences.classes[index], run.lower.costs, &classes.back());
    }
    return JoinClasses(std::move(classes), sequences.class_of_replica);
  }
  Program joined = *lowered[0];
  joined.jitter = run.lower.jitter;
  TakeFactors(sequences.classes[0], run.lower.costs, &joined);
  joined.more_classes.reserve(lowered.size() - 1);
  for (size_t index = 1; index < lowered.size(); ++index) {
    joined.more_classes.push_back(*lowered[index]);
    TakeFactors(sequences.classes[index], run.lower.costs,
                &joined.more_classes.back());
  }
  if (lowered.size() > 1) joined.class_of_replica = sequences.class_of_replica;
  return joined;
}

}  // namespace pipewright
