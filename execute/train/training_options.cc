// What follows from a program for those who train under it and for the
// sequential run.
#include <algorithm>
#include <cmath>

#include "execute/train/training.h"
#include "execute/train/units.h"
#include "sim/memory/activations.h"
#include "sim/program/program.h"

namespace pipewright {
namespace {

// More are held against the sequential run by their losses only: gradients and
// weights of every step are twice the model's size each, here and there.
constexpr int kMostStepsInFull = 3;

}  // namespace

WorkerOptions WorkerOptionsFor(const Program& program, DataParallel mode,
                               OptimizerMode optimizer,
                               const OptimizerOffload& offload) {
  WorkerOptions options;
  options.offload = offload;
  options.sharded_step = TraitsOf(mode).shards_step && program.replicas > 1;
  options.synchronised = optimizer == OptimizerMode::kSynchronised;
  options.post_validated = optimizer == OptimizerMode::kPostValidated;
  for (int iteration = 0; iteration < program.iterations; ++iteration) {
    if (program.iterations > kMostStepsInFull && iteration > 0 &&
        iteration + 1 < program.iterations) {
      continue;
    }
    options.snapshot_iterations.push_back(iteration);
  }
  return options;
}

HostSubgroupCounts CountHostSubgroups(const Schedule& schedule,
                                      const OptimizerOffload& offload, int rank,
                                      int shards) {
  const SubgroupPlan plan = PlanOf(schedule, offload, rank);
  HostSubgroupCounts counts;
  counts.parameters = std::llround(ParametersOf(schedule, offload, rank));
  counts.held = counts.parameters * shards;
  counts.subgroups = std::ssize(plan.steps);
  counts.residents = plan.Count(SubgroupStep::kResident);
  for (size_t index = 0; index < plan.steps.size(); ++index) {
    if (plan.steps[index] != SubgroupStep::kDevice) continue;
    counts.visitors.push_back(static_cast<int64_t>(index));
  }
  counts.early = offload.placement == OptimizerPlacement::kSuperOffload;
  return counts;
}

// True if two stages of one rank add to a table in order: the head first, then
// the embedding, slice by slice.
bool SameTableOrder(const Program& program) {
  const Schedule& schedule = *program.schedule;
  const int rank = schedule.placement.RankOf(0, 0);
  const int last = schedule.stages() - 1;
  if (last == 0 || schedule.placement.RankOf(last, 0) != rank) return true;
  int heads = 0;
  for (const Pass pass : schedule.order(rank)) {
    if (pass.kind() != PassKind::kBackwardWeight &&
        pass.kind() != PassKind::kBackwardFull) {
      continue;
    }
    const int stage = schedule.placement.StageOf(rank, pass.chunk(), 0);
    if (stage == last) ++heads;
    if (stage == 0) --heads;
    if (heads < 0 || heads > 1) return false;
  }
  return true;
}

bool SameGradientOrder(const Program& program) {
  const Schedule& schedule = *program.schedule;
  if (program.replicas > 1 || schedule.directions > 1) return false;
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    // Checks the order of weights, then of norms' gains.
    for (const bool weights : {true, false}) {
      std::vector<int64_t> last(schedule.vpp(), -1);
      for (const Pass pass : schedule.order(rank)) {
        const bool counts = weights
                                ? pass.kind() == PassKind::kBackwardWeight ||
                                      pass.kind() == PassKind::kBackwardFull
                                : IsBackward(pass.kind());
        if (!counts) continue;
        const int64_t place = int64_t{pass.microbatch()} * schedule.slices +
                              (schedule.slices - 1 - pass.slice());
        if (place < last[pass.chunk()]) return false;
        last[pass.chunk()] = place;
      }
    }
  }
  return true;
}

void SetWeightVersions(const Schedule& schedule, ExecutedModel* model) {
  // A step a backward: predicted weights lie beside the newest.
  if (schedule.update_every != schedule.microbatches) return;
  model->keeps_versions = true;
  // The same on all ranks.
  model->weight_delay = WeightVersionsOf(schedule).staleness[0];
}

void TieTable(const Schedule& schedule, ExecutedModel* model) {
  model->shape.tied = 1;
  model->copies_table = schedule.placement.RankOf(0, 0) !=
                        schedule.placement.RankOf(schedule.stages() - 1, 0);
}

SequentialOptions SequentialOptionsFor(const Program& program,
                                       const WorkerOptions& options) {
  const Schedule& schedule = *program.schedule;
  const bool unflushed = schedule.update_every > 0;
  SequentialOptions sequential = {
      .iterations = program.iterations,
      .microbatches = static_cast<int>(StepMicrobatches(program).all),
      .optimizer = options.synchronised || options.post_validated || unflushed,
      .clips = options.synchronised,
      .kept = options.snapshot_iterations};
  if (unflushed) {
    const WeightVersions versions = WeightVersionsOf(schedule);
    for (int stage = 0; stage < schedule.stages(); ++stage) {
      sequential.behind.push_back(
          versions.staleness[schedule.placement.RankOf(stage, 0)]);
    }
    if (schedule.update_every < schedule.microbatches) {
      sequential.update_every = schedule.update_every * program.replicas;
      sequential.predicts = true;
    }
  }
  // In the order in which a rank goes through them.
  const Units units(program);
  for (int rank = 0; rank < program.pp(); ++rank) {
    sequential.norm_groups.push_back(units.OfRank(rank, 0));
  }
  return sequential;
}

}  // namespace pipewright
