// An explanation as text and as JSON, against its parts.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sim/analysis/explain/explain.h"
#include "tests/support/json.h"

namespace pipewright::texts_test {
namespace {

using testing::Json;

// Stage s takes s + 1 seconds more than 10.
RunConfig Uneven(int pp) {
  RunConfig config;
  config.engine = "fast";
  config.schedule.name = "1f1b";
  config.strategy.pp = pp;
  config.strategy.microbatches = 2 * pp;
  config.costs.p2p_s = 1;
  for (int stage = 0; stage < pp; ++stage) {
    config.costs.stage_forward_s.push_back(10 + stage);
    config.costs.stage_backward_input_s.push_back(20);
    config.costs.stage_backward_weight_s.push_back(5);
  }
  return config;
}

Explanation Explained(const RunConfig& config, bool sensitivities = false) {
  RunContext context;
  auto explained = Explain(
      config, {.what_if = {}, .sensitivities = sensitivities}, &context);
  INFO(explained.status());
  REQUIRE(explained.ok());
  return *std::move(explained);
}

// The cells behind the name of a row.
std::vector<std::string> CellsOf(const std::string& text,
                                 const std::string& name) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StartsWith(line, absl::StrCat(name, " "))) continue;
    return absl::StrSplit(line.substr(name.size()), ' ', absl::SkipEmpty());
  }
  return {};
}

void CheckCell(const std::string& cell, double value) {
  CHECK(std::abs(std::stod(cell) - value) < 6e-4);
}

TEST_CASE("explain: the table of few ranks has a column for each",
          "[explain]") {
  const Explanation explained = Explained(Uneven(4));
  const std::string text = ExplanationToText(explained);
  INFO(text);
  const StepExplanation& step = explained.step;
  double mean = 0;
  const auto cells = CellsOf(text, "compute");
  REQUIRE(cells.size() == 6);
  for (const RankStep& rank : step.ranks) {
    const double compute = rank.parts.Sum(PartGroup::kCompute);
    // Eight microbatches of F, B and W.
    CHECK(compute == Approx(8 * (10 + rank.rank + 20 + 5)));
    CheckCell(cells[rank.rank], compute);
    mean += compute / 4;
    CHECK(rank.parts.Sum() == Approx(step.step_s));
  }
  CheckCell(cells[4], std::round(1e4 * mean / step.step_s) / 100);
  CheckCell(CellsOf(text, "step")[0], step.step_s);
}

TEST_CASE("explain: the table of many ranks has mean, least and most",
          "[explain]") {
  const Explanation explained = Explained(Uneven(10));
  const std::string text = ExplanationToText(explained);
  INFO(text);
  // 20 microbatches; rank r has 35 + r seconds of each.
  const auto compute = CellsOf(text, "compute");
  REQUIRE(compute.size() == 6);
  CheckCell(compute[0], 20 * 39.5);
  CheckCell(compute[1], 20 * 35);
  CheckCell(compute[2], 20 * 44);
  CHECK(compute[3] == "9");
  CheckCell(compute[4],
            std::round(1e4 * 20 * 39.5 / explained.step.step_s) / 100);
  const auto bubble = CellsOf(text, "bubble");
  REQUIRE(bubble.size() == 6);
  CheckCell(bubble[0], explained.step.step_s - 20 * 39.5);
  CheckCell(bubble[1], explained.step.step_s - 20 * 44);
  CheckCell(bubble[2], explained.step.step_s - 20 * 35);
  CHECK(bubble[3] == "0");
  const Json json = Json::parse(ExplanationToJson(explained));
  CHECK(json["ranks"].size() == 10);
  for (const Json& rank : json["ranks"]) {
    double sum = 0;
    for (const char* group : {"compute_s", "bubble_s", "communication_s"}) {
      for (const auto& [part, seconds] : rank[group].items()) {
        sum += seconds.get<double>();
      }
    }
    CHECK(sum == Approx(json["step_s"].get<double>()));
  }
}

TEST_CASE("explain: up to sixteen stages have sensitivities of their own",
          "[explain]") {
  for (const int pp : {16, 17}) {
    const Explanation explained = Explained(Uneven(pp), true);
    const auto stages = std::count_if(
        explained.sensitivities.begin(), explained.sensitivities.end(),
        [](const Sensitivity& row) {
          return absl::StartsWith(row.name, "stage");
        });
    CHECK(stages == (pp == 16 ? 16 : 0));
  }
}

TEST_CASE("explain: a searched order beside the order it was made from",
          "[explain]") {
  RunConfig config;
  config.engine = "fast";
  config.schedule.name = "optimal";
  config.schedule.params = {{"steps", "20000"}};
  config.strategy.pp = 4;
  config.strategy.microbatches = 8;
  config.strategy.max_activations = 3;
  config.costs.forward_s = 1;
  config.costs.backward_input_s = 1.05;
  config.costs.backward_weight_s = 0.8;
  config.costs.p2p_s = 0.1;
  const Explanation explained = Explained(config);
  REQUIRE(explained.searched);
  const SearchedOrder& searched = *explained.searched;
  // Eight microbatches of F, B and W on each rank, all else are bubbles.
  const double work = 8 * (1 + 1.05 + 0.8);
  CHECK(searched.bubble == Approx(1 - work / explained.step.step_s));
  CHECK(searched.start_bubble == Approx(1 - work / searched.start_step_s));
  CHECK(searched.bubble < searched.start_bubble);
  CHECK(searched.start.schedule().Has(PassKind::kBackwardWeight));
  // Without a step the order is its start.
  config.schedule.params = {{"steps", "0"}};
  const Explanation start = Explained(config);
  CHECK(start.step.step_s == Approx(searched.start_step_s));
  CHECK(absl::StrContains(ExplanationToText(start), ": nothing has moved (of"));
  const std::string text = ExplanationToText(explained);
  INFO(text);
  const Json json = Json::parse(ExplanationToJson(explained))["searched"];
  CHECK(json["passes"] == 4 * 8 * 3);
  CHECK(json["start_step_s"] == searched.start_step_s);
  int64_t moved = 0;
  for (const auto& [kind, moves] : json["moves"].items()) {
    for (const char* where : {"earlier", "later"}) {
      const auto count = moves[where].get<int64_t>();
      moved += count;
      CHECK(absl::StrContains(text, absl::StrCat(count, " ", kind, " ",
                                                 where)) == (count > 0));
    }
    CHECK(moves["more"] == 0);
    CHECK(moves["fewer"] == 0);
  }
  CHECK(moved > 0);
  const std::string svg = ExplanationSvg(explained);
  const size_t first = svg.find("From " + searched.found.start);
  REQUIRE(first != std::string::npos);
  CHECK(svg.find("Searched: step ", first) != std::string::npos);
  // Others were not searched for.
  const Explanation usual = Explained(Uneven(4));
  CHECK(!usual.searched);
  CHECK(Json::parse(ExplanationToJson(usual))["searched"].is_null());
  CHECK(!absl::StrContains(ExplanationSvg(usual), "Searched: "));
}

}  // namespace
}  // namespace pipewright::texts_test
