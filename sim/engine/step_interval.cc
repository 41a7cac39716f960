#include "sim/engine/step_interval.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "sim/base/statistics.h"
#include "sim/base/status.h"
#include "sim/engine/fast_engine.h"
#include "sim/program/program.h"

namespace pipewright {
namespace {

constexpr double kLevel = 0.9;
// Draws of a step: as many as these passes make, within these limits. A long
// step needs few: its noise has averaged out, and Student's t counts them.
constexpr int64_t kDrawnPasses = 16384;
constexpr int64_t kLeastDraws = 4;
constexpr int64_t kMostDraws = 64;

struct Draws {
  double mean_s = 0;
  double half_s = 0;  // half of the 90 % interval of another one
};

class Prediction {
 public:
  Prediction(const Program& program, const PassCosts& costs,
             const StepErrors& errors)
      : plain_(program), costs_(costs), errors_(errors) {
    plain_.jitter = nullptr;
    plain_.interference = nullptr;
  }

  absl::StatusOr<StepInterval> Run(double iteration_s, bool noise_included) {
    PW_ASSIGN_OR_RETURN(const double step_s, Step(plain_));
    if (step_s <= 0) return StepInterval{iteration_s, iteration_s};
    Draws draws = {.mean_s = step_s};
    if (HasNoise()) {
      PW_ASSIGN_OR_RETURN(draws, Draw());
    }
    // Lengthens the passes alone: a step's optimizer and hops are no part of a
    // chain.
    std::vector<double> longer;
    for (const TimeSource& source : errors_.sources) {
      longer.push_back(
          source.optimizer || source.hop ? 0 : errors_.back_to_back - 1);
    }
    PW_ASSIGN_OR_RETURN(const double mixed_s, Step(Shifted(longer)));
    double squares[2] = {};  // what it may be less and more, squared
    for (const bool more : {false, true}) {
      const double sign = more ? 1 : -1;
      double& square = squares[more ? 1 : 0];
      square = draws.half_s * draws.half_s;
      std::vector<double> shifts;
      for (const TimeSource& source : errors_.sources) {
        shifts.push_back(sign * source.error.drift);
      }
      PW_ASSIGN_OR_RETURN(const double drifted_s, Step(Shifted(shifts)));
      square += (drifted_s - step_s) * (drifted_s - step_s);
      for (size_t index = 0; index < errors_.sources.size(); ++index) {
        if (errors_.sources[index].error.own <= 0) continue;
        std::fill(shifts.begin(), shifts.end(), 0);
        shifts[index] = sign * errors_.sources[index].error.own;
        PW_ASSIGN_OR_RETURN(const double moved_s, Step(Shifted(shifts)));
        square += (moved_s - step_s) * (moved_s - step_s);
      }
    }
    const double middle_s =
        noise_included ? iteration_s : iteration_s * draws.mean_s / step_s;
    const double unit = iteration_s / step_s;
    const double least_s = middle_s * std::min(1.0, mixed_s / step_s);
    const double most_s = middle_s * std::max(1.0, mixed_s / step_s);
    return StepInterval{std::max(0.0, least_s - unit * std::sqrt(squares[0])),
                        most_s + unit * std::sqrt(squares[1])};
  }

 private:
  static absl::StatusOr<double> Step(const Program& program) {
    PW_ASSIGN_OR_RETURN(const RunSummary run,
                        RunFast(program, EngineOptions()));
    return run.iteration_s();
  }

  // The program with each source's part longer by its shift.
  Program Shifted(const std::vector<double>& shifts) const {
    Program program = plain_;
    std::vector<DpClass*> classes = {&program};
    for (DpClass& other : program.more_classes) classes.push_back(&other);
    double optimizer = 0;
    double hop = 0;
    std::vector<std::array<double, kNumPassKinds>> more(costs_.stages.size());
    for (size_t index = 0; index < shifts.size(); ++index) {
      const TimeSource& source = errors_.sources[index];
      if (source.optimizer) optimizer += shifts[index];
      if (source.hop) hop += shifts[index];
      for (size_t stage = 0; stage < source.seconds.size(); ++stage) {
        for (int kind = 0; kind < kNumPassKinds; ++kind) {
          more[stage][kind] += shifts[index] * source.seconds[stage][kind];
        }
      }
    }
    for (DpClass* own : classes) {
      for (RankProgram& rank : own->ranks) Shift(more, optimizer, &rank);
    }
    program.network.hop_s = std::max(0.0, program.network.hop_s * (1 + hop));
    return program;
  }

