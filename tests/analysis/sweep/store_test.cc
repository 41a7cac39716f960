// The file of a sweep: what is stored reads back, older files migrate, rows of
// other versions stay, and no foreign file is touched.
#include "sim/analysis/sweep/store.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/analysis/sweep/export.h"
#include "sim/analysis/sweep/leaves.h"
#include "sim/analysis/sweep/reader.h"
#include "sim/base/file.h"
#include "sim/base/json.h"
#include "tests/support/run_binary.h"

namespace pipewright::store_test {
namespace {

using testing::TemporaryFolder;

PointResult ResultOf(uint8_t number, const Json& report) {
  PointResult result;
  result.hash[0] = number;
  result.engine = "fast";
  result.axes =
      absl::StrCat("{\"strategy.tp\":", number, ",\"schedule.name\":\"1f1b\"}");
  result.iteration_s = 0.5 * number;
  TreeParts parts = SplitTree(report);
  result.shape = parts.shape;
  result.leaves = parts.leaves;
  return result;
}

Json ReportOfNumber(int number) {
  return {
      {"schedule", "1f1b"},
      {"iteration_s", 0.1 * number},
      {"fits", true},
      {"none", nullptr},
      {"bubble_fraction", {{"global", 0.25}, {"per_rank", 0.125}}},
      {"peak_memory_bytes", Json::array({1.0 * number, 3.0, 2.0})},
      {"ranks", Json::array({{{"rank", 0}, {"idle_s", 1e-9}}, {{"rank", 1}}})},
      {"warnings", Json::array()}};
}

std::vector<SweepRow> RowsOf(const std::string& path,
                             const std::vector<std::string>& columns,
                             bool all_versions = false) {
  std::vector<SweepRow> rows;
  const auto reader = SweepReader::Open(path);
  INFO(reader.status());
  REQUIRE(reader.ok());
  const absl::Status status =
      (*reader)->Visit(columns, all_versions, [&](const SweepRow& row) {
        rows.push_back(row);
        rows.back().report = nullptr;
        return absl::OkStatus();
      });
  INFO(status);
  REQUIRE(status.ok());
  return rows;
}

TEST_CASE("sweep: a tree is its shape and its leaves", "[sweep]") {
  const Json report = ReportOfNumber(7);
  const TreeParts parts = SplitTree(report);
  const Json shape = ParseJson(parts.shape).value();
  const Json leaves = ParseJson(parts.leaves).value();
  CHECK(JoinTree(shape, leaves).dump() == report.dump());
  CHECK(SplitTree(ReportOfNumber(8)).shape == parts.shape);
  const auto cell = [&](const char* path) {
    return CellOfColumn(FindColumn(shape, path), leaves);
  };
  CHECK(cell("iteration_s").number == 0.1 * 7);
  CHECK(cell("bubble_fraction.per_rank").number == 0.125);
  CHECK(cell("peak_memory_bytes.max").number == 7);
  CHECK(cell("peak_memory_bytes.min").number == 2);
  CHECK(cell("peak_memory_bytes.mean").number == 4);
  CHECK(cell("peak_memory_bytes.sum").number == 12);
  CHECK(cell("peak_memory_bytes.1").number == 3);
  CHECK(cell("ranks.0.idle_s").number == 1e-9);
  CHECK(cell("schedule").text == "1f1b");
  CHECK(cell("fits").text == "true");
  for (const char* path : {"none", "nothing", "ranks", "ranks.1.idle_s",
                           "peak_memory_bytes.max.max", "schedule.max", "",
                           "peak_memory_bytes.3", "warnings.max"}) {
    INFO(path);
    CHECK(cell(path).kind == SweepCell::Kind::kNone);
  }
  for (const std::string& column : ColumnsOfShape(shape)) {
    INFO(column);
    CHECK_FALSE(FindColumn(shape, column).leaves.empty());
  }
}

TEST_CASE("sweep: a result is the same after its way between processes",
          "[sweep]") {
  PointResult result = ResultOf(3, ReportOfNumber(3));
  result.seed = 5;
  result.fits = false;
  result.status = PointStatus::kMisfit;
  result.exit = 3;
  result.reason = "too large";
  std::string bytes;
  AppendResult(result, &bytes);
  absl::string_view rest = bytes;
  PointResult back;
  REQUIRE(TakeResult(&rest, &back));
  CHECK(rest.empty());
  std::string again;
  AppendResult(back, &again);
  CHECK(again == bytes);
  for (size_t size = 0; size < bytes.size(); ++size) {
    absl::string_view cut = absl::string_view(bytes).substr(0, size);
    PointResult lost;
    CHECK_FALSE(TakeResult(&cut, &lost));
  }
}

TEST_CASE("sweep: rows are kept when they are committed", "[sweep]") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("runs.sqlite");
  {
    const auto store = SweepStore::Open(path).value();
    REQUIRE(
        store->Begin({.command = "pipewright sweep", .base = "strategy.pp: 4"})
            .ok());
    for (uint8_t number = 1; number <= 3; ++number) {
      REQUIRE(store->Add(ResultOf(number, ReportOfNumber(number))).ok());
      if (number == 2) REQUIRE(store->Commit().ok());
    }
    CHECK(store->Has(ResultOf(3, {}).hash));
  }
  const auto rows = RowsOf(path, {"iteration_s", "strategy.tp", "status"});
  REQUIRE(rows.size() == 2);
  CHECK(rows[1].cells[0].number == 0.2);
  CHECK(rows[1].cells[1].number == 2);
  CHECK(rows[1].cells[2].text == "ok");
  CHECK(rows[1].axes[1].second.text == "1f1b");
  CHECK(rows[1].current);
  const auto again = SweepStore::Open(path).value();
  CHECK(again->Has(ResultOf(2, {}).hash));
  CHECK_FALSE(again->Has(ResultOf(3, {}).hash));
}

TEST_CASE("sweep: an unknown column names the nearest", "[sweep]") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("runs.sqlite");
  {
    const auto store = SweepStore::Open(path).value();
    REQUIRE(store->Add(ResultOf(1, ReportOfNumber(1))).ok());
    REQUIRE(store->Commit().ok());
  }
  const auto reader = SweepReader::Open(path).value();
  const absl::Status status = reader->Visit(
      {"iteration"}, false, [](const SweepRow&) { return absl::OkStatus(); });
  CHECK(absl::StrContains(status.message(), "did you mean 'iteration_s'?"));
}

