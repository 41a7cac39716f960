// Numbers of a plan and of a sweep against `simulate` with the same fields:
// over random configurations.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/analysis/search/plan.h"
#include "sim/analysis/sweep/result.h"
#include "sim/base/status.h"
#include "sim/run/simulated_run.h"
#include "tests/support/json.h"
#include "tests/support/random_config.h"
#include "tests/support/random_schedule.h"
#include "tests/support/rounds.h"
#include "tests/support/sweep_base.h"

namespace pipewright::winner_test {
namespace {

using testing::AnyConfig;
using testing::Json;
using testing::RandomConfig;
using testing::Rounds;

// The tree whose shape has the number of a leaf in the place of each scalar.
std::string Joined(const Json& shape, const Json& leaves) {
  if (!shape.is_structured()) return leaves[shape.get<int>()].dump();
  std::vector<std::string> parts;
  for (const auto& [key, value] : shape.items()) {
    parts.push_back(
        absl::StrCat(shape.is_object() ? absl::StrCat("\"", key, "\":") : "",
                     Joined(value, leaves)));
  }
  const std::string all = absl::StrJoin(parts, ",");
  return shape.is_object() ? absl::StrCat("{", all, "}")
                           : absl::StrCat("[", all, "]");
}

// Without who has said it: an axis or a flag.
std::string Bare(absl::string_view message) {
  if (!absl::StartsWith(message, "axis ") &&
      !absl::StartsWith(message, "--set ")) {
    return std::string(message);
  }
  return std::string(message.substr(message.find(": ") + 2));
}

TEST_CASE("sweep: rows of random configurations are those of simulate",
          "[sweep]") {
  int rows = 0;
  int refused = 0;
  int misfits = 0;
  for (int seed = 0; seed < Rounds(60); ++seed) {
    RandomConfig config = AnyConfig(8000 + seed);
    RunContext context;
    SweepGrid grid;
    grid.axes.push_back(AxisOfText("strategy.microbatches=4,6").value());
    grid.axes.push_back(AxisOfText("strategy.recompute=none,full").value());
    if (seed % 3 == 0) config.Set("system.memory", "20GiB");
    const auto points = SweepPoints::Create(testing::BaseOf("", config.edits),
                                            grid, "fluid", &context);
    INFO(config.about());
    if (!points.ok()) continue;
    for (const SweepChoices& choices :
         {SweepChoices{0, 0}, SweepChoices{1, 0}, SweepChoices{1, 1}}) {
      RandomConfig alone = config;
      alone.Set("strategy.microbatches", choices[0] == 0 ? "4" : "6");
      alone.Set("strategy.recompute", choices[1] == 0 ? "none" : "full");
      INFO(alone.about());
      const PointResult row = EvaluatePoint(*points, choices, &context);
      RunContext fresh;
      const auto run = Simulate(alone.config(), &fresh, {.interval = true});
      ++rows;
      if (!run.ok()) {
        ++refused;
        CHECK(row.status == PointStatus::kRefused);
        CHECK(row.exit == ExitCode(run.status()));
        CHECK(Bare(row.reason) == Bare(run.status().message()));
        CHECK(row.leaves.empty());
        CHECK(!row.iteration_s);
        continue;
      }
      const Report& report = run->report;
      const Json json = Json::parse(ReportToJson(report));
      CHECK(Json::parse(Joined(Json::parse(row.shape),
                               Json::parse(row.leaves))) == json);
      const bool fits = report.fits.value_or(true);
      misfits += !fits;
      CHECK(row.status == (fits ? PointStatus::kOk : PointStatus::kMisfit));
      CHECK(row.exit == (fits ? 0 : 3));
      CHECK(row.fits == report.fits);
      CHECK(row.engine == "fast");
      CHECK(json["iteration_s"] == *row.iteration_s);
      CHECK(json["tokens_per_s"] == *row.tokens_per_s);
      CHECK(json["bubble_fraction"]["global"] == *row.bubble_global);
      CHECK(json["bubble_fraction"]["per_rank"] == *row.bubble_per_rank);
      CHECK(json["mfu"] == *row.mfu);
      double most = 0;
      for (const Json& bytes : json["peak_memory_bytes"]) {
        most = std::max(most, bytes.get<double>());
      }
      CHECK(most == *row.peak_memory_bytes);
      const Json axes = Json::parse(row.axes);
      CHECK(axes["strategy.microbatches"] == (choices[0] == 0 ? 4 : 6));
      CHECK(axes["strategy.recompute"] == (choices[1] == 0 ? "none" : "full"));
    }
  }
  CHECK(rows > Rounds(60));
  CHECK(refused > 0);
  CHECK(misfits > 0);
}

// What a user would write for a point of plan --json.
RandomConfig ConfigOfPoint(const RandomConfig& base, const Json& point,
                           bool experts) {
  RandomConfig out = base;
  const auto set = [&](const char* field, const Json& value) {
    out.Set(field, value.dump());
  };
  set("system.nodes", point["nodes"]);
  for (const char* axis :
       {"tp", "cp", "pp", "vpp", "dp", "microbatches", "microbatch_size"}) {
    set(absl::StrCat("strategy.", axis).c_str(), point[axis]);
  }
  if (experts) set("strategy.ep", point["ep"]);
  for (const char* axis : {"recompute", "data_parallel", "offload"}) {
    out.Set(absl::StrCat("strategy.", axis), point[axis].get<std::string>());
  }
  out.Set("schedule.name", point["schedule"].get<std::string>());
  if (!point["layers"].empty()) {
    out.Set("strategy.layers",
            absl::StrJoin(point["layers"].get<std::vector<int>>(), ","));
  }
  return out;
}

struct AnyRequest {
  RandomConfig base;
  PlanRequest request;
  PlanOptions options;
  bool experts = false;
};

AnyRequest RequestOf(uint32_t seed) {
  Random random(seed * 40503u + 7);
  AnyRequest out;
  RandomConfig& base = out.base;
  base.Set("costs.analytic.device", "auto");
  out.experts = random.Chance(40);
  base.Set("model.preset", out.experts ? "qwen3-30b-a3b" : "llama3-8b");
  base.Set("model.layers", absl::StrCat(random.Int(6, 14)));
  base.Set("system.preset", random.Chance(50) ? "dgx-h100" : "a100-roce");
  base.Set("system.nodes", "1");
  base.Set("strategy.sequence", random.Chance(50) ? "2048" : "8192");
  if (random.Chance(30)) {
    base.Set("strategy.framework",
             random.Chance(50) ? "megatron" : "torchtitan");
  }
  if (random.Chance(50)) base.Set("costs.price_per_device_hour", "2");
  if (random.Chance(30)) base.Set("strategy.fragmentation", "0.06");
  if (random.Chance(50)) base.Set("system.memory", "30GiB");
  PlanRequest& request = out.request;
  request.base = base.config();
  request.global_batch = random.Chance(50) ? 8 : 12;
  if (random.Chance(40)) request.objective = PlanObjective::kCost;
  request.fixed = {
      {"schedule", {"1f1b", "zb-h1", "interleaved-1f1b"}},
      {"vpp", {"1", "2", "3"}},
      {"layout", {seed % 2 == 0 ? "even" : "ends"}},
      {"tp", {random.Chance(50) ? "1" : "2", "4"}},
      {"recompute", {"none", "full"}},
      {"microbatch_size", {"1", "2"}},
      {"offload", {random.Chance(50) ? "none" : "selective", "none"}}};
  out.options.most_confirmed = 2;
  return out;
}

TEST_CASE("plan: what wins has the same numbers when it is simulated",
          "[search]") {
  int compared = 0;
  int confirmed = 0;
  int uneven = 0;
  for (int seed = 0; seed < std::max(2, Rounds(8)); ++seed) {
    const AnyRequest any = RequestOf(seed);
    RunContext context;
    const auto plan = MakePlan(any.request, any.options, &context);
    INFO(any.base.about());
    REQUIRE(plan.ok());
    const Json json = Json::parse(PlanToJson(*plan));
    const std::string text = PlanToText(*plan);
    INFO(text);
    if (json["best"].is_null()) continue;
    CHECK(json["ranked"][0] == json["best"]);
    // Less memory for less throughput, point after point.
    for (size_t row = 1; row < json["front"].size(); ++row) {
      const Json one = json["front"][row - 1];
      const Json next = json["front"][row];
      CHECK(next["peak_memory_bytes"] < one["peak_memory_bytes"]);
      CHECK(next["tokens_per_s"].get<double>() <=
            one["tokens_per_s"].get<double>() * (1 + 1e-9));
    }
    double least = 0;
    for (size_t row = 0; row < json["ranked"].size() && row < 4; ++row) {
      const Json point = json["ranked"][row];
      RandomConfig config = ConfigOfPoint(any.base, point, any.experts);
      config.Set("engine", "fast");
      INFO(config.about());
      RunContext fresh;
      const auto run = Simulate(config.config(), &fresh, {.interval = true});
      INFO(run.status());
      REQUIRE(run.ok());
      ++compared;
      const Json report = Json::parse(ReportToJson(run->report));
      CHECK(point["iteration_s"] == report["iteration_s"]);
      CHECK(point["tokens_per_s"] == report["tokens_per_s"]);
      CHECK(point["bound_s"].get<double>() <=
            report["iteration_s"].get<double>() * (1 + 1e-9));
      CHECK(report["fits"].get<bool>());
      // The same words for the same number, whichever verb prints it.
      double most = 0;
      for (const Json& bytes : report["peak_memory_bytes"]) {
        most = std::max(most, bytes.get<double>());
      }
      CHECK(point["peak_memory_bytes"] == most);
      if (report.contains("cost_per_1e9_tokens")) {
        CHECK(point["cost_per_1e9_tokens"] == report["cost_per_1e9_tokens"]);
      } else {
        CHECK(point["cost_per_1e9_tokens"].is_null());
      }
      if (row == 0) {
        const Report& own = *plan->report;
        CHECK(Json::parse(ReportToJson(own)).without("warnings") ==
              report.without("warnings"));
        const Json interval = report["iteration_interval_s"];
        if (!interval.is_null()) {
          const double high = interval[1].get<double>();
          const double low = interval[0].get<double>();
          CHECK(json["model_error"].get<double>() ==
                Approx((high - low) / (high + low)));
        }
        double shares = 0;
        for (const Json& limit : json["limits"]) {
          shares += limit["share"].get<double>();
        }
        CHECK(shares == Approx(1));
        least = report["iteration_s"].get<double>();
        const Json even = json["even_layout_s"];
        if (!even.is_null()) {
          RandomConfig alike = config;
          std::erase_if(alike.edits, [](const ConfigEdit& edit) {
            return edit.path == "strategy.layers";
          });
          const auto other = Simulate(alike.config(), &fresh);
          REQUIRE(other.ok());
          CHECK(even == other->report.iteration_s);
          ++uneven;
        }
      }
      CHECK(least > 0);
      if (point["confirmed_s"].is_null()) continue;
      ++confirmed;
      config.Set("engine", "fluid");
      config.Set("costs.jitter", "3%");
      config.Set("costs.seed", "0");
      const auto again = Simulate(config.config(), &fresh);
      REQUIRE(again.ok());
      CHECK(point["confirmed_s"] == again->report.iteration_s);
    }
  }
  CHECK(compared > 3);
  CHECK(confirmed > 0);
  CHECK(uneven > 0);
}

}  // namespace
}  // namespace pipewright::winner_test
