// Files of `simulate --trace` and `--perfetto`: packed by their name, and a
// part of the ranks and iterations.
#include <catch2/catch.hpp>
#include <cstdint>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/base/file.h"
#include "sim/base/gzip.h"
#include "tests/support/execute_job.h"
#include "tests/support/json.h"
#include "tests/support/paths.h"
#include "tests/support/run_binary.h"

namespace pipewright::trace_files_test {
namespace {

using testing::BinaryResult;
using testing::Json;
using testing::RunBinary;
using testing::TemporaryFolder;
using testing::WordsOf;

BinaryResult Simulate(const std::string& options) {
  return RunBinary(WordsOf(
      absl::StrCat("simulate --schedule 1f1b --pp 4 --microbatches 8 --p2p 1ms "
                   "--forward 1ms --backward 2ms "
                   "--iterations 3 --engine fast ",
                   options)));
}

std::string Unpacked(const std::string& path) {
  const auto file = InputFile::Open(path);
  REQUIRE(file.ok());
  std::ostringstream text;
  text << (*file)->stream().rdbuf();
  CHECK((*file)->status().ok());
  return text.str();
}

// Events of operations, each as text; those of `ranks` and `iterations`.
std::multiset<std::string> EventsOf(const std::string& path,
                                    const std::set<int>& ranks,
                                    const std::set<int>& iterations) {
  std::multiset<std::string> events;
  std::set<std::pair<int, int>> of;  // process and its rank
  const Json trace = Json::parse(ReadFile(path).value());
  for (const Json& event : trace["traceEvents"]) {
    if (event["name"] == "process_name") {
      of.emplace(event["pid"].get<int>(), event["args"]["rank"].get<int>());
    }
  }
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    for (const auto& [process, rank] : of) {
      if (event["pid"] != process || ranks.count(rank) == 0) continue;
      if (iterations.count(event["args"]["iteration"].get<int>()) == 0) {
        continue;
      }
      events.insert(absl::StrCat(rank, event["name"].dump(), event["ts"].dump(),
                                 event["dur"].dump(), event["args"].dump()));
    }
  }
  return events;
}

TEST_CASE("trace files: a name that ends in .gz packs them", "[cli][trace]") {
  const TemporaryFolder folder;
  const auto files = [&folder](const std::string& ending) {
    return absl::StrCat("--trace ", folder.Path("t.json"), ending,
                        " --perfetto ", folder.Path("t.pftrace"), ending);
  };
  REQUIRE(Simulate(files("")).exit_code == 0);
  REQUIRE(Simulate(files(".gz")).exit_code == 0);
  for (const std::string name : {"t.json", "t.pftrace"}) {
    const std::string plain = ReadFile(folder.Path(name)).value();
    const std::string path = folder.Path(name + ".gz");
    CHECK(Unpacked(path) == plain);
    CHECK(ReadFile(path)->size() < plain.size() / 3);
  }
  const std::string simulated = folder.Path("t.json");
  CHECK(RunBinary({"compare", simulated, simulated + ".gz"}).exit_code == 0);
}

TEST_CASE("trace files: gzip of any size", "[trace]") {
  const TemporaryFolder folder;
  std::string noise;
  uint32_t state = 1;
  while (noise.size() < 200'000) {
    state = state * 1664525 + 1013904223;
    noise += static_cast<char>(state >> 24);
  }
  for (const size_t size : {size_t{1}, size_t{65535}, size_t{65536},
                            size_t{131072}, noise.size()}) {
    const std::string text = noise.substr(0, size);
    CHECK(Unpacked(folder.Write("x.gz", Gzip(text))) == text);
  }
}

TEST_CASE("trace files: some ranks and iterations", "[cli][trace]") {
  const TemporaryFolder folder;
  const std::string whole = folder.Path("whole.json");
  const std::string part = folder.Path("part.json");
  const std::string svg = folder.Path("whole.svg");
  REQUIRE(Simulate(absl::StrCat("--trace ", whole, " --svg ", svg)).exit_code ==
          0);
  const std::string some = absl::StrCat("--trace ", part,
                                        " --trace-ranks 0,2-3 "
                                        "--trace-iterations 1-2 ");
  REQUIRE(Simulate(some).exit_code == 0);
  const std::set<int> all = {0, 1, 2, 3};
  const auto events = EventsOf(part, all, all);
  CHECK(events.size() > 50);
  CHECK(events == EventsOf(whole, {0, 2, 3}, {1, 2}));
  CHECK(EventsOf(whole, all, all).size() > events.size());
  // A picture beside it shows all, and changes nothing.
  const std::string text = ReadFile(part).value();
  REQUIRE(Simulate(absl::StrCat(some, "--svg ", folder.Path("part.svg")))
              .exit_code == 0);
  CHECK(ReadFile(part).value() == text);
  CHECK(ReadFile(folder.Path("part.svg")).value() == ReadFile(svg).value());
}

TEST_CASE("trace files: wrong lists are named", "[cli][trace]") {
  const TemporaryFolder folder;
  const std::string file = absl::StrCat("--trace ", folder.Path("t.json"), " ");
  for (const std::string list : {"4", "2-1", "0-4", "a", "1-", "0,,1", "-1"}) {
    const BinaryResult run = Simulate(file + "--trace-ranks=" + list);
    INFO(list << run.err);
    CHECK(run.exit_code == 2);
    CHECK(absl::StrContains(run.err, "--trace-ranks: " + list));
    CHECK(absl::StrContains(run.err, "from 0 to 3"));
  }
  CHECK(absl::StrContains(Simulate(file + "--trace-iterations 3").err,
                          "from 0 to 2"));
  const BinaryResult alone = Simulate("--trace-ranks 1");
  CHECK(alone.exit_code == 2);
  CHECK(absl::StrContains(alone.err, "needs --trace or --perfetto"));
  CHECK(Simulate("--seeds 2 --jitter 1% --trace-iterations 0").exit_code == 2);
  CHECK(folder.Files().empty());
}

}  // namespace
}  // namespace pipewright::trace_files_test
