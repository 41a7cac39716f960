// Traces of our own and of PyTorch's profiler as measured jobs.
#include "sim/analysis/diagnose/trace_job.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sim/analysis/diagnose/diagnosis.h"
#include "sim/analysis/diagnose/kineto_job.h"
#include "sim/analysis/plot/figure.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"
#include "sim/report/svg_parts.h"
#include "tests/support/compared_runs.h"
#include "tests/support/json.h"
#include "tests/support/xml_check.h"

namespace pipewright::trace_job_test {
namespace {

using testing::ComparedProgram;
using testing::ComparedShape;
using testing::MeasuredTrace;
using testing::SimulatedTrace;

MeasuredJob JobOf(const ReadTrace& trace) {
  auto job = JobOfTrace(trace);
  INFO(job.status());
  REQUIRE(job.ok());
  return *std::move(job);
}

// What the engine did again from durations and dependencies: no gap is left.
void CheckExact(const ReadTrace& trace) {
  const Diagnosis found = Diagnose(JobOf(trace), ComputeIdeal::kMean);
  CHECK(found.no_gap_s == Approx(found.recorded_s).epsilon(1e-6));
  CHECK(found.steps[0].with_gaps_s == Approx(found.recorded_s).epsilon(1e-9));
}

TEST_CASE("diagnose: a simulated trace has no gaps", "[diagnose]") {
  for (const char* schedule :
       {"1f1b", "zb-h1", "gpipe", "interleaved-1f1b", "zb-v", "chimera",
        "dualpipe", "dualpipe-v", "v-half", "hanayo"}) {
    for (const int replicas : {1, 2}) {
      INFO(schedule << ", " << replicas);
      CheckExact(SimulatedTrace(
          ComparedProgram({.schedule = schedule, .replicas = replicas})));
    }
  }
}

TEST_CASE("diagnose: transfers that block ranks", "[diagnose]") {
  for (const WaitRule rule :
       {WaitRule::kRendezvous, WaitRule::kBatched, WaitRule::kStepped}) {
    for (const std::string schedule : {"1f1b", "gpipe", "interleaved-1f1b"}) {
      // There two ranks would wait for each other.
      if (rule == WaitRule::kRendezvous && schedule != "gpipe") continue;
      INFO(schedule << ", " << WaitRuleName(rule));
      CheckExact(SimulatedTrace(ComparedProgram({.schedule = schedule.c_str(),
                                                 .microbatches = 4,
                                                 .wait_rule = rule})));
    }
  }
}

// The replay with one rank repaired is the engine's run without the fault.
TEST_CASE("diagnose: a slow rank is named with what it costs", "[diagnose]") {
  const ComparedShape shape;
  const Program program = ComparedProgram(shape);
  const Program slow = testing::WithSlower(program, std::nullopt, 2, 1.44);
  const Diagnosis sound =
      Diagnose(JobOf(SimulatedTrace(program)), ComputeIdeal::kMedian);
  const Diagnosis found =
      Diagnose(JobOf(SimulatedTrace(slow)), ComputeIdeal::kMedian);
  const auto worst =
      std::max_element(found.stages.begin(), found.stages.end(),
                       [](const JobWhatIf& a, const JobWhatIf& b) {
                         return a.slowdown_keep < b.slowdown_keep;
                       });
  CHECK(worst->stage == 2);
  CHECK(worst->name == "rank 2");
  CHECK(found.ideal_s == Approx(sound.recorded_s).epsilon(1e-6));
  CHECK(worst->speedup_fix ==
        Approx(found.no_gap_s / sound.recorded_s).epsilon(1e-6));
  CHECK(worst->slowdown_keep ==
        Approx(found.no_gap_s / sound.recorded_s).epsilon(1e-6));
  CHECK(found.stages[0].slowdown_keep == Approx(1).epsilon(1e-6));
}

TEST_CASE("diagnose: an executed trace is re-created", "[diagnose]") {
  const ReadTrace trace =
      MeasuredTrace(ComparedProgram(ComparedShape()), Faults(), 0.2);
  const MeasuredJob job = JobOf(trace);
  const Diagnosis found = Diagnose(job, ComputeIdeal::kMean);
  CHECK(job.iterations == testing::kComparedIterations);
  CHECK(found.steps[0].with_gaps_s == Approx(found.recorded_s).epsilon(1e-9));
  CHECK(found.no_gap_s <= found.recorded_s * (1 + 1e-9));
  CHECK(found.gap_error > -0.02);
  CHECK(found.straggler_slowdown > 1.001);
}

TEST_CASE("diagnose: a receive that is lost", "[diagnose]") {
  ReadTrace trace = SimulatedTrace(ComparedProgram(ComparedShape()));
  trace.source = "t.json";
  const auto receive = std::find_if(
      trace.ops.begin(), trace.ops.end(),
      [](const ReadOp& read) { return read.op.kind == OpKind::kReceive; });
  REQUIRE(receive != trace.ops.end());
  trace.ops.erase(receive);
  const auto job = JobOfTrace(trace);
  REQUIRE(!job.ok());
  CHECK(ExitCode(job.status()) == 2);
  CHECK(PartsOf(job.status()).file.value_or("") == "t.json");
  CHECK(absl::StrContains(job.status().message(), "send"));
  CHECK(absl::StrContains(job.status().message(), "with its receive"));
}

// A rank's trace: name, start and length in microseconds.
struct Named {
  const char* name;
  double start;
  double length;
};

std::string KinetoOf(int rank, const std::vector<Named>& step, int steps) {
  std::vector<std::string> events;
  for (int each = 0; each < steps; ++each) {
    for (const Named& named : step) {
      events.push_back(absl::StrFormat(
          R"({"ph":"X","cat":"user_annotation","name":"%s","pid":1,"tid":1,)"
          R"("ts":%g,"dur":%g})",
          named.name, named.start + 1000 * each, named.length));
    }
  }
  return absl::StrCat("{\"distributedInfo\":{\"rank\":", rank,
                      "},\"traceEvents\":[", absl::StrJoin(events, ","), "]}");
}

absl::StatusOr<MeasuredJob> Kineto(const std::vector<std::string>& files,
                                   const KinetoJobOptions& options = {}) {
  KinetoJob job(options);
  for (size_t file = 0; file < files.size(); ++file) {
    std::istringstream in(files[file]);
    PW_RETURN_IF_ERROR(job.Add(in, absl::StrCat(file, ".json")));
  }
  return job.Finish("folder");
}

const std::vector<Named> kFirst = {
    {"forward", 0, 10}, {"backward", 36, 20}, {"optimizer step", 56, 4}};
const std::vector<Named> kSecond = {
    {"forward", 12, 10}, {"backward", 22, 12}, {"optimizer step", 34, 6}};

TEST_CASE("diagnose: a folder of profiles", "[diagnose]") {
  // The files come in no order.
  const auto job =
      Kineto({KinetoOf(1, kSecond, 3), KinetoOf(0, kFirst, 3)}, {.skip = 1});
  INFO(job.status());
  REQUIRE(job.ok());
  CHECK(job->pp == 2);
  CHECK(job->dp == 1);
  CHECK(job->steps == std::vector<int64_t>{1, 2});
  const Diagnosis found = Diagnose(*job, ComputeIdeal::kMean);
  CHECK(found.recorded_s == Approx(60e-6).epsilon(1e-9));
  // 10 + 10 + 12 + 20 + 4; the hops are gaps.
  CHECK(found.no_gap_s == Approx(56e-6).epsilon(1e-9));
  CHECK(found.steps[1].with_gaps_s == Approx(60e-6).epsilon(1e-9));
  // 10 + 10 + 16 + 16 + 5.
  CHECK(found.ideal_s == Approx(57e-6).epsilon(1e-9));
  // As two replicas of one stage they do not meet.
  const auto replicas =
      Kineto({KinetoOf(0, kFirst, 1), KinetoOf(1, kSecond, 1)}, {.pp = 1});
  REQUIRE(replicas.ok());
  CHECK(replicas->dp == 2);
}

TEST_CASE("diagnose: profiles that do not fit each other", "[diagnose]") {
  std::vector<Named> more = kSecond;
  more.insert(more.begin(), {"forward", 0, 5});
  const std::string first = KinetoOf(0, kFirst, 2);
  const std::pair<absl::StatusOr<MeasuredJob>, const char*> bad[] = {
      {Kineto({}), "holds no traces"},
      {Kineto({first, first}), "a rank of its own"},
      {Kineto({first, KinetoOf(1, kSecond, 1)}), "1 steps is not allowed"},
      {Kineto({first, KinetoOf(1, more, 2)}), "2 forwards is not allowed"},
      {Kineto({first, KinetoOf(1, kSecond, 2)}, {.pp = 3}), "--pp: 3"},
      {Kineto({first}, {.skip = 2}), "--skip: 2"},
      {Kineto({KinetoOf(0, {{"sleep", 0, 1}}, 1)}), "sleep"},
  };
  for (const auto& [job, part] : bad) {
    INFO(job.status() << " should have " << part);
    REQUIRE(!job.ok());
    CHECK(ExitCode(job.status()) == 2);
    CHECK(absl::StrContains(job.status().message(), part));
  }
}

TEST_CASE("diagnose: the ideal timeline as a trace and as a picture",
          "[diagnose]") {
  const MeasuredJob job =
      JobOf(SimulatedTrace(ComparedProgram({.replicas = 2})));
  const Diagnosis found = Diagnose(job, ComputeIdeal::kMean);
  const auto json = testing::Json::parse(IdealTimelineJson(job, found));
  double last = 0;
  size_t slices = 0;
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] != "X") continue;
    ++slices;
    last =
        std::max(last, event["ts"].get<double>() + event["dur"].get<double>());
  }
  CHECK(slices == job.num_ops());
  CHECK(last * 1e-6 == Approx(found.ideal_s).epsilon(1e-6));
  // A receive begins with its send, not with the step.
  size_t receives = 0;
  for (size_t group = 0; group + 1 < job.group_begin.size(); ++group) {
    const auto begin = found.timeline.start_s.begin() + job.group_begin[group];
    const auto end =
        found.timeline.start_s.begin() + job.group_begin[group + 1];
    if (end - begin < 2) continue;
    for (int32_t op = job.group_begin[group]; op < job.group_begin[group + 1];
         ++op) {
      if (job.dependency_begin[op] != job.dependency_begin[op + 1]) continue;
      CHECK(found.timeline.start_s[op] == *std::max_element(begin, end));
      ++receives;
    }
  }
  CHECK(receives > 0);
  const std::string svg = TimelineSvg(job, found, SlowestReplica(found));
  CHECK(testing::XmlProblem(svg).empty());
  CHECK(testing::Count(svg, "<title>F 0:") == 2 * job.pp);
}

TEST_CASE("heat map: a cell a value, the larger the darker", "[diagnose]") {
  HeatMap map;
  map.title = "a < b";
  map.row_name = "replica";
  map.column_name = "stage";
  map.columns = 2;
  map.from = 1;
  map.values = {1, 1.5, 1.25, 2, 1, 1};
  const std::string svg = HeatMapSvg(map);
  CHECK(testing::XmlProblem(svg).empty());
  CHECK(testing::Count(svg, "class=\"cell\"") == 6);
  CHECK(absl::StrContains(svg, "<title>replica 1, stage 1: 2.0000"));
  // The largest has the darkest colour, 1 the lightest.
  CHECK(testing::Count(svg, "fill=\"#8C2D04\"><title>") == 1);
  CHECK(testing::Count(svg, "fill=\"#F7F7F7\"><title>") == 3);
  CHECK(HeatMapSvg({}).empty());
  // The name beside the legend is as wide as it is.
  map.value_name = std::string(80, 'm');
  const std::string wide = HeatMapSvg(map);
  const size_t width = wide.find("width=\"") + 7;
  CHECK(std::stod(wide.substr(width)) >= 310 + TextWidth(map.value_name, 12));
}

}  // namespace
}  // namespace pipewright::trace_job_test
