// FSDP layer by layer and ODC: their times, against the recurrences of both
// (tests/oracle/README.md) and against arithmetic.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/engine/fast_engine.h"
#include "sim/engine/fluid_clock.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/program/dp_classes.h"
#include "sim/program/network_time.h"
#include "sim/trace/trace.h"
#include "tests/support/json.h"
#include "tests/support/lowering.h"
#include "tests/support/oracle.h"
#include "tests/support/reference_engine.h"

namespace pipewright::layers_test {
namespace {

// Times of a layer: [device][microbatch] (forward, backward).
using Work = std::vector<std::vector<std::pair<double, double>>>;

struct Setting {
  int layers = 1;
  Work work;
  double gather = 0;
  double reduce = 0;
  bool one_stream = true;
};

// Every device reaches every other one over its own two links of 1 byte/s, so
// that a ring and a pull of a layer both take bytes * (D - 1) / D.
std::shared_ptr<const Cluster> Crossbar(int devices) {
  std::vector<Link> links;
  std::vector<RouteRow> routes;
  for (int device = 0; device < devices; ++device) {
    links.push_back({absl::StrCat("up", device), 1, 0});
  }
  for (int device = 0; device < devices; ++device) {
    links.push_back({absl::StrCat("down", device), 1, 0});
  }
  for (int from = 0; from < devices; ++from) {
    for (int to = 0; to < devices; ++to) {
      if (from != to) routes.push_back({from, to, {from, devices + to}});
    }
  }
  return ClusterOf(devices, std::move(links), std::move(routes));
}

Network CrossbarOf(int devices) {
  std::vector<int> all(devices);
  std::iota(all.begin(), all.end(), 0);
  return NetworkOf(Crossbar(devices), all, 1, devices);
}

// One class a device.
absl::StatusOr<Program> ProgramOf(const Setting& setting, DataParallel mode) {
  const auto devices = static_cast<int>(setting.work.size());
  const Network network = CrossbarOf(devices);
  const double whole = devices > 1 ? devices / (devices - 1.0) : 0;
  std::vector<Program> classes;
  std::vector<int> class_of_replica;
  for (int device = 0; device < devices; ++device) {
    const auto& micro = setting.work[device];
    const auto schedule = Registered("1f1b", 1, static_cast<int>(micro.size()));
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
    options.layers.one_stream = setting.one_stream;
    options.layers.poll_s = 0;
    options.parameter_bytes = {layers * setting.gather * whole};
    options.gradient_bytes = {layers * setting.reduce * whole};
    options.iterations = 1;
    absl::StatusOr<Program> program = Lower(schedule, options);
    if (!program.ok()) return program.status();
    std::vector<double> forward;
    std::vector<double> backward;
    for (const auto& [forward_s, backward_s] : micro) {
      forward.push_back(forward_s);
      backward.push_back(backward_s);
    }
    program->lane_factors = {forward, backward};
    for (size_t lane = 0; lane < program->ranks[0].lanes.size(); ++lane) {
      const bool is_forward = Pass::KindOf(lane) == PassKind::kForward;
      program->ranks[0].lanes[lane].factors = is_forward ? 0 : 1;
    }
    classes.push_back(*std::move(program));
    class_of_replica.push_back(device);
  }
  return JoinClasses(std::move(classes), std::move(class_of_replica));
}

// When each device has ended all but what it waits for with the others.
std::vector<double> EndsOf(
    const Program& program,
    absl::StatusOr<RunSummary> (*run)(const Program&, const EngineOptions&)) {
  FullTrace trace;
  EngineOptions options;
  options.trace = &trace;
  const absl::StatusOr<RunSummary> summary = run(program, options);
  INFO(summary.status());
  REQUIRE(summary.ok());
  std::vector<double> ends(program.replicas, 0);
  for (const TraceOp& op : trace.ops()) {
    if (op.kind == OpKind::kBarrier) continue;
    ends[op.replica] = std::max(ends[op.replica], op.end_s);
  }
  return ends;
}

// The recurrences of FSDP2, written down once more: each operation with those
// that it starts after, solved by running through them until nothing moves.
class Recurrences {
 public:
  Recurrences(const Setting& setting, bool meets)
      : setting_(setting), meets_(meets) {
    for (size_t device = 0; device < setting.work.size(); ++device) {
      AddDevice(static_cast<int>(device));
    }
  }

  std::vector<double> Ends() {
    for (bool moved = true; moved;) {
      moved = false;
      for (Node& node : nodes_) {
        double start = 0;
        for (const int other : node.after) {
          start = std::max(start, nodes_[other].end);
        }
        node.ready = start;
      }
      for (Node& node : nodes_) {
        double start = node.ready;
        if (meets_ && node.meeting >= 0) {
          for (const Node& other : nodes_) {
            if (other.meeting == node.meeting) {
              start = std::max(start, other.ready);
            }
          }
        }
        const double end = start + node.seconds;
        moved |= end != node.end;
        node.end = end;
      }
    }
    std::vector<double> ends(setting_.work.size(), 0);
    for (const Node& node : nodes_) {
      ends[node.device] = std::max(ends[node.device], node.end);
    }
    return ends;
  }

