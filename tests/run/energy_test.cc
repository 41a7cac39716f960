// The energy of a step against the law of the clock and by hand.
#include <catch2/catch.hpp>

#include "sim/cost/analytic.h"
#include "sim/cost/clock.h"
#include "sim/cost/op_time.h"
#include "sim/run/simulated_run.h"

namespace pipewright::energy_test {
namespace {

RunConfig Estimated() {
  RunConfig config;
  config.engine = "fast";
  config.schedule.name = "1f1b";
  config.model.preset = "llama3-8b";
  config.system.preset = "dgx-h100";
  config.costs.analytic = true;
  config.strategy.pp = 4;
  config.strategy.tp = 2;
  config.strategy.dp = 1;
  config.strategy.sequence_parallel = true;
  config.strategy.microbatches = 16;
  return config;
}

SimulatedRun Simulated(const RunConfig& config, bool interval = false) {
  RunContext context;
  absl::StatusOr<SimulatedRun> run =
      Simulate(config, &context, {.interval = interval});
  INFO(run.status());
  REQUIRE(run.ok());
  return *std::move(run);
}

// A layer's times and energies on one H100.
struct Layer {
  double seconds = 0;  // computing
  double exchanging = 0;
  double joules = 0;
};
Layer LayerOf(bool sustained, int tp = 1, bool overlap = false) {
  RunConfig config = Estimated();
  config.strategy.tp = tp;
  config.strategy.pp = 1;
  config.strategy.sequence_parallel = tp > 1;
  config.strategy.overlap_tensor = overlap;
  const SimulatedRun run = Simulated(config);
  AnalyticOptions options = run.prepared.costs.prices->options();
  options.sustained = sustained;
  options.launch_s = 0;
  Layer layer;
  for (const OpTime& time : BlockTimes(run.prepared.prepared_model->spec,
                                       run.prepared.prepared_model->training,
                                       options, BlockKind::kDenseLayer, 0)) {
    for (int pass = 0; pass < kNumOpPasses; ++pass) {
      layer.seconds += time.seconds[pass];
      layer.exchanging += time.comm_seconds[pass];
      layer.joules += time.joules[pass];
    }
  }
  return layer;
}

// The clock is the largest at which the mean power is the board's, so a layer
// that is held draws just that; with the clock of the sheet it would draw more.
TEST_CASE("energy: a layer at the limit draws the board's power", "[run]") {
  const DeviceSpec h100 = *FindDevice("h100");
  const double limit = h100.board_watts - h100.idle_watts;
  const Layer held = LayerOf(true);
  CHECK(held.joules / held.seconds == Approx(limit).epsilon(1e-6));
  const Layer burst = LayerOf(false);
  CHECK(burst.seconds < held.seconds);
  CHECK(burst.joules / burst.seconds > 1.01 * limit);
}

TEST_CASE("energy: passes and idle power, by hand", "[run]") {
  const SimulatedRun run = Simulated(Estimated());
  const auto& energy = run.report.throughput->energy;
  REQUIRE(energy);
  const auto& costs = run.prepared.lower.costs;
  double passes = 0;
  for (const StageCosts& stage : costs.joules) {
    passes +=
        stage.forward_s + stage.backward_input_s + stage.backward_weight_s;
  }
  const double idle = run.prepared.costs.device->idle_watts;
  CHECK(energy->joules ==
        Approx(8 * idle * run.report.iteration_s + 2 * 16 * passes));
  CHECK(energy->watts_per_device ==
        Approx(energy->joules / 8 / run.report.iteration_s));
  CHECK(energy->watts_per_device < run.prepared.costs.device->board_watts);
  CHECK(energy->tokens_per_joule * energy->joules ==
        Approx(16.0 * run.prepared.prepared_model->training.sequence));
  // Nobody asked for an interval.
  CHECK(energy->low == 0);
}

TEST_CASE("energy: work that is done again is paid again", "[run]") {
  RunConfig config = Estimated();
  const double once = Simulated(config).report.throughput->energy->joules;
  config.strategy.recompute = Recompute::kFull;
  const double again = Simulated(config).report.throughput->energy->joules;
  CHECK(again > 1.2 * once);
  CHECK(again < 1.4 * once);
  // Two replicas of the same: twice as much.
  config = Estimated();
  config.system.nodes = 2;
  config.strategy.dp = 2;
  const SimulatedRun two = Simulated(config);
  CHECK(two.report.throughput->energy->joules > 1.95 * once);
  CHECK(two.report.throughput->energy->joules < 2.2 * once);
}

TEST_CASE("energy: the interval lies around the estimate", "[run]") {
  const SimulatedRun run = Simulated(Estimated(), true);
  const StepEnergy& energy = *run.report.throughput->energy;
  CHECK(energy.low > 0);
  CHECK(energy.low < energy.joules);
  CHECK(energy.high > energy.joules);
}

// What hides an exchange saves its time, not its bytes; cutting products into
// pieces copies a little besides.
TEST_CASE("energy: hidden exchanges draw what they move", "[run]") {
  const Layer alone = LayerOf(false, 8);
  const Layer hidden = LayerOf(false, 8, true);
  CHECK(hidden.exchanging < 0.7 * alone.exchanging);
  CHECK(hidden.joules >= alone.joules);
  CHECK(hidden.joules < 1.03 * alone.joules);
}

TEST_CASE("energy: none without a device's power or its times", "[run]") {
  RunConfig config = Estimated();
  // A short run has no limit of power, packed samples no microbatch alike.
  config.costs.analytic_clock = ClockRate::kBurst;
  CHECK_FALSE(Simulated(config).report.throughput->energy);
  config = Estimated();
  config.system.preset = "";
  config.system.preset.reset();
  config.costs.analytic_device = "l40s";
  config.strategy.tp = 1;
  config.strategy.sequence_parallel = false;
  CHECK_FALSE(Simulated(config).report.throughput->energy);
  RunConfig given;
  given.engine = "fast";
  given.schedule.name = "1f1b";
  given.strategy.pp = 4;
  given.strategy.microbatches = 8;
  given.costs.forward_s = 1;
  given.costs.backward_input_s = 1;
  given.costs.backward_weight_s = 1;
  const SimulatedRun run = Simulated(given);
  CHECK((!run.report.throughput || !run.report.throughput->energy));
}

}  // namespace
}  // namespace pipewright::energy_test
