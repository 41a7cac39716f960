// Plans of several clusters, and the fewest nodes for a target: against plans
// of each cluster alone.
#include "sim/analysis/search/plan_clusters.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/base/json.h"
#include "tests/support/json.h"
#include "tests/support/run_binary.h"

namespace pipewright::plan_clusters_test {
namespace {

using testing::BinaryResult;
using testing::RunBinary;

PlanRequest RequestOf(const std::string& system, int nodes) {
  PlanRequest request;
  request.base = ReadConfig("", "",
                            {{{"model.preset", "llama3-8b", "test"},
                              {"model.layers", "16", "test"},
                              {"strategy.sequence", "2048", "test"},
                              {"system.preset", system, "test"},
                              {"system.nodes", absl::StrCat(nodes), "test"},
                              {"costs.analytic.device", "auto", "test"}}})
                     .value();
  request.global_batch = 96;
  request.fixed = {{"cp", {"1"}},
                   {"offload", {"none"}},
                   {"recompute", {"none"}},
                   {"schedule", {"1f1b"}},
                   {"layout", {"even"}}};
  return request;
}

PlanOptions Options() {
  PlanOptions options;
  options.confirm = false;
  options.top = 3;
  return options;
}

PlanOutcome Alone(const std::string& system, int nodes) {
  RunContext context;
  return MakePlan(RequestOf(system, nodes), Options(), &context).value();
}

// Infinite if the devices do not divide the batch.
double BestStep(const PlanOutcome& plan) {
  return plan.ranked.empty() ? std::numeric_limits<double>::infinity()
                             : plan.ranked[0].iteration_s;
}

TEST_CASE("plan: numbers of nodes that are tried", "[search]") {
  CHECK(NodesUpTo(1) == std::vector<int>{1});
  CHECK(NodesUpTo(22) ==
        std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 22});
}

TEST_CASE("plan: of several clusters each is planned as if alone", "[search]") {
  const std::vector<std::pair<std::string, int>> clusters = {
      {"dgx-h100", 1}, {"dgx-h100", 2}, {"dgx-a100", 2}};
  for (const PlanObjective objective :
       {PlanObjective::kTokensPerSecond, PlanObjective::kCost,
        PlanObjective::kEnergy}) {
    PlanQuestion question = {.tokens = 1e12};
    std::vector<PlanOutcome> alone;
    for (const auto& [system, nodes] : clusters) {
      PlanRequest request = RequestOf(system, nodes);
      request.objective = objective;
      RunContext context;
      alone.push_back(MakePlan(request, Options(), &context).value());
      question.clusters.push_back(std::move(request));
    }
    RunContext context;
    const PlanClusters out =
        ComparePlans(question, Options(), &context).value();
    REQUIRE(out.rows.size() == alone.size());
    size_t best = 0;
    for (size_t row = 0; row < alone.size(); ++row) {
      CHECK(out.rows[row].system == clusters[row].first);
      CHECK(PlanToJson(*out.rows[row].outcome) == PlanToJson(alone[row]));
      if (alone[row].ranked[0].score < alone[best].ranked[0].score) best = row;
    }
    CHECK(out.answer == best);
    CHECK(ClustersVerdict(out).ok());
    const testing::Json json = testing::Json::parse(ClustersToJson(out).dump());
    CHECK(json["answer"] == best);
    for (size_t row = 0; row < alone.size(); ++row) {
      const PlanResult& first = alone[row].ranked[0];
      const int devices = 8 * first.point.group.nodes;
      const double seconds = 1e12 / (96.0 * 2048) * first.iteration_s;
      const testing::Json& said = json["clusters"][row];
      CHECK(said["devices"] == devices);
      CHECK(said["global_batch"] == 96);
      CHECK(said["device_hours"].get<double>() ==
            Approx(seconds * devices / 3600).epsilon(1e-9));
      CHECK(said["plan"]["best"]["iteration_s"] == first.iteration_s);
      CHECK(said["joules_per_token"].get<double>() ==
            Approx(first.energy->joules / (96.0 * 2048)));
    }
  }
}

PlanClusters Least(const PlanTarget& target, int most,
                   double bound_factor = 1) {
  PlanQuestion question = {.clusters = {RequestOf("dgx-h100", most)},
                           .target = target,
                           .least = true};
  PlanOptions options = Options();
  options.bound_factor = bound_factor;
  RunContext context;
  return ComparePlans(question, options, &context).value();
}

TEST_CASE("plan: the fewest nodes for a target are found", "[search]") {
  constexpr int kMost = 6;
  std::vector<double> steps;  // [nodes]
  for (int nodes = 1; nodes <= kMost; ++nodes) {
    steps.push_back(BestStep(Alone("dgx-h100", nodes)));
  }
  const auto fewest = [&](double seconds) {
    return 1 + std::distance(
                   steps.begin(),
                   std::find_if(steps.begin(), steps.end(),
                                [&](double step) { return step <= seconds; }));
  };
  std::set<int64_t> answers;
  for (const double of_steps : {1.0, 1.001, 0.999}) {
    for (const double step : {steps[0], steps[1], steps[2], steps[3]}) {
      const double seconds = step * of_steps;
      INFO(seconds);
      const PlanClusters by_step = Least({.step_s = seconds}, kMost);
      REQUIRE(by_step.answer);
      const PlanCluster& row = by_step.rows[*by_step.answer];
      CHECK(row.nodes == fewest(seconds));
      CHECK(PlanToJson(*row.outcome) ==
            PlanToJson(Alone("dgx-h100", row.nodes)));
      answers.insert(row.nodes);
      const PlanClusters by_rate =
          Least({.tokens_per_s = 96 * 2048 / seconds}, kMost);
      REQUIRE(by_rate.answer);
      CHECK(by_rate.rows[0].nodes == row.nodes);
      CHECK(absl::StrContains(ClustersToText(by_step), "fewest devices for"));
    }
  }
  CHECK(answers.size() > 2);

  const double least = *std::min_element(steps.begin(), steps.end());
  const PlanClusters none = Least({.step_s = 0.9 * least}, kMost);
  CHECK_FALSE(none.answer);
  CHECK(none.rows[0].nodes == kMost);
  CHECK_FALSE(none.rows[0].meets);
  const absl::Status verdict = ClustersVerdict(none);
  CHECK(verdict.code() == absl::StatusCode::kResourceExhausted);
  CHECK(absl::StrContains(verdict.message(), "no plan reaches"));

  // With bounds that are too high two nodes that suffice are not seen.
  const double enough = steps[1] * 1.001;
  CHECK(fewest(enough) == 2);
  const PlanClusters wrong = Least({.step_s = enough}, kMost, 1.2);
  CHECK((!wrong.answer || wrong.rows[*wrong.answer].nodes > 2));
}

TEST_CASE("cli: plan compares clusters, or says why it does not", "[cli]") {
  const std::vector<std::string> plan = {
      "plan",           "gpt2", "--no-confirm", "--fix", "schedule=1f1b",
      "--global-batch", "64",   "--fix",        "cp=1"};
  const auto run = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = plan;
    words.insert(words.end(), more.begin(), more.end());
    return RunBinary(words);
  };
  const BinaryResult two = run({"--system", "dgx-h100,dgx-a100", "--nodes",
                                "1,2", "--tokens", "300B", "--json"});
  INFO(two.err);
  REQUIRE(two.exit_code == 0);
  const testing::Json json = testing::Json::parse(two.out);
  CHECK(json["tokens"] == 300e9);
  REQUIRE(json["clusters"].size() == 4);
  const BinaryResult one =
      run({"--system", "dgx-a100", "--nodes", "2", "--json"});
  CHECK(testing::Json::parse(one.out).dump() ==
        json["clusters"][3]["plan"].dump());
  const BinaryResult text =
      run({"--system", "dgx-h100", "--nodes", "1,2", "--tokens", "1.5T"});
  CHECK(absl::StrContains(text.out, "device-hours"));
  CHECK(absl::StrContains(text.out, "fastest: dgx-h100, "));
  CHECK(absl::StrContains(text.out, "\nbest"));