 private:
  struct Node {
    int device = 0;
    double seconds = 0;
    int meeting = -1;
    std::vector<int> after;
    double ready = 0;
    double end = -1;
  };
  enum Kind {
    kGatherForward,
    kForward,
    kGatherBackward,
    kBackward,
    kReduce,
    kEnd
  };

  int Id(int device, int microbatch, Kind kind, int layer) {
    const auto [known, is_new] =
        ids_.try_emplace({device, microbatch, kind, layer}, nodes_.size());
    if (is_new) nodes_.push_back({.device = device});
    return static_cast<int>(known->second);
  }

  void AddDevice(int device) {
    const int last = setting_.layers - 1;
    const auto& work = setting_.work[device];
    std::vector<int> compute;
    std::vector<int> gathers;
    std::vector<int> reductions;
    for (int m = 0; m < static_cast<int>(work.size()); ++m) {
      const auto id = [&](Kind kind, int layer) {
        return Id(device, m, kind, layer);
      };
      const auto after = [&](int node, int other) {
        nodes_[node].after.push_back(other);
      };
      const auto meet = [&](int node, int number) {
        nodes_[node].meeting = (m * 3 + number) * setting_.layers;
      };
      for (int l = 0; l <= last; ++l) {
        const int gather = id(kGatherForward, l);
        const int forward = id(kForward, l);
        nodes_[gather].seconds = setting_.gather;
        meet(gather, 0);
        nodes_[gather].meeting += l;
        nodes_[forward].seconds = work[m].first;
        if (l >= 2) after(gather, id(kForward, l - 2));
        after(forward, gather);
        if (l == 0 && m > 0) {
          after(gather, Id(device, m - 1, kEnd, 0));
          after(forward, Id(device, m - 1, kEnd, 0));
        }
        gathers.push_back(gather);
        compute.push_back(forward);
      }
      if (setting_.one_stream) gathers.push_back(id(kGatherBackward, last));
      for (int l = last; l >= 0; --l) {
        const int gather = id(kGatherBackward, l);
        const int backward = id(kBackward, l);
        const int reduce = id(kReduce, l);
        nodes_[gather].seconds = setting_.gather;
        nodes_[backward].seconds = work[m].second;
        nodes_[reduce].seconds = setting_.reduce;
        meet(gather, 1);
        nodes_[gather].meeting += l;
        meet(reduce, 2);
        nodes_[reduce].meeting += l;
        if (l == last) {
          after(gather, id(kForward, last));
        } else {
          after(gather, id(kGatherBackward, l + 1));
          after(gather,
                l + 2 > last ? id(kForward, last) : id(kBackward, l + 2));
        }
        after(backward, gather);
        if (l + 2 <= last) after(backward, id(kReduce, l + 2));
        after(reduce, backward);
        compute.push_back(backward);
        if (setting_.one_stream) {
          if (l > 0) gathers.push_back(id(kGatherBackward, l - 1));
          gathers.push_back(reduce);
        } else {
          gathers.push_back(gather);
          reductions.push_back(reduce);
        }
      }
      const int end = id(kEnd, 0);
      after(end, id(kReduce, 0));
      after(end, id(kBackward, 0));
      compute.push_back(end);
    }
    for (const std::vector<int>& stream : {compute, gathers, reductions}) {
      for (size_t at = 1; at < stream.size(); ++at) {
        nodes_[stream[at]].after.push_back(stream[at - 1]);
      }
    }
  }

