// Tables of measured operations: random pipelines against an independent
// replay, the rules one by one, and what is refused.
#include "sim/analysis/diagnose/read_table.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "sim/analysis/diagnose/diagnosis.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"
#include "tests/support/naive_stragglers.h"

namespace pipewright::table_test {
namespace {

using testing::NaiveFault;
using testing::NaiveStragglers;

constexpr char kHeader[] =
    "step,dp_rank,stage,optype,seq,mb,chunk,start_ns,duration_ns\n";

struct Sizes {
  int pp = 2;
  int dp = 1;
  int microbatches = 2;
  int steps = 1;
  // The first stage's forwards take 20 times as long, backward hops 60 times.
  bool late_first = false;
};

// A table with the order of 1F1B and random times; what stands in the table is
// not what a real run would give, and the rules must not care.
std::string RandomTable(const Sizes& sizes, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> few(1, 4'000'000);
  std::vector<std::string> rows;
  const auto add = [&](int step, int replica, int stage, const char* type,
                       int number, int64_t start) {
    const absl::string_view name = type;
    int64_t duration = few(random);
    if (sizes.late_first && stage == 0 && name == "forward-compute") {
      duration *= 20;
    }
    if (sizes.late_first && absl::StartsWith(name, "backward-") &&
        name != "backward-compute") {
      duration *= 60;
    }
    rows.push_back(absl::StrCat(step, ",", replica, ",", stage, ",", type, ",",
                                number, ",-1,-1,", start, ",", duration));
    return start + duration;
  };
  for (int step = 0; step < sizes.steps; ++step) {
    for (int replica = 0; replica < sizes.dp; ++replica) {
      for (int stage = 0; stage < sizes.pp; ++stage) {
        int64_t now = few(random);
        const auto run = [&](const char* type, int number) {
          now = add(step, replica, stage, type, number, now) + few(random);
        };
        run("params-all-gather", 0);
        const int ahead = std::min(sizes.microbatches, sizes.pp - stage);
        const auto pass = [&](bool forward, int microbatch) {
          const bool first = stage == 0;
          const bool last = stage == sizes.pp - 1;
          if (forward ? !first : !last) {
            run(forward ? "forward-recv" : "backward-recv", microbatch);
          }
          run(forward ? "forward-compute" : "backward-compute", microbatch);
          if (forward ? !last : !first) {
            run(forward ? "forward-send" : "backward-send", microbatch);
          }
        };
        for (int each = 0; each < ahead; ++each) pass(true, each);
        for (int each = 0; each < sizes.microbatches; ++each) {
          pass(false, each);
          if (each + ahead < sizes.microbatches) pass(true, each + ahead);
        }
        run("gc", 0);
        run("layernorm-grads-all-reduce", 0);
        if (stage == 0 || stage == sizes.pp - 1) {
          run("embedding-grads-all-reduce", 0);
        }
        run("grads-reduce-scatter", 0);
        run("optimizer-clip-main-grad", 0);
        run("optimizer", 0);
      }
    }
  }
  std::shuffle(rows.begin(), rows.end(), random);
  return absl::StrCat(kHeader, absl::StrJoin(rows, "\n"), "\n");
}

absl::StatusOr<MeasuredJob> Read(const std::string& table) {
  std::istringstream in(table);
  return ReadJobTable(in, "t.csv");
}

MeasuredJob JobOf(const std::string& table) {
  auto job = Read(table);
  INFO(job.status());
  REQUIRE(job.ok());
  return *std::move(job);
}

double MeanOfSteps(const std::map<int64_t, double>& steps) {
  double sum = 0;
  for (const auto& [step, seconds] : steps) sum += seconds;
  return sum / static_cast<double>(steps.size());
}

TEST_CASE("diagnose: random pipelines equal an independent replay",
          "[diagnose]") {
  int seen = 0;
  for (unsigned seed = 1; seed <= 40; ++seed) {
    Sizes sizes;
    sizes.pp = 1 + static_cast<int>(seed % 5);
    sizes.dp = 1 + static_cast<int>(seed % 3);
    sizes.microbatches = 1 + static_cast<int>(seed % 7);
    sizes.steps = 1 + static_cast<int>(seed % 2);
    const std::string table = RandomTable(sizes, seed);
    const Diagnosis ours = Diagnose(JobOf(table), ComputeIdeal::kMean);
    const NaiveStragglers naive(table);
    INFO("seed " << seed);
    const auto own =
        naive.Steps([](int, int, const std::string&) { return true; });
    for (const StepAnswer& step : ours.steps) {
      CHECK(step.no_gap_s == Approx(own.at(step.step)).epsilon(1e-12));
    }
    const double ideal = MeanOfSteps(
        naive.Steps([](int, int, const std::string&) { return false; }));
    CHECK(ours.ideal_s == Approx(ideal).epsilon(1e-12));
    for (const JobWhatIf& worker : ours.workers) {
      const auto is_own = [&](int replica, int stage) {
        return replica == worker.replica && stage == worker.stage;
      };
      const double keep = MeanOfSteps(
          naive.Steps([&](int replica, int stage, const std::string&) {
            return is_own(replica, stage);
          }));
      const double fix = MeanOfSteps(
          naive.Steps([&](int replica, int stage, const std::string&) {
            return !is_own(replica, stage);
          }));
      CHECK(worker.slowdown_keep == Approx(keep / ideal).epsilon(1e-12));
      CHECK(worker.speedup_fix == Approx(ours.no_gap_s / fix).epsilon(1e-12));
      ++seen;
    }
  }
  CHECK(seen > 100);
}

// Which mistakes of a replay these tables show.
TEST_CASE("diagnose: random pipelines tell faults apart", "[diagnose]") {
  for (const NaiveFault fault :
       {NaiveFault::kWaitIsTransfer, NaiveFault::kNoGather,
        NaiveFault::kReceiveFree, NaiveFault::kBackwardAtOnce,
        NaiveFault::kOwnClip, NaiveFault::kMeanIsMedian}) {
    int off = 0;
    for (unsigned seed = 1; seed <= 20; ++seed) {
      const std::string table =
          RandomTable({4, 2, 6, 1, fault == NaiveFault::kBackwardAtOnce}, seed);
      const Diagnosis ours = Diagnose(JobOf(table), ComputeIdeal::kMean);
      const bool ideal = fault == NaiveFault::kMeanIsMedian;
      const double theirs = MeanOfSteps(
          NaiveStragglers(table, fault)
              .Steps([ideal](int, int, const std::string&) { return !ideal; }));
      const double own = ideal ? ours.ideal_s : ours.no_gap_s;
      off += std::abs(theirs / own - 1) > 1e-9 ? 1 : 0;
    }
    INFO("fault " << static_cast<int>(fault));
    CHECK(off > 0);
  }
}

// Two stages by hand: F 10 and 20 ms, B 30 and 40, hops of 1 ms that wait.
constexpr char kByHand[] =
    "step,dp_rank,stage,optype,seq,mb,chunk,start_ns,duration_ns\n"
    "7,0,0,forward-compute,0,0,0,0,10000000\n"
    "7,0,0,forward-send,0,-1,-1,10000000,1000000\n"
    "7,0,1,forward-recv,0,-1,-1,2000000,9000000\n"
    "7,0,1,forward-compute,0,0,0,13000000,20000000\n"
    "7,0,1,backward-compute,0,0,0,33000000,40000000\n"
    "7,0,1,backward-send,0,-1,-1,73000000,1000000\n"
    "7,0,0,backward-recv,0,-1,-1,11000000,63000000\n"
    "7,0,0,backward-compute,0,0,0,74000000,30000000\n";

TEST_CASE("diagnose: two stages by hand", "[diagnose]") {
  const Diagnosis found = Diagnose(JobOf(kByHand), ComputeIdeal::kMean);
  REQUIRE(found.steps.size() == 1);
  CHECK(found.steps[0].step == 7);
  CHECK(found.recorded_s == Approx(0.104).epsilon(1e-12));
  // The gap of 2 ms before the second forward is gone, the waits are not.
  CHECK(found.no_gap_s == Approx(0.102).epsilon(1e-12));
  CHECK(found.gap_error == Approx(-2.0 / 104).epsilon(1e-12));
  // 15 + 1 + 15 + 35 + 1 + 35.
  CHECK(found.ideal_s == Approx(0.102).epsilon(1e-12));
  // Stage 1 alone: 15 + 1 + 20 + 40 + 1 + 35.
  CHECK(found.stages[1].slowdown_keep == Approx(112.0 / 102).epsilon(1e-12));
  // And with it ideal: 10 + 1 + 15 + 35 + 1 + 30.
  CHECK(found.stages[1].speedup_fix == Approx(102.0 / 92).epsilon(1e-12));
}

// Clocks: a message that ends 10 ms before its partner starts took no time; one
// that ends less before keeps its negative time.
TEST_CASE("diagnose: clocks that differ", "[diagnose]") {
  const auto with = [](const char* start) {
    return absl::StrReplaceAll(
        kByHand, {{"forward-recv,0,-1,-1,2000000,9000000",
                   absl::StrCat("forward-recv,0,-1,-1,", start)}});
  };
  // The send ends at 11 ms, the receive starts at 12 and ends at 13.
  const Diagnosis little =
      Diagnose(JobOf(with("12000000,1000000")), ComputeIdeal::kMean);
  CHECK(little.warnings.empty());
  const MeasuredJob far = JobOf(with("21000000,1000000"));
  const Diagnosis much = Diagnose(far, ComputeIdeal::kMean);
  // The send, and the gap of the forward that starts before its receive ends:
  // 13 - 22 = -9 ms stays.
  REQUIRE(much.warnings.size() == 1);
  CHECK(absl::StrContains(much.warnings[0], "1 transfers end 10 ms"));
}

TEST_CASE("diagnose: columns and rows in any order", "[diagnose]") {
  std::vector<std::string> turned;
  for (const absl::string_view line :
       absl::StrSplit(kByHand, '\n', absl::SkipEmpty())) {
    std::vector<std::string> cells = absl::StrSplit(line, ',');
    std::reverse(cells.begin(), cells.end());
    turned.push_back(absl::StrCat("x,", absl::StrJoin(cells, ",")));
  }
  std::reverse(turned.begin() + 1, turned.end());
  const Diagnosis one = Diagnose(JobOf(kByHand), ComputeIdeal::kMean);
  const Diagnosis other =
      Diagnose(JobOf(absl::StrJoin(turned, "\r\n")), ComputeIdeal::kMean);
  CHECK(one.no_gap_s == other.no_gap_s);
  CHECK(one.ideal_s == other.ideal_s);
}

struct BadTable {
  const char* what;
  std::string table;
  int line;
  const char* field;
  const char* value;
  const char* allowed;
};

std::string Replaced(absl::string_view from, absl::string_view to) {
  const std::string out = absl::StrReplaceAll(kByHand, {{from, to}});
  REQUIRE(out != kByHand);
  return out;
}

TEST_CASE("diagnose: bad tables are named", "[diagnose]") {
  const std::string send = "7,0,0,forward-send,0,-1,-1,10000000,1000000\n";
  const std::string receive = "7,0,1,forward-recv,0,-1,-1,2000000,9000000\n";
  const std::vector<BadTable> bad = {
      {"column", Replaced(",seq", ",number"), 1, "seq", "", "step,dp_rank"},
      {"twice", Replaced(",mb", ",seq"), 1, "seq", "given twice", "once"},
      {"negative", Replaced("0,10000000\n", "0,-5\n"), 2, "duration_ns", "-5",
       "from 0"},
      {"kind", Replaced("0,forward-send", "0,foward-send"), 3, "optype",
       "foward-send", "forward-send"},
      {"number", Replaced("0,forward-send,0", "0,forward-send,x"), 3, "seq",
       "x", "an integer from 0"},
      {"no receive", Replaced(receive, ""), 4, "optype",
       "0 forward-recv on stage 1", "1, one for each forward-compute"},
      {"no send", Replaced(send, ""), 2, "optype", "0 forward-send on stage 0",
       "1, one for each"},
      {"twice the same", Replaced(send, absl::StrCat(send, send)), 4, "seq",
       "0", "a number of its own"},
      {"hole", Replaced("0,forward-compute,0", "0,forward-compute,1"), 2, "seq",
       "1", "0, the next forward-compute of stage 0"},
      {"no stage 0", Replaced("7,0,0,", "7,0,2,"), 0, "stage", "0 missing",
       "from 0 to 2"},
      {"replica short", absl::StrCat(kByHand, "7,1,0,gc,0,-1,-1,0,0\n"), 10,
       "optype", "1 operations of dp_rank 1 in step 7", "8, as dp_rank 0"},
      {"step other",
       absl::StrCat(kByHand,
                    absl::StrReplaceAll(kByHand + sizeof(kHeader) - 1,
                                        {{"7,0,0,forward-send", "8,0,0,gc"},
                                         {"7,0,", "8,0,"}})),
       11, "optype", "gc 0 of stage 0", "dp_rank 0 has in step 7"},
      {"cells", Replaced("7,0,0,forward-send", "7,0,forward-send"), 3, nullptr,
       "8", "9"},
  };
  for (const BadTable& each : bad) {
    const auto job = Read(each.table);
    INFO(each.what << "\n" << job.status());
    REQUIRE(!job.ok());
    CHECK(ExitCode(job.status()) == 2);
    const ErrorParts parts = PartsOf(job.status());
    CHECK(parts.file.value_or("") == "t.csv");
    CHECK(parts.line.value_or(0) == each.line);
    if (each.field != nullptr) CHECK(parts.field.value_or("") == each.field);
    CHECK(parts.value.value_or("") == each.value);
    CHECK(absl::StrContains(parts.allowed.value_or(""), each.allowed));
  }
}

// Stage 0 runs its backward before the forward that it needs.
TEST_CASE("diagnose: operations that wait for each other", "[diagnose]") {
  const auto job = Read(
      absl::StrReplaceAll(kByHand, {{"backward-compute,0,0,0,74000000,30000000",
                                     "backward-compute,0,0,0,0,1"},
                                    {"forward-compute,0,0,0,0,10000000",
                                     "forward-compute,0,0,0,1,9999999"}}));
  INFO(job.status());
  REQUIRE(!job.ok());
  CHECK(ExitCode(job.status()) == 2);
  const ErrorParts parts = PartsOf(job.status());
  CHECK(parts.field.value_or("") == "start_ns");
  CHECK(parts.line.value_or(0) > 1);
  CHECK(absl::StrContains(job.status().message(), "wait for each other"));
  CHECK(absl::StrContains(job.status().message(), "forward-compute 0"));
}

TEST_CASE("diagnose: empty and endless tables", "[diagnose]") {
  for (const std::string& table : {std::string(kHeader), std::string("\n")}) {
    const auto job = Read(table);
    REQUIRE(!job.ok());
    CHECK(ExitCode(job.status()) == 2);
  }
  const auto job = Read(absl::StrCat(kHeader, std::string(100'000, '1')));
  REQUIRE(!job.ok());
  CHECK(absl::StrContains(job.status().message(), "t.csv:2: a line of more"));
  // Numbers that would need much memory are refused by what is there.
  const auto far =
      Read(Replaced("7,0,1,forward-recv", "7,1000000,1,forward-recv"));
  REQUIRE(!far.ok());
  CHECK(absl::StrContains(far.status().message(), "dp_rank: 1 missing"));
}

}  // namespace
}  // namespace pipewright::table_test
