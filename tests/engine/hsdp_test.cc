// HSDP with replicas of several classes: who meets whom, against arithmetic, a
// trace and the naive engine.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <numeric>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/engine/fast_engine.h"
#include "sim/engine/fluid_clock.h"
#include "sim/program/dp_classes.h"
#include "sim/program/program.h"
#include "sim/trace/trace.h"
#include "tests/support/lowering.h"
#include "tests/support/reference_engine.h"

namespace pipewright::hsdp_test {
namespace {

// [device][microbatch] (forward, backward) of a layer.
using PartWork = std::vector<std::vector<std::pair<double, double>>>;

struct Parts2 {
  int layers = 2;
  int part = 2;
  PartWork work;
  double bytes = 0;  // bytes of a layer, gathered and reduced
};

Network EachWithItsLinks(int devices) {
  std::vector<Link> links;
  std::vector<RouteRow> routes;
  for (int device = 0; device < 2 * devices; ++device) {
    links.push_back({absl::StrCat("link", device), 1, 0});
  }
  for (int from = 0; from < devices; ++from) {
    for (int to = 0; to < devices; ++to) {
      if (from != to) routes.push_back({from, to, {from, devices + to}});
    }
  }
  std::vector<int> all(devices);
  std::iota(all.begin(), all.end(), 0);
  return NetworkOf(ClusterOf(devices, std::move(links), std::move(routes)), all,
                   1, devices);
}

// A class a device.
Program ClassesInParts(const Parts2& setting, DataParallel mode) {
  const auto devices = static_cast<int>(setting.work.size());
  const Network network = EachWithItsLinks(devices);
  std::vector<Program> classes;
  std::vector<int> class_of_replica;
  for (int device = 0; device < devices; ++device) {
    const auto& micro = setting.work[device];
    LowerOptions options;
    const double layers = setting.layers;
    options.costs = PassCosts::Uniform(1, 1,
                                       {.forward_s = layers,
                                        .backward_input_s = layers / 2,
                                        .backward_weight_s = layers / 2});
    options.network = network;
    options.replicas = devices;
    options.data_parallel = mode;
    options.shard_blocks = ShardBlocks::kLayer;
    options.layers.stages = {std::vector<LayerShare>(setting.layers)};
    options.layers.shard_group = setting.part;
    options.layers.poll_s = 0;
    options.parameter_bytes = {layers * setting.bytes};
    options.gradient_bytes = {layers * setting.bytes};
    options.iterations = 1;
    Program program =
        Lowered(Registered("1f1b", 1, static_cast<int>(micro.size())), options);
    program.lane_factors.resize(2);
    for (const auto& [forward_s, backward_s] : micro) {
      program.lane_factors[0].push_back(forward_s);
      program.lane_factors[1].push_back(backward_s);
    }
    std::vector<Lane>& lanes = program.ranks[0].lanes;
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      lanes[lane].factors = Pass::KindOf(lane) == PassKind::kForward ? 0 : 1;
    }
    classes.push_back(std::move(program));
    class_of_replica.push_back(device);
  }
  absl::StatusOr<Program> joined =
      JoinClasses(std::move(classes), std::move(class_of_replica));
  INFO(joined.status());
  REQUIRE(joined.ok());
  return *std::move(joined);
}

double EndOn(const Program& program, bool timed = false) {
  const auto summary = timed ? RunTimed(program, {}) : RunFast(program, {});
  INFO(summary.status());
  REQUIRE(summary.ok());
  return summary->iteration_end_s[0];
}

TEST_CASE("hsdp: without communication a part waits for its own slowest layers",
          "[engine][dp_classes]") {
  // Part 0 has the slowest forwards, part 1 the slowest backwards.
  Parts2 setting;
  setting.layers = 3;
  setting.work = {
      {{5, 1}, {1, 1}}, {{2, 2}, {2, 1}}, {{1, 4}, {3, 1}}, {{1, 1}, {1, 6}}};
  // Microbatch by microbatch the parts sum what they have: the slower part.
  // 0: max(3 (5 + 2), 3 (1 + 4)) = 21, 1: max(3 (2 + 1), 3 (3 + 6)) = 27.
  const Program fsdp = ClassesInParts(setting, DataParallel::kFsdp);
  CHECK(EndOn(fsdp) == Approx(21 + 27));
  CHECK(EndOn(fsdp, true) == Approx(21 + 27));
  // All in one part: 3 (5 + 4) + 3 (3 + 6).
  setting.part = 0;
  CHECK(EndOn(ClassesInParts(setting, DataParallel::kFsdp)) == Approx(54));
  // odc waits for nobody: the longest sum, in parts or not.
  for (const int part : {0, 2}) {
    setting.part = part;
    CHECK(EndOn(ClassesInParts(setting, DataParallel::kOdc)) == Approx(27));
  }
}

TEST_CASE("hsdp: gathers meet inside a part, sums between parts",
          "[engine][dp_classes]") {
  Parts2 setting;
  setting.bytes = 2;
  setting.work = {{{5, 1}}, {{2, 2}}, {{1, 4}}, {{1, 1}}, {{9, 2}}, {{3, 3}}};
  const Program program = ClassesInParts(setting, DataParallel::kFsdp);
  FullTrace trace;
  EngineOptions traced;
  traced.trace = &trace;
  REQUIRE(RunFast(program, traced).ok());
  // [kind][replica] when its meetings began, in order.
  std::map<OpKind, std::vector<std::vector<double>>> begins;
  for (const TraceOp& op : trace.ops()) {
    if (!IsCollective(op.kind)) continue;
    auto& of_kind = begins[op.kind];
    of_kind.resize(6);
    of_kind[op.replica].push_back(op.start_s);
  }
  const auto& gathers = begins[OpKind::kAllGather];
  const auto& sums = begins[OpKind::kAllReduce];
  REQUIRE((gathers.size() == 6 && sums.size() == 6));
  for (int replica = 0; replica < 6; ++replica) {
    CHECK(gathers[replica].size() == 4);  // two layers, twice
    CHECK(sums[replica].size() == 2);
    CHECK(gathers[replica] == gathers[replica / 2 * 2]);
    CHECK(sums[replica] == sums[replica % 2]);
  }
  // Parts are on their own until they sum.
  CHECK(gathers[0] != gathers[2]);
  CHECK(gathers[2] != gathers[4]);
}

TEST_CASE("hsdp: random classes in parts on all engines",
          "[engine][dp_classes]") {
  std::mt19937 random(61);
  const auto real = [&](double most) {
    return std::uniform_real_distribution<double>(0.1, most)(random);
  };
  const auto whole = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  int parted = 0;
  for (int trial = 0; trial < 40; ++trial) {
    Parts2 setting;
    setting.layers = whole(1, 5);
    setting.part = whole(1, 3);
    setting.bytes = whole(0, 2) == 0 ? 0 : real(4);
    const int devices = setting.part * whole(1, 3);
    const bool odc = whole(0, 1) == 1;
    const int microbatches = whole(1, 3);
    for (int device = 0; device < devices; ++device) {
      auto& own = setting.work.emplace_back();
      const int count = odc ? whole(1, 3) : microbatches;
      for (int m = 0; m < count; ++m) own.emplace_back(real(5), real(9));
    }
    if (devices == 1) continue;
    parted += setting.part < devices ? 1 : 0;
    INFO("trial " << trial << ": " << devices << " devices in parts of "
                  << setting.part << (odc ? ", odc" : ", fsdp"));
    const Program program =
        ClassesInParts(setting, odc ? DataParallel::kOdc : DataParallel::kFsdp);
    const auto naive = RunReference(program);
    INFO(naive.status());
    REQUIRE(naive.ok());
    const double expected = naive->iteration_end_s[0];
    CHECK(EndOn(program) == Approx(expected).epsilon(1e-12));
    CHECK(EndOn(program, true) == Approx(expected).epsilon(1e-9));
  }
  CHECK(parted > 10);
}

}  // namespace
}  // namespace pipewright::hsdp_test
