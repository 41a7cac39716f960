// What a diagnosis says of jobs that are written down here, operation by
// operation.
#include <catch2/catch.hpp>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "sim/analysis/diagnose/diagnosis.h"
#include "sim/analysis/diagnose/read_table.h"
#include "tests/support/json.h"

namespace pipewright::answers_test {
namespace {

using testing::Json;

// `count` operations a worker, one after the other.
MeasuredJob Chains(int pp, int dp, int count,
                   const std::function<double(int stage, int replica)>& time) {
  JobDraft draft;
  draft.source = "job";
  draft.form = "table";
  draft.pp = pp;
  draft.dp = dp;
  draft.kinds = {{"work", "work", false}, {"message", "message", true}};
  draft.steps = {0};
  for (int replica = 0; replica < dp; ++replica) {
    for (int stage = 0; stage < pp; ++stage) {
      const double seconds = time(stage, replica);
      for (int number = 0; number < count; ++number) {
        const auto op = static_cast<int32_t>(draft.ops.size());
        draft.ops.push_back({number % 2, stage, replica, number});
        draft.dependencies.emplace_back();
        if (number > 0) draft.dependencies.back().push_back(op - 1);
        draft.groups.push_back({op});
        draft.start_s.push_back(number * seconds);
        draft.duration_s.push_back(seconds);
      }
    }
  }
  std::vector<int32_t> circle;
  return SortJob(draft, &circle).value();
}

TEST_CASE("diagnose: of too many workers each is as good as its better place",
          "[diagnose]") {
  // Replays of all workers would take 2.06e9 operations.
  constexpr int kPlaces = 64;
  const MeasuredJob job =
      Chains(kPlaces, kPlaces, 63, [](int stage, int replica) {
        return stage == 5 ? 2.0 : replica == 7 ? 3.0 : 1.0;
      });
  const Diagnosis found = Diagnose(job, ComputeIdeal::kMedian);
  REQUIRE(found.workers_estimated);
  CHECK(absl::StrContains(absl::StrJoin(found.warnings, "\n"),
                          "too many workers"));
  REQUIRE(found.workers.size() == kPlaces * kPlaces);
  const auto worker = [&](int stage, int replica) {
    return found.workers[replica * kPlaces + stage];
  };
  CHECK(found.stages[5].slowdown_keep == Approx(2));
  CHECK(found.replicas[7].slowdown_keep == Approx(3));
  CHECK(worker(0, 0).slowdown_keep == Approx(2));  // replica 0 has stage 5
  CHECK(worker(5, 7).slowdown_keep == Approx(2));
  CHECK(worker(5, 0).slowdown_keep == Approx(2));
  CHECK(worker(0, 7).slowdown_keep == Approx(3));
  // The step is three seconds an operation until replica 7 is mended.
  CHECK(found.stages[5].speedup_fix == Approx(1));
  CHECK(found.replicas[7].speedup_fix == Approx(1.5));
  CHECK(worker(5, 7).speedup_fix == Approx(1));
  CHECK(worker(6, 7).speedup_fix == Approx(1));
  for (const JobWhatIf& each : found.workers) {
    CHECK(each.slowdown_keep ==
          std::min(found.stages[each.stage].slowdown_keep,
                   found.replicas[each.replica].slowdown_keep));
    CHECK(each.speedup_fix ==
          std::min(found.stages[each.stage].speedup_fix,
                   found.replicas[each.replica].speedup_fix));
  }
}

TEST_CASE("diagnose: few workers are tried one by one", "[diagnose]") {
  const MeasuredJob job = Chains(2, 3, 5, [](int stage, int replica) {
    return stage == 1 && replica == 2 ? 3.0 : 1.0;
  });
  const Diagnosis found = Diagnose(job, ComputeIdeal::kMedian);
  CHECK_FALSE(found.workers_estimated);
  for (const JobWhatIf& each : found.workers) {
    const bool slow = each.stage == 1 && each.replica == 2;
    CHECK(each.slowdown_keep == Approx(slow ? 3 : 1));
    CHECK(each.speedup_fix == Approx(slow ? 3 : 1));
    CHECK(each.operations == 5);
  }
  CHECK(SlowestReplica(found) == 2);
  CHECK(absl::StrContains(TimelineSvg(job, found, SlowestReplica(found)),
                          "step 0 as recorded, replica 2"));
  // The most harmful come first.
  const std::string text = DiagnosisToText(job, found);
  CHECK(text.find("stage 1, replica 2") < text.find("stage 0, replica 0"));
  const Json json = Json::parse(DiagnosisToJson(job, found));
  CHECK(json["straggler_slowdown"] == Approx(3));
  CHECK(json["workers"].size() == 6);
}

TEST_CASE("diagnose: messages have a row of their own", "[diagnose]") {
  const MeasuredJob job = Chains(2, 2, 4, [](int, int) { return 1.0; });
  const Json trace =
      Json::parse(IdealTimelineJson(job, Diagnose(job, ComputeIdeal::kMean)));
  int seen = 0;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    ++seen;
    const int number = std::stoi(event["name"].get<std::string>().substr(
        event["name"].get<std::string>().find(' ')));
    CHECK(event["tid"].get<int>() % 2 == number % 2);
    CHECK(event["ts"].get<double>() == Approx(number * 1e6));
    CHECK(event["dur"].get<double>() == Approx(1e6));
  }
  CHECK(seen == 16);
}

// Gathers 0 to 20 ms, then a forward and a backward of 5 ms each.
constexpr char kTwoGathers[] =
    "step,dp_rank,stage,optype,seq,mb,chunk,start_ns,duration_ns\n"
    "0,0,0,params-all-gather,0,-1,0,0,10000000\n"
    "0,0,0,params-all-gather,1,-1,0,10000000,10000000\n"
    "0,0,0,forward-compute,0,0,0,20000000,5000000\n"
    "0,0,0,backward-compute,0,0,0,25000000,5000000\n";

TEST_CASE("diagnose: a chunk's first forward waits for all of its gathers",
          "[diagnose]") {
  std::istringstream in(kTwoGathers);
  const auto job = ReadJobTable(in, "t.csv");
  REQUIRE(job.ok());
  const Diagnosis found = Diagnose(*job, ComputeIdeal::kMean);
  CHECK(found.recorded_s == Approx(0.03));
  CHECK(found.no_gap_s == Approx(0.03));
}

TEST_CASE("diagnose: empty lines of a table end in any way", "[diagnose]") {
  for (const char* end : {"\n", "\r\n"}) {
    std::istringstream in(absl::StrCat(
        absl::StrReplaceAll(kTwoGathers, {{"\n", end}}), end, end));
    const auto job = ReadJobTable(in, "t.csv");
    INFO(job.status());
    REQUIRE(job.ok());
    CHECK(job->num_ops() == 4);
  }
}

TEST_CASE("diagnose: the worst step is that of the largest error, either way",
          "[diagnose]") {
  JobDraft draft;
  draft.source = "job";
  draft.kinds = {{"work", "work", false}};
  draft.steps = {3, 4};
  draft.ops = {{0, 0, 0, 0}, {0, 0, 0, 1}};
  draft.dependencies = {{}, {0}};
  draft.groups = {{0}, {1}};
  // The second begins 5 ms before the first has ended, then 50 ms behind it.
  draft.start_s = {0, 0, 0.095, 0.15};
  draft.duration_s = {0.1, 0.1, 0.1, 0.1};
  std::vector<int32_t> circle;
  const MeasuredJob job = SortJob(draft, &circle).value();
  const Diagnosis found = Diagnose(job, ComputeIdeal::kMean);
  REQUIRE(found.steps.size() == 2);
  CHECK(found.steps[0].gap_error == Approx(0.2 / 0.195 - 1));
  CHECK(found.steps[1].gap_error == Approx(0.2 / 0.25 - 1));
  CHECK(found.worst_gap_error == Approx(-0.2));
  CHECK(found.gap_error == Approx((0.2 / 0.195 - 1.2) / 2));
  CHECK(absl::StrContains(DiagnosisToText(job, found), "-20.00 % in step 4"));
}

}  // namespace
}  // namespace pipewright::answers_test
