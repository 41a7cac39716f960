// Runs with lengths: times by hand from the packing, refusals, many draws.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/base/status.h"
#include "sim/config/prepare.h"
#include "sim/model/minibatch_time.h"
#include "sim/program/program.h"
#include "sim/run/monte_carlo.h"
#include "sim/run/simulated_run.h"

namespace pipewright::sequences_run_test {
namespace {

RunConfig ConfigOf(const std::string& strategy, const std::string& sequences,
                   const std::string& more = "") {
  const std::string yaml = absl::StrCat(
      "schedule: {name: gpipe}\n"
      "costs: {uniform: {forward: 1s, backward_input: 1s, "
      "backward_weight: 1s}, p2p: 0s, gradient_bytes: 1GiB",
      more, "}\nengine: fast\nstrategy: {pp: 1, ", strategy, "}\nsequences: {",
      sequences, "}\n");
  const absl::StatusOr<RunConfig> config = ReadConfig(yaml, "a.yaml");
  INFO(config.status().message());
  REQUIRE(config.ok());
  return *config;
}

SimulatedRun RunOf(const RunConfig& config) {
  RunContext context;
  absl::StatusOr<SimulatedRun> run = Simulate(config, &context);
  INFO(run.status().message());
  REQUIRE(run.ok());
  return *std::move(run);
}

// [replica] sum of tokens over max_token_len, from the packing itself.
std::vector<double> LoadsOf(const PreparedSequences& sequences) {
  std::vector<double> loads;
  for (const Parts& microbatches : sequences.packing) {
    double tokens = 0;
    for (const SampleSet& samples : microbatches) {
      for (const int sample : samples) {
        tokens += static_cast<double>(sequences.request.lengths[sample]);
      }
    }
    loads.push_back(tokens / static_cast<double>(sequences.base_sequence));
  }
  return loads;
}

TEST_CASE("sequences: a step takes what the slowest replica's tokens take",
          "[sequences]") {
  for (const char* packer :
       {"none", "local-sort", "lb-micro", "lb-mini", "lb-mini-bfd", "ffd"}) {
    INFO(packer);
    const SimulatedRun run = RunOf(ConfigOf(
        "dp: 4, data_parallel: ddp",
        absl::StrCat("lengths: longalign, minibatch: 4, packer: ", packer)));
    REQUIRE(run.prepared.sequences.has_value());
    const std::vector<double> loads = LoadsOf(*run.prepared.sequences);
    // F, B and W of 1 s each for 65536 tokens.
    const double slowest = *std::max_element(loads.begin(), loads.end());
    CHECK(run.report.iteration_s == Approx(3 * slowest).epsilon(1e-9));
    CHECK(run.prepared.sequences->base_sequence == 65536);
    CHECK(run.program->replicas == 4);
    REQUIRE(run.report.sequences.has_value());
    CHECK(run.report.sequences->samples == 16);
    CHECK(*run.prepared.tokens == run.report.sequences->tokens);
    CHECK(std::accumulate(loads.begin(), loads.end(), 0.0) * 65536 ==
          Approx(static_cast<double>(run.report.sequences->tokens)));
  }
}

TEST_CASE("sequences: fsdp meets at every microbatch, ddp once a step",
          "[sequences]") {
  for (const char* packer : {"local-sort", "lb-micro"}) {
    const std::string sequences = absl::StrCat(
        "lengths: longalign, minibatch: 4, packer_cost: fit, packer: ", packer);
    const SimulatedRun ddp =
        RunOf(ConfigOf("dp: 8, data_parallel: ddp", sequences));
    const SimulatedRun fsdp = RunOf(ConfigOf(
        "dp: 8, data_parallel: fsdp, optimizer: synchronised", sequences));
    MicrobatchTimes times;
    for (const int index : ddp.prepared.sequences->class_of_replica) {
      times.push_back(ddp.prepared.sequences->classes[index].forward);
    }
    const MinibatchTime time = TimeOf(times);
    INFO(packer);
    CHECK(ddp.report.iteration_s == Approx(3 * time.one_sided_s));
    CHECK(fsdp.report.iteration_s >= ddp.report.iteration_s * (1 - 1e-12));
    CHECK(fsdp.report.iteration_s <= 3 * time.lockstep_s * (1 + 1e-9));
    CHECK(time.lockstep_s > time.one_sided_s);
  }
}

TEST_CASE("sequences: unequal numbers deadlock with collectives",
          "[sequences]") {
  for (const char* mode : {"zero2", "fsdp"}) {
    for (const char* packer : {"lb-mini", "lb-mini-bfd", "ffd"}) {
      INFO(mode << " " << packer);
      const auto status =
          Prepare(ConfigOf(
                      absl::StrCat("dp: 4, data_parallel: ", mode),
                      absl::StrCat("lengths: longalign, minibatch: 4, packer: ",
                                   packer)))
              .status();
      CHECK(ExitCode(status) == 4);
      CHECK(absl::StrContains(status.message(), "deadlocks"));
      CHECK(absl::StrContains(status.message(), packer));
      CHECK(absl::StrContains(status.message(), mode));
    }
  }
  CHECK(Prepare(ConfigOf("dp: 1, data_parallel: fsdp",
                         "lengths: longalign, minibatch: 4, packer: lb-mini"))
            .ok());
}

TEST_CASE("sequences: bad input is refused with its field", "[sequences]") {
  struct Bad {
    std::string strategy;
    std::string sequences;
    std::vector<std::string> words;
  };
  const std::string lengths = "lengths: longalign, minibatch: 4";
  for (const Bad& bad : std::vector<Bad>{
           {"dp: 2", "lengths: longalign", {"sequences.minibatch", "missing"}},
           {"dp: 2",
            "lengths: /nowhere/a.csv, minibatch: 2",
            {"sequences.lengths", "/nowhere/a.csv"}},
           {"dp: 2",
            "lengths: 'constant:0', minibatch: 2",
            {"sequences.lengths", "constant:0"}},
           {"dp: 2",
            "histogram: [9], minibatch: 2",
            {"sequences.histogram", "'9'"}},
           {"dp: 2",
            absl::StrCat(lengths, ", max_token_len: 100"),
            {"sequences.max_token_len", "sample 0", "tokens"}},
           {"dp: 2, microbatches: 5",
            lengths,
            {"strategy.microbatches", "5 microbatches", "4 samples"}},
           {"dp: 2, slices: 2", lengths, {"strategy.slices", "2"}},
           {"dp: 2",
            absl::StrCat(lengths, ", packer_cost: flops"),
            {"sequences.packer_cost", "flops", "model"}},
           {"dp: 65536",
            "lengths: longalign, minibatch: 100",
            {"sequences.minibatch", "samples"}}}) {
    INFO(bad.strategy << " | " << bad.sequences);
    const auto status = Prepare(ConfigOf(bad.strategy, bad.sequences)).status();
    INFO(status.message());
    CHECK(ExitCode(status) == 2);
    for (const std::string& word : bad.words) {
      CHECK(absl::StrContains(status.message(), word));
    }
  }
}

MonteCarlo DrawsOf(std::vector<NamedConfig> strategies, int draws,
                   int threads) {
  RunContext context;
  absl::StatusOr<MonteCarlo> result =
      RunMonteCarlo(std::move(strategies), draws, threads, &context);
  INFO(result.status().message());
  REQUIRE(result.ok());
  return *std::move(result);
}

TEST_CASE("draws: the same for every number of threads", "[sequences]") {
  const RunConfig config =
      ConfigOf("dp: 4, data_parallel: ddp",
               "lengths: longalign, minibatch: 4, packer: lb-mini, seed: 3",
               ", jitter: 3%, seed: 5");
  const MonteCarlo one = DrawsOf({{"a", config}}, 40, 1);
  for (const int threads : {2, 3, 8}) {
    const MonteCarlo many = DrawsOf({{"a", config}}, 40, threads);
    CHECK(many.strategies[0].iterations_s == one.strategies[0].iterations_s);
  }
  CHECK(one.seed == 3);
  // Draw 2 is the run with both seeds 2 further on.
  const SimulatedRun alone = RunOf(
      ConfigOf("dp: 4, data_parallel: ddp",
               "lengths: longalign, minibatch: 4, packer: lb-mini, seed: 5",
               ", jitter: 3%, seed: 7}\niterations: 2\n#"));
  CHECK(alone.report.iteration_s == one.strategies[0].iterations_s[2]);
  std::vector<double> sorted = one.strategies[0].iterations_s;
  std::sort(sorted.begin(), sorted.end());
  CHECK(sorted.front() < sorted.back());
}

TEST_CASE("draws: mean and quantiles by hand", "[sequences]") {
  std::vector<double> draws;
  for (int draw = 100; draw >= 0; --draw) draws.push_back(draw);
  const SeedSample sample = SummarizeDraws("a", draws);
  CHECK(sample.mean_s == Approx(50));
  CHECK(sample.p5_s == Approx(5));
  CHECK(sample.p50_s == Approx(50));
  CHECK(sample.p95_s == Approx(95));
  // 0..100: variance 101 * 102 / 12, of the mean of 101.
  CHECK(sample.error_s == Approx(std::sqrt(102.0 / 12)));
}

TEST_CASE("draws: strategies meet the same data", "[sequences]") {
  const auto named = [](const char* packer) {
    return NamedConfig{
        packer, ConfigOf("dp: 8, data_parallel: ddp",
                         absl::StrCat("lengths: longalign, minibatch: 4, "
                                      "packer_cost: fit, packer: ",
                                      packer))};
  };
  const MonteCarlo result =
      DrawsOf({named("lb-micro"), named("lb-mini"), named("lb-micro")}, 60, 2);
  REQUIRE(result.tests.size() == 3);
  // LB-Mini is faster; the same strategy twice is the same to the last bit.
  CHECK(result.tests[0].significant);
  CHECK(result.tests[0].difference < 0);
  CHECK(result.tests[1].difference == 0);
  CHECK(result.tests[1].p == 1);
  CHECK(!result.tests[1].significant);
  CHECK(result.tests[2].difference == -result.tests[0].difference);
  CHECK(absl::StrContains(MonteCarloToText(result), "lb-mini is faster"));
}

TEST_CASE("draws: a draw that fails is named, the first one", "[sequences]") {
  // Some draw has a sample above the limit.
  const RunConfig config = ConfigOf(
      "dp: 2", "lengths: longalign, minibatch: 2, max_token_len: 60000");
  std::string first;
  for (const int threads : {1, 2, 4}) {
    RunContext context;
    const auto result = RunMonteCarlo({{"a", config}}, 200, threads, &context);
    REQUIRE(!result.ok());
    CHECK(ExitCode(result.status()) == 2);
    CHECK(absl::StrContains(result.status().message(), "draw "));
    if (first.empty()) first = std::string(result.status().message());
    CHECK(first == result.status().message());
  }
}

TEST_CASE("draws: paired t of numbers with a known answer", "[sequences]") {
  // Student 1908: extra hours of sleep by two drugs; t = 4.0621, p = 0.002833.
  const std::vector<double> first = {0.7, -1.6, -0.2, -1.2, -0.1,
                                     3.4, 3.7,  0.8,  0.0,  2.0};
  const std::vector<double> second = {1.9, 0.8, 1.1, 0.1, -0.1,
                                      4.4, 5.5, 1.6, 4.6, 3.4};
  const std::vector<PairedTest> tests = TestPairs({first, second});
  REQUIRE(tests.size() == 1);
  CHECK(tests[0].difference == Approx(1.58));
  CHECK(tests[0].t == Approx(4.0621).epsilon(1e-4));
  CHECK(tests[0].p == Approx(0.002833).epsilon(1e-3));
  CHECK(tests[0].significant);
  // Its 95 % interval: 0.7001 to 2.4599.
  CHECK(tests[0].difference - tests[0].half == Approx(0.7001).epsilon(1e-3));
}

TEST_CASE("draws: several pairs are judged by Holm's rule", "[sequences]") {
  // Differences against the first by noise of +-1 around a shift; with three
  // pairs the smallest p has to be below 0.05 / 3.
  std::vector<std::vector<double>> samples(3);
  for (int draw = 0; draw < 20; ++draw) {
    samples[0].push_back(100);
    samples[1].push_back(100 + (draw % 2 == 0 ? 1.0 : -0.05));
    samples[2].push_back(100 + (draw % 2 == 0 ? 1.0 : -0.62));
  }
  const std::vector<PairedTest> alone = TestPairs({samples[0], samples[2]});
  const std::vector<PairedTest> three = TestPairs(samples);
  REQUIRE(three.size() == 3);
  CHECK(three[1].p == alone[0].p);
  CHECK(three[0].significant);
  for (const PairedTest& test : three) {
    const bool below = test.p <= 0.05 / 3;
    if (below) CHECK(test.significant);
    if (test.p > 0.05) CHECK(!test.significant);
  }
}

// Strategies that differ by noise alone: the share of false claims is the
// level's.
TEST_CASE("draws: equal strategies are called different 5 % of the time",
          "[sequences]") {
  int claims = 0;
  uint64_t state = 1;
  const auto noise = [&state] {
    double sum = 0;
    for (int part = 0; part < 12; ++part) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      sum += static_cast<double>(state >> 11) * 0x1p-53;
    }
    return sum - 6;
  };
  constexpr int kTrials = 2000;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<std::vector<double>> samples(2);
    for (int draw = 0; draw < 12; ++draw) {
      const double common = noise();
      samples[0].push_back(common + 0.3 * noise());
      samples[1].push_back(common + 0.3 * noise());
    }
    claims += TestPairs(samples)[0].significant ? 1 : 0;
  }
  CHECK(claims > 0.035 * kTrials);
  CHECK(claims < 0.065 * kTrials);
}

}  // namespace
}  // namespace pipewright::sequences_run_test
