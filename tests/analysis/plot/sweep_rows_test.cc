// Rows of the files of `sweep` as points of a figure: what is drawn, what is
// counted, and where each is from.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/analysis/plot/read_points.h"
#include "sim/analysis/sweep/leaves.h"
#include "sim/analysis/sweep/store.h"
#include "sim/base/json.h"
#include "tests/support/run_binary.h"

namespace pipewright::sweep_rows_test {
namespace {

using testing::TemporaryFolder;

const PointPaths kPaths = {"peak_memory_bytes.max", "iteration_s", ""};

PointResult Point(int number, PointStatus status) {
  const Json report = {
      {"schedule", number % 2 == 0 ? "1f1b" : "gpipe"},
      {"iteration_s", 1.0 * number},
      {"fits", status == PointStatus::kOk},
      {"peak_memory_bytes", Json::array({10.0 - number, 1.0})}};
  TreeParts parts = SplitTree(report);
  PointResult result;
  result.hash[0] = static_cast<uint8_t>(number);
  result.status = status;
  result.engine = "fast";
  result.axes = absl::StrCat("{\"strategy.pp\":", number, "}");
  if (status == PointStatus::kOk || status == PointStatus::kMisfit) {
    result.shape = std::move(parts.shape);
    result.leaves = std::move(parts.leaves);
  }
  return result;
}

void Store(const std::string& path, const std::string& base,
           const std::vector<PointResult>& points) {
  const auto store = SweepStore::Open(path).value();
  REQUIRE(store->Begin({.command = "sweep", .base = base}).ok());
  for (const PointResult& point : points) REQUIRE(store->Add(point).ok());
  REQUIRE(store->Commit().ok());
}

ReadPoints Read(const std::vector<std::string>& files,
                const PointPaths& paths = kPaths) {
  RunContext context;
  absl::StatusOr<ReadPoints> read = ReadPointsOf(files, paths, &context);
  INFO(read.status());
  REQUIRE(read.ok());
  return *std::move(read);
}

TEST_CASE("plot: rows that do not fit are counted and not drawn", "[plot]") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("runs.sqlite");
  // A misfit that was refused before it ran has no report.
  PointResult unreported = Point(7, PointStatus::kRefused);
  unreported.status = PointStatus::kMisfit;
  // The misfit would be best of all in time.
  Store(path, "strategy.tp: 1\n",
        {Point(1, PointStatus::kMisfit), Point(2, PointStatus::kOk),
         Point(3, PointStatus::kOk), Point(4, PointStatus::kRefused),
         unreported});
  const ReadPoints read = Read({path});
  REQUIRE(read.points.size() == 2);
  CHECK(read.points[0].y == 2);
  CHECK(read.points[1].y == 3);
  CHECK(read.without == 1);
  CHECK(read.warnings ==
        std::vector<std::string>{"2 runs do not fit and are not drawn"});
  // Nor are those of a base that is not asked for.
  Store(path, "strategy.tp: 2\n",
        {Point(5, PointStatus::kMisfit), Point(6, PointStatus::kOk)});
  PointPaths second = kPaths;
  second.base = 2;
  const ReadPoints of_second = Read({path}, second);
  REQUIRE(of_second.points.size() == 1);
  CHECK(of_second.points[0].y == 6);
  CHECK(of_second.warnings ==
        std::vector<std::string>{"1 run does not fit and is not drawn"});
  CHECK(Read({path}).warnings[0] ==
        absl::StrCat(path,
                     ": its rows are of 2 bases, which may differ in "
                     "work; --base draws one: base 1 (strategy.tp: 1), "
                     "base 2 (strategy.tp: 2)"));
}

TEST_CASE("plot: the name of a row says its file", "[plot]") {
  const TemporaryFolder folder;
  const std::string one = folder.Path("a.sqlite");
  const std::string other = folder.Path("b.sqlite");
  Store(one, "strategy.tp: 1\n", {Point(1, PointStatus::kOk)});
  Store(other, "strategy.tp: 1\n",
        {Point(1, PointStatus::kOk), Point(2, PointStatus::kOk)});
  PointPaths paths = kPaths;
  paths.columns = true;
  for (const char* const series : {"", "schedule", "file"}) {
    paths.series = series;
    const ReadPoints read = Read({one, other}, paths);
    REQUIRE(read.points.size() == 3);
    for (size_t index = 0; index < 3; ++index) {
      const FigurePoint& point = read.points[index];
      const std::string& file = index == 0 ? one : other;
      INFO(series << " " << point.name);
      CHECK_THAT(point.name, Catch::StartsWith(file + ", strategy.pp "));
      CHECK(
          point.series ==
          (paths.series == "schedule" ? index == 2 ? "1f1b" : "gpipe" : file));
      // A column of the page's table.
      CHECK(std::find(point.words.begin(), point.words.end(),
                      std::pair<std::string, std::string>("file", file)) !=
            point.words.end());
    }
  }
  // The name of a single file is not told again.
  CHECK(Read({one}).points[0].name == "strategy.pp 1, gpipe");
}

}  // namespace
}  // namespace pipewright::sweep_rows_test
