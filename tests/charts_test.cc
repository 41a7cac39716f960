// Configuration with a stand-in for npm: how often uPlot is fetched
// (cmake/charts.cmake), and that NOTICE names what is.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/base/file.h"
#include "tests/support/json.h"
#include "tests/support/paths.h"
#include "tests/support/run_binary.h"

namespace pipewright::charts_test {
namespace {

using testing::TemporaryFolder;

// A project of charts.cmake alone.
class Project {
 public:
  Project() {
    Write("CMakeLists.txt",
          absl::StrCat("cmake_minimum_required(VERSION 3.22)\n"
                       "project(charts LANGUAGES NONE)\n"
                       "include(\"",
                       testing::SourcePath("cmake/charts.cmake"), "\")\n"));
    Write("sim/report/web/package.json", "{}");
    Write("sim/report/web/package-lock.json", "{}");
    Npm("exit 1");
  }

  void Write(const std::string& name, const std::string& text) const {
    const std::string path = folder_.Path(name);
    const auto made =
        testing::RunProgram({"mkdir", "-p", path.substr(0, path.rfind('/'))});
    REQUIRE(made.exit_code == 0);
    REQUIRE(WriteFile(path, text).ok());
  }

  // It says to a file that it ran, then does `what`.
  void Npm(const std::string& what) const {
    Write("npm", absl::StrCat("#!/bin/sh\necho \"$@\" >> '",
                              folder_.Path("calls"), "'\n", what, "\n"));
    REQUIRE(
        testing::RunProgram({"chmod", "+x", folder_.Path("npm")}).exit_code ==
        0);
  }

  // What it prints.
  std::string Configure(const std::string& option = "-DNOTHING=1",
                        const std::string& ci = "") const {
    const auto run = testing::RunProgram(
        {"env", absl::StrCat("CI=", ci), "cmake", "-S", folder_.Path(""), "-B",
         folder_.Path("build"),
         absl::StrCat("-DPIPEWRIGHT_NPM=", folder_.Path("npm")), option});
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    return run.out;
  }

  int Calls() const {
    const auto text = ReadFile(folder_.Path("calls"));
    int lines = 0;
    for (const char each : text.value_or("")) lines += each == '\n';
    return lines;
  }
  std::string LastCall() const {
    std::string text = ReadFile(folder_.Path("calls")).value();
    text.pop_back();
    return text.substr(text.rfind('\n') + 1);
  }

 private:
  const TemporaryFolder folder_;
};

constexpr char kRetry[] = "-DPIPEWRIGHT_CHARTS_RETRY=ON";
constexpr char kFetches[] =
    "mkdir -p node_modules/uplot/dist && cd node_modules/uplot && "
    "touch dist/uPlot.iife.min.js dist/uPlot.min.css LICENSE && "
    "echo '{\"version\": \"9.8.7\"}' > package.json";

TEST_CASE("charts: a fetch that failed is tried again on request", "[build]") {
  const Project project;
  const std::string first = project.Configure();
  CHECK(absl::StrContains(first, "static (npm ci failed"));
  CHECK(absl::StrContains(first, kRetry));
  CHECK(project.Calls() == 1);
  // Without a network each try takes seconds.
  CHECK(absl::StrContains(project.LastCall(), "--prefer-offline"));
  CHECK(absl::StrContains(project.LastCall(), "--fetch-retries 1 "));
  const std::string second = project.Configure();
  CHECK(absl::StrContains(second, "failed before"));
  CHECK(absl::StrContains(second, kRetry));
  CHECK(project.Calls() == 1);
  project.Configure(kRetry);
  CHECK(project.Calls() == 2);
  // The request counts once.
  project.Configure();
  CHECK(project.Calls() == 2);
  project.Write("sim/report/web/package-lock.json", "{\"changed\": 1}");
  project.Configure();
  CHECK(project.Calls() == 3);
  project.Configure("-DNOTHING=1", "true");
  CHECK(project.Calls() == 4);
  CHECK(absl::StrContains(project.LastCall(), "--fetch-retries 5"));
}

TEST_CASE("charts: what was fetched is kept, and what is not whole refused",
          "[build]") {
  const Project project;
  // npm that succeeds and leaves nothing.
  project.Npm("exit 0");
  CHECK(absl::StrContains(project.Configure(), "static (npm ci left no "));
  project.Npm(kFetches);
  CHECK(absl::StrContains(project.Configure(kRetry), "uPlot 9.8.7"));
  CHECK(project.Calls() == 2);
  CHECK(absl::StrContains(project.Configure(), "uPlot 9.8.7"));
  CHECK(project.Calls() == 2);
}

TEST_CASE("charts: NOTICE names the version of the lock file", "[build]") {
  const auto lock = testing::Json::parse(
      ReadFile(testing::SourcePath("sim/report/web/package-lock.json"))
          .value());
  const std::string version = lock["packages"]["node_modules/uplot"]["version"];
  const std::string notice = ReadFile(testing::SourcePath("NOTICE")).value();
  CHECK(absl::StrContains(
      notice, absl::StrCat("leeoniya/uPlot ", version, ", MIT License")));
}

}  // namespace
}  // namespace pipewright::charts_test
