#include "sim/run/step_prediction.h"

#include <cmath>

#include "sim/base/status.h"
#include "sim/cost/estimate_error.h"
#include "sim/cost/profile_costs.h"
#include "sim/program/program.h"

namespace pipewright {
namespace {

// As TakeRecomputePasses does with the times: R passes of the schedule are no
// part of the backward.
void TakeOutRecompute(std::vector<TimeSource>* sources) {
  bool any = false;
  const auto at = [](std::array<double, kNumPassKinds>& stage,
                     PassKind kind) -> double& {
    return stage[static_cast<int>(kind)];
  };
  for (TimeSource& source : *sources) {
    for (auto& stage : source.seconds) {
      const double again_s = at(stage, PassKind::kRecompute);
      any |= again_s > 0;
      at(stage, PassKind::kBackwardInput) -= again_s;
      at(stage, PassKind::kBackwardFull) -= again_s;
    }
  }
  if (any) return;
  for (TimeSource& source : *sources) {
    for (auto& stage : source.seconds) {
      at(stage, PassKind::kRecompute) = at(stage, PassKind::kForward);
    }
  }
}

// The factor of the layers. Of a schedule with both kinds of backward, it is
// the one further from 1.
double BackToBackIn(const PreparedRun& run, const Schedule& schedule) {
  double out = 1;
  const auto take = [&out](double ratio) {
    if (std::abs(std::log(ratio)) > std::abs(std::log(out))) out = ratio;
  };
  for (const ProfiledTime& time : run.costs.profile->costs.times) {
    if (!IsLayer(time.part) || time.pass != ProfilePass::kForward) continue;
    const BackToBack ratios = BackToBackOf(
        *run.costs.profile->profile, *time.nearest,
        run.prepared_model->training.recompute == Recompute::kFull);
    if (schedule.Has(PassKind::kBackwardWeight)) take(ratios.split);
    if (schedule.Has(PassKind::kBackwardFull)) take(ratios.fused);
  }
  return out;
}

}  // namespace

absl::StatusOr<std::optional<StepInterval>> PredictStepOf(
    const PreparedRun& run, const Program& program, double iteration_s) {
  if (run.costs.analytic) {
    const PreparedModel& model = *run.prepared_model;
    const RatioInterval ratio = EstimateError(*run.costs.prices, model.layout);
    return std::optional<StepInterval>(
        {ratio.low * iteration_s, ratio.high * iteration_s});
  }
  if (!run.costs.profile || !run.costs.profile->costs.error_unknown.empty()) {
    return std::optional<StepInterval>();
  }
  const ProfileCosts& measured = run.costs.profile->costs;
  StepErrors errors = {.sources = measured.sources, .noise = measured.jitter};
  const Schedule& schedule = *program.schedule;
  if (schedule.Has(PassKind::kRecompute)) TakeOutRecompute(&errors.sources);
  errors.back_to_back = BackToBackIn(run, schedule);
  if (run.network.measured_hop) {
    const std::optional<TimeError> hop =
        HopError(*run.costs.profile->profile, run.lower.hop_bytes);
    if (!hop) return std::optional<StepInterval>();
    errors.sources.push_back({.name = "hop", .error = *hop, .hop = true});
  }
  if (run.config.costs.optimizer_s) {
    // Given, so taken as exact.
    for (TimeSource& source : errors.sources) {
      if (source.optimizer) source.error = {};
    }
    errors.noise.optimizer.clear();
  }
  PW_ASSIGN_OR_RETURN(
      const StepInterval interval,
      PredictStep(program, run.lower.costs, errors, iteration_s));
  return std::optional<StepInterval>(interval);
}

}  // namespace pipewright