TEST_CASE("sweep: rows of other model versions are kept and marked",
          "[sweep]") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("runs.sqlite");
  {
    const auto store = SweepStore::Open(path).value();
    REQUIRE(store->Add(ResultOf(1, ReportOfNumber(1))).ok());
    REQUIRE(store->Add(ResultOf(2, ReportOfNumber(2))).ok());
    REQUIRE(store->Commit().ok());
  }
  {
    const auto database = Database::Open(path, Database::Mode::kWrite).value();
    REQUIRE(database
                ->Execute(absl::StrCat("UPDATE point SET model_version = ",
                                       kModelVersion + 1, " WHERE id = 1"))
                .ok());
  }
  const auto store = SweepStore::Open(path).value();
  CHECK_FALSE(store->Has(ResultOf(1, {}).hash));
  CHECK(store->Has(ResultOf(2, {}).hash));
  CHECK(RowsOf(path, {}).size() == 1);
  const auto all = RowsOf(path, {}, true);
  REQUIRE(all.size() == 2);
  CHECK_FALSE(all[0].current);
  CHECK(SweepReader::Open(path).value()->other_versions().value() == 1);
}

TEST_CASE("sweep: a file of schema 1 migrates with its rows", "[sweep]") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("runs.sqlite");
  Json report = ReportOfNumber(4);
  report["mfu"] = 0.375;
  report["time_unit"] = "unit";
  {
    const auto store = SweepStore::Open(path).value();
    REQUIRE(store->Add(ResultOf(4, report)).ok());
    REQUIRE(store->Add(ResultOf(5, ReportOfNumber(5))).ok());
    REQUIRE(store->Commit().ok());
  }
  {
    const auto database = Database::Open(path, Database::Mode::kWrite).value();
    REQUIRE(database
                ->Execute("ALTER TABLE point DROP COLUMN mfu;"
                          "ALTER TABLE point DROP COLUMN time_unit;"
                          "ALTER TABLE point DROP COLUMN iteration_units;"
                          "ALTER TABLE sweep DROP COLUMN grid;"
                          "ALTER TABLE sweep DROP COLUMN first;"
                          "ALTER TABLE sweep DROP COLUMN points;"
                          "ALTER TABLE sweep DROP COLUMN shard;"
                          "ALTER TABLE sweep DROP COLUMN shards;"
                          "ALTER TABLE sweep DROP COLUMN axes;"
                          "DROP TABLE known;"
                          "CREATE INDEX point_by_iteration ON point(iteration_s);"
                          "CREATE INDEX point_by_memory ON point("
                          "peak_memory_bytes);"
                          "PRAGMA user_version = 1")
                .ok());
  }
  const absl::Status old = SweepReader::Open(path).status();
  CHECK(absl::StrContains(old.message(), "an older version"));
  { CHECK(SweepStore::Open(path).ok()); }
  CHECK(RowsOf(path, {}).size() == 2);
  const auto database = Database::Open(path, Database::Mode::kRead).value();
  CHECK(database->Integer("PRAGMA user_version").value() == kSweepSchema);
  // Reports of before there were units are in seconds.
  const auto rows = [&database](const std::string& where) {
    return database
        ->Integer(absl::StrCat("SELECT count(*) FROM point WHERE ", where))
        .value();
  };
  CHECK(rows("id = 1 AND time_unit = 'unit' AND iteration_units = 2 AND "
             "iteration_s IS NULL") == 1);
  CHECK(rows("id = 2 AND time_unit = 's' AND iteration_s = 2.5 AND "
             "iteration_units IS NULL") == 1);
  CHECK(
      database->Integer("SELECT mfu * 1000 FROM point WHERE id = 1").value() ==
      375);
  CHECK(database->Integer("SELECT count(*) FROM point WHERE mfu IS NULL")
            .value() == 1);
}