  // What one system cannot run does not take the system away.
  const BinaryResult some =
      run({"--system", "dgx-a100,dgx-h100", "--fix", "precision=bf16,fp8",
           "--fix", "launch=eager,graphs", "--json"});
  INFO(some.err);
  const testing::Json able = testing::Json::parse(some.out);
  REQUIRE(able["clusters"][0]["left_out"].size() == 2);  // launches
  CHECK(absl::StrContains(
      able["clusters"][0]["left_out"][0]["error"].get<std::string>(),
      "--fix precision=fp8"));
  CHECK(able["clusters"][1]["left_out"].empty());
  const BinaryResult alone =
      run({"--system", "dgx-a100", "--fix", "launch=eager,graphs", "--json"});
  CHECK(able["clusters"][0]["step_s"] ==
        testing::Json::parse(alone.out)["best"]["iteration_s"]);
  CHECK(
      run({"--system", "dgx-a100", "--fix", "precision=bf16,fp8"}).exit_code ==
      2);
  CHECK(able["clusters"][0]["left_out"][1]["fix"]["precision"] == "fp8");
  // In any order.
  const BinaryResult turned =
      run({"--system", "dgx-a100,dgx-h100", "--fix", "precision=fp8,bf16",
           "--fix", "launch=eager,graphs", "--json"});
  CHECK(testing::Json::parse(turned.out)["clusters"][0]["step_s"] ==
        able["clusters"][0]["step_s"]);
  // What none can run is a mistake.
  const auto mistaken = [&](const char* fixed, const char* words) {
    const BinaryResult result =
        run({"--system", "dgx-a100,dgx-h100", "--fix", fixed});
    INFO(result.err);
    CHECK(result.exit_code == 2);
    CHECK(absl::StrContains(result.err, words));
  };
  mistaken("precision=bf16,nvfp4", "precision=nvfp4");
  mistaken("recompute_modules=bogus,layernorm", "bogus");
  mistaken("etp=1,3", "3 is not allowed");
  const BinaryResult neither =
      run({"--system", "dgx-a100,a100-roce", "--fix", "precision=fp8,nvfp4"});
  CHECK(neither.exit_code == 2);
  CHECK(absl::StrContains(neither.err, "precision=fp8"));

