// `plan` while one waits: its first answer, what ends it early, and the list of
// a search that has ended, against every point of a small space.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sim/analysis/search/plan.h"
#include "sim/base/file.h"
#include "sim/run/simulated_run.h"
#include "sim/schedule/registry.h"
#include "tests/support/json.h"
#include "tests/support/paths.h"
#include "tests/support/run_binary.h"

namespace pipewright::plan_cut_test {
namespace {

using testing::BinaryResult;
using testing::Json;
using testing::RunBinary;

PlanRequest RequestOf(
    const std::string& model, int nodes, int64_t batch,
    const std::vector<std::pair<std::string, std::string>>& more = {}) {
  std::vector<ConfigEdit> edits = {
      {"model.preset", model, "test"},
      {"system.preset", "dgx-h100", "test"},
      {"system.nodes", absl::StrCat(nodes), "test"},
      {"costs.analytic.device", "auto", "test"},
      // The host hides nothing.
      {"costs.analytic.launch_time", "0us", "test"}};
  for (const auto& [path, value] : more) edits.push_back({path, value, "test"});
  PlanRequest request;
  request.base = ReadConfig("", "", {edits}).value();
  request.global_batch = batch;
  return request;
}

PlanRequest SmallRequest() {
  PlanRequest request = RequestOf("llama3-8b", 1, 8,
                                  {{"model.layers", "9"},
                                   {"strategy.sequence", "2048"},
                                   {"system.memory", "24GiB"}});
  request.fixed = {{"cp", {"1"}},
                   {"tp", {"2", "4"}},
                   {"offload", {"none"}},
                   {"vpp", {"1", "2", "3"}},
                   {"recompute", {"none", "full"}},
                   {"schedule",
                    {"1f1b", "gpipe", "zb-h1", "zb-h2", "gis",
                     "interleaved-1f1b", "interleaved-zb"}}};
  return request;
}

PlanOutcome PlanOf(const PlanRequest& request, PlanOptions options) {
  RunContext context;
  options.confirm = false;
  return MakePlan(request, options, &context).value();
}

TEST_CASE("plan: the first answer comes before the space is looked at",
          "[search]") {
  for (const auto& [model, nodes, batch] :
       {std::tuple("llama3-70b", 64, 1024), std::tuple("llama3-70b", 8, 512)}) {
    INFO(model << " on " << nodes);
    const PlanRequest request = RequestOf(model, nodes, batch);
    bool has_answer = false;
    PlanOptions options;
    options.progress = [&](const PlanProgress& progress) {
      // Nothing is known yet of the rest.
      CHECK(!progress.left);
      has_answer = has_answer || progress.best != nullptr;
      CHECK(progress.counts.plain <= 12);
    };
    options.stops = [&] {
      return has_answer ? PlanCut::kSignal : PlanCut::kNone;
    };
    const PlanOutcome plan = PlanOf(request, options);
    CHECK(has_answer);
    REQUIRE(!plan.ranked.empty());
    CHECK(plan.cut == PlanCut::kSignal);
    CHECK(!plan.left);
    CHECK(plan.counts.tried == 0);
    CHECK(plan.counts.legal > 1'000'000);
    RunContext context;
    const auto run =
        Simulate(plan.space->ConfigOf(plan.ranked[0].point), &context);
    REQUIRE(run.ok());
    CHECK(run->report.fits == true);
    CHECK(run->report.iteration_s == plan.ranked[0].iteration_s);
    CHECK(absl::StrContains(PlanToText(plan), "too early for a bound"));
  }
}

TEST_CASE("plan: a cut by a count is the same for any number of threads",
          "[search]") {
  const PlanRequest request = SmallRequest();
  const PlanOutcome whole = PlanOf(request, {});
  REQUIRE(whole.cut == PlanCut::kNone);
  CHECK(!whole.left);
  const int64_t all = whole.counts.tried + whole.counts.plain;
  int with_bound = 0;
  for (const int64_t most : {int64_t{1}, int64_t{5}, whole.counts.plain + 3}) {
    INFO(most);
    REQUIRE(most < all);
    const PlanOutcome one = PlanOf(request, {.most_tried = most});
    const PlanOutcome three =
        PlanOf(request, {.workers = 3, .most_tried = most});
    CHECK(PlanToJson(one) == PlanToJson(three));
    CHECK(one.cut == PlanCut::kCandidates);
    CHECK(one.counts.tried + one.counts.plain == most);
    REQUIRE(one.left);
    // Nothing takes less than that, the best included.
    CHECK(*one.left <= whole.ranked[0].score * (1 + 1e-9));
    with_bound += *one.left > 0.5 * whole.ranked[0].score;
    if (one.ranked.empty()) continue;
    CHECK(one.ranked[0].score >= whole.ranked[0].score * (1 - 1e-9));
    CHECK(absl::StrContains(PlanToText(one),
                            absl::StrCat("cut by --max-candidates after ", most,
                                         " candidates: no layout that is left "
                                         "takes less than ")));
    const Json json = Json::parse(PlanToJson(one));
    CHECK(json["cut"]["by"] == "candidates");
    CHECK(json["cut"]["left"].get<double>() == *one.left);
    CHECK(json["counts"]["candidates"] == most);
    CHECK(json["counts"]["pruned_by_bound"] == 0);
    CHECK(json["counts"]["not_looked_at"].get<int64_t>() > 0);
  }
  CHECK(with_bound == 3);
  const PlanOutcome enough = PlanOf(request, {.most_tried = all + 1});
  CHECK(PlanToJson(enough) == PlanToJson(whole));
}

Schedule ScheduleOf(const PlanSpace& space, const PlanGroup& group) {
  ScheduleParams params;
  params.pp = group.pp;
  params.vpp = group.vpp;
  params.microbatches = group.microbatches;
  return BuildSchedule(space.schedules()[group.schedule], params).value();
}

bool AreSame(const PlanSpace& space, PlanGroup one, const PlanGroup& other) {
  const int16_t own = std::exchange(one.schedule, other.schedule);
  if (one != other) return false;
  one.schedule = own;
  const Schedule left = ScheduleOf(space, one);
  const Schedule right = ScheduleOf(space, other);
  for (int rank = 0; rank < one.pp; ++rank) {
    if (left.order(rank) != right.order(rank)) return false;
    for (int chunk = 0; chunk < one.vpp; ++chunk) {
      if (left.placement.StageOf(rank, chunk) !=
          right.placement.StageOf(rank, chunk)) {
        return false;
      }
    }
  }
  return true;
}

// Even layers; if there are none, those that leave none over, or the first.
bool IsPlain(const PlanSpace& space, const PlanGroup& group) {
  std::vector<int> words;
  for (const PlanLayout& layout : space.Layouts(group.pp, group.vpp)) {
    if (layout.name == "even") return group.layout == 0;
    const std::vector<std::string> parts = absl::StrSplit(layout.name, ' ');
    words.push_back(static_cast<int>(parts.size()));
  }
  const auto whole = std::find(words.begin(), words.end(), 3);
  return group.layout == (whole == words.end() ? 0 : whole - words.begin());
}

struct Row {
  PlanPoint point;
  double seconds = 0;
  double bytes = 0;
};

// Every point that fits, the fastest first.
std::vector<Row> AllRows(PlanSpace* space) {
  RunContext context;
  std::vector<Row> rows;
  for (const PlanGroup& group : space->Groups()) {
    for (const PlanPoint& point : space->PointsOf(group)) {
      const auto run = Simulate(space->ConfigOf(point), &context);
      if (!run.ok() || !run->report.fits.value_or(true)) continue;
      rows.push_back(
          {point, run->report.iteration_s, MostPeakMemoryOf(run->report)});
    }
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& one, const Row& other) {
                     return one.seconds < other.seconds;
                   });
  return rows;
}

TEST_CASE("plan: the list has the best of all, and none of them twice",
          "[search][long]") {
  const PlanRequest request = SmallRequest();
  const PlanOutcome few = PlanOf(request, {.top = 3});
  const PlanOutcome many = PlanOf(request, {.top = 25});
  PlanSpace& space = *many.space;
  std::vector<Row> rows;
  int twice = 0;
  int alone = 0;  // of them on one rank
  double plain_s = 0;
  for (const Row& row : AllRows(&space)) {
    const PlanGroup& group = row.point.group;
    const std::string& schedule = space.schedules()[group.schedule];
    if (plain_s == 0 && IsPlain(space, group) &&
        (schedule == "1f1b" || schedule == "interleaved-1f1b")) {
      plain_s = row.seconds;
    }
    const auto same =
        std::find_if(rows.begin(), rows.end(), [&](const Row& other) {
          return other.point.data_parallel == row.point.data_parallel &&
                 AreSame(space, row.point.group, other.point.group);
        });
    if (same == rows.end()) {
      rows.push_back(row);
      continue;
    }
    ++twice;
    alone += row.point.group.pp == 1;
    // Whatever they are called.
    CHECK(row.seconds == same->seconds);
    CHECK(row.bytes == same->bytes);
  }
  CHECK(twice > 0);
  CHECK(alone > 0);
  REQUIRE(rows.size() > 25);
  for (const PlanOutcome* plan : {&few, &many}) {
    const Json json = Json::parse(PlanToJson(*plan));
    REQUIRE(json["ranked"].size() == static_cast<size_t>(plan->top));
    for (int row = 0; row < plan->top; ++row) {
      INFO(row);
      CHECK(json["ranked"][row]["iteration_s"].get<double>() ==
            Approx(rows[row].seconds).epsilon(1e-9));
    }
    CHECK(plan->counts.same > 0);
    REQUIRE(plan->simplest);
    CHECK(plan->simplest->iteration_s == Approx(plain_s).epsilon(1e-9));
    CHECK(plan->simplest->score > plan->ranked[0].score);
    CHECK(absl::StrContains(PlanToText(*plan), "simplest layout, "));
    CHECK(json["simplest"]["iteration_s"] == plan->simplest->iteration_s);
  }
  // Names of one configuration stand in one row.
  int named = 0;
  for (int row = 0; row < many.top; ++row) {
    const PlanResult& result = many.ranked[row];
    if (result.same_schedules.empty()) continue;
    ++named;
    CHECK(absl::StrContains(
        PlanToText(many),
        absl::StrCat(" (the same as ",
                     absl::StrJoin(result.same_schedules, ", "), ")")));
  }
  CHECK(named > 0);
}

TEST_CASE("plan: what hardly fits has a mark", "[search]") {
  const auto plan = [](double bytes) {
    PlanRequest request = RequestOf(
        "llama3-8b", 1, 8,
        {{"system.memory", absl::StrCat(static_cast<int64_t>(bytes), "B")}});
    request.fixed = {{"tp", {"8"}},         {"pp", {"1"}},
                     {"cp", {"1"}},         {"microbatch_size", {"1"}},
                     {"offload", {"none"}}, {"recompute", {"none"}},
                     {"schedule", {"1f1b"}}};
    return PlanOf(request, {});
  };
  const PlanOutcome ample = plan(80e9);
  REQUIRE(!ample.ranked.empty());
  const ScheduleMemory& memory = *ample.report->memory->memory;
  const RankMemory& worst = memory.ranks[memory.WorstRank()];
  const auto needed = static_cast<double>(worst.needed());
  const auto peak = static_cast<double>(worst.peak());
  const PlanOutcome near = plan(needed + 0.005 * peak);
  const PlanOutcome far = plan(needed + 0.007 * peak);
  for (const auto& [outcome, marked] :
       {std::pair(&ample, false), std::pair(&near, true),
        std::pair(&far, false)}) {
    REQUIRE(!outcome->ranked.empty());
    CHECK(outcome->ranked[0].is_near_limit == marked);
    const std::string text = PlanToText(*outcome);
    CHECK(absl::StrContains(text, "GiB! ") == marked);
    CHECK(absl::StrContains(text, "\n! at risk: so near to the limit") ==
          marked);
    CHECK(Json::parse(PlanToJson(*outcome))["best"]["near_memory_limit"] ==
          marked);
  }
}

// The largest error of published rows, as validation.md prints them: estimated
// GiB and in brackets what the run reserved, both of three digits.
TEST_CASE("plan: the mark knows the worst row of torchtitan", "[search]") {
  const std::string page =
      ReadFile(testing::SourcePath("docs/dev/validation.md")).value();
  const std::vector<std::string> parts =
      absl::StrSplit(page, "\n## torchtitan\n");
  REQUIRE(parts.size() == 2);
  double worst = 0;
  int rows = 0;
  for (const absl::string_view line :
       absl::StrSplit(parts[1].substr(0, parts[1].find("\n## ")), '\n')) {
    const std::vector<std::string> cells = absl::StrSplit(line, '|');
    if (cells.size() < 3) continue;
    double estimated = 0;
    double reserved = 0;
    if (std::sscanf(cells[cells.size() - 2].c_str(), " %lf (%lf)", &estimated,
                    &reserved) != 2) {
      continue;
    }
    ++rows;
    worst = std::max(worst, reserved / estimated - 1);
  }
  CHECK(rows > 10);
  CHECK(kTorchMemoryError == Approx(worst).margin(0.002));

  RunConfig config;
  CHECK(MemoryErrorOf(config) == kMemoryError);
  config.strategy.framework = Framework::kMegatron;
  CHECK(MemoryErrorOf(config) == kMemoryError);
  config.strategy.framework = Framework::kTorchtitan;
  CHECK(MemoryErrorOf(config) == kTorchMemoryError);
}

TEST_CASE("plan: a run of torchtitan is at risk further from the limit",
          "[search]") {
  RunConfig config =
      RequestOf("llama3-8b", 1, 8, {{"strategy.framework", "torchtitan"}}).base;
  config.strategy.tp = 8;
  config.strategy.microbatches = 8;
  PreparedRun run = Prepare(config).value();
  const ScheduleMemory& memory = *run.memory->memory;
  const RankMemory& worst = memory.ranks[memory.WorstRank()];
  const auto needed = static_cast<double>(worst.needed());
  const auto held = static_cast<double>(worst.peak() + worst.fragmentation);
  for (const auto& [share, is_at_risk] :
       {std::pair(0.1, true), std::pair(0.13, true), std::pair(0.15, false)}) {
    run.memory->limit_bytes = needed + share * held;
    CHECK(IsAtRisk(run) == is_at_risk);
  }
  run.memory->limit_bytes = 0.5 * needed;
  CHECK_FALSE(IsAtRisk(run));
}

std::vector<std::string> PlanWords(const std::string& more) {
  std::vector<std::string> words = {"plan", "--system", "dgx-h100",
                                    "--analytic", "--no-confirm"};
  for (const absl::string_view word : absl::StrSplit(more, ' ')) {
    words.emplace_back(word);
  }
  return words;
}

TEST_CASE("plan: Ctrl-C prints what was found", "[search]") {
  const BinaryResult plan = testing::InterruptBinary(
      PlanWords("--model llama3-405b --nodes 2048 --global-batch 2048 -j 1 "
                "--progress json"),
      [](int, const std::string& err) {
        return absl::StrContains(err, "\"best\":{");
      });
  const std::string& report = plan.out;
  INFO(report << plan.err);
  CHECK(plan.exit_code == 1);
  CHECK(absl::StrContains(report, "cut by a signal after "));
  CHECK(absl::StrContains(report, "\nbest\n"));
  CHECK(absl::StrContains(report, "to search on, from the start, "));
  CHECK(absl::StrContains(report, "plan --system dgx-h100"));
  CHECK(absl::StrContains(plan.err, "stopped by a signal"));
}

TEST_CASE("plan: limits and progress on the command line", "[search]") {
  const std::string small =
      "--model llama3-8b --nodes 1 --global-batch 8 --fix tp=2,4 --fix pp=1,2 "
      "--fix offload=none --fix schedule=1f1b ";
  const auto refused = [&](const std::string& more, const char* words) {
    const BinaryResult plan = RunBinary(PlanWords(small + more));
    INFO(plan.err);
    CHECK(plan.exit_code == 2);
    CHECK(absl::StrContains(plan.err, words));
  };
  refused("--time 5", "--time");
  refused("--time 0s", "more than 0s");
  refused("--time 1e10s", "at most 1e9s");
  refused("--progress xml", "line, json, none");
  refused("--top 0", "--top");
  refused("--max-candidates 0", "--max-candidates");

  const BinaryResult cut =
      RunBinary(PlanWords(small + "--max-candidates 3 --json"));
  CHECK(cut.exit_code == 0);
  const Json how = Json::parse(cut.out)["cut"];
  CHECK(how["by"] == "candidates");
  CHECK(
      absl::StartsWith(how["command"].get<std::string>(), "pipewright plan "));
  // Some schedules keep other orders under a limit.
  const BinaryResult limited = RunBinary(PlanWords(
      "--model llama3-8b --nodes 1 --global-batch 16 "
      "--fix tp=2 --fix pp=4 --fix vpp=2 --fix cp=1 --fix schedule=zeropp "
      "--fix layout=even --fix offload=none --fix recompute=none "
      "--fix microbatch_size=1 --max-activations 2 --memory 45GiB"));
  INFO(limited.err);
  CHECK(limited.exit_code == 0);
  // No time at all: nothing is found, which is not that nothing fits.
  const BinaryResult none = RunBinary(PlanWords(small + "--time 1ns"));
  INFO(none.err);
  CHECK(none.exit_code == 1);
  CHECK(absl::StrContains(none.err, "before it had found one that fits"));
  CHECK(absl::StrContains(none.out, "cut by --time after 0 candidates"));

  const BinaryResult lines =
      RunBinary(PlanWords(small + "--progress json --json --top 2"));
  REQUIRE(lines.exit_code == 0);
  const Json report = Json::parse(lines.out);
  CHECK(report["cut"].is_null());
  CHECK(report["ranked"].size() == 2);
  double least = 1e9;
  double left = 0;
  int seen = 0;
  for (const absl::string_view line : absl::StrSplit(lines.err, '\n')) {
    if (!absl::StartsWith(line, "{")) continue;
    const Json json = Json::parse(line);
    if (!json["left"].is_null()) {
      CHECK(json["left"].get<double>() >= left);
      left = json["left"].get<double>();
    }
    if (json["best"].is_null()) continue;
    ++seen;
    CHECK(json["best"]["iteration_s"].get<double>() <= least);
    least = json["best"]["iteration_s"].get<double>();
  }
  CHECK(seen > 0);
  CHECK(left > 0);
  // Once nothing is left below the second, the search has ended.
  CHECK(left <= report["ranked"][1]["iteration_s"].get<double>() * (1 + 1e-9));
  CHECK(RunBinary(PlanWords(small)).err.find("best so far") ==
        std::string::npos);
}

}  // namespace
}  // namespace pipewright::plan_cut_test