TEST_CASE("sweep: what is no file of a sweep is refused and stays", "[sweep]") {
  const TemporaryFolder folder;
  const std::string text = folder.Write("a.txt", std::string(5000, 'x'));
  const std::string foreign = folder.Path("foreign.sqlite");
  const std::string newer = folder.Path("newer.sqlite");
  {
    const auto database =
        Database::Open(foreign, Database::Mode::kWrite).value();
    REQUIRE(database->Execute("CREATE TABLE mine(x)").ok());
    { CHECK(SweepStore::Open(newer).ok()); }
    const auto other = Database::Open(newer, Database::Mode::kWrite).value();
    REQUIRE(other->Execute("PRAGMA user_version = 99").ok());
  }
  const std::pair<std::string, const char*> table[] = {
      {text, "not a database"},
      {foreign, "a database of another program"},
      {newer, "a newer version of pipewright"},
      {folder.Path(""), "a folder"},
      {"/dev/null", "no regular file"},
      {folder.Path("no/such.sqlite"), "cannot be opened"}};
  for (const auto& [path, words] : table) {
    const absl::Status status = SweepStore::Open(path).status();
    INFO(path << ": " << status);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(absl::StrContains(status.message(), words));
  }
  CHECK(ReadFile(text).value() == std::string(5000, 'x'));
  const auto database = Database::Open(foreign, Database::Mode::kRead).value();
  CHECK(database->Integer("SELECT count(*) FROM sqlite_master").value() == 1);
}

TEST_CASE("sweep: a second writer is refused while the first one lives",
          "[sweep]") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("runs.sqlite");
  auto store = SweepStore::Open(path).value();
  const auto try_elsewhere = [&path] {
    const pid_t child = ::fork();
    if (child == 0) {
      const absl::Status status = SweepStore::Open(path).status();
      const bool busy = absl::StrContains(status.message(),
                                          "another pipewright sweep writes");
      ::_exit(status.ok() ? 0 : busy ? 7 : 8);
    }
    int state = 0;
    ::waitpid(child, &state, 0);
    return WEXITSTATUS(state);
  };
  CHECK(try_elsewhere() == 7);
  store.reset();
  CHECK(try_elsewhere() == 0);
}

TEST_CASE("sweep: CSV and JSON Lines have every row", "[sweep]") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("runs.sqlite");
  {
    const auto store = SweepStore::Open(path).value();
    REQUIRE(store->Add(ResultOf(1, ReportOfNumber(1))).ok());
    PointResult refused = ResultOf(2, {});
    refused.shape.clear();
    refused.status = PointStatus::kRefused;
    refused.exit = 2;
    refused.reason = "strategy.vpp: 3, or \"4\"";
    REQUIRE(store->Add(refused).ok());
    REQUIRE(store->Commit().ok());
  }
  const auto reader = SweepReader::Open(path).value();
  REQUIRE(ExportCsv(*reader, {.path = folder.Path("a.csv")}).ok());
  CHECK(ReadFile(folder.Path("a.csv")).value() ==
        "hash,status,exit,strategy.tp,schedule.name,iteration_s,"
        "peak_memory_bytes.max,bubble_fraction.global,"
        "bubble_fraction.per_rank,fits,reason\n"
        "01000000000000000000000000000000,ok,0,1,1f1b,0.1,3,0.25,0.125,true,\n"
        "02000000000000000000000000000000,refused,2,2,1f1b,,,,,,"
        "\"strategy.vpp: 3, or \"\"4\"\"\"\n");
  REQUIRE(ExportJsonLines(*reader, {.path = folder.Path("a.jsonl")}).ok());
  const std::string lines = ReadFile(folder.Path("a.jsonl")).value();
  const size_t end = lines.find('\n');
  const Json first = ParseJson(lines.substr(0, end)).value();
  const Json second = ParseJson(lines.substr(end + 1)).value();
  CHECK(first["report"].dump() == ReportOfNumber(1).dump());
  CHECK(first["axes"]["strategy.tp"] == 1.0);
  CHECK(second["report"].is_null());
  CHECK(second["status"] == "refused");
}

}  // namespace
}  // namespace pipewright::store_test
