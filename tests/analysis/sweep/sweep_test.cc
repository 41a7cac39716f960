// The verb sweep: rows equal those of simulate, however many workers there are,
// and whatever ends them.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sim/analysis/sweep/reader.h"
#include "sim/base/json.h"
#include "tests/support/paths.h"
#include "tests/support/run_binary.h"

namespace pipewright::sweep_test {
namespace {

using testing::BinaryResult;
using testing::RunBinary;
using testing::TemporaryFolder;
using Words = std::vector<std::string>;

const Words kTimes = {"--schedule",
                      "1f1b",
                      "--microbatches",
                      "8",
                      "--forward",
                      "1ms",
                      "--backward-input",
                      "1ms",
                      "--backward-weight",
                      "1ms",
                      "--p2p",
                      "0.1ms"};

Words Plus(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Words SweepWords(const std::string& path, const Words& more) {
  return Plus(Plus({"sweep"}, kTimes), Plus({"-o", path}, more));
}

// What a table holds but for the order and number of its rows.
std::vector<std::string> TableOf(const std::string& path) {
  std::vector<std::string> lines;
  const auto reader = SweepReader::Open(path);
  INFO(reader.status());
  REQUIRE(reader.ok());
  const absl::Status status =
      (*reader)->Visit({}, true, [&](const SweepRow& row) {
        lines.push_back(absl::StrCat(
            row.hash, " ", row.model_version, " ", row.status, " ", row.exit,
            " ", row.reason, " ", row.engine, " ", row.report().dump()));
        return absl::OkStatus();
      });
  REQUIRE(status.ok());
  std::sort(lines.begin(), lines.end());
  return lines;
}

int64_t RowsIn(const std::string& path) {
  const auto reader = SweepReader::Open(path);
  return reader.ok() ? (*reader)->rows().value_or(0) : 0;
}

TEST_CASE("sweep: a row has the report that simulate prints", "[sweep]") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("runs.sqlite");
  const BinaryResult run =
      RunBinary(SweepWords(path, {"--sweep", "strategy.pp=1,2,4", "--sweep",
                                  "schedule.name=1f1b,zb-h1", "-j", "2"}));
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const auto reader = SweepReader::Open(path).value();
  int rows = 0;
  REQUIRE(reader
              ->Visit({"strategy.pp", "schedule.name"}, false,
                      [&](const SweepRow& row) {
                        ++rows;
                        Words words = kTimes;
                        words[1] = row.cells[1].text;  // name for --schedule
                        const BinaryResult alone =
                            RunBinary(Plus(Plus({"simulate"}, words),
                                           {"--pp", ToString(row.cells[0]),
                                            "--engine", "fast", "--json"}));
                        CHECK(alone.exit_code == row.exit);
                        CHECK(ParseJson(alone.out).value() == row.report());
                        return absl::OkStatus();
                      })
              .ok());
  CHECK(rows == 6);
}

TEST_CASE("sweep: threads, processes and one worker give the same table",
          "[sweep]") {
  const TemporaryFolder folder;
  const Words grid = {
      "--sweep", "strategy.pp=1..6",
      "--sweep", "schedule.name=1f1b,gpipe,zb-h1,interleaved-1f1b",
      "--sweep", "strategy.vpp=1,2"};
  const auto table = [&](const std::string& name, const Words& more) {
    const std::string path = folder.Path(name);
    const BinaryResult run = RunBinary(SweepWords(path, Plus(grid, more)));
    INFO(run.err);
    CHECK(run.exit_code == 0);
    return TableOf(path);
  };
  const auto one = table("one.sqlite", {"-j", "1"});
  CHECK(one.size() == 48);
  CHECK(table("four.sqlite", {"-j", "4"}) == one);
  // With a limit of time each result is sent by itself.
  CHECK(table("late.sqlite", {"-j", "2", "--timeout", "60"}) == one);
  const auto refused =
      std::count_if(one.begin(), one.end(), [](const std::string& line) {
        return absl::StrContains(line, " refused 2 ");
      });
  CHECK(refused > 0);
}

TEST_CASE("sweep: simgrid runs in processes and equals simulate", "[sweep]") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("runs.sqlite");
  const BinaryResult run =
      RunBinary(SweepWords(path, {"--sweep", "strategy.pp=2,4", "--sweep",
                                  "engine=fast,simgrid", "-j", "2"}));
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const auto reader = SweepReader::Open(path).value();
  std::vector<double> seconds;
  REQUIRE(reader
              ->Visit({"engine", "iteration_s"}, false,
                      [&](const SweepRow& row) {
                        CHECK(row.cells[0].text == row.engine);
                        seconds.push_back(row.cells[1].number);
                        return absl::OkStatus();
                      })
              .ok());
  std::sort(seconds.begin(), seconds.end());
  REQUIRE(seconds.size() == 4);
  CHECK(seconds[0] == Approx(seconds[1]).epsilon(1e-9));
  CHECK(seconds[2] == Approx(seconds[3]).epsilon(1e-9));
}

TEST_CASE("sweep: a grid grows in its file, and nothing runs twice",
          "[sweep]") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("runs.sqlite");
  const auto counts = [&](const std::string& axis) {
    const BinaryResult run =
        RunBinary(SweepWords(path, {"--sweep", axis, "--json"}));
    INFO(run.err);
    CHECK(run.exit_code == 0);
    return ParseJson(run.out).value();
  };
  CHECK(counts("strategy.pp=1,2")["ok"] == 2);
  const auto grown = counts("strategy.pp=1,2,4,8");
  CHECK(grown["ok"] == 2);
  CHECK(grown["earlier"] == 2);
  CHECK(grown["rows"] == 4);
  const BinaryResult dry = RunBinary(
      SweepWords(path, {"--sweep", "strategy.pp=1..16", "--dry-run"}));
  CHECK(absl::StrContains(dry.out, "16 points, 12 of them without a row"));
  CHECK(RowsIn(path) == 4);
}

