// The interval of a step: what averages out, what does not, and how many
// made-up steps lie inside.
#include "sim/engine/step_interval.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "sim/engine/fast_engine.h"
#include "sim/program/program.h"
#include "tests/support/lowering.h"

namespace pipewright::step_interval_test {
namespace {

struct Case {
  PassCosts costs;
  Program program;
  StepErrors errors;

  double Step() const { return RunFast(program, {})->iteration_s(); }
  StepInterval Interval() const {
    return PredictStep(program, costs, errors, Step()).value();
  }
  double Width() const {
    const StepInterval interval = Interval();
    return (interval.high_s - interval.low_s) / Step();
  }
};

// ZB-H1 of F 3, B 5, W 7 and an optimizer step, a source each, F slower by
// `factors[0]` and so on.
Case Make(int microbatches, TimeError error,
          const std::vector<double>& factors = {1, 1, 1, 1}) {
  Case out;
  const auto schedule = Registered("zb-h1", 4, microbatches);
  out.costs = CostsOf(*schedule, {.forward = 3 * factors[0],
                                  .backward_input = 5 * factors[1],
                                  .backward_weight = 7 * factors[2]});
  out.costs.optimizer_s = 2 * factors[3];
  LowerOptions options;
  options.costs = out.costs;
  options.optimizer = OptimizerMode::kSynchronised;
  options.network.hop_s = 0.5;
  out.program = Lowered(schedule, options);
  for (const PassKind kind : {PassKind::kForward, PassKind::kBackwardInput,
                              PassKind::kBackwardWeight}) {
    TimeSource& source = out.errors.sources.emplace_back();
    source.name = std::string(PassKindName(kind));
    source.error = error;
    source.seconds.resize(out.costs.stages.size());
    for (size_t stage = 0; stage < source.seconds.size(); ++stage) {
      source.seconds[stage][static_cast<int>(kind)] =
          out.costs.Seconds(kind, static_cast<int>(stage), 1);
    }
  }
  out.errors.sources.push_back(
      {.name = "optimizer", .error = error, .optimizer = true});
  return out;
}

TEST_CASE("interval: without errors and noise it is the step", "[engine]") {
  const Case still = Make(8, {});
  CHECK(still.Interval().low_s == still.Step());
  CHECK(still.Interval().high_s == still.Step());
  // Quantiles without width are no noise either.
  Case drawn = still;
  drawn.errors.noise.passes.resize(4);
  for (auto& stage : drawn.errors.noise.passes) stage.fill({1, 1, 1});
  CHECK(drawn.Interval().low_s == Approx(still.Step()).epsilon(1e-12));
  CHECK(drawn.Interval().high_s == Approx(still.Step()).epsilon(1e-12));
}

TEST_CASE("interval: a drift of all passes lies inside where it is kept",
          "[engine]") {
  const Case drifting = Make(8, {.drift = 0.06});
  for (const double factor : {0.95, 1.05}) {
    const double slower = Make(8, {}, std::vector<double>(4, factor)).Step();
    CHECK(slower > drifting.Interval().low_s);
    CHECK(slower < drifting.Interval().high_s);
    // The same errors as if each had its own cause.
    const StepInterval averaged = Make(8, {.own = 0.06}).Interval();
    CHECK((slower < averaged.low_s || slower > averaged.high_s));
  }
  // All that is measured moves by 6 %, the hops do not.
  const double up = drifting.Interval().high_s / drifting.Step() - 1;
  CHECK(up < 0.06);
  CHECK(up > 0.055);
  // As noise of single passes the same 6 % would be lost among them.
  Case noisy = Make(8, {});
  noisy.errors.noise.sigma = 0.06 / 1.6449;
  CHECK(noisy.Width() < drifting.Width() / 2);
}

TEST_CASE("interval: noise averages out over passes, drift does not",
          "[engine]") {
  const auto noisy = [](int microbatches) {
    Case out = Make(microbatches, {});
    out.errors.noise.sigma = 0.1;
    return out;
  };
  // Four times the passes, half the width.
  double before = 1;
  for (const int microbatches : {8, 32, 128}) {
    const double width = noisy(microbatches).Width();
    CHECK(width > 0.3 * (before == 1 ? 0 : before));
    CHECK(width < 0.75 * before);
    before = width;
  }
  CHECK(Make(128, {.drift = 0.05}).Width() >
        0.95 * Make(8, {.drift = 0.05}).Width());
  // Whoever waits for several waits for the slowest.
  const StepInterval interval = noisy(64).Interval();
  CHECK((interval.low_s + interval.high_s) / 2 > noisy(64).Step());
}

TEST_CASE("interval: larger errors make no end of it nearer", "[engine]") {
  const auto wider = [](const Case& less, const Case& more) {
    CHECK(more.Interval().low_s < less.Interval().low_s);
    CHECK(more.Interval().high_s > less.Interval().high_s);
  };
  wider(Make(8, {}), Make(8, {.own = 0.01}));
  wider(Make(8, {.own = 0.01}), Make(8, {.own = 0.03}));
  wider(Make(8, {.own = 0.01}), Make(8, {.drift = 0.01, .own = 0.01}));
  wider(Make(8, {.drift = 0.01}), Make(8, {.drift = 0.04}));
  const auto noisy = [](double sigma) {
    Case out = Make(8, {.drift = 0.02});
    out.errors.noise.sigma = sigma;
    return out.Width();
  };
  CHECK(noisy(0.02) > noisy(0));
  CHECK(noisy(0.05) > noisy(0.02));
  // A source that the schedule does not run adds nothing.
  Case idle = Make(8, {.drift = 0.01});
  idle.errors.sources.push_back(
      {.name = "BW", .error = {.drift = 1, .own = 1}});
  idle.errors.sources.back().seconds.resize(4);
  for (auto& stage : idle.errors.sources.back().seconds) {
    stage[static_cast<int>(PassKind::kBackwardFull)] = 12;
  }
  CHECK(idle.Width() == Make(8, {.drift = 0.01}).Width());
  // A hop that was measured does.
  Case hop = Make(8, {});
  hop.errors.sources.push_back(
      {.name = "hop", .error = {.drift = 0.5}, .hop = true});
  wider(Make(8, {}), hop);
}

TEST_CASE("interval: it reaches to the passes back to back", "[engine]") {
  for (const double ratio : {0.96, 1.03}) {
    Case mixed = Make(8, {.drift = 0.02});
    const StepInterval apart = mixed.Interval();
    mixed.errors.back_to_back = ratio;
    const StepInterval interval = mixed.Interval();
    // All passes as in chains, the optimizer as it was.
    const double step =
        Make(8, {}, {ratio, ratio, ratio, 1}).Step() - mixed.Step();
    if (ratio < 1) {
      CHECK(interval.low_s == Approx(apart.low_s + step));
      CHECK(interval.high_s == apart.high_s);
    } else {
      CHECK(interval.low_s == apart.low_s);
      CHECK(interval.high_s == Approx(apart.high_s + step));
    }
  }
}

TEST_CASE("interval: what an engine makes of links grows with the rest",
          "[engine]") {
  const Case drifting = Make(8, {.drift = 0.06});
  const double step_s = drifting.Step();
  const StepInterval twice =
      PredictStep(drifting.program, drifting.costs, drifting.errors, 2 * step_s)
          .value();
  CHECK(twice.low_s == Approx(2 * drifting.Interval().low_s));
  CHECK(twice.high_s == Approx(2 * drifting.Interval().high_s));
}

// Each step with a drift, errors of its own and noise drawn anew.
TEST_CASE("interval: 85 to 95 percent of made-up steps lie inside",
          "[engine]") {
  constexpr double kTo90 = 1.6449;
  struct Mix {
    TimeError error;
    double sigma;
  };
  for (const Mix& mix :
       {Mix{{.drift = 0.03, .own = 0.02}, 0.05},
        Mix{{.drift = 0.05, .own = 0}, 0}, Mix{{.drift = 0, .own = 0.04}, 0.02},
        Mix{{.drift = 0, .own = 0}, 0.1}}) {
    Case predicted = Make(16, mix.error);
    predicted.errors.noise.sigma = mix.sigma;
    const StepInterval interval = predicted.Interval();
    constexpr int kSteps = 400;
    int inside = 0;
    for (int step = 0; step < kSteps; ++step) {
      const auto normal = [&](int source) {
        return NormalQuantile(UniformDraw(11, step, source, 0));
      };
      const double drift = mix.error.drift / kTo90 * normal(0);
      std::vector<double> factors;
      for (int source = 1; source <= 4; ++source) {
        factors.push_back(1 + drift + mix.error.own / kTo90 * normal(source));
      }
      Case executed = Make(16, {}, factors);
      if (mix.sigma > 0) {
        auto noise = std::make_shared<Jitter>();
        noise->seed = 1000 + step;
        noise->sigma = mix.sigma;
        executed.program.jitter = noise;
        executed.program.until_steady = false;
        executed.program.iterations = 2;
      }
      const double step_s = executed.Step();
      inside += step_s >= interval.low_s && step_s <= interval.high_s ? 1 : 0;
    }
    INFO("drift " << mix.error.drift << " own " << mix.error.own << " noise "
                  << mix.sigma);
    CHECK(inside >= 0.85 * kSteps);
    CHECK(inside <= 0.95 * kSteps);
  }
}

}  // namespace
}  // namespace pipewright::step_interval_test
