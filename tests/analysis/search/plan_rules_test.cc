// What `plan` looks at, and what it confirms: against the rules of docs/plan.md
// written down here.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/analysis/search/plan.h"
#include "sim/analysis/search/plan_bound.h"
#include "tests/support/json.h"

namespace pipewright::plan_rules_test {
namespace {

using testing::Json;
using Fixed = std::map<std::string, std::vector<std::string>>;

RunConfig Base(const std::vector<std::pair<std::string, std::string>>& more) {
  std::vector<ConfigEdit> edits = {
      {"system.preset", "dgx-h100", "test"},
      {"system.nodes", "1", "test"},
      {"costs.analytic.device", "auto", "test"},
      // The host hides nothing.
      {"costs.analytic.launch_time", "0us", "test"}};
  for (const auto& [path, value] : more) edits.push_back({path, value, "test"});
  return ReadConfig("", "", {edits}).value();
}

// All values of one axis in a plan's space.
template <typename Value>
std::set<int64_t> Values(const PlanRequest& request, Value value) {
  RunContext context;
  const auto space = PlanSpace::Make(request, &context);
  INFO(space.status());
  REQUIRE(space.ok());
  std::set<int64_t> values;
  for (const PlanGroup& group : (*space)->Groups()) {
    values.insert(static_cast<int64_t>(value(group)));
  }
  return values;
}

using Set = std::set<int64_t>;

TEST_CASE("plan: a context is cut down to 4096 tokens a device", "[search]") {
  for (const auto& [sequence, degrees] : {std::pair<int, Set>{4096, {1}},
                                          {8188, {1}},
                                          {8192, {1, 2}},
                                          {16380, {1, 2}},
                                          {16384, {1, 2, 4}},
                                          {32768, {1, 2, 4, 8}}}) {
    PlanRequest request;
    request.base = Base({{"model.preset", "llama3-8b"},
                         {"strategy.sequence", absl::StrCat(sequence)}});
    request.global_batch = 8;
    request.fixed = Fixed{{"schedule", {"1f1b"}},
                          {"layout", {"even"}},
                          {"tp", {"1"}},
                          {"pp", {"1"}},
                          {"microbatch_size", {"1"}}};
    INFO(sequence);
    CHECK(Values(request, [](const PlanGroup& group) { return group.cp; }) ==
          degrees);
  }
}

TEST_CASE("plan: degrees of experts divide experts and who shares them",
          "[search]") {
  const auto degrees = [](int tp, const char* etp, int pp) {
    PlanRequest request;
    std::vector<std::pair<std::string, std::string>> fields = {
        {"model.preset", "qwen3-30b-a3b"},
        {"model.layers", "8"},
        {"strategy.sequence", "2048"}};
    if (etp != nullptr) fields.emplace_back("strategy.etp", etp);
    request.base = Base(fields);
    request.global_batch = 8;
    request.fixed = Fixed{{"schedule", {"1f1b"}},
                          {"layout", {"even"}},
                          {"tp", {absl::StrCat(tp)}},
                          {"pp", {absl::StrCat(pp)}},
                          {"microbatch_size", {"1"}}};
    return Values(request, [](const PlanGroup& group) { return group.ep; });
  };
  CHECK(degrees(1, nullptr, 1) == Set{1, 2, 4, 8});
  CHECK(degrees(2, nullptr, 1) == Set{1, 2, 4});
  // Experts that are not cut, or less so, go over the devices of tp as well.
  CHECK(degrees(2, "1", 1) == Set{1, 2, 4, 8});
  CHECK(degrees(4, "2", 1) == Set{1, 2, 4});
  CHECK(degrees(4, nullptr, 1) == Set{1, 2});
  CHECK(degrees(2, "1", 4) == Set{1, 2});
}

TEST_CASE("plan: experts are loaded unevenly where several devices have them",
          "[search]") {
  PlanRequest request;
  request.base = Base({{"model.preset", "qwen3-30b-a3b"},
                       {"model.layers", "8"},
                       {"strategy.sequence", "2048"},
                       {"strategy.expert_load", "1.5"}});
  request.global_batch = 8;
  request.fixed = Fixed{{"schedule", {"1f1b"}},
                        {"layout", {"even"}},
                        {"tp", {"1"}},
                        {"pp", {"1"}},
                        {"microbatch_size", {"1"}}};
  CHECK(Values(request, [](const PlanGroup& group) { return group.ep; }) ==
        Set{2, 4, 8});
  RunContext context;
  const auto space = PlanSpace::Make(request, &context);
  const PlanGroup group = (*space)->Groups().front();
  CHECK((*space)->TrainingOf(group).execution.expert_load == 1.5);
}

TEST_CASE("plan: chunks, samples of a microbatch and ranks end where they do",
          "[search]") {
  PlanRequest request;
  request.base = Base({{"model.preset", "llama3-8b"},
                       {"model.layers", "24"},
                       {"strategy.sequence", "2048"}});
  request.global_batch = 96;
  request.fixed = Fixed{{"schedule", {"interleaved-1f1b"}},
                        {"tp", {"4"}},
                        {"recompute", {"none"}}};
  const auto vpp = [](const PlanGroup& group) { return group.vpp; };
  const auto size = [](const PlanGroup& group) {
    return group.microbatch_size;
  };
  const auto pp = [](const PlanGroup& group) { return group.pp; };
  request.fixed["pp"] = {"2"};
  // 26 = 24 layers and both ends hold 13 chunks; 12 are the most.
  CHECK(Values(request, vpp) == Set{2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  request.base = Base({{"model.preset", "llama3-8b"},
                       {"model.layers", "8"},
                       {"strategy.sequence", "2048"}});
  CHECK(Values(request, vpp) == Set{2, 3, 4, 5});
  CHECK(Values(request, size) == Set{1, 2, 4, 8});
  request.fixed.erase("pp");
  request.fixed["schedule"] = {"1f1b"};
  CHECK(Values(request, pp) == Set{1, 2});
  request.fixed.erase("tp");
  request.base = Base({{"model.preset", "llama3-8b"},
                       {"model.layers", "3"},
                       {"strategy.sequence", "2048"}});
  // Divisors of eight devices up to three layers.
  CHECK(Values(request, pp) == Set{1, 2});
}

std::vector<std::string> LayoutTexts(int64_t layers, int pp, int vpp) {
  std::vector<std::string> texts;
  for (const PlanLayout& layout : LayoutsOf(layers, pp, vpp)) {
    texts.push_back(
        absl::StrCat(layout.name, ": ", absl::StrJoin(layout.counts, ",")));
  }
  return texts;
}

TEST_CASE("plan: layouts, listed by hand", "[search]") {
  CHECK(LayoutTexts(8, 2, 2) ==
        std::vector<std::string>{
            "even: ", "ends 0 1 late middle: 2,2,3,1",
            "ends 0 1 early middle: 2,3,2,1", "ends 0 2 late middle: 2,3,3,0",
            "ends 1 0 late middle: 1,2,3,2", "ends 1 0 early middle: 1,3,2,2",
            "ends 1 1 late middle: 1,3,3,1"});
  // One more is left over: on either stage in the middle.
  CHECK(LayoutTexts(9, 4, 1) ==
        std::vector<std::string>{
            "ends 0 0 late middle: 2,3,2,2", "ends 0 0 late high: 2,2,3,2",
            "ends 0 1 late middle: 2,3,3,1", "ends 1 0 late middle: 1,3,3,2"});
  CHECK(LayoutTexts(5, 1, 1) == std::vector<std::string>{"even: "});
}

PlanRequest Close(const std::string& batch) {
  PlanRequest request;
  request.base = Base({{"model.preset", "llama3-8b"},
                       {"model.layers", "14"},
                       {"strategy.sequence", "2048"},
                       {"system.memory", "1000GiB"}});
  request.global_batch = std::stoi(batch);
  // Layouts that differ by little.
  request.fixed = Fixed{{"schedule", {"1f1b", "zb-h1", "interleaved-1f1b"}},
                        {"cp", {"1"}},
                        {"tp", {"2", "4"}},
                        {"pp", {"2", "4"}},
                        {"recompute", {"none"}},
                        {"offload", {"none"}}};
  return request;
}

struct Confirmed {
  int count = 0;
  int64_t open = 0;
};

// In the order of times on fast, as long as one could be second on fluid: a
// mean of so many passes is below its expectation by five deviations at most.
Confirmed Confirm(const PlanOutcome& outcome, int most) {
  std::vector<PlanResult> rows = outcome.ranked;
  std::stable_sort(rows.begin(), rows.end(),
                   [](const PlanResult& one, const PlanResult& other) {
                     return one.score < other.score;
                   });
  std::vector<double> times;
  std::set<int64_t> done;
  Confirmed out;
  while (true) {
    std::sort(times.begin(), times.end());
    const double second =
        times.size() < 2 ? std::numeric_limits<double>::infinity() : times[1];
    const PlanResult* next = nullptr;
    out.open = 0;
    for (const PlanResult& row : rows) {
      const double passes =
          2.0 * row.point.group.microbatches * row.point.group.vpp;
      if (done.count(row.order) > 0 ||
          row.score * (1 - 0.15 / std::sqrt(passes)) > second) {
        continue;
      }
      ++out.open;
      if (next == nullptr) next = &row;
    }
    if (next == nullptr || (most > 0 && out.count == most)) return out;
    ++out.count;
    done.insert(next->order);
    // What is not there was never looked at.
    if (!next->confirmed_s) return out;
    times.push_back(*next->confirmed_s);
  }
}

// A point that fast has not seen, though its bound is below `limit`.
std::string Missed(const PlanOutcome& outcome, double limit) {
  std::set<std::string> seen;
  for (const PlanResult& result : outcome.ranked) {
    seen.insert(outcome.space->NameOf(result.point));
  }
  PlanBounds bounds(outcome.space.get());
  int below = 0;
  std::string missed;
  for (const PlanGroup& group : outcome.space->Groups()) {
    for (const PlanPoint& point : outcome.space->PointsOf(group)) {
      if (std::max(bounds.StepSeconds(point), bounds.ReplaySeconds(point)) >
          limit * (1 - 1e-6)) {
        continue;
      }
      ++below;
      const std::string name = outcome.space->NameOf(point);
      if (seen.count(name) == 0) missed = name;
    }
  }
  CHECK(below >= 2);
  return missed;
}

TEST_CASE("plan: it confirms what could be first or second, and no more",
          "[search]") {
  int leave_some = 0;  // batches with points that fluid does not see
  int look_further = 0;
  for (const char* batch : {"8", "16"}) {
    INFO(batch);
    RunContext context;
    PlanOptions options;
    options.most_confirmed = 0;
    const PlanOutcome all = MakePlan(Close(batch), options, &context).value();
    const Confirmed wanted = Confirm(all, 0);
    CHECK(all.confirmed == wanted.count);
    CHECK(all.open == 0);
    CHECK(wanted.open == 0);
    CHECK(all.confirmed > 3);
    leave_some += all.confirmed < static_cast<int>(all.ranked.size()) ? 1 : 0;
    // Those on fluid come first, by their time there.
    for (int row = 0; row < static_cast<int>(all.ranked.size()); ++row) {
      const PlanResult& result = all.ranked[row];
      CHECK(result.confirmed_s.has_value() == (row < all.confirmed));
      if (row == 0 || row == all.confirmed) continue;
      const PlanResult& before = all.ranked[row - 1];
      const double slack = 1 + 1e-9;
      CHECK(before.confirmed_s.value_or(before.score) <=
            result.confirmed_s.value_or(result.score) * slack);
    }
    const Json json = Json::parse(PlanToJson(all));
    CHECK(json["confirmed"] == all.confirmed);
    CHECK(json["could_be_second"] == 0);
    CHECK(json["margin"].get<double>() ==
          Approx(*all.ranked[1].confirmed_s / *all.ranked[0].confirmed_s - 1));
    options.most_confirmed = 2;
    const PlanOutcome two = MakePlan(Close(batch), options, &context).value();
    CHECK(two.confirmed == 2);
    CHECK(two.open == Confirm(two, 2).open);
    CHECK(two.open > 0);
    options.confirm = false;
    const PlanOutcome none = MakePlan(Close(batch), options, &context).value();
    CHECK(none.confirmed == 0);
    CHECK(none.open == 0);
    // With two times of fluid all that its bound puts below the slower of
    // them is looked at on fast, up to 2 % above the best there.
    CHECK(two.counts.simulated >= none.counts.simulated);
    look_further += two.counts.simulated > none.counts.simulated ? 1 : 0;
    CHECK(two.counts.simulated == all.counts.simulated);
    const double slower =
        std::max(*two.ranked[0].confirmed_s, *two.ranked[1].confirmed_s);
    const double first = none.ranked[0].score;
    CHECK(Missed(none, none.ranked[1].score) == "");
    CHECK(Missed(two, std::min(slower, 1.02 * first)) == "");
  }
  CHECK(leave_some > 0);
  CHECK(look_further > 0);
}

}  // namespace
}  // namespace pipewright::plan_rules_test
