// The rules of docs/architecture.md, Layers, on who may include whom and what
// may print or exit, checked against the sources.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sim/base/file.h"
#include "sim/schedule/registry.h"
#include "sim/topology/registry.h"
#include "tests/support/paths.h"

namespace pipewright::layering_test {
namespace {

using Strings = std::vector<std::string>;

// Folder -> folders that it includes, or may include, besides itself.
using Graph = std::map<std::string, std::set<std::string>>;
using Row = std::pair<std::string, std::set<std::string>>;

// What each folder may include. One row a folder: the test below fails where
// one stands twice, and none overwrites another.
const std::vector<Row>& Rows() {
  static const std::vector<Row> all = [] {
    std::vector<Row> rows = {
        {"sim/base", {}},
        {"sim/schedule", {"sim/base"}},
        {"sim/topology", {"sim/base"}},
        {"sim/model", {"sim/base"}},
        {"sim/profile", {"sim/base"}},
        {"sim/cost", {"sim/base", "sim/model", "sim/profile", "sim/topology"}},
        {"sim/memory", {"sim/base", "sim/schedule", "sim/model"}},
    };
    // Each of these sees all rows so far.
    for (const char* folder :
         {"sim/program", "sim/trace", "sim/engine", "sim/report", "sim/config",
          "sim/run", "sim/analysis/compare", "sim/analysis/explain",
          "sim/analysis/diagnose", "sim/analysis/search", "sim/analysis/sweep",
          "sim/analysis/plot", "sim/analysis/reproduce", "sim/foreign",
          "sim/cli"}) {
      std::set<std::string> below;
      for (const auto& [lower, allowed] : rows) below.insert(lower);
      rows.emplace_back(folder, std::move(below));
    }
    // Modules that the command line loads.
    rows.back().second.insert({"kernels", "calibrate", "execute/transport",
                               "execute/run", "execute/train",
                               "execute/report"});
    const std::set<std::string> run = {
        "kernels",      "execute/transport", "sim/base",  "sim/schedule",
        "sim/model",    "sim/profile",       "sim/cost",  "sim/memory",
        "sim/topology", "sim/program",       "sim/trace", "sim/engine"};
    std::set<std::string> train = run;
    train.insert("execute/run");
    std::set<std::string> report = train;
    report.insert({"calibrate", "execute/train", "sim/report", "sim/config",
                   "sim/run", "sim/analysis/compare", "sim/analysis/explain"});
    const std::vector<Row> apart = {
        {"schedules", {"sim/base", "sim/schedule"}},
        {"topologies", {"sim/base", "sim/topology"}},
        {"kernels", {}},
        {"execute/transport",
         {"kernels", "sim/base", "sim/profile", "sim/program"}},
        {"calibrate",
         {"kernels", "execute/transport", "sim/base", "sim/cost", "sim/model",
          "sim/profile", "sim/program", "sim/trace"}},
        {"execute/run", run},
        {"execute/train", train},
        {"execute/report", report},
    };
    rows.insert(rows.end(), apart.begin(), apart.end());
    // The other roof.
    std::set<std::string> all_of_them;
    for (const auto& [folder, allowed] : rows) all_of_them.insert(folder);
    rows.emplace_back("python", std::move(all_of_them));
    // What others include: it forwards, and nothing of ours includes it.
    rows.emplace_back("pipewright",
                      std::set<std::string>{"sim/schedule", "sim/config",
                                            "sim/run", "sim/analysis/search"});
    return rows;
  }();
  return all;
}

const Graph& Allowed() {
  static const Graph allowed(Rows().begin(), Rows().end());
  return allowed;
}

// A way along `graph` that comes back to where it began; "" where there is
// none.
std::string Circle(const Graph& graph) {
  std::set<std::string> done;
  Strings way;
  const std::function<bool(const std::string&)> comes_back =
      [&](const std::string& folder) {
        if (done.count(folder) > 0) return false;
        const auto met = std::find(way.begin(), way.end(), folder);
        if (met != way.end()) {
          way.erase(way.begin(), met);
          way.push_back(folder);
          return true;
        }
        way.push_back(folder);
        const auto row = graph.find(folder);
        if (row != graph.end() &&
            std::any_of(row->second.begin(), row->second.end(), comes_back)) {
          return true;
        }
        way.pop_back();
        done.insert(folder);
        return false;
      };
  for (const auto& [folder, next] : graph) {
    if (comes_back(folder)) return absl::StrJoin(way, " -> ");
  }
  return "";
}

// Single headers that a folder may include beyond its row.
const std::set<std::pair<std::string, std::string>>& Exceptions() {
  static const std::set<std::pair<std::string, std::string>> exceptions = {
      {"sim/cost", "sim/schedule/pass.h"},
  };
  return exceptions;
}

// Headers that see a Program's members, themselves or by what they include. A
// change of program.h compiles all again that includes one of them, so the
// others only declare it.
const std::set<std::string>& SeeProgram() {
  static const std::set<std::string> headers = {
      "execute/run/rank_run.h",       "sim/engine/event_beside.h",
      "sim/engine/event_exchanges.h", "sim/engine/event_meetings.h",
      "sim/engine/event_parts.h",     "sim/engine/event_passes.h",
      "sim/engine/event_peers.h",     "sim/engine/event_record.h",
      "sim/engine/event_run.h",       "sim/engine/event_streams.h",
      "sim/engine/event_traffic.h",   "sim/engine/event_transfers.h",
      "sim/engine/fast_run.h",        "sim/engine/parted_events.h",
      "sim/engine/trace_writer.h",    "sim/program/collective_phases.h",
      "sim/program/compute_stream.h", "sim/program/cursor.h",
      "sim/program/lane_exchanges.h", "sim/program/lowering.h",
      "sim/program/network_time.h",   "sim/program/program.h",
      "sim/program/side_sequence.h",
  };
  return headers;
}

// "sim/base" of "sim/base/names.h", "sim/analysis/plot" of its files,
// "schedules" of "schedules/gpipe.cc".
std::string FolderOf(const std::string& path) {
  Strings parts = absl::StrSplit(path, '/');
  parts.pop_back();
  const bool has_parts = parts[0] == "sim" || parts[0] == "execute";
  const bool is_analysis = parts.size() > 1 && parts[1] == "analysis";
  const size_t most = is_analysis ? 3 : has_parts ? 2 : 1;
  if (parts.size() > most) parts.resize(most);
  return absl::StrJoin(parts, "/");
}

bool IsOurs(const std::string& header) {
  const std::string top = header.substr(0, header.find('/'));
  return top == "sim" || top == "schedules" || top == "topologies" ||
         top == "kernels" || top == "calibrate" || top == "execute" ||
         top == "pipewright" || top == "python" || top == "tests";
}

std::string FileName(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

bool IsSimgridFile(const std::string& path) {
  return (FolderOf(path) == "sim/engine" ||
          absl::StartsWith(path, "tests/engine/")) &&
         absl::StartsWith(FileName(path), "simgrid_");
}

// The line without what stands in strings and behind "//".
std::string CodeOf(const std::string& line) {
  std::string code;
  bool quoted = false;
  for (size_t index = 0; index < line.size(); ++index) {
    if (quoted && line[index] == '\\') {
      ++index;
    } else if (line[index] == '"') {
      quoted = !quoted;
    } else if (!quoted) {
      if (line.compare(index, 2, "//") == 0) break;
      code += line[index];
    }
  }
  return code;
}

void CheckInclude(const std::string& path, const std::string& header,
                  Strings* violations) {
  const auto violation = [&](absl::string_view why) {
    violations->push_back(absl::StrCat(path, " includes ", header, ": ", why));
  };
  if (absl::EndsWith(header, ".pb.h")) {
    if (!absl::EndsWith(path, "_io.cc")) violation("only *_io.cc may");
    return;
  }
  if (absl::StartsWith(header, "simgrid/")) {
    if (!IsSimgridFile(path)) violation("only sim/engine/simgrid_* may");
    return;
  }
  const std::string to = FolderOf(header);
  const std::string from = FolderOf(path);
  if (from == "kernels" && (absl::StartsWith(header, "absl/") ||
                            absl::StartsWith(header, "google/"))) {
    violation("kernels/ builds without Abseil and protobuf");
    return;
  }
  if (!IsOurs(header)) return;
  if (absl::EndsWith(path, ".h") && SeeProgram().count(header) > 0 &&
      SeeProgram().count(path) == 0) {
    violation("'struct Program;' does for a header that needs no members");
  }
  const auto row = Allowed().find(from);
  if (row == Allowed().end()) {
    violation(absl::StrCat("folder ", from, " has no row in this test"));
  } else if (to != from && row->second.count(to) == 0 &&
             Exceptions().count({from, header}) == 0) {
    violation(absl::StrCat(from, " may not see ", to));
  }
}

void CheckOutput(const std::string& path, const std::string& code,
                 Strings* violations) {
  if (FolderOf(path) == "sim/cli" || path == "sim/base/check.h") return;
  static const std::regex output(
      R"(std::(cout|cerr|clog)\b|\b(v?f?printf|f?puts|exit|quick_exit|abort)\s*\()");
  static const std::regex child_exit(R"(\b_exit\s*\()");
  std::smatch found;
  if (std::regex_search(code, found, output) ||
      (!IsSimgridFile(path) && path != "sim/analysis/sweep/child_process.cc" &&
       std::regex_search(code, found, child_exit))) {
    violations->push_back(absl::StrCat(path, " has '", found.str(),
                                       "': only sim/cli prints or exits"));
  }
}

// The header that a line includes; "" where it includes none.
std::string IncludeOf(const std::string& line) {
  static const std::regex include(R"(^\s*#\s*include\s*[<"]([^>"]+)[>"])");
  std::smatch found;
  return std::regex_search(line, found, include) ? found[1].str() : "";
}

Strings Violations(const std::string& path, const std::string& content) {
  Strings violations;
  for (const std::string& line : Strings(absl::StrSplit(content, '\n'))) {
    const std::string header = IncludeOf(line);
    if (!header.empty()) {
      CheckInclude(path, header, &violations);
    } else {
      CheckOutput(path, CodeOf(line), &violations);
    }
  }
  return violations;
}

// Adds what `path` includes of other folders.
void AddIncludes(const std::string& path, const std::string& content,
                 Graph* graph) {
  for (const std::string& line : Strings(absl::StrSplit(content, '\n'))) {
    const std::string header = IncludeOf(line);
    if (!IsOurs(header) || FolderOf(header) == FolderOf(path)) continue;
    (*graph)[FolderOf(path)].insert(FolderOf(header));
  }
}

// Paths below `folder` with one of `endings`, relative to the repository.
Strings Files(const std::string& folder, const std::set<std::string>& endings) {
  Strings files;
  const std::filesystem::path root = testing::SourcePath("");
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(root / folder)) {
    if (endings.count(entry.path().extension().string()) == 0) continue;
    files.push_back(entry.path().lexically_relative(root).string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string Read(const std::string& path) {
  return ReadFile(testing::SourcePath(path)).value();
}

TEST_CASE("layering: sources include only downwards and do not print",
          "[layering]") {
  Strings violations;
  Graph graph;
  int files = 0;
  for (const char* folder : {"sim", "schedules", "topologies", "kernels",
                             "calibrate", "execute", "pipewright", "python"}) {
    for (const std::string& path :
         Files(folder, {".cc", ".h", ".inc", ".cu", ".cuh"})) {
      // A program of the build: it prints, and no product code includes it.
      if (path == "sim/proto/generate_config.cc") continue;
      ++files;
      const std::string content = Read(path);
      AddIncludes(path, content, &graph);
      for (std::string& violation : Violations(path, content)) {
        violations.push_back(std::move(violation));
      }
    }
  }
  CHECK(files > 20);
  INFO(absl::StrJoin(violations, "\n"));
  CHECK(violations.empty());
  // Whatever the rows allow.
  CHECK(graph.size() > 20);
  CHECK(Circle(graph) == "");
}

TEST_CASE("layering: each folder has one row, and rows permit no circle",
          "[layering]") {
  CHECK(Allowed().size() == Rows().size());
  CHECK(Circle(Allowed()) == "");
}

TEST_CASE("layering: a circle of folders is found", "[layering]") {
  CHECK(Circle({}) == "");
  CHECK(Circle({{"a", {"b", "c"}}, {"b", {"d"}}, {"c", {"d"}}}) == "");
  CHECK(Circle({{"a", {"b"}}, {"b", {"a"}}}) == "a -> b -> a");
  CHECK(Circle({{"a", {"b"}}, {"b", {"c", "d"}}, {"d", {"b"}}}) ==
        "b -> d -> b");
  CHECK(Circle({{"a", {"d"}}, {"b", {"c"}}, {"c", {"d", "e"}}, {"e", {"b"}}}) ==
        "b -> c -> e -> b");
  // One that was here: the plans of copies ran the engine, and what the engine
  // runs was lowered with a plan of theirs.
  Graph graph;
  AddIncludes("sim/memory/a.cc", "#include \"sim/engine/fast_engine.h\"\n",
              &graph);
  AddIncludes("sim/engine/a.h", "#include \"sim/program/program.h\"\n", &graph);
  AddIncludes("sim/program/a.cc",
              "#include <vector>\n#include \"absl/strings/str_cat.h\"\n"
              "#include \"sim/program/program.h\"\n",
              &graph);
  CHECK(Circle(graph) == "");
  AddIncludes("sim/program/lower.h", "#include \"sim/memory/a.h\"\n", &graph);
  CHECK(Circle(graph) ==
        "sim/engine -> sim/program -> sim/memory -> sim/engine");
}

TEST_CASE("layering: generated headers stay out of tests too", "[layering]") {
  Strings offenders;
  for (const std::string& path : Files("tests", {".cc", ".h"})) {
    if (absl::EndsWith(path, "_io_test.cc")) continue;
    for (const std::string& line : Strings(absl::StrSplit(Read(path), '\n'))) {
      if (absl::StartsWith(line, "#include \"sim/proto/")) {
        offenders.push_back(path);
      }
    }
  }
  INFO(absl::StrJoin(offenders, "\n"));
  CHECK(offenders.empty());
}

// Its templates cost a file some 3 s of compilation. sim/base/json.h does for
// what is built or read back, tests/support/json.h for what tests read.
TEST_CASE("layering: few files see the templates of JSON", "[layering]") {
  const std::set<std::string> allowed = {
      "sim/base/json.cc",
      // They read files from outside, with lines or in parts.
      "calibrate/import_benchmarks.cc",
      "sim/config/config_tree.cc",
      "sim/model/hf_config.cc",
      "sim/schedule/json_parse.cc",
      "sim/trace/trace_events.cc",
      "tests/support/json.cc",
      // It compares the two.
      "tests/base/json_test.cc",
  };
  std::set<std::string> found;
  for (const char* folder : {"sim", "schedules", "topologies", "kernels",
                             "calibrate", "execute", "tests"}) {
    for (const std::string& path : Files(folder, {".cc", ".h"})) {
      if (absl::StrContains(Read(path), "\n#include <nlohmann/")) {
        found.insert(path);
      }
    }
  }
  CHECK(found == allowed);
}

TEST_CASE("layering: the check finds what is wrong", "[layering]") {
  const auto bad = [](const std::string& path, const std::string& content) {
    return Violations(path, content).size() == 1;
  };
  CHECK(bad("sim/base/a.cc", "#include \"sim/schedule/pass.h\"\n"));
  CHECK(bad("sim/schedule/a.cc", "#include \"sim/cost/pass_costs.h\"\n"));
  CHECK(bad("sim/schedule/a.h", "#include \"sim/topology/cluster.h\"\n"));
  CHECK(bad("sim/cost/a.cc", "#include \"sim/schedule/schedule.h\"\n"));
  CHECK(bad("sim/program/a.cc", "#include \"sim/trace/trace.h\"\n"));
  CHECK(bad("sim/program/a.cc", "#include \"sim/engine/engine.h\"\n"));
  CHECK(bad("sim/engine/a.cc", "#include \"sim/config/copy_turns.h\"\n"));
  CHECK(bad("sim/engine/a.cc", "#include \"sim/report/report.h\"\n"));
  CHECK(bad("sim/report/a.cc", "#include \"sim/config/run_config.h\"\n"));
  CHECK(bad("sim/config/a.cc", "#include \"sim/run/a.h\"\n"));
  CHECK(bad("sim/run/a.cc", "#include \"sim/analysis/search/a.h\"\n"));
  CHECK(bad("sim/analysis/explain/a.cc",
            "#include \"sim/analysis/sweep/b.h\"\n"));
  CHECK(bad("sim/analysis/new/a.cc", "#include \"sim/base/names.h\"\n"));
  CHECK(bad("sim/analysis/sweep/a.cc", "#include \"sim/cli/a.h\"\n"));
  CHECK(bad("sim/new/a.cc", "#include \"sim/base/names.h\"\n"));
  CHECK(bad("schedules/a.cc", "#include \"sim/cost/pass_costs.h\"\n"));
  CHECK(bad("schedules/a.cc", "#include \"topologies/b.h\"\n"));
  CHECK(bad("topologies/a.cc", "#include \"sim/schedule/pass.h\"\n"));
  CHECK(bad("kernels/a.cc", "#include \"sim/base/names.h\"\n"));
  CHECK(bad("kernels/cpu/a.h", "#include \"absl/strings/str_cat.h\"\n"));
  CHECK(bad("kernels/cuda/a.cu", "  printf(\"x\");\n"));
  CHECK(bad("sim/model/a.cc", "#include \"kernels/kernels.h\"\n"));
  CHECK(bad("sim/cli/a.cc", "#include \"tests/support/a.h\"\n"));
  CHECK(bad("sim/engine/fast.cc", "#include <simgrid/s4u.hpp>\n"));
  CHECK(bad("sim/trace/simgrid_a.cc", "  # include \"simgrid/s4u.hpp\"\n"));
  CHECK(bad("sim/config/a.cc", "#include \"sim/proto/config.pb.h\"\n"));
  CHECK(bad("sim/config/a.h", "#include \"google/protobuf/any.pb.h\"\n"));
  CHECK(bad("sim/cost/a.cc", "#include \"calibrate/session.h\"\n"));
  CHECK(bad("calibrate/a.cc", "#include \"sim/cli/common.h\"\n"));
  CHECK(bad("kernels/a.cc", "#include \"sim/base/check.h\"\n"));
  CHECK(bad("execute/run/a.cc", "#include \"sim/config/prepare.h\"\n"));
  CHECK(bad("execute/transport/a.cc", "#include \"execute/run/worker.h\"\n"));
  CHECK(bad("execute/transport/a.cc", "#include \"calibrate/session.h\"\n"));
  CHECK(bad("execute/run/a.cc", "#include \"execute/train/stage.h\"\n"));
  CHECK(bad("execute/train/a.cc", "#include \"execute/report/row_file.h\"\n"));
  CHECK(bad("execute/report/a.cc", "#include \"sim/cli/common.h\"\n"));
  CHECK(bad("sim/run/a.cc", "#include \"execute/report/row_file.h\"\n"));
  CHECK(bad("calibrate/a.cc", "#include \"execute/run/clock.h\"\n"));
  CHECK(bad("sim/profile/a.cc", "#include \"sim/cost/pass_costs.h\"\n"));
  CHECK(bad("sim/engine/a.cc", "#include \"execute/run/worker.h\"\n"));
  CHECK(bad("sim/run/a.h", "#include \"sim/program/program.h\"\n"));
  CHECK(bad("sim/config/a.h", "#include \"sim/program/network_time.h\"\n"));
  CHECK(bad("sim/base/a.cc", "  std::cerr << 1;\n"));
  CHECK(bad("sim/base/a.cc", "  printf(\"x\");\n"));
  CHECK(bad("sim/report/a.cc", "  std::fprintf (stderr, \"// x\");\n"));
  CHECK(bad("schedules/a.cc", "  f(\"\\\"\"); exit(2);\n"));
  CHECK(bad("sim/engine/fast.cc", "  _exit(0);\n"));
  CHECK(bad("sim/cli/a.cc", "#include \"python/a.h\"\n"));
  CHECK(bad("python/a.cc", "  std::cout << 1;\n"));
  CHECK(bad("sim/run/a.cc", "#include \"pipewright/plan.h\"\n"));
  CHECK(bad("pipewright/a.h", "#include \"sim/cli/a.h\"\n"));
}

// Two types of one name in one namespace are one type to the linker, which
// keeps the functions of either.
TEST_CASE("layering: no two headers define a type of one name", "[layering]") {
  const std::regex definition(
      R"(^(?:class|struct|enum class) (\w+)(?: final)?(?: :[^;]*)? \{.*)");
  std::map<std::string, std::string> header_of;
  int types = 0;
  for (const char* folder :
       {"sim", "schedules", "topologies", "calibrate", "execute"}) {
    for (const std::string& path : Files(folder, {".h"})) {
      for (const std::string& line :
           Strings(absl::StrSplit(Read(path), '\n'))) {
        std::smatch found;
        if (!std::regex_match(line, found, definition)) continue;
        ++types;
        const auto [known, is_new] = header_of.emplace(found[1].str(), path);
        INFO(found[1].str() << " in " << known->second << " and " << path);
        CHECK(is_new);
      }
    }
  }
  CHECK(types > 200);
}

TEST_CASE("layering: the check leaves alone what is right", "[layering]") {
  const auto good = [](const std::string& path, const std::string& content) {
    return Violations(path, content).empty();
  };
  CHECK(good("kernels/cpu/a.cc", "#include \"kernels/kernels.h\"\n"));
  CHECK(good("execute/run/a.cc", "#include \"sim/engine/engine.h\"\n"));
  CHECK(good("execute/train/a.cc", "#include \"execute/run/worker.h\"\n"));
  CHECK(good("execute/report/a.cc", "#include \"sim/report/report.h\"\n"));
  CHECK(good("sim/cli/a.cc", "#include \"execute/report/row_file.h\"\n"));
  CHECK(good("calibrate/a.h", "#include \"execute/transport/wire.h\"\n"));
  CHECK(good("sim/cost/a.h", "#include \"sim/profile/profile.h\"\n"));
  CHECK(good("sim/cost/a.h", "#include \"sim/schedule/pass.h\"\n"));
  CHECK(good("sim/memory/a.h", "#include \"sim/schedule/schedule.h\"\n"));
  CHECK(good("sim/report/a.h", "#include \"sim/engine/engine.h\"\n"));
  CHECK(good("sim/config/a.h", "#include \"sim/report/report.h\"\n"));
  CHECK(good("sim/config/a.cc", "#include \"sim/program/program.h\"\n"));
  CHECK(good("sim/program/cursor.h", "#include \"sim/program/program.h\"\n"));
  CHECK(good("sim/run/a.h", "#include \"sim/config/prepare.h\"\n"));
  CHECK(good("sim/analysis/search/a.cc", "#include \"sim/run/a.h\"\n"));
  CHECK(good("schedules/a.cc", "#include \"sim/schedule/replay.h\"\n"));
  CHECK(good("python/a.cc", "#include \"sim/cli/common.h\"\n"));
  CHECK(good("pipewright/a.h", "#include \"sim/run/simulated_run.h\"\n"));
  CHECK(good("sim/cli/main.cc", "  std::cout << 1; exit(2);\n"));
  CHECK(good("sim/engine/simgrid_engine.cc", "#include <simgrid/s4u.hpp>\n"));
  CHECK(good("sim/engine/simgrid_engine.cc", "  _exit(0);\n"));
  CHECK(good("sim/trace/a_io.cc", "#include \"sim/proto/a.pb.h\"\n"));
  CHECK(good("sim/base/a.h", "// exits (exit(3)) with std::cerr\n"));
  CHECK(good("sim/base/a.cc", "  Say(\"std::cout exit(2)\");\n"));
  CHECK(good("sim/base/a.cc", "  std::snprintf(text, 4, \"x\");\n"));
  CHECK(good("sim/base/a.cc", "  on_exit_(); absl::StrFormat(\"x\");\n"));
}

// Every file registers rows with `type`, but for parts of instances, which have
// a header; every row's name stands in a file, and there are not more files
// than rows.
void CheckRows(const std::string& folder, const std::string& type,
               const Strings& names) {
  const Strings headers = Files(folder, {".h"});
  Strings files = Files(folder, {".cc"});
  const auto is_part = [&headers](const std::string& path) {
    const std::string header =
        absl::StrCat(path.substr(0, path.size() - 3), ".h");
    return std::find(headers.begin(), headers.end(), header) != headers.end();
  };
  files.erase(std::remove_if(files.begin(), files.end(), is_part), files.end());
  CHECK(!files.empty());
  CHECK(files.size() <= names.size());
  std::string all;
  for (const std::string& path : files) {
    INFO(path);
    const std::string content = Read(path);
    CHECK(absl::StrContains(content, type));
    all += content;
  }
  for (const std::string& name : names) {
    INFO(name);
    CHECK(absl::StrContains(all, absl::StrCat("\"", name, "\"")));
  }
}

TEST_CASE("layering: every instance is registered by a file", "[layering]") {
  Strings schedules;
  for (const ScheduleInfo* info : AllSchedules()) {
    schedules.push_back(info->name);
  }
  CheckRows("schedules", "RegisterSchedule", schedules);
  Strings shapes;
  for (const ShapeInfo* info : AllShapes()) shapes.push_back(info->name);
  CheckRows("topologies", "RegisterShape", shapes);
}

}  // namespace
}  // namespace pipewright::layering_test
