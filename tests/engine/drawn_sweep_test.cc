// Durations that are drawn, in the sweep of engine fast: against the event run,
// which draws them one by one as they come.
#include <catch2/catch.hpp>
#include <memory>
#include <numeric>
#include <vector>

#include "sim/engine/fast_engine.h"
#include "sim/engine/fluid_clock.h"
#include "tests/support/lowering.h"
#include "tests/support/random_program.h"

namespace pipewright::drawn_sweep_test {
namespace {

std::shared_ptr<Jitter> Noise(uint64_t seed, double sigma) {
  auto jitter = std::make_shared<Jitter>();
  jitter->seed = seed;
  jitter->sigma = sigma;
  return jitter;
}

std::shared_ptr<Jitter> Uniform(uint64_t seed, int stages) {
  auto jitter = std::make_shared<Jitter>();
  jitter->seed = seed;
  jitter->optimizer = {0.8, 1.2};
  jitter->passes.resize(stages);
  for (auto& kinds : jitter->passes) kinds.fill(jitter->optimizer);
  return jitter;
}

// The sweep against events in time, to the last bit (no pulls and pushes with
// several peers here): each replica, with what
// is copied, met and held. On clusters too: nothing is shared.
TEST_CASE("jitter: the sweep equals the events exactly", "[engine]") {
  int compared = 0;
  int several = 0;
  int deadlocks = 0;
  for (uint32_t seed = 1; seed <= 2000; ++seed) {
    absl::StatusOr<RandomProgram> made = MakeRandomProgram(
        seed, {.most_classes = 1 + static_cast<int>(seed % 2)});
    if (!made.ok()) continue;
    INFO(made->about);
    Program& program = made->program;
    program.jitter = seed % 3 == 0 ? Uniform(seed, program.schedule->stages())
                                   : Noise(seed, 0.2);
    program.until_steady = false;
    const auto sweep = RunFast(program, {});
    const auto events = RunTimed(program, {});
    REQUIRE(sweep.ok() == events.ok());
    if (!sweep.ok()) {
      ++deadlocks;
      continue;
    }
    CHECK(sweep->iteration_end_s == events->iteration_end_s);
    REQUIRE(sweep->row_of_replica == events->row_of_replica);
    for (int replica = 0; replica < program.replicas; ++replica) {
      for (int rank = 0; rank < program.pp(); ++rank) {
        const RankTimes& mine = sweep->times[replica][rank];
        const RankTimes& theirs = events->times[replica][rank];
        CHECK(mine.first_start_s == theirs.first_start_s);
        CHECK(mine.last_end_s == theirs.last_end_s);
        CHECK(mine.busy_s == theirs.busy_s);
      }
    }
    ++compared;
    several += program.replicas > 1 ? 1 : 0;
  }
  CHECK(compared > 1000);
  CHECK(several > 500);
  CHECK(deadlocks > 10);
}

// A pull or push with several peers is a sum of steps there and one time here,
// so that the last bits may differ.
TEST_CASE("jitter: the sweep equals the events of odc up to rounding",
          "[engine]") {
  for (const uint64_t seed : {1, 2, 3, 4}) {
    for (const bool apart : {false, true}) {
      LowerOptions options;
      options.costs = PassCosts::Uniform(2, 1,
                                         {.forward_s = 0.3,
                                          .backward_input_s = 0.3,
                                          .backward_weight_s = 0.3});
      options.replicas = 8;
      options.data_parallel = DataParallel::kOdc;
      options.shard_blocks = ShardBlocks::kLayer;
      options.layers.stages.assign(2, std::vector<LayerShare>(3));
      options.layers.poll_s = 0.1;
      options.layers.adds_bytes_per_s = 70;
      options.layers.pulls_apart = apart;
      options.parameter_bytes = {7, 11};
      options.gradient_bytes = {13, 17};
      options.iterations = 2;
      const auto cluster = BuildCluster(SmallFabric(4, 4, 1));
      REQUIRE(cluster.ok());
      std::vector<int> places(16);
      std::iota(places.begin(), places.end(), 0);
      options.network =
          NetworkOf(std::make_shared<const Cluster>(*cluster), places, 2, 8);
      Program program = Lowered(Registered("1f1b", 2, 4), options);
      program.jitter = Noise(seed, 0.2);
      const auto sweep = RunFast(program, {});
      const auto events = RunTimed(program, {});
      INFO(sweep.status() << " " << events.status());
      REQUIRE((sweep.ok() && events.ok()));
      REQUIRE(sweep->iterations() == events->iterations());
      for (int iteration = 0; iteration < sweep->iterations(); ++iteration) {
        CHECK(sweep->iteration_end_s[iteration] ==
              Approx(events->iteration_end_s[iteration]).epsilon(1e-12));
      }
    }
  }
}

}  // namespace
}  // namespace pipewright::drawn_sweep_test
