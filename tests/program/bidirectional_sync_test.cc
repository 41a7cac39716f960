// Gradient reduction between the replicas of the registered bidirectional
// schedules, in both engines.
#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <numeric>

#include "sim/engine/fast_engine.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/program/lower.h"
#include "sim/program/network_time.h"
#include "sim/schedule/registry.h"
#include "sim/topology/registry.h"
#include "tests/support/lowering.h"
#include "tests/support/random_program.h"
#include "tests/support/reference_engine.h"

namespace pipewright::bidirectional_sync_test {
namespace {

std::shared_ptr<const Schedule> Build(
    const std::string& name, int pp, int microbatches,
    const std::map<std::string, std::string>& own = {}) {
  ScheduleParams params;
  params.pp = pp;
  params.vpp = FindSchedule(name)->info->default_vpp;
  params.microbatches = microbatches;
  params.own = own;
  auto schedule = BuildSchedule(name, params);
  REQUIRE(schedule.ok());
  return std::make_shared<const Schedule>(*std::move(schedule));
}

// All ranks in one node: pairs reduce over links that nobody else uses.
Program OnNode(const std::shared_ptr<const Schedule>& schedule,
               double gradient_bytes) {
  LowerOptions options;
  options.costs = CostsOf(
      *schedule, {.forward = 8, .backward_input = 8, .backward_weight = 8});
  options.data_parallel = DataParallel::kDdp;
  options.gradient_bytes.assign(schedule->stages(), gradient_bytes);
  options.iterations = 1;
  auto cluster = BuildCluster(SmallFabric(1, schedule->pp(), 0));
  REQUIRE(cluster.ok());
  std::vector<int> devices(schedule->pp());
  std::iota(devices.begin(), devices.end(), 0);
  options.network = NetworkOf(std::make_shared<Cluster>(*std::move(cluster)),
                              std::move(devices), schedule->pp(), 1);
  return Lowered(schedule, options);
}

TEST_CASE("lower: bitpipe reduces its second chunks before the last backward",
          "[program]") {
  const std::string eager = ToString(OnNode(Build("bitpipe", 4, 4), 64));
  CHECK_THAT(eager, Catch::Contains("all-reduce.1@g0 receive(aBW1.0) aBW1.0 "
                                    "all-reduce.0@g0 all-reduce.0@g0"));
  const std::string end =
      ToString(OnNode(Build("bitpipe", 4, 4, {{"sync", "end"}}), 64));
  CHECK_THAT(end, Catch::Contains("aBW1.0 all-reduce.1@g0 all-reduce.1@g0 "
                                  "all-reduce.0@g0 all-reduce.0@g0"));
}

TEST_CASE("engine: eager synchronisation hides behind the last backward",
          "[engine]") {
  for (const auto run : {&RunFast, &RunSimgrid}) {
    const auto seconds = [&](const char* sync, double bytes) {
      const auto summary =
          run(OnNode(Build("bitpipe", 4, 4, {{"sync", sync}}), bytes), {});
      REQUIRE(summary.ok());
      return summary->iteration_s();
    };
    const double nothing = seconds("end", 1e-9);
    CHECK(seconds("eager", 256) < seconds("end", 256));
    CHECK(seconds("eager", 256) > nothing);
  }
}

TEST_CASE(
    "engine: bidirectional schedules with their gradients alike in all "
    "engines",
    "[engine]") {
  for (const char* name : {"bitpipe", "chimera", "dualpipe"}) {
    for (const int pp : {2, 4, 6}) {
      const Program program = OnNode(Build(name, pp, 2 * pp), 512);
      INFO(name << " pp " << pp);
      CHECK(static_cast<int>(program.groups.size()) == pp / 2);
      const auto fast = RunFast(program, {});
      const auto reference = RunReference(program);
      const auto simgrid = RunSimgrid(program, {});
      REQUIRE(fast.ok());
      REQUIRE(reference.ok());
      REQUIRE(simgrid.ok());
      CHECK(fast->iteration_s() == Approx(reference->iteration_s()));
      // Transfers and reductions may meet on a link.
      CHECK(simgrid->iteration_s() >= fast->iteration_s() * (1 - 1e-9));
    }
  }
}

}  // namespace
}  // namespace pipewright::bidirectional_sync_test
