// What `sweep` says of its words: fields without effect, seeds without noise,
// columns that cannot be; and whose folder files are in.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/analysis/sweep/reader.h"
#include "tests/support/run_binary.h"

namespace pipewright::checks_test {
namespace {

using testing::BinaryResult;
using testing::RunBinary;
using testing::TemporaryFolder;
using Words = std::vector<std::string>;

const Words kRun = {"--schedule",
                    "1f1b",
                    "--pp",
                    "4",
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

BinaryResult SweepInto(const std::string& path, const Words& more) {
  Words words = {"sweep"};
  words.insert(words.end(), kRun.begin(), kRun.end());
  words.insert(words.end(), {"-j", "1", "-o", path});
  words.insert(words.end(), more.begin(), more.end());
  return RunBinary(words);
}

TEST_CASE("sweep: nobody is warned of what an axis gives", "[sweep]") {
  const TemporaryFolder folder;
  const Words axis = {"--sweep", "costs.p2p=0ms,1ms"};
  Words idle = axis;
  // 1F1B has no pairs.
  idle.insert(idle.end(), {"--set", "costs.pair_factor=1.5"});
  const BinaryResult run = SweepInto(folder.Path("a.sqlite"), idle);
  CHECK(run.exit_code == 0);
  CHECK_THAT(run.err, Catch::Contains("warning: all 2 points: ") &&
                          Catch::Contains("costs.pair_factor"));
  CHECK(SweepInto(folder.Path("b.sqlite"), axis).err.empty());
  // Here the time of a hop.
  CHECK(RunBinary({"sweep", "--schedule", "1f1b", "--pp", "4", "--microbatches",
                   "8", "--forward", "1ms", "--backward-input", "1ms",
                   "--backward-weight", "1ms", "--sweep", "costs.p2p=0ms,1ms",
                   "-j", "1", "-o", folder.Path("d.sqlite")})
            .err.empty());
}

TEST_CASE("sweep: seeds that change nothing are warned of", "[sweep]") {
  const TemporaryFolder folder;
  const auto errors = [&](const std::string& name, const Words& more) {
    const BinaryResult run = SweepInto(folder.Path(name), more);
    CHECK(run.exit_code == 0);
    return run.err;
  };
  CHECK_THAT(errors("a.sqlite", {"--seeds", "2"}),
             Catch::Contains("costs.seed: all draws are alike"));
  CHECK(errors("b.sqlite", {"--seeds", "2", "--jitter", "3%"}).empty());
  CHECK(errors("c.sqlite", {"--seeds", "2", "--sweep", "costs.jitter=1%,3%"})
            .empty());
  Words simulate = {"simulate", "--seeds", "2"};
  simulate.insert(simulate.end(), kRun.begin(), kRun.end());
  CHECK_THAT(RunBinary(simulate).err, Catch::Contains("all draws are alike"));
}

TEST_CASE("sweep: columns are refused before anything runs", "[sweep]") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("a.sqlite");
  const std::string csv = folder.Path("a.csv");
  const auto refused = [&](const Words& more, const std::string& words) {
    Words all = {"--sweep", "costs.p2p=0ms,1ms"};
    all.insert(all.end(), more.begin(), more.end());
    const BinaryResult run = SweepInto(path, all);
    INFO(run.err);
    CHECK(run.exit_code == 2);
    CHECK_THAT(run.err, Catch::Contains(words));
    CHECK(::access(path.c_str(), F_OK) != 0);
    CHECK(::access(csv.c_str(), F_OK) != 0);
  };
  refused({"--columns", "iteration_s"}, "--columns: needs --csv or --jsonl");
  refused({"--all-versions"}, "--all-versions: needs --csv or --jsonl");
  refused({"--columns", "iteration_m", "--csv", csv},
          "--columns: unknown column 'iteration_m'");
  refused({"--columns", "strategy.pp", "--csv", csv},
          "--columns: unknown column 'strategy.pp'");
  const BinaryResult run = SweepInto(
      path, {"--sweep", "costs.p2p=0ms,1ms", "--csv", csv, "--columns",
             "costs.p2p,status,iteration_s,ranks.0.idle_s"});
  INFO(run.err);
  CHECK(run.exit_code == 0);
  CHECK(::access(csv.c_str(), F_OK) == 0);
}

// As base and as files of a configuration.
TEST_CASE("sweep: relative files of axes lie beside the file of the sweep",
          "[sweep]") {
  const TemporaryFolder folder;
  const std::string order =
      "pipewright-schedule 1\npp 1 vpp 1 microbatches 2\n";
  folder.Write("one.pws", absl::StrCat(order, "0: F0 BW0 F1 BW1\n"));
  folder.Write("two.pws", absl::StrCat(order, "0: F0 F1 BW0 BW1\n"));
  const std::string base =
      "base: {costs: {uniform: {forward: 1ms, backward: 2ms}}}\n";
  const auto swept = [&](const std::string& name, const std::string& axes) {
    const std::string path = folder.Path(absl::StrCat(name, ".sqlite"));
    const BinaryResult run = RunBinary(
        {"sweep",
         folder.Write(absl::StrCat(name, ".yaml"), absl::StrCat(base, axes)),
         "-j", "1", "-o", path});
    INFO(run.err);
    CHECK(run.exit_code == 0);
    Words rows;
    const auto reader = SweepReader::Open(path).value();
    CHECK(reader
              ->Visit({"peak_activations.max"}, false,
                      [&](const SweepRow& row) {
                        rows.push_back(absl::StrCat(row.status, " ", row.hash,
                                                    " ",
                                                    ToString(row.cells[0])));
                        return absl::OkStatus();
                      })
              .ok());
    return rows;
  };
  const Words beside =
      swept("beside", "axes: {schedule.name: [one.pws, two.pws]}\n");
  const Words absolute =
      swept("absolute",
            absl::StrCat("axes: {schedule.name: [", folder.Path("one.pws"),
                         ", ", folder.Path("two.pws"), "]}\n"));
  CHECK(beside.size() == 2);
  CHECK(beside == absolute);
  CHECK(swept("files", "axes: {schedule.file: [one.pws, two.pws]}\n") ==
        absolute);
  // On the command line they are those of the working folder.
  const BinaryResult here = RunBinary(
      {"sweep", folder.Write("flag.yaml", absl::StrCat(base, "axes: {}\n")),
       "--sweep", "schedule.file=one.pws", "-o", folder.Path("flag.sqlite")});
  CHECK(here.exit_code == 2);
  CHECK_THAT(here.err, Catch::Contains("one.pws"));
}

}  // namespace
}  // namespace pipewright::checks_test