  const Setting& setting_;
  const bool meets_;
  std::map<std::tuple<int, int, Kind, int>, size_t> ids_;
  std::vector<Node> nodes_;
};

void CheckEnds(const std::vector<double>& ends,
               const std::vector<double>& expected) {
  REQUIRE(ends.size() == expected.size());
  for (size_t device = 0; device < ends.size(); ++device) {
    INFO("device " << device);
    CHECK(ends[device] == Approx(expected[device]).epsilon(1e-9));
  }
}

void CheckAgainst(const Setting& setting, DataParallel mode,
                  const std::vector<double>& expected) {
  const absl::StatusOr<Program> program = ProgramOf(setting, mode);
  INFO(program.status());
  REQUIRE(program.ok());
  CheckEnds(EndsOf(*program, RunFast), expected);
  CheckEnds(EndsOf(*program, RunTimed), expected);
  const absl::StatusOr<RunSummary> fast = RunFast(*program, {});
  const absl::StatusOr<RunSummary> naive = RunReference(*program);
  REQUIRE(fast.ok());
  REQUIRE(naive.ok());
  CHECK(fast->iteration_end_s.back() ==
        Approx(naive->iteration_end_s.back()).epsilon(1e-12));
}

Setting SettingOf(const testing::Json& row, const char* gather,
                  const char* reduce) {
  Setting setting;
  setting.layers = row["L"];
  for (const auto& device : row["micro"]) {
    auto& own = setting.work.emplace_back();
    for (const auto& micro : device) own.emplace_back(micro[0], micro[1]);
  }
  const auto value = [&](const char* odc, const char* both) {
    return row[odc].is_null() ? row[both].get<double>()
                              : row[odc].get<double>();
  };
  setting.gather = value(gather, "g");
  setting.reduce = value(reduce, "r");
  setting.one_stream = row["one_comm_stream"];
  return setting;
}

TEST_CASE("layers: times of FSDP2 and ODC equal their recurrences",
          "[engine]") {
  int cases = 0;
  int odc_only = 0;
  for (const auto& row : testing::LoadOracle("fsdp_odc_timeline_cases")) {
    INFO(row["name"].get<std::string>()
         << ", one stream: " << row["one_comm_stream"]);
    ++cases;
    CheckAgainst(SettingOf(row, "g_odc", "r_odc"), DataParallel::kOdc,
                 row["odc_rank_end"].get<std::vector<double>>());
    const Setting fsdp = SettingOf(row, "g", "g");
    Setting own = fsdp;
    own.reduce = row["r"];
    if (row["T_fsdp"].is_null()) {
      ++odc_only;
      CHECK_FALSE(ProgramOf(own, DataParallel::kFsdp).ok());
      continue;
    }
    CheckAgainst(own, DataParallel::kFsdp,
                 row["fsdp_rank_end"].get<std::vector<double>>());
  }
  CHECK(cases == 26);
  CHECK(odc_only == 2);
}

TEST_CASE("layers: times of random settings equal the recurrences",
          "[engine]") {
  std::mt19937 random(16);
  const auto real = [&](double most) {
    return std::uniform_real_distribution<double>(0, most)(random);
  };
  const auto whole = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  for (int trial = 0; trial < 60; ++trial) {
    INFO("trial " << trial);
    Setting setting;
    setting.layers = whole(1, 7);
    setting.gather = whole(0, 3) == 0 ? 0 : real(6);
    setting.reduce = whole(0, 3) == 0 ? 0 : real(6);
    setting.one_stream = whole(0, 1) == 1;
    const bool even = whole(0, 1) == 1;
    const int devices = whole(2, 5);
    const int microbatches = whole(1, 4);
    for (int device = 0; device < devices; ++device) {
      auto& own = setting.work.emplace_back();
      const int count = even ? microbatches : whole(1, 4);
      for (int m = 0; m < count; ++m) own.emplace_back(real(5), real(9));
    }
    CheckAgainst(setting, DataParallel::kOdc,
                 Recurrences(setting, false).Ends());
    if (even) {
      CheckAgainst(setting, DataParallel::kFsdp,
                   Recurrences(setting, true).Ends());
    }
  }
}

TEST_CASE("layers: equal work takes odc and fsdp the same time", "[engine]") {
  Setting setting;
  setting.layers = 5;
  setting.gather = 2.5;
  setting.reduce = 4;
  setting.work.assign(4, {{1, 2}, {3, 1}, {2, 6}});
  for (const bool one_stream : {false, true}) {
    setting.one_stream = one_stream;
    const auto odc = ProgramOf(setting, DataParallel::kOdc);
    const auto fsdp = ProgramOf(setting, DataParallel::kFsdp);
    REQUIRE((odc.ok() && fsdp.ok()));
    CheckEnds(EndsOf(*odc, RunFast), EndsOf(*fsdp, RunFast));
  }
}

TEST_CASE(
    "layers: without communication fsdp takes the sum of the longest "
    "layers, odc the longest sum",
    "[engine]") {
  Setting setting;
  setting.layers = 3;
  setting.work = {{{1, 2}, {5, 10}, {2, 2}}, {{4, 1}, {2, 3}, {1, 8}}};
  double slowest = 0;
  std::vector<double> sums(2, 0);
  for (size_t m = 0; m < 3; ++m) {
    const auto& one = setting.work[0][m];
    const auto& other = setting.work[1][m];
    slowest += 3 * (std::max(one.first, other.first) +
                    std::max(one.second, other.second));
    sums[0] += 3 * (one.first + one.second);
    sums[1] += 3 * (other.first + other.second);
  }
  const auto fsdp = ProgramOf(setting, DataParallel::kFsdp);
  const auto odc = ProgramOf(setting, DataParallel::kOdc);
  REQUIRE((odc.ok() && fsdp.ok()));
  // A layer's own gather runs ahead: what a device can win by that is within
  // one microbatch's kind, whose layers are alike.
  const std::vector<double> ends = EndsOf(*fsdp, RunFast);
  CHECK(*std::max_element(ends.begin(), ends.end()) == Approx(slowest));
  CheckEnds(EndsOf(*odc, RunFast), sums);
}

}  // namespace
}  // namespace pipewright::layers_test
