// The keys that `sweep --columns` knows before any report is there.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "sim/report/report.h"
#include "tests/support/base_runs.h"
#include "tests/support/json.h"
#include "tests/support/run_here.h"

namespace pipewright::report_keys_test {
namespace {

TEST_CASE("report: every key of every run is among the known ones",
          "[report]") {
  const std::vector<std::string> known = ReportKeys();
  const testing::BaseRuns runs;
  int reports = 0;
  for (const testing::BaseRun& run : runs.all()) {
    const testing::BinaryResult result = testing::RunHere(
        {"simulate", runs.PathOf(run.name), "--engine", "fast", "--json"});
    const auto report = testing::Json::try_parse(result.out);
    if (!report.is_object() || report.contains("error")) continue;
    ++reports;
    for (const auto& [key, value] : report.items()) {
      INFO(run.name << ": " << key);
      CHECK(std::find(known.begin(), known.end(), key) != known.end());
    }
  }
  CHECK(reports > 5);
}

}  // namespace
}  // namespace pipewright::report_keys_test