TEST_CASE("sweep: a bad grid is exit 2, and nothing has run", "[sweep]") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("runs.sqlite");
  struct Row {
    Words more;
    Words parts;
  };
  const std::vector<Row> table = {
      {{"--sweep", "strategy.pp=1,0"},
       {"axis strategy.pp: value '0'", "an integer from 1 to"}},
      {{"--sweep", "strategy.ppp=1"}, {"axis strategy.ppp"}},
      {{"--sweep", "schedule.name=1f1b,1f2b"}, {"value '1f2b'", "'1f1b'"}},
      {{"--sweep", "strategy.pp=1", "--filter", "strategy.pp > 1"},
       {"--filter: no point is left"}},
      {{"--filter", "strategy.qp == 1"}, {"--filter", "'strategy.qp'"}},
      {{"--sweep", "strategy.pp=1", "-j", "0"}, {"-j"}},
      {{"--sweep", "strategy.pp=1", "--timeout", "0"}, {"--timeout"}},
      {{"--sweep", "strategy.pp=1", "--seeds", "0"}, {"--seeds"}},
  };
  for (const Row& row : table) {
    const BinaryResult run = RunBinary(SweepWords(path, row.more));
    INFO(absl::StrJoin(row.more, " ") << "\n" << run.err);
    CHECK(run.exit_code == 2);
    CHECK(run.out.empty());
    for (const std::string& part : row.parts) {
      INFO(part);
      CHECK(absl::StrContains(run.err, part));
    }
    CHECK(::access(path.c_str(), F_OK) != 0);
  }
  CHECK(RunBinary(SweepWords(folder.Path(""), {})).exit_code == 2);
}

TEST_CASE("sweep: seeds repeat a point, misfits and refusals are rows",
          "[sweep]") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("runs.sqlite");
  const Words model = {"sweep",          "--model",    "gpt-tiny",   "--system",
                       "dgx-h100",       "--analytic", "--schedule", "1f1b",
                       "--microbatches", "8",          "-o",         path};
  BinaryResult run =
      RunBinary(Plus(model, {"--sweep", "strategy.pp=2,3,5", "--sweep",
                             "system.memory=1MiB,80GiB"}));
  INFO(run.err);
  CHECK(run.exit_code == 0);
  std::map<std::string, int> statuses;
  REQUIRE(SweepReader::Open(path)
              .value()
              ->Visit({}, false,
                      [&](const SweepRow& row) {
                        ++statuses[absl::StrCat(row.status, " ", row.exit)];
                        CHECK(row.reason.empty() == (row.status == "ok"));
                        return absl::OkStatus();
                      })
              .ok());
  CHECK(statuses["ok 0"] > 0);
  CHECK(statuses["misfit 3"] > 0);
  CHECK(statuses["refused 2"] > 0);
  run = RunBinary(SweepWords(
      folder.Path("seeds.sqlite"),
      {"--pp", "4", "--jitter", "3%", "--seeds", "4", "--csv",
       folder.Path("a.csv"), "--columns", "costs.seed,iteration_s"}));
  INFO(run.err);
  CHECK(run.exit_code == 0);
  const Words lines = absl::StrSplit(
      testing::RunProgram({"cat", folder.Path("a.csv")}).out, '\n');
  REQUIRE(lines.size() == 6);
  CHECK(lines[0] == "costs.seed,iteration_s");
  std::set<std::string> times;
  for (size_t index = 1; index < 5; ++index) {
    times.insert(lines[index].substr(lines[index].find(',')));
  }
  CHECK(times.size() == 4);
  // What is exported and not run is counted too.
  run = RunBinary({"sweep", "-o", folder.Path("seeds.sqlite"), "--csv",
                   folder.Path("b.csv"), "--json"});
  INFO(run.err);
  CHECK(run.exit_code == 0);
  const Json counted = ParseJson(run.out).value_or(Json());
  REQUIRE(counted.is_object());
  CHECK(counted["rows"] == 4);
  CHECK(counted["statuses"].size() == 1);
  CHECK(counted["statuses"]["ok"] == 4);
}

