// Files are read through sim/base/input.h and written through sim/base/file.h
// and the outputs of a verb, so that limits and refusals hold for all of them.
#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sim/base/input.h"
#include "tests/support/paths.h"

namespace pipewright::readers_test {
namespace {

// Files that open others by themselves, with what they open.
const std::map<std::string, std::string>& OwnWays() {
  static const std::map<std::string, std::string> ways = {
      {"sim/base/input.cc", "this is the way"},
      {"sim/base/file.cc", "this is the way to write"},
      {"sim/proto/generate_config.cc", "a program of the build"},
      {"sim/analysis/sweep/writer_lock.cc", "locks a file beside a database"},
      {"sim/analysis/sweep/export.cc",
       "writes more rows than memory would hold"},
      {"execute/transport/socket_place.cc",
       "writes the place of a job of sockets"},
      {"execute/run/shared_blocks.cc",
       "memory of processes, which has no name"},
      {"sim/cli/progress_bar.cc", "memory that a child shares, no file"},
  };
  return ways;
}

// Files of the product, below the root.
std::vector<std::string> Sources() {
  std::vector<std::string> names;
  for (const char* const folder :
       {"sim", "calibrate", "execute", "schedules", "topologies", "python"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(
             testing::SourcePath(folder))) {
      const std::string path = entry.path().string();
      if (!absl::EndsWith(path, ".cc") && !absl::EndsWith(path, ".h")) continue;
      names.push_back(path.substr(testing::SourcePath("").size()));
    }
  }
  return names;
}

TEST_CASE("readers: no file is opened but through one place", "[layering]") {
  const std::regex opens(
      R"(\b(std::)?(i|o)?fstream\b|\bf(re)?open\s*\(|::open(at)?\s*\(|)"
      R"(\bgzopen\s*\(|\bmmap\s*\(|\bopenat\s*\()");
  std::vector<std::string> found;
  std::set<std::string> used;
  for (const std::string& name : Sources()) {
    const std::string text = ReadFile(testing::SourcePath(name)).value();
    int number = 0;
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      ++number;
      const std::string code(line.substr(0, line.find("//")));
      if (!std::regex_search(code, opens)) continue;
      if (OwnWays().count(name) > 0) {
        used.insert(name);
      } else {
        found.push_back(absl::StrCat(name, ":", number, ": ", code));
      }
    }
  }
  INFO(absl::StrJoin(found, "\n"));
  CHECK(found.empty());
  CHECK(used.size() == OwnWays().size());
}

TEST_CASE("readers: pictures are written in one place", "[layering]") {
  std::vector<std::string> found;
  for (const std::string& name : Sources()) {
    const std::string text = ReadFile(testing::SourcePath(name)).value();
    if (absl::StrContains(text, "<svg")) found.push_back(name);
  }
  CHECK(found == std::vector<std::string>{"sim/report/svg_parts.cc"});
}

}  // namespace
}  // namespace pipewright::readers_test
