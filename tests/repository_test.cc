// The repository is whole: no file points to something outside of it, what
// comments and docs cite exists, and no test passes where its data is missing.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sim/base/file.h"
#include "tests/support/paths.h"
#include "tests/support/prose.h"

namespace pipewright::repository_test {
namespace {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;
using testing::AllFiles;

constexpr char kOwnPath[] = "tests/repository_test.cc";

std::string Read(const std::string& path) {
  return ReadFile(testing::SourcePath(path)).value();
}

// Calls visit(path, line number, line) for the lines of all text files.
template <typename Visit>
void ForEachLine(const Visit& visit) {
  int files = 0;
  for (const std::string& path : AllFiles()) {
    const std::string content = Read(path);
    if (path == kOwnPath || absl::StrContains(content, '\0')) continue;
    ++files;
    int number = 0;
    for (const absl::string_view line : absl::StrSplit(content, '\n')) {
      visit(path, ++number, line);
    }
  }
  CHECK(files > 500);
}

// What `line` says of a place that no clone has; "" for nothing.
std::string PlaceOutside(absl::string_view line) {
  for (const char* place :
       {"../shared", "shared/oracle", "shared/reference", "shared/tools",
        "DESIGN section", "DESIGN sec.", "DESIGN.md"}) {
    if (absl::StrContains(line, place)) return place;
  }
  for (const char* place : {"/home/", "/root/", "/Users/", "/work/"}) {
    for (size_t at = line.find(place); at != absl::string_view::npos;
         at = line.find(place, at + 1)) {
      // Behind these it is a part of a relative path or of an address.
      const char before = at == 0 ? ' ' : line[at - 1];
      if (absl::ascii_isalnum(before) || absl::StrContains("_-.~}>", before)) {
        continue;
      }
      return place;
    }
  }
  return "";
}

TEST_CASE("repository: nothing points to a place outside", "[repository]") {
  Strings found;
  ForEachLine([&](const std::string& path, int number, absl::string_view line) {
    const std::string place = PlaceOutside(line);
    if (!place.empty()) {
      found.push_back(absl::StrCat(path, ":", number, ": ", place));
    }
  });
  INFO(absl::StrJoin(found, "\n"));
  CHECK(found.empty());

  CHECK(PlaceOutside("// (DESIGN section 4).") == "DESIGN section");
  CHECK(PlaceOutside("SourcePath(\"../shared/oracle/a\")") == "../shared");
  CHECK(PlaceOutside("in shared/oracle") == "shared/oracle");
  CHECK(PlaceOutside("/work/main/build") == "/work/");
  CHECK(PlaceOutside("see x/home/a and \"/home/someone/a\"") == "/home/");
  CHECK(PlaceOutside("https://example.org/home/a, build/work/a") == "");
  CHECK(PlaceOutside("designed in sections; shared_ptr") == "");
}

// The comment in a line of source, all of a line of text; "" for data.
std::string CommentOf(const std::string& path, absl::string_view line) {
  const std::string ending = fs::path(path).extension().string();
  if (ending == ".md") return std::string(line);
  const bool slashes =
      std::set<std::string>{".cc", ".h", ".cu", ".cuh", ".inc", ".proto"}.count(
          ending) > 0;
  const bool hash =
      std::set<std::string>{".cmake", ".sh", ".py", ".yaml", ".textproto"}
              .count(ending) > 0 ||
      absl::EndsWith(path, "CMakeLists.txt");
  if (!slashes && !hash) return "";
  const size_t at = line.find(slashes ? "//" : "#");
  return at == absl::string_view::npos ? "" : std::string(line.substr(at));
}

// Paths of the repository in `text`, without patterns and placeholders.
Strings CitedPaths(const std::string& text) {
  static const std::regex path(
      R"((?:^|[^\w./~>-])((?:calibrate|cmake|docs|execute|experiments|kernels)"
      R"(|schedules|sim|tests|topologies)/[\w./*<>{},-]*))");
  Strings paths;
  for (std::sregex_iterator at(text.begin(), text.end(), path), end; at != end;
       ++at) {
    std::string cited = (*at)[1].str();
    while (absl::EndsWith(cited, ".") || absl::EndsWith(cited, ",")) {
      cited.pop_back();
    }
    const bool pattern = cited.find_first_of("*<>{}") != std::string::npos ||
                         absl::StrContains(cited, "NAME");
    if (!pattern) paths.push_back(cited);
  }
  return paths;
}

TEST_CASE("repository: paths in comments and docs exist", "[repository]") {
  // Files that the docs tell a reader to write.
  const std::set<std::string> examples = {"schedules/eager_1f1b.cc",
                                          "topologies/rail.cc"};
  Strings missing;
  int cited = 0;
  ForEachLine([&](const std::string& path, int number, absl::string_view line) {
    if (line.size() > 1000) return;
    for (const std::string& name : CitedPaths(CommentOf(path, line))) {
      ++cited;
      if (examples.count(name) > 0) continue;
      if (!fs::exists(testing::SourcePath(name))) {
        missing.push_back(absl::StrCat(path, ":", number, ": ", name));
      }
    }
  });
  INFO(absl::StrJoin(missing, "\n"));
  CHECK(missing.empty());
  CHECK(cited > 50);

  CHECK(CitedPaths("(sim/base/a.h), docs/b.md.") ==
        Strings{"sim/base/a.h", "docs/b.md"});
  CHECK(CitedPaths("build/sim/a, tests/<folder>/a, sim/x_*, ../sim/a").empty());
  CHECK(CommentOf("a.cc", "f(\"sim/a\");  // sim/b") == "// sim/b");
  CHECK(CommentOf("a.csv", "sim/a") == "");
}

constexpr char kArchitecture[] = "docs/architecture.md";

// True where what follows `kArchitecture` in `text`, if it names a section,
// names one of `sections`.
bool NamesSection(const std::string& text, const Strings& sections) {
  const std::string citation = absl::StrCat(kArchitecture, ", ");
  const size_t at = text.find(citation);
  if (at == std::string::npos) return true;
  const std::string rest = text.substr(at + citation.size());
  if (rest.empty() || !absl::ascii_isupper(rest[0])) return true;
  return std::any_of(
      sections.begin(), sections.end(),
      [&](const std::string& name) { return absl::StartsWith(rest, name); });
}

TEST_CASE("repository: sections of the architecture exist", "[repository]") {
  Strings sections;
  for (const absl::string_view line :
       absl::StrSplit(Read(kArchitecture), '\n')) {
    if (absl::StartsWith(line, "## ")) sections.emplace_back(line.substr(3));
  }
  REQUIRE(sections.size() > 5);
  Strings wrong;
  ForEachLine([&](const std::string& path, int number, absl::string_view line) {
    if (path != kArchitecture && !NamesSection(std::string(line), sections)) {
      wrong.push_back(absl::StrCat(path, ":", number, ": ", line));
    }
  });
  INFO(absl::StrJoin(wrong, "\n"));
  CHECK(wrong.empty());

  const std::string citation = absl::StrCat("// (", kArchitecture, ", ");
  CHECK(NamesSection(citation + "Words)", {"Files", "Words"}));
  CHECK_FALSE(NamesSection(citation + "Word)", {"Files", "Words"}));
  CHECK(NamesSection(citation + "and more", {"Files"}));
}

TEST_CASE("repository: every file of the oracle has its source",
          "[repository]") {
  const std::string readme = Read("tests/oracle/README.md");
  std::set<std::string> files;
  for (const std::string& path : AllFiles()) {
    if (!absl::StartsWith(path, "tests/oracle/")) continue;
    std::string name = path.substr(std::string("tests/oracle/").size());
    if (name == "README.md") continue;
    // The README names those of the folder by their endings.
    if (absl::StartsWith(name, "torch_csv/")) {
      name = absl::StrCat("torch_csv/*", name.substr(name.find("_compute_")));
    }
    INFO(name);
    CHECK(absl::StrContains(readme, absl::StrCat("`", name, "`")));
    files.insert(name);
  }
  // And no row is of a file that is not there.
  static const std::regex named(
      R"(`([\w/*]+\.(?:json\.gz|tsv\.gz|csv\.gz|csv))`)");
  std::set<std::string> rows;
  for (std::sregex_iterator at(readme.begin(), readme.end(), named), end;
       at != end; ++at) {
    rows.insert((*at)[1].str());
  }
  CHECK(rows == files);
}

// A test may do less where hardware or MPI is missing, and says so; where its
// data is missing it fails. tests/browser, tests/gpu and tests/interop are
// programs of their own with an exit code for what cannot run here.
TEST_CASE("repository: only surroundings may be missing", "[repository]") {
  std::set<std::string> skipping;
  ForEachLine([&](const std::string& path, int, absl::string_view line) {
    if (absl::StartsWith(path, "tests/") && absl::EndsWith(path, ".cc") &&
        absl::StrContains(line, "WARN(") &&
        absl::StrContains(line, "skipped")) {
      skipping.insert(path);
    }
  });
  CHECK(skipping == std::set<std::string>{"tests/cli/completion_test.cc",
                                          "tests/cli/modules_test.cc",
                                          "tests/contributing_test.cc",
                                          "tests/kernels/cpu_test.cc",
                                          "tests/support/mpirun.cc"});
}

// What is compiled together has names of its own. A file that defines what a
// header declares, behind its anonymous namespace, has that header's namespace.
TEST_CASE("repository: an anonymous namespace stands in the file's own",
          "[repository]") {
  int files = 0;
  for (const std::string& path : AllFiles()) {
    const bool is_test =
        absl::StartsWith(path, "tests/") && absl::EndsWith(path, "_test.cc");
    const bool is_instance =
        absl::EndsWith(path, ".cc") &&
        (absl::StartsWith(path, "schedules/") ||
         absl::StartsWith(path, "topologies/") ||
         absl::StartsWith(path, "sim/analysis/reproduce/"));
    if (!is_test && !is_instance) continue;
    const std::string text = Read(path);
    if (!absl::StrContains(text, "\nnamespace {\n")) continue;
    if (!is_test &&
        !absl::StrContains(text, "}  // namespace\n}  // namespace ")) {
      continue;
    }
    ++files;
    INFO(path);
    const std::string stem = fs::path(path).stem();
    CHECK(absl::StrContains(text, absl::StrCat("::", stem, " {\n")));
  }
  CHECK(files > 300);
}

}  // namespace
}  // namespace pipewright::repository_test