// A sweep in a process group of its own, to be ended.
pid_t StartSweep(const Words& words, int64_t most_file_bytes = 0) {
  const std::string binary = testing::BinaryPath();
  std::vector<char*> argv = {const_cast<char*>(binary.c_str())};
  Words copy = words;
  for (std::string& word : copy) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::setpgid(0, 0);
    std::freopen("/dev/null", "w", stdout);
    std::freopen("/dev/null", "w", stderr);
    if (most_file_bytes > 0) {
      const rlimit limit = {static_cast<rlim_t>(most_file_bytes),
                            static_cast<rlim_t>(most_file_bytes)};
      ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  return child;
}

int EndOf(pid_t child) {
  int state = 0;
  ::waitpid(child, &state, 0);
  return WIFEXITED(state) ? WEXITSTATUS(state) : -WTERMSIG(state);
}

void Pause(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

// Enough work that a kill meets it.
const Words kLong = {"--sweep", "strategy.pp=2..17",
                     "--sweep", "schedule.name=1f1b,gpipe,zb-h1",
                     "--sweep", "costs.p2p=0ms..1ms+0.05ms",
                     "-j",      "2"};

TEST_CASE("sweep: killed at random and resumed, it is as if undisturbed",
          "[sweep]") {
  const TemporaryFolder folder;
  const std::string whole = folder.Path("whole.sqlite");
  REQUIRE(RunBinary(SweepWords(whole, kLong)).exit_code == 0);
  const std::string path = folder.Path("killed.sqlite");
  for (int round = 0; round < 4; ++round) {
    const pid_t child = StartSweep(SweepWords(path, kLong));
    Pause(30 + 40 * round);
    ::kill(child, SIGKILL);
    EndOf(child);
  }
  const BinaryResult rest = RunBinary(SweepWords(path, kLong));
  INFO(rest.err);
  REQUIRE(rest.exit_code == 0);
  CHECK(TableOf(path) == TableOf(whole));
}

TEST_CASE("sweep: killed workers cost no row", "[sweep]") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("runs.sqlite");
  const std::string whole = folder.Path("whole.sqlite");
  REQUIRE(RunBinary(SweepWords(whole, kLong)).exit_code == 0);
  const pid_t child = StartSweep(SweepWords(path, kLong));
  for (int round = 0; round < 5; ++round) {
    Pause(30);
    std::ifstream children(
        absl::StrCat("/proc/", child, "/task/", child, "/children"));
    for (int worker = 0; children >> worker;) ::kill(worker, SIGKILL);
  }
  CHECK(EndOf(child) == 0);
  CHECK(TableOf(path) == TableOf(whole));
}

TEST_CASE("sweep: Ctrl-C keeps what is done, a second call does the rest",
          "[sweep]") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("runs.sqlite");
  const pid_t child = StartSweep(SweepWords(path, kLong));
  for (int wait = 0; wait < 2000 && RowsIn(path) == 0; ++wait) Pause(5);
  ::kill(-child, SIGINT);
  const int code = EndOf(child);
  // It may have ended before, or be so near its end that nothing is left to
  // keep and the signal ends it.
  const bool ended = code == -SIGINT && RowsIn(path) == 16 * 3 * 21;
  CHECK((code == 1 || code == 0 || ended));
  const BinaryResult rest =
      RunBinary(SweepWords(path, Plus(kLong, {"--json"})));
  CHECK(rest.exit_code == 0);
  CHECK(ParseJson(rest.out).value()["earlier"].get<int>() > 0);
  CHECK(RowsIn(path) == 16 * 3 * 21);
}

TEST_CASE("sweep: a full disk is an error and earlier rows stay", "[sweep]") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("runs.sqlite");
  REQUIRE(
      RunBinary(SweepWords(path, {"--sweep", "strategy.pp=1,2,4"})).exit_code ==
      0);
  CHECK(EndOf(StartSweep(SweepWords(path, kLong), 80'000)) == 1);
  CHECK(RowsIn(path) >= 3);
  REQUIRE(RunBinary(SweepWords(path, kLong)).exit_code == 0);
  // Two of the three are points of the larger grid too.
  CHECK(RowsIn(path) == 16 * 3 * 21 + 1);
}

}  // namespace
}  // namespace pipewright::sweep_test
