// Fewest joules a token, and fields that are axes where several values are
// given: against runs one by one, and plans of each value alone.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "sim/analysis/search/plan.h"
#include "sim/analysis/search/plan_bound.h"
#include "sim/run/simulated_run.h"
#include "tests/support/json.h"

namespace pipewright::plan_axes_test {
namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;
using Fixed = std::map<std::string, std::vector<std::string>>;
using testing::Json;

RunConfig Base(const Fields& more) {
  std::vector<ConfigEdit> edits = {{"system.preset", "dgx-h100", "test"},
                                   {"costs.analytic.device", "auto", "test"},
                                   {"engine", "fast", "test"}};
  for (const auto& [path, value] : more) edits.push_back({path, value, "test"});
  return ReadConfig("", "", {edits}).value();
}

PlanOutcome PlanOf(const PlanRequest& request, PlanOptions options = {}) {
  options.confirm = false;
  RunContext context;
  auto outcome = MakePlan(request, options, &context);
  INFO(outcome.status());
  REQUIRE(outcome.ok());
  return *std::move(outcome);
}

PlanRequest EnergyRequest() {
  PlanRequest request;
  request.base = Base({{"model.preset", "llama3-8b"},
                       {"model.layers", "16"},
                       {"system.nodes", "2"},
                       {"strategy.sequence", "2048"}});
  request.global_batch = 32;
  request.objective = PlanObjective::kEnergy;
  request.fixed = {{"cp", {"1"}},
                   {"offload", {"none"}},
                   {"recompute", {"none", "full"}},
                   {"schedule", {"1f1b", "zb-h1"}},
                   {"layout", {"even"}}};
  return request;
}

// Joules of a step of everything that runs and fits, by rules written down
// anew.
std::vector<double> AllJoules(const PlanRequest& request,
                              const std::set<int>& pps) {
  RunContext context;
  std::vector<double> joules;
  for (const int devices : {8, 16}) {
    for (const int tp : {1, 2, 4, 8}) {
      for (const int pp : pps) {
        if (devices % (tp * pp) != 0) continue;
        const int dp = devices / (tp * pp);
        for (const int size : {1, 2, 4, 8}) {
          if (request.global_batch % (dp * size) != 0) continue;
          for (const char* schedule : {"1f1b", "zb-h1"}) {
            for (const Recompute recompute :
                 {Recompute::kNone, Recompute::kFull}) {
              for (const DataParallel mode :
                   {DataParallel::kDdp, DataParallel::kZero1,
                    DataParallel::kZero2, DataParallel::kFsdp}) {
                if (dp == 1 && mode != DataParallel::kDdp) continue;
                RunConfig config = request.base;
                config.system.nodes = devices / 8;
                config.schedule.name.emplace(schedule);
                StrategyChoice& strategy = config.strategy;
                strategy.tp = tp;
                strategy.pp = pp;
                strategy.dp = dp;
                strategy.microbatch_size = size;
                strategy.microbatches =
                    static_cast<int>(request.global_batch / (dp * size));
                strategy.recompute = recompute;
                if (dp > 1) strategy.data_parallel = mode;
                const auto run = Simulate(config, &context);
                if (!run.ok() || !run->report.fits.value_or(true)) continue;
                REQUIRE(run->report.throughput->energy);
                joules.push_back(run->report.throughput->energy->joules);
              }
            }
          }
        }
      }
    }
  }
  std::sort(joules.begin(), joules.end());
  return joules;
}

TEST_CASE("plan: the fewest joules are those of an exhaustive search",
          "[search]") {
  PlanRequest request = EnergyRequest();
  request.fixed["pp"] = {"1", "2", "4"};
  PlanOptions options;
  options.top = 8;
  const PlanOutcome plan = PlanOf(request, options);
  const std::vector<double> all = AllJoules(request, {1, 2, 4});
  REQUIRE(all.size() > 100);
  REQUIRE(plan.ranked.size() >= 8);
  RunContext context;
  for (size_t row = 0; row < 8; ++row) {
    const PlanResult& result = plan.ranked[row];
    INFO(plan.space->NameOf(result.point));
    CHECK(result.score == Approx(all[row]).epsilon(1e-9));
    CHECK(result.bound_s <= result.iteration_s * (1 + 1e-9));
    // The same numbers as when it is simulated by itself.
    const auto run =
        Simulate(plan.space->ConfigOf(result.point), &context).value();
    const StepEnergy& energy = *run.report.throughput->energy;
    CHECK(result.energy->joules == energy.joules);
    CHECK(result.score == Approx(energy.joules).epsilon(1e-12));
    CHECK(result.energy->watts_per_device == energy.watts_per_device);
  }
  // Bounds keep something out, or nothing is shown.
  CHECK(plan.counts.simulated < plan.counts.legal / 2);
  const Json best = Json::parse(PlanToJson(plan))["best"];
  const double tokens = static_cast<double>(request.global_batch) * 2048;
  CHECK(best["joules_per_token"].get<double>() ==
        Approx(all[0] / tokens).epsilon(1e-9));
  CHECK(absl::StrContains(PlanToText(plan), "J a token"));
}

TEST_CASE("plan: a bound on joules that is too high loses the best",
          "[search]") {
  // Plain runs are looked at anyway; zb-h1 is none, and waits less.
  PlanRequest request = EnergyRequest();
  request.fixed["pp"] = {"4"};
  const double least = AllJoules(request, {4})[0];
  const PlanOutcome right = PlanOf(request);
  CHECK(right.ranked[0].score == Approx(least).epsilon(1e-9));
  PlanOptions wrong;
  wrong.bound_factor = 1.5;
  CHECK(PlanOf(request, wrong).ranked[0].score > least * (1 + 1e-6));
}

TEST_CASE("plan: no bound on joules is above those of the run", "[search]") {
  struct Case {
    const char* what;
    Fields fields;
    Fixed fixed;
  };
  for (const Case& each :
       {Case{"recomputation",
             {{"model.preset", "llama3-8b"}, {"model.layers", "8"}},
             {{"recompute", {"none", "norm-activation", "full"}},
              {"pp", {"1", "4"}},
              {"tp", {"1", "2"}}}},
        Case{"experts",
             {{"model.preset", "qwen3-30b-a3b"},
              {"model.layers", "8"},
              {"strategy.overlap_experts", "true"}},
             {{"recompute", {"none"}}, {"pp", {"2"}}, {"tp", {"1", "2"}}}},
        Case{"two directions, passes of recomputation",
             {{"model.preset", "llama3-8b"}, {"model.layers", "8"}},
             {{"recompute", {"none", "full"}},
              {"schedule", {"dualpipe", "chimera", "1f1b"}},
              {"vpp", {"1"}},
              {"pp", {"4"}},
              {"tp", {"2"}}}},
        Case{"factors of microbatches",
             {{"model.preset", "llama3-8b"},
              {"model.layers", "8"},
              {"costs.microbatch_factor", "0.5,1,1,1,1,1,1,1"}},
             {{"recompute", {"none"}}, {"pp", {"2"}}, {"tp", {"2"}}}}}) {
    INFO(each.what);
    Fields fields = each.fields;
    fields.emplace_back("strategy.sequence", "1024");
    fields.emplace_back("system.memory", "1000GiB");
    PlanRequest request;
    request.base = Base(fields);
    request.global_batch = 16;
    request.fixed = {{"cp", {"1"}},
                     {"offload", {"none"}},
                     {"layout", {"even"}},
                     {"microbatch_size", {"1", "2"}},
                     {"data_parallel", {"ddp", "fsdp"}},
                     {"schedule", {"1f1b"}}};
    for (const auto& [axis, values] : each.fixed) request.fixed[axis] = values;
    RunContext context;
    const auto space = PlanSpace::Make(request, &context);
    INFO(space.status());
    REQUIRE(space.ok());
    PlanBounds bounds(space->get());
    int near = 0;
    int seen = 0;
    for (const PlanGroup& group : (*space)->Groups()) {
      for (const PlanPoint& point : (*space)->PointsOf(group)) {
        const auto run = Simulate((*space)->ConfigOf(point), &context);
        if (!run.ok() || !run->report.throughput->energy) continue;
        INFO((*space)->NameOf(point));
        const DeviceSpec& device = run->prepared.costs.analytic->device;
        const double passes = run->report.throughput->energy->joules -
                              8 * device.idle_watts * run->report.iteration_s;
        const double bound = bounds.PassJoules(group);
        CHECK(bound <= passes * (1 + 1e-9));
        ++seen;
        near += bound > 0.99 * passes ? 1 : 0;
      }
    }
    CHECK(seen > 1);
    // It says what equal microbatches draw.
    if (each.what != std::string("factors of microbatches")) {
      CHECK(near == seen);
    }
  }
}

TEST_CASE("plan: energy that nobody knows is not minimised", "[search]") {
  PlanRequest request = EnergyRequest();
  request.base =
      Base({{"model.preset", "llama3-8b"}, {"costs.analytic.clock", "burst"}});
  RunContext context;
  const auto plan = MakePlan(request, {}, &context);
  CHECK(plan.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(absl::StrContains(plan.status().message(), "--objective"));
}

// A plan's question with some fields of its own.
struct Question {
  Fields fields;
  Fixed fixed;

  PlanRequest Request() const {
    PlanRequest request;
    request.base = Base(fields);
    request.global_batch = 16;
    request.fixed = {{"cp", {"1"}},
                     {"offload", {"none"}},
                     {"recompute", {"none"}},
                     {"schedule", {"1f1b"}},
                     {"layout", {"even"}}};
    for (const auto& [axis, values] : fixed) request.fixed[axis] = values;
    return request;
  }
};

// Times of the first rows of plans with each value alone, each once.
std::vector<double> Apart(const Question& question, const Fixed& axes,
                          int top) {
  std::vector<Question> questions = {question};
  for (const auto& [axis, values] : axes) {
    std::vector<Question> more;
    for (const Question& before : questions) {
      for (const std::string& value : values) {
        more.push_back(before);
        more.back().fields.emplace_back(
            absl::StrCat("strategy.", axis),
            absl::StrReplaceAll(value, {{"+", ","}}));
      }
    }
    questions = std::move(more);
  }
  std::set<double> times;
  for (const Question& one : questions) {
    PlanOptions options;
    options.top = top;
    for (const PlanResult& result : PlanOf(one.Request(), options).ranked) {
      times.insert(result.iteration_s);
    }
  }
  return {times.begin(), times.end()};
}

TEST_CASE("plan: axes of several values find what each value alone does",
          "[search]") {
  const Question dense = {.fields = {{"model.preset", "llama3-8b"},
                                     {"model.layers", "16"},
                                     {"strategy.sequence", "2048"}},
                          .fixed = {}};
  Question selective = dense;
  selective.fixed["recompute"] = {"none", "selective"};
  const Question experts = {.fields = {{"model.preset", "qwen3-30b-a3b"},
                                       {"model.layers", "8"},
                                       {"strategy.sequence", "2048"}},
                            .fixed = {{"pp", {"1", "2"}}, {"tp", {"1", "2"}}}};
  constexpr int kTop = 12;
  for (const auto& [question, axes] : std::vector<std::pair<Question, Fixed>>{
           {dense,
            {{"precision", {"bf16", "fp8"}}, {"launch", {"eager", "graphs"}}}},
           {dense, {{"overlap_tensor", {"false", "true"}}}},
           {selective, {{"recompute_modules", {"mlp", "core_attn+mlp"}}}},
           {experts,
            {{"dispatch", {"all-to-all", "once"}},
             {"overlap_experts", {"true", "false"}}}},
           {experts, {{"etp", {"1", "2"}}}}}) {
    INFO(axes.begin()->first);
    PlanRequest request = question.Request();
    for (const auto& [axis, values] : axes) request.fixed[axis] = values;
    PlanOptions options;
    options.top = kTop;
    const PlanOutcome plan = PlanOf(request, options);
    REQUIRE(plan.ranked.size() >= kTop);
    std::vector<double> wanted = Apart(question, axes, kTop);
    std::set<double> found;
    std::set<std::string> names;
    for (int row = 0; row < kTop; ++row) {
      found.insert(plan.ranked[row].iteration_s);
    }
    for (const PlanResult& result : plan.ranked) {
      names.insert(plan.space->NameOf(result.point));
    }
    wanted.resize(found.size());
    CHECK(std::vector<double>(found.begin(), found.end()) == wanted);
    // Nothing stands twice.
    CHECK(names.size() == plan.ranked.size());
    const PlanResult& best = plan.ranked[0];
    RunContext context;
    CHECK(Simulate(plan.space->ConfigOf(best.point), &context)
              .value()
              .report.iteration_s == best.iteration_s);
    const Json row = Json::parse(PlanToJson(plan))["best"];
    for (const auto& [axis, values] : axes) {
      const Json& own = row[axis];
      CHECK(own.is_string() !=
            (axis == "etp" || values[0] == "true" || values[0] == "false"));
      const std::string chosen =
          own.is_string() ? own.get<std::string>() : own.dump();
      CHECK(std::count(values.begin(), values.end(), chosen) == 1);
      CHECK(absl::StrContains(plan.space->NameOf(best.point),
                              absl::StrCat(axis, " ", chosen)));
    }
  }
}

TEST_CASE("plan: one value of such an axis is a field and no axis",
          "[search]") {
  PlanRequest request = EnergyRequest();
  request.objective = PlanObjective::kTokensPerSecond;
  const PlanOutcome plain = PlanOf(request);
  request.fixed["precision"] = {"fp8"};
  const PlanOutcome one = PlanOf(request);
  CHECK(one.counts.legal == plain.counts.legal);
  CHECK_FALSE(
      absl::StrContains(one.space->NameOf(one.ranked[0].point), "precision"));
  CHECK(one.space->ConfigOf(one.ranked[0].point).strategy.precision ==
        Precision::kFp8);
  request.fixed["precision"] = {"bf16", "fp8"};
  CHECK(PlanOf(request).counts.legal == 2 * plain.counts.legal);
  // On one tensor rank there is nothing to overlap.
  request.fixed.erase("precision");
  request.fixed["overlap_tensor"] = {"false", "true"};
  request.fixed["tp"] = {"1"};
  const int64_t both = PlanOf(request).counts.legal;
  request.fixed.erase("overlap_tensor");
  CHECK(both == PlanOf(request).counts.legal);
  request.fixed["precision"] = {"bf16", "fp4"};
  RunContext context;
  const auto refused = MakePlan(request, {}, &context);
  CHECK(absl::StrContains(refused.status().message(), "--fix precision=fp4"));
}

TEST_CASE("plan: values that are left out take no layouts with them",
          "[search]") {
  PlanRequest request = EnergyRequest();
  request.objective = PlanObjective::kTokensPerSecond;
  // Nothing that these layouts run again has modules.
  request.fixed["recompute_modules"] = {"layernorm"};
  const PlanOutcome one = PlanOf(request);
  request.drops_variants = true;
  for (const std::vector<std::string>& values :
       {std::vector<std::string>{"bogus", "layernorm"},
        std::vector<std::string>{"layernorm", "bogus"}}) {
    request.fixed["recompute_modules"] = values;
    const PlanOutcome some = PlanOf(request);
    CHECK(some.counts.legal == one.counts.legal);
    CHECK(some.ranked[0].iteration_s == one.ranked[0].iteration_s);
    REQUIRE(some.space->left_out().size() == 1);
    CHECK(some.space->left_out()[0].chosen[0].second == "bogus");
  }
}

}  // namespace
}  // namespace pipewright::plan_axes_test