  const std::vector<std::string> h100 = {"--system", "dgx-h100"};
  const auto refused = [&](std::vector<std::string> more, int exit,
                           const char* words) {
    more.insert(more.end(), h100.begin(), h100.end());
    const BinaryResult result = run(more);
    INFO(result.err);
    CHECK(result.exit_code == exit);
    CHECK(absl::StrContains(result.err, words));
  };
  refused({"--nodes", "2", "--target-step", "1us"}, 3, "no plan reaches");
  refused({"--target-step", "1s"}, 2, "--nodes");
  refused({"--nodes", "2", "--target-step", "1"}, 2, "--target-step");
  refused({"--nodes", "2", "--target-step", "1s", "--target-rate", "5"}, 2,
          "--target-rate");
  refused({"--nodes", "2", "--target-rate", "0"}, 2, "--target-rate");
  refused({"--nodes", "2", "--target-rate", "5", "--objective", "cost"}, 2,
          "--objective");
  refused({"--nodes", "2", "--target-rate", "5", "--fix", "nodes=1"}, 2,
          "--fix nodes");
  refused({"--nodes", "1,2", "--tokens", "many"}, 2, "--tokens");
  refused({"--nodes", "1,x"}, 2, "--nodes");
  refused({"--nodes", "1,1"}, 2, "each once");
  refused({"--nodes", "1,"}, 2, "each once");
  refused({"--nodes", "2", "--target-step", "1s", "--set",
           "slow.devices=node1*1.5"},
          2, "fewer nodes may not have them");
  refused({"--nodes", "1,2", "--set", "slow.devices=node1*1.5"}, 2,
          "fewer nodes may not have them");
  refused({"--objective", "energy", "--refine", "1"}, 2, "--refine");

  const BinaryResult unknown = run({"--system", "dgx-h100,nope"});
  CHECK(unknown.exit_code == 2);
  CHECK(absl::StrContains(unknown.err, "nope"));
  CHECK(run({"--system", "dgx-h100,"}).exit_code == 2);
  const BinaryResult once =
      run({"--system", "dgx-h100", "--fix", "precision=fp8", "--json"});
  const BinaryResult twice =
      run({"--system", "dgx-h100", "--fix", "precision=fp8,fp8", "--json"});
  CHECK(once.out == twice.out);
}

TEST_CASE("cli: a target of a search that was cut is not settled", "[cli]") {
  const BinaryResult cut = RunBinary(
      {"plan", "gpt2", "--no-confirm", "--fix", "schedule=1f1b",
       "--global-batch", "64", "--fix", "cp=1", "--system", "dgx-h100",
       "--nodes", "2", "--target-step", "1us", "--max-candidates", "1"});
  INFO(cut.err);
  CHECK(cut.exit_code == 1);
  CHECK(absl::StrContains(cut.out, "not settled, the search was cut"));
  CHECK_FALSE(absl::StrContains(cut.out, "none reaches"));
}

}  // namespace
}  // namespace pipewright::plan_clusters_test
