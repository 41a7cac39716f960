// From choices to configurations and hashes.
#include "sim/analysis/sweep/points.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "sim/analysis/sweep/grid.h"
#include "sim/base/file.h"
#include "sim/cost/device.h"
#include "tests/support/run_binary.h"
#include "tests/support/text_base.h"

namespace pipewright::points_test {
namespace {

using testing::TemporaryFolder;
using Strings = std::vector<std::string>;

constexpr char kBaseText[] =
    "schedule: {name: 1f1b}\nstrategy: {pp: 4, microbatches: 8}\n"
    "costs: {uniform: {forward: 1ms, backward_input: 1ms, backward_weight: "
    "1ms}, p2p: 0s}\n";

absl::StatusOr<SweepPoints> PointsOfAxes(const Strings& axes,
                                         RunContext* context,
                                         const std::string& base = kBaseText) {
  SweepGrid grid;
  for (const std::string& text : axes) {
    grid.axes.push_back(AxisOfText(text).value());
  }
  return SweepPoints::Create(testing::TextBase(base, "base.yaml"),
                             std::move(grid), "fast", context);
}

// What reading all edits in one go gives.
RunConfig ReadAt(const SweepPoints& points, const SweepChoices& choices,
                 const std::string& base) {
  std::vector<ConfigEdit> edits;
  for (size_t axis = 0; axis < choices.size(); ++axis) {
    if (choices[axis] < 0) continue;
    const auto of_axis =
        EditsOf(points.grid().axes[axis], choices[axis]).value();
    edits.insert(edits.end(), of_axis.begin(), of_axis.end());
  }
  RunConfig config = ReadConfig(base, "base.yaml", {edits}).value();
  if (!config.engine) config.engine = "fast";
  return config;
}

TEST_CASE("sweep: composed configurations are those that are read", "[sweep]") {
  const std::string base =
      std::string(kBaseText) +
      "system: {preset: dgx-h100}\nmodel: {preset: gpt-tiny}\n";
  const std::vector<Strings> grids = {
      {"strategy.tp=1,2", "strategy.pp=2,4", "strategy.vpp=1,2"},
      {"schedule.name=1f1b,zb-h1,gpipe", "strategy.pp=2,4",
       "costs.uniform.forward=1ms,2ms"},
      {"schedule.name=1f1b,looped-bfs", "schedule.params.block=1,2"},
      {"costs.uniform.backward=1ms,2ms", "strategy.pp=2,4"},
      {"model.preset=gpt-tiny,moe-tiny", "system.preset=dgx-h100,dgx-a100",
       "strategy.recompute=none,full"},
      {"system.params.nodes_per_leaf=1,2", "system.params.oversubscription=1,2",
       "strategy.pp=2,4"},
      {"costs.analytic.device=auto,h100", "strategy.tp=1,2"},
      {"strategy.layers=[8,8],[4,12]", "strategy.pp,strategy.tp=2:1,2:2"},
  };
  for (const Strings& axes : grids) {
    RunContext context;
    const absl::StatusOr<SweepPoints> points =
        PointsOfAxes(axes, &context, base);
    INFO(axes[0] << ": " << points.status());
    REQUIRE(points.ok());
    GridWalk walk(&points->grid(), points->base());
    int count = 0;
    while (walk.Next()) {
      ++count;
      const RunConfig composed = points->At(walk.choices()).value();
      const RunConfig read = ReadAt(*points, walk.choices(), base);
      CHECK(ToString(composed) == ToString(read));
      CHECK(composed.notes == read.notes);
      CHECK(points->HashAt(walk.choices()) == points->HashOf(read));
      for (const auto& [path, origin] : read.origins) {
        const auto found = composed.origins.find(path);
        INFO(path);
        REQUIRE(found != composed.origins.end());
        CHECK(found->second.flag == origin.flag);
      }
    }
    CHECK(count > 1);
  }
}

TEST_CASE("sweep: most grids compose, those whose axes meet are read",
          "[sweep]") {
  RunContext context;
  CHECK(PointsOfAxes({"strategy.pp=2,4", "costs.p2p=1ms,2ms"}, &context)
            ->composes());
  CHECK_FALSE(PointsOfAxes({"system.params.nodes_per_leaf=1,2",
                            "system.params.oversubscription=1,2"},
                           &context)
                  ->composes());
}

TEST_CASE("sweep: values that exclude each other are an error of the point",
          "[sweep]") {
  RunContext context;
  const std::string base = "schedule: {name: 1f1b}\n";
  const absl::StatusOr<SweepPoints> points = PointsOfAxes(
      {"costs.uniform.backward=1ms,2ms", "costs.uniform.backward_input=1ms"},
      &context, base);
  REQUIRE(points.ok());
  CHECK_FALSE(points->composes());
  const absl::Status status = points->At({0, 0}).status();
  CHECK(absl::StrContains(status.message(), "given together"));
  CHECK(points->HashOfRefused({0, 0}) != points->HashOfRefused({1, 0}));
}

TEST_CASE("sweep: a value is refused with its axis before anything runs",
          "[sweep]") {
  struct Row {
    std::string axis;
    Strings parts;
  };
  const std::vector<Row> table = {
      {"strategy.tp=1,0", {"axis strategy.tp: value '0'", "1 to"}},
      {"strategy.tp=1,x", {"axis strategy.tp: value 'x'", "an integer"}},
      {"costs.p2p=1ms,2", {"axis costs.p2p: value '2'", "has no unit"}},
      {"strategy.recompute=none,ful", {"value 'ful'", "did you mean 'full'?"}},
      {"schedule.name=1f1b,1f2b", {"value '1f2b'", "did you mean '1f1b'?"}},
      {"model.preset=gpt-tinx", {"value 'gpt-tinx'", "gpt-tiny"}},
      {"system.preset=dgx-h10", {"value 'dgx-h10'", "dgx-h100"}},
      {"engine=fats", {"value 'fats'", "fast"}},
      {"schedule=no/such.pws", {"value 'no/such.pws'", "no/such.pws"}},
      {"strategy.pp,strategy.tp=2:0", {"value '2:0'"}},
      {"network=fluid,fluent", {"value 'fluent'", "did you mean 'fluid'?"}},
      {"system.shape=node,nod", {"value 'nod'", "did you mean 'node'?"}},
      {"costs.analytic.device=h100,h1000", {"value 'h1000'", "h100"}},
      {"costs.analytic.silicon=none,any", {"value 'any'", "shipped"}},
      {"costs.profile=nobodys", {"value 'nobodys'"}},
      {"costs.jitter=3%,3", {"value '3'", "a percentage above 0%"}},
      {"strategy.global_batch=64,x", {"value 'x'", "4Mtokens"}},
      {"slow.devices=rank0*2,rank0", {"value 'rank0'", "NAME*FACTOR"}},
      {"slow.devices_law=fixed:2,fix:2", {"value 'fix:2'", "lognormal"}},
      {"slow.links=up*0", {"value 'up*0'", "NAME*FACTOR"}},
      {"slow.links_law=uniform:3-2", {"value 'uniform:3-2'", "LOW-HIGH"}},
      {"sequences.lengths=lognormal:x", {"value 'lognormal:x'"}},
  };
  for (const Row& row : table) {
    RunContext context;
    const absl::Status status = PointsOfAxes({row.axis}, &context).status();
    INFO(row.axis << ": " << status);
    const bool is_input = status.code() == absl::StatusCode::kInvalidArgument ||
                          status.code() == absl::StatusCode::kNotFound;
    CHECK(is_input);
    for (const std::string& part : row.parts) {
      INFO(part);
      CHECK(absl::StrContains(status.message(), part));
    }
  }
}

TEST_CASE("sweep: a hash is of what decides the result", "[sweep]") {
  RunContext context;
  const SweepPoints points =
      PointsOfAxes({"strategy.pp=2,4", "costs.seed=0,1"}, &context).value();
  std::set<PointHash> hashes;
  GridWalk walk(&points.grid(), points.base());
  while (walk.Next()) {
    hashes.insert(points.HashOf(points.At(walk.choices()).value()));
  }
  CHECK(hashes.size() == 4);
  // Sums over fields whose values differ by little do not meet.
  const SweepPoints many =
      PointsOfAxes({"strategy.pp=1..16", "strategy.microbatches=1..16",
                    "costs.seed=0..15"},
                   &context)
          .value();
  std::set<PointHash> all;
  GridWalk each(&many.grid(), many.base());
  while (each.Next()) all.insert(many.HashAt(each.choices()));
  CHECK(all.size() == 16 * 16 * 16);
  const auto hash_of = [&](const std::string& yaml) {
    RunConfig config = ReadConfig(yaml, "other.yaml").value();
    if (!config.engine) config.engine = "fast";
    return points.HashOf(config);
  };
  // Neither place nor spelling.
  CHECK(hash_of("strategy: {pp: 4}\ncosts: {p2p: 1ms}") ==
        hash_of("costs: {p2p_us: 1000}\n\n\nstrategy: {pp: 4}"));
  CHECK(hash_of("strategy: {pp: 4}") != hash_of("strategy: {pp: 8}"));
  CHECK(hash_of("engine: fast") != hash_of("engine: simgrid"));
}

TEST_CASE("sweep: a hash is of the bytes of files, not of their names",
          "[sweep]") {
  const TemporaryFolder folder;
  constexpr char kOne[] =
      "pipewright-schedule 1\n"
      "pp 1 vpp 1 microbatches 1 slices 1 replicas 1 placement plain\n"
      "0: F0 BW0\n";
  constexpr char kOther[] =
      "pipewright-schedule 1\n"
      "pp 1 vpp 1 microbatches 1 slices 1 replicas 1 placement plain\n"
      "0: F0 B0 W0\n";
  const auto hash_with = [&](const std::string& name, const char* text) {
    const std::string path = folder.Write(name, text);
    RunContext context;
    const SweepPoints points =
        PointsOfAxes({"schedule=" + path}, &context, "").value();
    return points.HashOf(points.At({0}).value());
  };
  const PointHash first = hash_with("a.pws", kOne);
  CHECK(hash_with("b.pws", kOne) == first);
  CHECK(hash_with("a.pws", kOther) != first);
  CHECK(hash_with("a.pws", kOne) == first);
}

TEST_CASE("sweep: a hash is of the bytes of devices, silicon and lengths",
          "[sweep]") {
  const TemporaryFolder folder;
  const std::string device = DeviceFileText("h100").value();
  const std::string silicon =
      "pipewright-silicon 1\ntable gemm bfloat16 TN\nm,n,k,us,error_percent\n"
      "4096,4096,4096,185.2,6\n";
  const auto hash_with = [&](const std::string& field, const std::string& name,
                             const std::string& text) {
    const std::string path = folder.Write(name, text);
    RunContext context;
    const absl::StatusOr<SweepPoints> points =
        PointsOfAxes({field + "=" + path}, &context, "");
    INFO(field << ": " << points.status());
    REQUIRE(points.ok());
    return points->HashOf(points->At({0}).value());
  };
  const std::vector<Strings> table = {
      {"costs.analytic.device", "d.textproto", device, "# another\n" + device},
      {"costs.analytic.silicon", "s.txt", silicon, silicon + "# another\n"},
      {"sequences.lengths", "l.txt", "100\n200\n", "100\n300\n"}};
  for (const Strings& row : table) {
    const PointHash first = hash_with(row[0], row[1], row[2]);
    CHECK(hash_with(row[0], "other_" + row[1], row[2]) == first);
    CHECK(hash_with(row[0], row[1], row[3]) != first);
  }
}

}  // namespace
}  // namespace pipewright::points_test