  // `more`: seconds that [stage][kind] takes more.
  void Shift(const std::vector<std::array<double, kNumPassKinds>>& more,
             double optimizer, RankProgram* rank) const {
    for (size_t index = 0; index < rank->lanes.size(); ++index) {
      Lane& lane = rank->lanes[index];
      const PassKind kind = Pass::KindOf(index);
      if (lane.stage < 0 || !IsComputePass(kind)) continue;
      const double whole_s = costs_.Seconds(kind, lane.stage, 1);
      if (whole_s <= 0) continue;
      const double more_s = more[lane.stage][static_cast<int>(kind)];
      lane.seconds = std::max(0.0, lane.seconds * (1 + more_s / whole_s));
    }
    for (SideOp& op : rank->side_ops) {
      if (op.kind == OpKind::kOptimizer || op.kind == OpKind::kRollback) {
        op.seconds = std::max(0.0, op.seconds * (1 + optimizer));
      }
    }
  }

  bool HasNoise() const {
    const Jitter& noise = errors_.noise;
    if (noise.sigma > 0 || !noise.optimizer.empty()) return true;
    for (const auto& stage : noise.passes) {
      for (const std::vector<double>& quantiles : stage) {
        if (!quantiles.empty()) return true;
      }
    }
    return false;
  }

  // Periods of one long run; where an iteration is all there is, runs of one.
  absl::StatusOr<Draws> Draw() const {
    const int64_t passes =
        std::max<int64_t>(1, plain_.num_passes() * plain_.replicas);
    const auto count = static_cast<int>(
        std::clamp(kDrawnPasses / passes, kLeastDraws, kMostDraws));
    std::vector<double> steps_s;
    Program program = plain_;
    program.until_steady = false;
    const bool single = plain_.iterations == 1;
    const int runs = single ? count : 1;
    if (!single) program.iterations = plain_.settled() + 1 + count;
    for (int run = 0; run < runs; ++run) {
      Jitter noise = errors_.noise;
      noise.seed = static_cast<uint64_t>(run);
      program.jitter = std::make_shared<const Jitter>(std::move(noise));
      PW_ASSIGN_OR_RETURN(const RunSummary summary,
                          RunFast(program, EngineOptions()));
      const std::vector<double>& ends_s = summary.iteration_end_s;
      if (single) steps_s.push_back(ends_s[0]);
      for (size_t end = plain_.settled() + 1; end < ends_s.size(); ++end) {
        steps_s.push_back(ends_s[end] - ends_s[end - 1]);
      }
    }
    Draws draws;
    const auto drawn = static_cast<double>(steps_s.size());
    for (const double step_s : steps_s) draws.mean_s += step_s / drawn;
    double square = 0;
    for (const double step_s : steps_s) {
      square += (step_s - draws.mean_s) * (step_s - draws.mean_s);
    }
    draws.half_s = StudentT(kLevel, static_cast<int64_t>(steps_s.size()) - 1) *
                   std::sqrt(square / (drawn - 1) * (1 + 1 / drawn));
    return draws;
  }

  Program plain_;
  const PassCosts& costs_;
  const StepErrors& errors_;
};

}  // namespace

absl::StatusOr<StepInterval> PredictStep(const Program& program,
                                         const PassCosts& costs,
                                         const StepErrors& errors,
                                         double iteration_s) {
  return Prediction(program, costs, errors)
      .Run(iteration_s, program.jitter != nullptr);
}

}  // namespace pipewright
