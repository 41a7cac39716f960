// Points that take too long or end their worker, with others behind them: none
// is lost, rows say what happened, a second call leaves them alone or runs them
// again.
#include "sim/analysis/sweep/pool.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/analysis/sweep/database.h"
#include "sim/analysis/sweep/export.h"
#include "sim/analysis/sweep/grid.h"
#include "sim/analysis/sweep/reader.h"
#include "sim/analysis/sweep/store.h"
#include "sim/analysis/sweep/sweep.h"
#include "sim/base/file.h"
#include "sim/config/run_context.h"
#include "sim/run/simulated_run.h"
#include "tests/support/run_binary.h"
#include "tests/support/text_base.h"

namespace pipewright::pool_test {
namespace {

using testing::RunBinary;
using testing::TemporaryFolder;
using Naps = std::chrono::milliseconds;

constexpr char kBase[] =
    "schedule: {name: 1f1b}\nstrategy: {pp: 2, microbatches: 8}\n"
    "costs: {uniform: {forward: 1ms, backward_input: 1ms, backward_weight: "
    "1ms}, p2p: 0s}\n";

SweepPoints PointsOf(const std::string& axis, RunContext* context,
                     const std::string& base = kBase) {
  SweepGrid grid;
  grid.axes.push_back(AxisOfText(axis).value());
  auto points = SweepPoints::Create(testing::TextBase(base, "base.yaml"),
                                    std::move(grid), "fast", context);
  INFO(points.status());
  REQUIRE(points.ok());
  return *std::move(points);
}

// Points 0..count-1 on one worker that does with each of them what `act` says.
std::map<uint64_t, PointResult> RunAll(int count, const PoolOptions& options,
                                       const std::function<void(int)>& act) {
  RunContext context;
  const SweepPoints points =
      PointsOf(absl::StrCat("strategy.microbatches=1..", count), &context);
  WorkerPool pool(&points, options, [&](const SweepChoices& choices) {
    act(choices[0]);
    PointResult result;
    result.axes = points.AxesJson(choices);
    return result;
  });
  for (int point = 0; point < count; ++point) {
    pool.Give({.serial = static_cast<uint64_t>(point), .choices = {point}});
  }
  std::map<uint64_t, PointResult> results;
  // What is lost never comes.
  for (int wait = 0; pool.pending() > 0 && wait < 500; ++wait) {
    std::vector<FinishedPoint> finished;
    REQUIRE(pool.Wait(0.02, &finished).ok());
    for (FinishedPoint& each : finished) {
      CHECK(results.emplace(each.serial, each.result).second);
    }
    // Results that come together let the worker have twice as many points.
    std::this_thread::sleep_for(Naps(1));
  }
  CHECK(pool.pending() == 0);
  CHECK(static_cast<int>(results.size()) == count);
  return results;
}

TEST_CASE("sweep pool: a point that takes too long costs no other", "[sweep]") {
  // The worker has been given 32 points when it comes to this one.
  constexpr uint64_t kHangs = 40;
  const auto results =
      RunAll(64, {.workers = 1, .timeout_s = 0.1, .retries = 2}, [](int point) {
        if (point == kHangs) std::this_thread::sleep_for(Naps(60'000));
      });
  for (const auto& [point, result] : results) {
    CAPTURE(point, result.reason);
    CHECK(result.axes ==
          absl::StrCat("{\"strategy.microbatches\":", point + 1, "}"));
    if (point != kHangs) {
      CHECK(result.status == PointStatus::kOk);
      continue;
    }
    CHECK(result.status == PointStatus::kTimeout);
    CHECK(result.exit == 1);
    CHECK(result.reason == "took longer than 0.1 s (--timeout), 3 times");
  }
}

TEST_CASE("sweep pool: without retries a point is tried once", "[sweep]") {
  const auto results =
      RunAll(3, {.workers = 1, .timeout_s = 0.2, .retries = 0}, [](int point) {
        if (point == 0) std::this_thread::sleep_for(Naps(60'000));
      });
  CHECK(results.at(0).status == PointStatus::kTimeout);
  CHECK(results.at(0).reason == "took longer than 0.2 s (--timeout)");
  CHECK(results.at(2).status == PointStatus::kOk);
}

// Fifteen points let the worker have 16 at once, which together take longer
// than one may.
TEST_CASE("sweep pool: the time of a point begins when it does", "[sweep]") {
  const auto results = RunAll(
      31, {.workers = 1, .timeout_s = 0.25, .retries = 0}, [](int point) {
        if (point > 14) std::this_thread::sleep_for(Naps(25));
      });
  for (const auto& [point, result] : results) {
    CAPTURE(point, result.reason);
    CHECK(result.status == PointStatus::kOk);
  }
}

std::map<std::string, std::string> ColumnByPoint(const std::string& path,
                                                 const std::string& column) {
  std::map<std::string, std::string> values;
  const auto reader = SweepReader::Open(path);
  REQUIRE(reader.ok());
  REQUIRE((*reader)
              ->Visit({"strategy.microbatches", column}, false,
                      [&](const SweepRow& row) {
                        values[ToString(row.cells[0])] = ToString(row.cells[1]);
                        return absl::OkStatus();
                      })
              .ok());
  return values;
}

TEST_CASE("sweep pool: lost points wait for --again", "[sweep]") {
  using Column = std::map<std::string, std::string>;
  const TemporaryFolder folder;
  const std::string path = folder.Path("runs.sqlite");
  RunContext context;
  const SweepPoints points = PointsOf("strategy.microbatches=1..4", &context);
  const auto run = [&](bool again, bool ails) {
    WorkerPool pool(&points, {.workers = 1, .timeout_s = 0.3, .retries = 0},
                    [&](const SweepChoices& choices) {
                      if (ails && choices[0] == 1) {
                        std::this_thread::sleep_for(Naps(60'000));
                      }
                      if (ails && choices[0] == 2) ::_exit(7);
                      return EvaluatePoint(points, choices, &context);
                    });
    const auto store = SweepStore::Open(path).value();
    if (again) store->ForgetLost();
    REQUIRE(store->Begin({.command = "sweep", .base = "base"}).ok());
    const auto counts = RunSweep(points, store.get(), &pool, {});
    INFO(counts.status());
    REQUIRE(counts.ok());
    CHECK(counts->points == 4);
    return *counts;
  };
  const SweepCounts first = run(false, true);
  CHECK(first.ok == 2);
  CHECK(first.timeouts == 1);
  CHECK(first.crashed == 1);
  CHECK(first.earlier_lost == 0);
  const Column lost = {
      {"1", "ok"}, {"2", "timeout"}, {"3", "crashed"}, {"4", "ok"}};
  CHECK(ColumnByPoint(path, "status") == lost);
  CHECK(ColumnByPoint(path, "exit") ==
        Column{{"1", "0"}, {"2", "1"}, {"3", "1"}, {"4", "0"}});
  // Nothing runs, and both are told.
  const SweepCounts second = run(false, false);
  CHECK(second.now() == 0);
  CHECK(second.earlier == 4);
  CHECK(second.earlier_lost == 2);
  CHECK(ColumnByPoint(path, "status") == lost);
  const SweepCounts third = run(true, false);
  CHECK(third.ok == 2);
  CHECK(third.earlier == 2);
  CHECK(third.earlier_lost == 0);
  CHECK(ColumnByPoint(path, "status") ==
        Column{{"1", "ok"}, {"2", "ok"}, {"3", "ok"}, {"4", "ok"}});
}

TEST_CASE("sweep pool: the verb ends with 1 until --again", "[sweep]") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("runs.sqlite");
  folder.Write("base.yaml", kBase);
  const auto sweep = [&](bool again) {
    std::vector<std::string> words = {
        "sweep",   folder.Path("base.yaml"),       "-o", path,
        "--sweep", "strategy.microbatches=1,2,3,4"};
    if (again) words.push_back("--again");
    return RunBinary(words);
  };
  REQUIRE(sweep(false).exit_code == 0);
  {
    const auto database = Database::Open(path, Database::Mode::kWrite).value();
    REQUIRE(database
                ->Execute("UPDATE point SET status = 'timeout', exit = 1 "
                          "WHERE axes = '[2]'")
                .ok());
  }
  const auto before = sweep(false);
  CHECK(before.exit_code == 1);
  CHECK_THAT(before.err, Catch::Contains("1 point crashed or took too long") &&
                             Catch::Contains("--again"));
  CHECK(ColumnByPoint(path, "status").at("3") == "timeout");
  CHECK(sweep(true).exit_code == 0);
  CHECK(ColumnByPoint(path, "status").at("3") == "ok");
}

TEST_CASE("sweep points: the stored peak is that of the rank that needs most",
          "[sweep]") {
  for (const bool last_is_larger : {false, true}) {
    RunContext own;
    const SweepPoints all = PointsOf(
        last_is_larger ? "strategy.layers=[1,15]" : "strategy.layers=[15,1]",
        &own, std::string(kBase) + "model: {preset: gpt-tiny}\n");
    const PointResult result = EvaluatePoint(all, {0}, &own);
    INFO(result.reason);
    REQUIRE(result.status == PointStatus::kOk);
    const auto run = Simulate(*all.At({0}), &own, {});
    REQUIRE(run.ok());
    const auto& ranks = run->report.memory->memory->ranks;
    REQUIRE(ranks.size() == 2);
    const int64_t larger = ranks[last_is_larger ? 1 : 0].peak();
    CHECK(larger > ranks[last_is_larger ? 0 : 1].peak());
    CHECK(result.peak_memory_bytes == static_cast<double>(larger));
  }
}

TEST_CASE("sweep points: a dry run counts what is the same once", "[sweep]") {
  RunContext context;
  const SweepPoints points =
      PointsOf("strategy.microbatches=4,2,4,4", &context);
  const GridCounts all =
      CountPoints(points, [](const PointHash&) { return false; });
  CHECK(all.points == 4);
  CHECK(all.missing == 2);
  const PointHash known = points.HashOf(*points.At({1}));
  CHECK(CountPoints(points, [&](const PointHash& hash) {
          return hash == known;
        }).missing == 1);
}

TEST_CASE("sweep points: a range with a unit needs none at its step",
          "[sweep]") {
  const auto axis = AxisOfText("costs.p2p=1ms..3ms");
  INFO(axis.status());
  REQUIRE(axis.ok());
  CHECK(axis->values ==
        std::vector<std::vector<std::string>>{{"1ms"}, {"2ms"}, {"3ms"}});
  CHECK(AxisOfText("costs.p2p=1ms..3ms+2")->values.size() == 2);
}

TEST_CASE("sweep points: a reason of several lines is one field of a CSV",
          "[sweep]") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("runs.sqlite");
  {
    const auto store = SweepStore::Open(path).value();
    PointResult lost;
    lost.axes = "{\"strategy.tp\":1}";
    lost.status = PointStatus::kCrashed;
    lost.reason = "one\ntwo\rthree";
    REQUIRE(store->Add(lost).ok());
    REQUIRE(store->Commit().ok());
  }
  const auto reader = SweepReader::Open(path).value();
  REQUIRE(ExportCsv(*reader, {.path = folder.Path("a.csv"),
                              .columns = {"status", "reason"}})
              .ok());
  CHECK(ReadFile(folder.Path("a.csv")).value() ==
        "status,reason\ncrashed,\"one\ntwo\rthree\"\n");
}

}  // namespace
}  // namespace pipewright::pool_test
