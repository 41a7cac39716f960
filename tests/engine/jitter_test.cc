// Durations that are drawn: the same draws in every engine, and means that
// say how well they are known.
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>

#include "sim/engine/fast_engine.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/report/report.h"
#include "tests/support/json.h"
#include "tests/support/lowering.h"
#include "tests/support/random_program.h"

namespace pipewright::jitter_test {
namespace {

constexpr double kSame = 1e-9;  // relative (docs/architecture.md, Tests)

std::shared_ptr<Jitter> Noise(uint64_t seed, double sigma) {
  auto jitter = std::make_shared<Jitter>();
  jitter->seed = seed;
  jitter->sigma = sigma;
  return jitter;
}

Program Noisy(std::shared_ptr<const Jitter> jitter, int iterations = 0) {
  const auto schedule = Registered("zb-h1", 4, 8);
  LowerOptions options;
  options.costs = CostsOf(
      *schedule, {.forward = 3, .backward_input = 5, .backward_weight = 7});
  options.costs.optimizer_s = 2;
  options.optimizer = OptimizerMode::kSynchronised;
  options.network.hop_s = 0.5;
  options.jitter = std::move(jitter);
  options.iterations = iterations;
  return Lowered(schedule, options);
}

RunSummary Fast(const Program& program) {
  const auto run = RunFast(program, {});
  REQUIRE(run.ok());
  return *run;
}

TEST_CASE("jitter: both engines draw the same times", "[engine]") {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    RandomOptions random;
    random.cluster = false;
    absl::StatusOr<RandomProgram> made = MakeRandomProgram(seed, random);
    if (!made.ok()) continue;
    INFO(made->about);
    made->program.jitter = Noise(seed, 0.2);
    made->program.until_steady = false;
    made->program.iterations = 3;
    const auto fast = RunFast(made->program, {});
    const auto simgrid = RunSimgrid(made->program, {});
    REQUIRE(fast.ok() == simgrid.ok());
    if (!fast.ok()) continue;
    REQUIRE(fast->iterations() == simgrid->iterations());
    for (int iteration = 0; iteration < fast->iterations(); ++iteration) {
      CHECK(simgrid->iteration_end_s[iteration] ==
            Approx(fast->iteration_end_s[iteration]).epsilon(kSame));
    }
    for (size_t rank = 0; rank < fast->times[0].size(); ++rank) {
      CHECK(simgrid->times[0][rank].busy_s ==
            Approx(fast->times[0][rank].busy_s).epsilon(kSame));
    }
  }
}

TEST_CASE("jitter: a seed is a run, another seed another", "[engine]") {
  const RunSummary one = Fast(Noisy(Noise(1, 0.05)));
  const RunSummary same = Fast(Noisy(Noise(1, 0.05)));
  const RunSummary other = Fast(Noisy(Noise(2, 0.05)));
  CHECK(one.iteration_end_s == same.iteration_end_s);
  CHECK(one.iteration_end_s != other.iteration_end_s);
  // None of them repeats, so all are run.
  CHECK(one.iterations() == 8);
  CHECK_FALSE(one.steady);
}

TEST_CASE("jitter: quantiles without width change nothing", "[engine]") {
  auto still = std::make_shared<Jitter>();
  still->passes.resize(4);
  for (auto& stage : still->passes) stage.fill({1, 1, 1});
  still->optimizer = {1, 1};
  const RunSummary drawn = Fast(Noisy(still, 4));
  const RunSummary plain = Fast(Noisy(nullptr, 4));
  REQUIRE(drawn.iterations() == plain.iterations());
  for (int iteration = 0; iteration < 4; ++iteration) {
    CHECK(drawn.iteration_end_s[iteration] ==
          Approx(plain.iteration_end_s[iteration]).epsilon(kSame));
  }
  // Every factor 2: twice the time of whatever is no hop.
  for (auto& stage : still->passes) stage.fill({2, 2});
  const RunSummary twice = Fast(Noisy(still, 4));
  CHECK(twice.times[0][0].busy_s ==
        Approx(2 * plain.times[0][0].busy_s).epsilon(kSame));
}

TEST_CASE("jitter: the report gives the mean and its interval", "[engine]") {
  const Program program = Noisy(Noise(3, 0.05), 5);
  RunSummary run = Fast(program);
  const Report report = Summarize(program, run, {});
  REQUIRE(report.jitter);
  REQUIRE(report.jitter->periods_s.size() == 4);
  CHECK(report.iteration_s ==
        Approx((run.iteration_end_s[4] - run.iteration_end_s[0]) / 4));
  REQUIRE(report.jitter->interval);
  CHECK(report.jitter->interval->low_s < report.iteration_s);
  CHECK(report.jitter->interval->high_s > report.iteration_s);
  // By hand: periods 1, 2, 3 have mean 2, deviation 1, and t 4.303.
  run.iteration_end_s = {5, 6, 8, 11};
  const JitterReport hand = ReportJitter(run, 0);
  CHECK(hand.mean_s == Approx(2));
  REQUIRE(hand.interval);
  CHECK(hand.interval->high_s - hand.mean_s ==
        Approx(4.302653 / std::sqrt(3.0)));
  // Forty periods: 2.023, not the normal distribution's 1.960.
  run.iteration_end_s = {0};
  for (int period = 0; period < 40; ++period) {
    run.iteration_end_s.push_back(run.iteration_end_s.back() + 1 + period % 2);
  }
  const JitterReport many = ReportJitter(run, 0);
  CHECK(many.interval->high_s - many.mean_s ==
        Approx(2.022691 * 0.5 / std::sqrt(39.0)));
}

TEST_CASE("jitter: one period has no interval", "[engine]") {
  for (const int iterations : {1, 2}) {
    const Program program = Noisy(Noise(3, 0.05), iterations);
    const Report report = Summarize(program, Fast(program), {});
    REQUIRE(report.jitter);
    CHECK(!report.jitter->interval);
    const auto json = testing::Json::parse(ReportToJson(report))["jitter"];
    CHECK(json["iteration_s_low"].is_null());
    CHECK(json["iteration_s_high"].is_null());
    CHECK(json["periods_s"].size() == 1);
    CHECK(PeriodNote(report).find("no interval") != std::string::npos);
  }
}

}  // namespace
}  // namespace pipewright::jitter_test
