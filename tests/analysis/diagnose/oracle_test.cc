// Two production jobs, whose answers ByteDance-Seed has published
// (tests/oracle/README.md): the step without gaps, the ideal step, and the
// slowdown by every kind, stage and replica.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sim/analysis/diagnose/diagnosis.h"
#include "sim/analysis/diagnose/read_table.h"
#include "tests/support/naive_stragglers.h"
#include "tests/support/oracle.h"

namespace pipewright::oracle_test {
namespace {

using testing::NaiveFault;
using testing::NaiveStragglers;
using testing::ReadOracle;

// Rounding of the published numbers: six decimals of seconds; the rest nine
// digits.
constexpr double kStepError = 1e-6;
constexpr double kWhatIfError = 1e-5;

double Number(absl::string_view text) {
  double value = NAN;
  REQUIRE(absl::SimpleAtod(text, &value));
  return value;
}

std::vector<std::vector<std::string>> Table(const std::string& file) {
  std::vector<std::vector<std::string>> rows;
  for (const absl::string_view line :
       absl::StrSplit(ReadOracle(file), '\n', absl::SkipEmpty())) {
    rows.push_back(absl::StrSplit(line, ','));
  }
  rows.erase(rows.begin());
  return rows;
}

MeasuredJob JobOf(const std::string& name) {
  std::istringstream in(
      ReadOracle(absl::StrCat("stragglers_", name, ".csv.gz")));
  auto job = ReadJobTable(in, name);
  INFO(job.status());
  REQUIRE(job.ok());
  return *std::move(job);
}

double Off(double value, double wanted) { return std::abs(value / wanted - 1); }

struct Published {
  std::map<int64_t, double> no_gap_s;
  std::map<int64_t, double> recorded_s;
  double ideal_s = 0;
  // Quantity and key.
  std::map<std::pair<std::string, std::string>, double> what_if;
};

Published PublishedOf(const std::string& name) {
  Published out;
  for (const auto& row :
       Table(absl::StrCat("stragglers_", name, "_steps.csv"))) {
    const auto step = static_cast<int64_t>(Number(row[0]));
    out.recorded_s[step] = Number(row[1]);
    out.no_gap_s[step] = Number(row[2]);
  }
  for (const auto& row : Table("stragglers_whatif.csv")) {
    if (row[0] == name) out.what_if[{row[1], row[2]}] = Number(row[3]);
  }
  out.ideal_s = out.what_if.at({"ideal_step_s_mean", ""});
  return out;
}

void CheckJob(const std::string& name, int pp, int dp, size_t steps) {
  const MeasuredJob job = JobOf(name);
  CHECK(job.pp == pp);
  CHECK(job.dp == dp);
  const Diagnosis diagnosis = Diagnose(job, ComputeIdeal::kMean);
  const Published published = PublishedOf(name);
  REQUIRE(diagnosis.steps.size() == steps);
  REQUIRE(published.no_gap_s.size() == steps);
  double worst = 0;
  for (const StepAnswer& step : diagnosis.steps) {
    worst =
        std::max(worst, Off(step.no_gap_s, published.no_gap_s.at(step.step)));
    CHECK(Off(step.recorded_s, published.recorded_s.at(step.step)) <
          kStepError);
    CHECK(Off(step.with_gaps_s, step.recorded_s) < 1e-9);
    CHECK(step.gap_error < 0);
  }
  CHECK(worst < kStepError);
  CHECK(Off(diagnosis.ideal_s, published.ideal_s) < kWhatIfError);
  const auto what_if = [&](const char* quantity, const std::string& key) {
    return published.what_if.at({quantity, key});
  };
  CHECK(Off(diagnosis.recorded_s, what_if("recorded_step_s_mean", "")) <
        kStepError);
  CHECK(Off(diagnosis.no_gap_s, what_if("no_gap_step_s_mean", "")) <
        kStepError);
  CHECK(Off(diagnosis.gap_slowdown, what_if("gap_slowdown", "")) < kStepError);
  CHECK(Off(diagnosis.straggler_slowdown, what_if("straggler_slowdown", "")) <
        kWhatIfError);
  // Every published slowdown, none left out.
  size_t compared = 0;
  size_t there = 0;
  double off = 0;
  for (const auto& [key, value] : published.what_if) {
    there += absl::StartsWith(key.first, "slowdown_keep") ? 1 : 0;
  }
  const auto compare = [&](const JobWhatIf& what, const char* quantity,
                           const std::string& key) {
    off = std::max(off, Off(what.slowdown_keep, what_if(quantity, key)));
    ++compared;
  };
  for (const JobWhatIf& what : diagnosis.kinds) {
    compare(what, "slowdown_keep_optype", what.name);
  }
  for (const JobWhatIf& what : diagnosis.stages) {
    compare(what, "slowdown_keep_stage", absl::StrCat(what.stage));
  }
  for (const JobWhatIf& what : diagnosis.replicas) {
    compare(what, "slowdown_keep_dp_rank", absl::StrCat(what.replica));
  }
  CHECK(compared == there);
  CHECK(off < kWhatIfError);
  std::printf("stragglers %s: %zu steps to %.1e, %zu slowdowns to %.1e\n",
              name.c_str(), steps, worst, compared, off);
}

TEST_CASE("stragglers: a job with sequences of uneven length", "[diagnose]") {
  CheckJob("SE", 2, 32, 43);
}

TEST_CASE("stragglers: a job with a heavy last stage", "[diagnose]") {
  CheckJob("ST", 4, 2, 32);
}

// Without groups, so that nobody waits for a partner and its own duration
// holds the wait.
MeasuredJob WithoutGroups(MeasuredJob job) {
  job.group_begin.clear();
  for (size_t op = 0; op <= job.num_ops(); ++op) {
    job.group_begin.push_back(static_cast<int32_t>(op));
  }
  return job;
}

// Everything that meets others ends when the last of them starts.
MeasuredJob WithoutTransfers(MeasuredJob job) {
  const size_t steps = job.num_steps();
  for (size_t group = 0; group + 1 < job.group_begin.size(); ++group) {
    const size_t begin = job.group_begin[group];
    const size_t end = job.group_begin[group + 1];
    if (end == begin + 1) continue;
    for (size_t step = 0; step < steps; ++step) {
      double latest = 0;
      for (size_t op = begin; op < end; ++op) {
        latest = std::max(latest, job.start_s[op * steps + step]);
      }
      for (size_t op = begin; op < end; ++op) {
        const size_t at = op * steps + step;
        job.duration_s[at] = latest - job.start_s[at];
      }
    }
  }
  return job;
}

// The table of the steps has what the same durations give when they are read
// wrongly, by another replay.
TEST_CASE("stragglers: sign and size of each way of reading a duration",
          "[diagnose]") {
  for (const std::string name : {"SE", "ST"}) {
    const MeasuredJob job = JobOf(name);
    const auto rows = Table(absl::StrCat("stragglers_", name, "_steps.csv"));
    const auto check = [&](const MeasuredJob& read, size_t column) {
      JobReplay replay(read, ComputeIdeal::kMean);
      const std::vector<double> steps = replay.Run({});
      REQUIRE(steps.size() == rows.size());
      for (size_t step = 0; step < steps.size(); ++step) {
        CHECK(Off(steps[step], Number(rows[step][column])) < kStepError);
      }
      return MeanOf(steps);
    };
    const double recorded =
        MeanOf(JobReplay(job, ComputeIdeal::kMean).Recorded());
    const double anchor = check(job, 5) / recorded - 1;
    const double whole = check(WithoutGroups(job), 6) / recorded - 1;
    const double no_transfer = check(WithoutTransfers(job), 7) / recorded - 1;
    CHECK(anchor == Approx(name == "SE" ? -0.0051 : -0.0189).margin(1e-4));
    CHECK(whole < anchor - 0.01);
    CHECK(no_transfer < anchor - 0.01);
  }
}

std::map<int64_t, double> Naive(const std::string& name, NaiveFault fault,
                                bool own) {
  return NaiveStragglers(
             ReadOracle(absl::StrCat("stragglers_", name, ".csv.gz")), fault)
      .Steps([own](int, int, const std::string&) { return own; });
}

double Mean(const std::map<int64_t, double>& steps) {
  double sum = 0;
  for (const auto& [step, seconds] : steps) sum += seconds;
  return sum / static_cast<double>(steps.size());
}

TEST_CASE("stragglers: an independent replay gives the same", "[diagnose]") {
  const Diagnosis diagnosis = Diagnose(JobOf("ST"), ComputeIdeal::kMean);
  const auto own = Naive("ST", NaiveFault::kNone, true);
  for (const StepAnswer& step : diagnosis.steps) {
    CHECK(Off(step.no_gap_s, own.at(step.step)) < 1e-12);
  }
  CHECK(Off(diagnosis.ideal_s, Mean(Naive("ST", NaiveFault::kNone, false))) <
        1e-12);
  const Diagnosis median = Diagnose(JobOf("ST"), ComputeIdeal::kMedian);
  CHECK(Off(median.ideal_s,
            Mean(Naive("ST", NaiveFault::kMeanIsMedian, false))) < 1e-12);
}

// Each of these mistakes leaves the published numbers by more than the tests
// allow, so the tests see it.
TEST_CASE("stragglers: planted faults leave the published answers",
          "[diagnose]") {
  const Published published = PublishedOf("ST");
  const auto worst = [&](NaiveFault fault) {
    double off = 0;
    for (const auto& [step, seconds] : Naive("ST", fault, true)) {
      off = std::max(off, Off(seconds, published.no_gap_s.at(step)));
    }
    return off;
  };
  CHECK(worst(NaiveFault::kNone) < kStepError);
  CHECK(worst(NaiveFault::kWaitIsTransfer) > 100 * kStepError);
  CHECK(worst(NaiveFault::kNoGather) > 100 * kStepError);
  CHECK(worst(NaiveFault::kOwnClip) > 5 * kStepError);
  const auto ideal = [&](NaiveFault fault) {
    return Off(Mean(Naive("ST", fault, false)), published.ideal_s);
  };
  CHECK(ideal(NaiveFault::kNone) < kWhatIfError);
  CHECK(ideal(NaiveFault::kMeanIsMedian) > 2 * kWhatIfError);
}

}  // namespace
}  // namespace pipewright::oracle_test
