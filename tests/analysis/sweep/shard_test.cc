// Shards of a sweep: together they are the sweep, row by row, and what is
// missing, foreign, twice or damaged is named. What a row takes, and what of a
// report is computed again.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/analysis/sweep/database.h"
#include "sim/base/file.h"
#include "sim/base/json.h"
#include "tests/support/paths.h"
#include "tests/support/run_binary.h"

namespace pipewright::shard_test {
namespace {

using testing::BinaryResult;
using testing::RunBinary;
using testing::TemporaryFolder;
using Words = std::vector<std::string>;

Words Plus(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// 72 points; some are refused (vpp 2 of gpipe), and 0.1ms is there twice.
const Words kGrid = {"sweep",
                     "--schedule",
                     "1f1b",
                     "--microbatches",
                     "8",
                     "--forward",
                     "1ms",
                     "--backward-input",
                     "1ms",
                     "--backward-weight",
                     "1ms",
                     "--sweep",
                     "strategy.pp=2,3,4",
                     "--sweep",
                     "schedule.name=gpipe,interleaved-1f1b",
                     "--sweep",
                     "strategy.vpp=1,2",
                     "--sweep",
                     "costs.p2p=0ms,0.1ms,0.2ms,0.3ms,0.1ms,0.4ms"};
constexpr int64_t kPoints = 72;
constexpr int64_t kRepeated = 12;  // the second 0.1ms

Words Grid(const std::string& path, const Words& more) {
  return Plus(kGrid, Plus({"-o", path}, more));
}

void Runs(const Words& words) {
  const BinaryResult run = RunBinary(words);
  INFO(absl::StrJoin(words, " ") << "\n" << run.err);
  REQUIRE(run.exit_code == 0);
}

std::string TextOf(const std::string& path) {
  const auto text = ReadFile(path);
  INFO(text.status());
  REQUIRE(text.ok());
  return *text;
}

// What both exports hold.
std::string ExportsOf(const std::string& path) {
  const TemporaryFolder folder;
  const std::string csv = folder.Path("rows.csv");
  const std::string jsonl = folder.Path("rows.jsonl");
  Runs({"sweep", "-o", path, "--csv", csv, "--jsonl", jsonl});
  return TextOf(csv) + TextOf(jsonl);
}

// Rows as they are stored, with their places; a shape by its digest, as its
// number is that of the first that came.
std::string RowsOf(const std::string& path) {
  const auto database = Database::Open(path, Database::Mode::kRead).value();
  const auto select =
      database
          ->Prepare(
              "SELECT p.id, hex(hash), status, exit, reason, engine, seed, "
              "axes, fits, iteration_s, peak_memory_bytes, digest, leaves, "
              "time_unit FROM point p LEFT JOIN shape s ON s.id = p.shape "
              "ORDER BY p.id")
          .value();
  std::string rows;
  while (select->Step().value()) {
    for (int column = 0; column < 14; ++column) {
      absl::StrAppend(&rows, select->Text(column), "|");
    }
    rows += "\n";
  }
  return rows;
}

std::string ShardPath(const TemporaryFolder& folder, int number) {
  return folder.Path(absl::StrCat(number, ".sqlite"));
}

void RunShards(const TemporaryFolder& folder) {
  for (const int number : {3, 1, 2}) {
    Runs(Grid(ShardPath(folder, number),
              {"--shard", absl::StrCat(number, "/3"), "-j", "2"}));
  }
}

Words Merge(const TemporaryFolder& folder, const std::vector<int>& numbers,
            const std::string& out) {
  Words words = {"sweep", "merge"};
  for (const int number : numbers) words.push_back(ShardPath(folder, number));
  return Plus(words, {"-o", out});
}

TEST_CASE("sweep: three shards are the sweep, byte for byte", "[sweep]") {
  const TemporaryFolder folder;
  const std::string whole = folder.Path("whole.sqlite");
  Runs(Grid(whole, {"-j", "1"}));
  RunShards(folder);
  const std::string merged = folder.Path("merged.sqlite");
  const BinaryResult run =
      RunBinary(Plus(Merge(folder, {2, 3, 1}, merged), {"--json"}));
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const Json counts = ParseJson(run.out).value();
  CHECK(counts["points"] == kPoints);
  CHECK(counts["rows"] == kPoints - kRepeated);
  CHECK(counts["repeated"] == kRepeated);
  CHECK(counts["missing"] == 0);
  CHECK(counts["statuses"]["refused"].get<int>() > 0);
  CHECK(RowsOf(merged) == RowsOf(whole));
  CHECK(ExportsOf(merged) == ExportsOf(whole));
  // Several workers end in another order and store in the same.
  const std::string parallel = folder.Path("parallel.sqlite");
  Runs(Grid(parallel, {"-j", "4"}));
  CHECK(RowsOf(parallel) == RowsOf(whole));
  // The merged file is that of the sweep: nothing is left to run.
  const BinaryResult again = RunBinary(Grid(merged, {"--json"}));
  INFO(again.err);
  CHECK(ParseJson(again.out).value()["earlier"] == kPoints);
}

TEST_CASE("sweep: a shard that was killed goes on, and is missing before",
          "[sweep]") {
  const TemporaryFolder folder;
  const std::string whole = folder.Path("whole.sqlite");
  Runs(Grid(whole, {}));
  RunShards(folder);
  {
    // The rows that a kill leaves are some of them.
    const auto database =
        Database::Open(ShardPath(folder, 2), Database::Mode::kWrite).value();
    REQUIRE(database->Execute("DELETE FROM point WHERE id IN (2, 8)").ok());
  }
  const std::string merged = folder.Path("merged.sqlite");
  const BinaryResult cut = RunBinary(Merge(folder, {1, 2, 3}, merged));
  CHECK(cut.exit_code == 1);
  CHECK(absl::StrContains(cut.err, "of shard 2/3"));
  CHECK(absl::StrContains(cut.err, "has not ended): point 2, 8;"));
  Runs(Grid(ShardPath(folder, 2), {"--shard", "2/3"}));
  std::remove(merged.c_str());
  Runs(Merge(folder, {1, 2, 3}, merged));
  CHECK(RowsOf(merged) == RowsOf(whole));
}

TEST_CASE("sweep: a shard that dies at any time goes on", "[sweep]") {
  const TemporaryFolder folder;
  const Words more = {"sweep",
                      "--schedule",
                      "1f1b",
                      "--forward",
                      "1ms",
                      "--backward",
                      "2ms",
                      "--sweep",
                      "strategy.pp=2..17",
                      "--sweep",
                      "schedule.name=1f1b,gpipe,zb-h1",
                      "--microbatches",
                      "8",
                      "--sweep",
                      "costs.p2p=0ms..1ms+0.005ms"};
  const auto shard = [&](const std::string& path, int number) {
    return Plus(more, {"-o", path, "--shard", absl::StrCat(number, "/2")});
  };
  const std::string undisturbed = folder.Path("undisturbed.sqlite");
  const std::string killed = folder.Path("killed.sqlite");
  Runs(shard(undisturbed, 1));
  Words words = shard(killed, 1);
  words.insert(words.begin(), testing::BinaryPath());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    std::freopen("/dev/null", "w", stdout);
    std::freopen("/dev/null", "w", stderr);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  // Between two commits, if it does not end before.
  const auto has_rows = [&killed]() {
    const auto database = Database::Open(killed, Database::Mode::kRead);
    return database.ok() &&
           (*database)->Integer("SELECT count(*) FROM point").value_or(0) > 0;
  };
  while (!has_rows() && ::waitpid(child, nullptr, WNOHANG) == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  Runs(shard(killed, 1));
  CHECK(RowsOf(killed) == RowsOf(undisturbed));
}

TEST_CASE("sweep: a shard without a file is named, and the sweep fills it",
          "[sweep]") {
  const TemporaryFolder folder;
  const std::string whole = folder.Path("whole.sqlite");
  Runs(Grid(whole, {}));
  RunShards(folder);
  const std::string merged = folder.Path("merged.sqlite");
  const BinaryResult run =
      RunBinary(Plus(Merge(folder, {3, 1}, merged), {"--json"}));
  CHECK(run.exit_code == 1);
  CHECK(absl::StrContains(
      run.err,
      "24 points are missing: 24 of shard 2/3 (no file of it is given)"
      ": point 2, 5, 8"));
  const Json counts = ParseJson(run.out).value();
  CHECK(counts["missing"] == kPoints / 3);
  CHECK(counts["missing_shards"] == Json::array({2}));
  Runs(Grid(merged, {}));
  CHECK(RowsOf(merged) == RowsOf(whole));
}

TEST_CASE("sweep: merge refuses what is not a shard of the sweep", "[sweep]") {
  const TemporaryFolder folder;
  RunShards(folder);
  const auto refused = [&](const std::string& path, const Words& parts) {
    const std::string merged = folder.Path("merged.sqlite");
    const BinaryResult run =
        RunBinary({"sweep", "merge", ShardPath(folder, 1), path, "-o", merged});
    INFO(run.err);
    CHECK(run.exit_code == 2);
    for (const std::string& part : Plus(parts, {path, "allowed: "})) {
      INFO(part);
      CHECK(absl::StrContains(run.err, part));
    }
    CHECK(::access(merged.c_str(), F_OK) != 0);
  };
  const auto other = [&](const std::string& name, const Words& more) {
    const std::string path = folder.Path(name);
    Runs(Grid(path, more));
    return path;
  };
  const auto changed = [&](const std::string& name, const std::string& sql) {
    const std::string path = other(name, {"--shard", "2/3"});
    const auto database = Database::Open(path, Database::Mode::kWrite).value();
    REQUIRE(database->Execute(sql).ok());
    return path;
  };
  refused(other("axis.sqlite", {"--shard", "2/3", "--seeds", "2"}),
          {"of another sweep than", "axis costs.seed=0,1"});
  refused(other("filter.sqlite", {"--shard", "2/3", "--filter", "pp > 2"}),
          {"of another sweep than", "filter pp > 2"});
  refused(other("base.sqlite", {"--shard", "2/3", "--iterations", "3"}),
          {"of another sweep than", "the base differs"});
  refused(other("again.sqlite", {"--shard", "1/3"}),
          {"is shard 1/3, and so is", "each shard once"});
  refused(other("count.sqlite", {"--shard", "2/4"}), {"is shard 2/4"});
  refused(changed("newer.sqlite", "PRAGMA user_version = 99"),
          {"a newer version of pipewright"});
  refused(changed("model.sqlite", "UPDATE sweep SET model_version = 1"),
          {"model version 1"});
  refused(changed("place.sqlite", "UPDATE point SET id = 72 WHERE id = 2"),
          {"has a row at 71", "no point of shard 2/3"});
  refused(changed("empty.sqlite", "DELETE FROM sweep"), {"no sweep has run"});
  const std::vector<std::pair<std::string, std::string>> absurd = {
      {"none", "shards = 0"},
      {"beyond", "shard = 4"},
      {"many", "shard = 2000000, shards = 2000000"},
      {"less", "points = -1"},
      {"more", "points = 1000000000000000"},
      {"before", "first = -9223372036854775807"}};
  for (const auto& [name, what] : absurd) {
    refused(changed(name, absl::StrCat("UPDATE sweep SET ", what)),
            {"says that it is shard"});
  }
  const std::string text = folder.Path("text.sqlite");
  REQUIRE(WriteFile(text, std::string(5000, 'x')).ok());
  refused(text, {"not a database"});
  // Half of the pages are gone, or are of something else.
  const std::string bytes = TextOf(ShardPath(folder, 2));
  REQUIRE(WriteFile(text, bytes.substr(0, bytes.size() / 8192 * 4096)).ok());
  refused(text, {});
  REQUIRE(WriteFile(text, bytes.substr(0, 8192) +
                              std::string(bytes.size() - 8192, 'x'))
              .ok());
  refused(text, {});
  // Rows are not lost to a merge.
  const std::string there = ShardPath(folder, 3);
  const BinaryResult run = RunBinary(Merge(folder, {1, 2}, there));
  CHECK(run.exit_code == 2);
  CHECK(absl::StrContains(run.err, "is there already"));
  Runs(Grid(there, {"--shard", "3/3"}));
}

// Rows of two files are of other calls, and one of them stores reports.
TEST_CASE("sweep: reports that are not stored are computed again", "[sweep]") {
  const TemporaryFolder folder;
  const std::string slim = folder.Path("slim.sqlite");
  const std::string full = folder.Path("full.sqlite");
  const std::string stored = folder.Path("stored.csv");
  const std::string again = folder.Path("again.csv");
  const Words model = {
      "sweep",          "gpt-tiny",
      "--system",       "dgx-h100",
      "--microbatches", "8",
      "--sweep",        "strategy.pp=1,2,4",
      "--sweep",        "system.memory=1MiB,80GiB",
      "--sweep",        "strategy.vpp=1,2 when strategy.pp > 1",
      "--jitter",       "3%",
      "--seeds",        "2"};
  const std::string columns =
      "strategy.pp,strategy.vpp,costs.seed,iteration_s,tokens_per_s,"
      "peak_memory_bytes.max,peak_memory_bytes.0,ranks.1.idle_s,peak_"
      "activations.mean,"
      "fits";
  Runs(Plus(model, {"-o", slim, "-j", "2"}));
  Runs(Plus(model, {"-o", full, "--columns", columns, "--csv", stored}));
  const auto reports = [](const std::string& path) {
    const auto database = Database::Open(path, Database::Mode::kRead).value();
    return database->Integer("SELECT count(leaves) FROM point").value();
  };
  CHECK(reports(slim) == 0);
  CHECK(reports(full) > 0);
  Runs({"sweep", "-o", slim, "--columns", columns, "--csv", again});
  CHECK(TextOf(again) == TextOf(stored));
  CHECK(absl::StrContains(TextOf(again), "peak_activations.mean"));
  const std::string lines = folder.Path("rows.jsonl");
  for (const auto& [path, csv] :
       {std::pair(slim, &again), std::pair(full, &stored)}) {
    Runs({"sweep", "-o", path, "--csv", *csv, "--jsonl", lines});
  }
  CHECK(TextOf(again) == TextOf(stored));
  // A column that no report has.
  const BinaryResult run = RunBinary(
      {"sweep", "-o", slim, "--columns", "busy_s.most", "--csv", again});
  CHECK(run.exit_code == 2);
  CHECK(absl::StrContains(run.err, "busy_s.most"));
}

TEST_CASE("sweep: a report of a file that has changed is not computed again",
          "[sweep]") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("runs.sqlite");
  const auto schedule = [&folder](const char* order) {
    return folder.Write("a.sched",
                        absl::StrCat("pipewright-schedule 1\n"
                                     "pp 1 vpp 1 microbatches 2 slices 1 "
                                     "replicas 1 placement plain\n0: ",
                                     order, "\n"));
  };
  Runs({"sweep", "--schedule", schedule("F0 F1 BW0 BW1"), "--forward", "1ms",
        "--backward", "2ms", "--sweep", "costs.p2p=0ms,1ms", "-o", path});
  const Words lists = {"sweep",
                       "-o",
                       path,
                       "--columns",
                       "ranks.0.idle_s",
                       "--csv",
                       folder.Path("a.csv")};
  Runs(lists);
  schedule("F0 BW0 F1 BW1");
  const BinaryResult run = RunBinary(lists);
  INFO(run.err);
  CHECK(run.exit_code == 2);
  CHECK(absl::StrContains(run.err, "cannot be computed again"));
}

// A base that flags cannot give, an axis of files, and a path that is that of
// another folder: their rows keep their reports, with shards too.
TEST_CASE("sweep: reports that cannot be computed again are stored",
          "[sweep]") {
  const TemporaryFolder folder;
  const auto reports = [](const std::string& path) {
    const auto database = Database::Open(path, Database::Mode::kRead).value();
    return database->Integer("SELECT count(leaves) FROM point").value();
  };
  const std::string order =
      "pipewright-schedule 1\npp 1 vpp 1 microbatches 2 slices 1 replicas 1 "
      "placement plain\n0: F0 F1 BW0 BW1\n";
  folder.Write("a.sched", order);
  const std::string in_folder =
      folder.Write("grid.yaml",
                   "base: {costs: {uniform: {forward: 1ms, backward: 2ms}}}\n"
                   "axes: {schedule.file: [a.sched], costs.p2p: [0ms, 1ms]}\n");
  const std::string base =
      folder.Write("base.yaml",
                   "model: {preset: gpt-tiny}\nsystem: {preset: dgx-h100}\n"
                   "strategy: {microbatches: 8}\ncosts: {analytic: {}}\n");
  const std::string plain =
      folder.Write("plain.yaml",
                   "model: {preset: gpt-tiny}\nstrategy: {microbatches: 8}\n"
                   "system: {preset: dgx-h100, nic: {bandwidth: 25GBps}}\n");
  const std::string system = folder.Write(
      "my.textproto",
      TextOf(testing::SourcePath("topologies/dgx-a100.textproto")));
  struct Row {
    Words words;
    bool is_kept;
  };
  const std::vector<Row> table = {
      {{in_folder}, true},
      {{base, "--sweep", "strategy.pp=1,2"}, true},
      {{"gpt-tiny", "--microbatches", "8", "--sweep", "strategy.pp=1,2",
        "--sweep", absl::StrCat("system=", system, ",dgx-h100")},
       true},
      // What flags can give is not stored; bandwidths are of it.
      {{plain, "--sweep", "strategy.pp=1,2", "--sweep",
        "system.nvlink.bandwidth=50GBps,200Gbps"},
       false},
  };
  for (size_t row = 0; row < table.size(); ++row) {
    const std::string path = folder.Path(absl::StrCat(row, ".sqlite"));
    Runs(Plus({"sweep"}, Plus(table[row].words, {"-o", path})));
    CHECK((reports(path) > 0) == table[row].is_kept);
    Runs({"sweep", "-o", path, "--columns", "ranks.0.idle_s", "--csv",
          folder.Path("a.csv")});
    const std::string shard = folder.Path(absl::StrCat(row, "-1.sqlite"));
    Runs(Plus({"sweep"},
              Plus(table[row].words, {"--shard", "1/2", "-o", shard})));
    CHECK((reports(shard) > 0) == table[row].is_kept);
  }
}

TEST_CASE("sweep: merge takes a row that is not lost, and tells of others",
          "[sweep]") {
  const TemporaryFolder folder;
  const auto loses = [&folder](int number, int id) {
    const auto database =
        Database::Open(ShardPath(folder, number), Database::Mode::kWrite)
            .value();
    REQUIRE(database
                ->Execute(absl::StrCat("UPDATE point SET status = 'timeout', "
                                       "exit = 1 WHERE id = ",
                                       id))
                .ok());
  };
  for (const int number : {1, 2}) {
    Runs(Grid(ShardPath(folder, number),
              {"--shard", absl::StrCat(number, "/2")}));
  }
  // The first 0.1ms is point 2, the second, of the other shard, point 5.
  loses(2, 2);
  const std::string merged = folder.Path("merged.sqlite");
  BinaryResult run = RunBinary(Plus(Merge(folder, {1, 2}, merged), {"--json"}));
  INFO(run.err);
  CHECK(run.exit_code == 0);
  const Json counts = ParseJson(run.out).value();
  CHECK(counts["rows"] == kPoints - kRepeated);
  CHECK(counts["repeated"] == kRepeated);
  CHECK_FALSE(counts["statuses"].contains("timeout"));
  // Whole files say which points are another one.
  Runs({"sweep", "merge", merged, "-o", folder.Path("again.sqlite")});
  const std::string whole = folder.Path("whole.sqlite");
  Runs(Grid(whole, {"--shard", "1/1"}));
  Runs({"sweep", "merge", whole, "-o", folder.Path("of-whole.sqlite")});
  CHECK(RowsOf(folder.Path("of-whole.sqlite")) == RowsOf(whole));
  loses(1, 3);
  const std::string lost = folder.Path("lost.sqlite");
  run = RunBinary(Merge(folder, {1, 2}, lost));
  CHECK(run.exit_code == 1);
  CHECK(absl::StrContains(run.err, "1 point crashed or took too long"));
  CHECK(absl::StrContains(run.err, "--again"));
  Runs(Grid(lost, {"--again"}));
  CHECK(absl::StrContains(ExportsOf(lost), "timeout") == false);
}

TEST_CASE("sweep: merge keeps its inputs and drops no option", "[sweep]") {
  const TemporaryFolder folder;
  const std::string out = folder.Path("all.sqlite");
  for (const char* end :
       {"-merged", "-unfinished", "-lock", "-wal", "-shm", "-journal"}) {
    const std::string path = absl::StrCat(out, end);
    Runs(Grid(path, {"--shard", "1/1"}));
    const std::string before = RowsOf(path);
    const BinaryResult run = RunBinary({"sweep", "merge", path, "-o", out});
    INFO(path << "\n" << run.err);
    CHECK(run.exit_code == 2);
    CHECK(absl::StrContains(run.err, path));
    REQUIRE(::access(path.c_str(), F_OK) == 0);
    CHECK(RowsOf(path) == before);
    std::remove(path.c_str());
  }
  const std::string shard = folder.Path("1.sqlite");
  Runs(Grid(shard, {"--shard", "1/1"}));
  const BinaryResult run = RunBinary(
      {"sweep", "--csv", folder.Path("a.csv"), "merge", shard, "-o", out});
  CHECK(run.exit_code == 2);
  CHECK(absl::StrContains(run.err, "--csv"));
  CHECK(::access(out.c_str(), F_OK) != 0);
}

TEST_CASE("sweep: axes of a file that are none are named", "[sweep]") {
  const TemporaryFolder folder;
  const std::string whole = folder.Path("whole.sqlite");
  Runs(Grid(whole, {}));
  const std::string bytes = TextOf(whole);
  for (const char* sql :
       {"UPDATE sweep SET axes = '[1]'",
        "UPDATE sweep SET axes = '[{\"names\":[1],\"values\":[[1]]}]'",
        "UPDATE sweep SET axes = '[{\"names\":[\"a\"],\"values\":[1]}]'",
        "UPDATE point SET axes = '[\"x\",0,0,0]' WHERE id = 1",
        "UPDATE point SET axes = '[[0],0,0,0]' WHERE id = 1"}) {
    const std::string path = folder.Write("bad.sqlite", bytes);
    {
      const auto database =
          Database::Open(path, Database::Mode::kWrite).value();
      REQUIRE(database->Execute(sql).ok());
    }
    const BinaryResult run =
        RunBinary({"sweep", "-o", path, "--csv", folder.Path("a.csv")});
    INFO(sql << "\n" << run.err);
    CHECK(run.exit_code == 2);
    CHECK(absl::StrContains(run.err, path));
    CHECK(absl::StrContains(run.err, "has axes that are none"));
  }
}

// docs/sweep.md, The file: what a row takes.
TEST_CASE("sweep: a row of the default columns takes 110 bytes at most",
          "[sweep]") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("runs.sqlite");
  Runs({"sweep", "--schedule", "1f1b", "--forward", "1ms", "--backward", "2ms",
        "--microbatches", "8", "--sweep", "costs.p2p=0us..499us+1us", "--sweep",
        "strategy.pp=2..11", "-o", path, "-j", "1"});
  const auto database = Database::Open(path, Database::Mode::kRead).value();
  const int64_t bytes =
      database
          ->Integer(
              "SELECT page_count * page_size FROM pragma_page_count, "
              "pragma_page_size")
          .value();
  const int64_t rows = database->Integer("SELECT count(*) FROM point").value();
  REQUIRE(rows == 5000);
  INFO(bytes << " bytes");
  CHECK(bytes <= 110 * rows);
}

TEST_CASE("sweep: a shard's file is that shard's alone", "[sweep]") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("2.sqlite");
  const std::string whole = folder.Path("whole.sqlite");
  Runs(Grid(path, {"--shard", "2/3"}));
  Runs(Grid(whole, {}));
  struct Row {
    std::string path;
    Words more;
    std::string part;
  };
  const std::vector<Row> table = {
      {path, {"--shard", "3/3"}, "allowed: --shard 2/3, or another file"},
      {path, {}, "allowed: --shard 2/3, or another file"},
      {path, {"--shard", "2/3", "--iterations", "3"}, "another sweep"},
      {whole, {"--shard", "2/3"}, "a file that only this shard writes"},
      {path, {"--shard", "4/3"}, "--shard"},
      {path, {"--shard", "0/3"}, "K from 1 to N"},
      {path, {"--shard", "3"}, "K from 1 to N"},
      {path, {"--shard", ""}, "K from 1 to N"},
      {path, {"--shard", "slurm/0"}, "K from 1 to N"},
      {path, {"--shard", "1/2000000"}, "N to 1000000"},
      {path, {"--shard", "2/3", "--csv", folder.Path("a.csv")}, "sweep merge"},
      {folder.Path("{shard}"), {"--shard", "slurm"}, "SLURM_ARRAY_TASK_ID"},
      {folder.Path("{shard}"), {"--shard", "mpi"}, "below mpirun or srun"},
  };
  const std::string before = RowsOf(path);
  for (const Row& row : table) {
    const BinaryResult run = RunBinary(Grid(row.path, row.more));
    INFO(absl::StrJoin(row.more, " ") << "\n" << run.err);
    CHECK(run.exit_code == 2);
    CHECK(absl::StrContains(run.err, row.part));
  }
  CHECK(RowsOf(path) == before);
}

TEST_CASE("sweep: Slurm and MPI number the shards", "[sweep]") {
  const TemporaryFolder folder;
  const auto run = [&](const Words& variables, const std::string& name,
                       const std::string& kind) {
    Words words = Plus({"env"}, variables);
    words.push_back(testing::BinaryPath());
    return testing::RunProgram(
        Plus(words,
             Grid(folder.Path(name), {"--shard", kind, "--json", "-j", "1"})));
  };
  const Words slurm = {"SLURM_ARRAY_TASK_ID=7", "SLURM_ARRAY_TASK_COUNT=3",
                       "SLURM_ARRAY_TASK_MIN=5"};
  BinaryResult result =
      run(Plus(slurm, {"SLURM_ARRAY_TASK_MAX=7"}), "a-{shard}", "slurm");
  INFO(result.err);
  CHECK(result.exit_code == 0);
  CHECK(ParseJson(result.out).value()["shard"] == "3/3");
  CHECK(::access(folder.Path("a-3-of-3").c_str(), F_OK) == 0);
  result = run(Plus(slurm, {"SLURM_ARRAY_TASK_MAX=9"}), "{shard}", "slurm");
  CHECK(result.exit_code == 2);
  CHECK(absl::StrContains(result.err, "an array without gaps"));
  result = run(Plus(slurm, {"SLURM_ARRAY_TASK_MAX=7"}), "one", "slurm");
  CHECK(result.exit_code == 2);
  CHECK(absl::StrContains(result.err, "a name with {shard}"));
  // A part of an array that is submitted again.
  const Words alone = {"SLURM_ARRAY_TASK_ID=2", "SLURM_ARRAY_TASK_COUNT=1"};
  result = run(alone, "{shard}", "slurm");
  CHECK(result.exit_code == 2);
  CHECK(absl::StrContains(result.err, "slurm/N"));
  result = run(alone, "c-{shard}", "slurm/3");
  CHECK(result.exit_code == 0);
  CHECK(ParseJson(result.out).value()["shard"] == "2/3");
  CHECK(absl::StrContains(result.err, "shard 2/3"));
  CHECK(::access(folder.Path("c-2-of-3").c_str(), F_OK) == 0);
  result = run({"SLURM_ARRAY_TASK_ID=4"}, "{shard}", "slurm/3");
  CHECK(result.exit_code == 2);
  CHECK(absl::StrContains(result.err, "tasks from 1 to 3"));
  for (const char* rank :
       {"OMPI_COMM_WORLD_RANK=1", "PMI_RANK=1", "SLURM_PROCID=1"}) {
    result = run({"-u", "OMPI_COMM_WORLD_SIZE", "-u", "PMI_SIZE", "-u",
                  "SLURM_NTASKS", rank},
                 "{shard}", "mpi");
    CHECK(result.exit_code == 2);
    CHECK(absl::StrContains(result.err, "below mpirun or srun"));
  }
  result = run({"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2"},
               "b-{shard}", "mpi");
  INFO(result.err);
  CHECK(result.exit_code == 0);
  CHECK(ParseJson(result.out).value()["shard"] == "1/2");
  CHECK(ParseJson(result.out).value()["points"] == kPoints / 2);
}

}  // namespace
}  // namespace pipewright::shard_test
