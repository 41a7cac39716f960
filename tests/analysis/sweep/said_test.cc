// What `sweep` says of its points: the unit of their times, their notes and
// refusals, and an exit code that tells a sweep without a result.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sim/analysis/sweep/database.h"
#include "sim/base/file.h"
#include "tests/support/json.h"
#include "tests/support/paths.h"
#include "tests/support/run_binary.h"
#include "tests/support/run_here.h"

namespace pipewright::said_test {
namespace {

using testing::BinaryResult;
using testing::Json;
using testing::RunHere;
using testing::TemporaryFolder;
using Words = std::vector<std::string>;

BinaryResult Swept(const std::string& path, const Words& more) {
  Words words = {"sweep", "-j", "1", "-o", path};
  words.insert(words.end(), more.begin(), more.end());
  return RunHere(words);
}

const Words kUnits = {"--schedule", "1f1b",    "--microbatches",
                      "8",          "--sweep", "pp=2,4"};
const Words kSeconds = {"--schedule", "1f1b",  "--microbatches", "8",
                        "--forward",  "1s",    "--backward",     "2s",
                        "--sweep",    "pp=2,4"};

Words Plus(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Words LinesOf(const std::string& path) {
  return absl::StrSplit(ReadFile(path).value(), '\n', absl::SkipEmpty());
}

TEST_CASE("sweep: results say the unit of their times", "[sweep]") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("a.sqlite");
  const std::string csv = folder.Path("a.csv");
  const std::string jsonl = folder.Path("a.jsonl");
  const BinaryResult units =
      Swept(path, Plus(kUnits, {"--csv", csv, "--jsonl", jsonl, "--json"}));
  INFO(units.err);
  REQUIRE(units.exit_code == 0);
  CHECK(Json::parse(units.out)["time_unit"] == "unit");
  // (8 + 2 - 1) passes of three units.
  const Words rows = LinesOf(csv);
  CHECK(absl::StrContains(rows[0], ",time_unit,iteration_units,"));
  CHECK(!absl::StrContains(rows[0], "_s,"));
  CHECK(absl::StrContains(rows[1], ",unit,27,"));
  CHECK(Json::parse(LinesOf(jsonl)[0])["time_unit"] == "unit");
  const auto number = [&path](const std::string& sql) {
    return Database::Open(path, Database::Mode::kRead).value()->Integer(sql);
  };
  CHECK(number("SELECT count(*) FROM point WHERE time_unit = 'unit' AND "
               "iteration_units > 0 AND iteration_s IS NULL")
            .value() == 2);
  // Beside seconds each has a column of its own, also of those asked for.
  const BinaryResult both =
      Swept(path, Plus(kSeconds, {"--csv", csv, "--json", "--columns",
                                  "strategy.pp,ranks.0.busy_s,time_unit"}));
  REQUIRE(both.exit_code == 0);
  CHECK(Json::parse(both.out)["time_unit"] == "s");
  CHECK(LinesOf(csv) == Words{"strategy.pp,ranks.0.busy_s,ranks.0.busy_units,"
                              "time_unit",
                              "2,,24,unit", "4,,24,unit", "2,24,,s",
                              "4,24,,s"});
  CHECK(number("SELECT count(*) FROM point WHERE time_unit = 's' AND "
               "iteration_units IS NULL AND iteration_s > 0")
            .value() == 2);
}

TEST_CASE("sweep: figures of units name no seconds", "[sweep]") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("a.sqlite");
  REQUIRE(Swept(path, kUnits).exit_code == 0);
  const std::string csv = folder.Path("f.csv");
  for (const char* const end : {"f.svg", "f.html"}) {
    const BinaryResult run =
        RunHere({"plot", path, "--x", "strategy.pp", "--y", "iteration_s", "-o",
                 folder.Path(end), "--csv", csv});
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    const std::string text = ReadFile(folder.Path(end)).value();
    CHECK(!absl::StrContains(text.substr(0, text.find("<script")),
                             "iteration_s"));
  }
  CHECK(absl::StrContains(ReadFile(folder.Path("f.svg")).value(),
                          "Iteration time, units<"));
  CHECK(absl::StrContains(ReadFile(folder.Path("f.html")).value(),
                          "\"iteration_units\""));
  CHECK(absl::StrContains(LinesOf(csv)[0], "iteration_units"));
}

TEST_CASE("sweep: a model without times is refused before any point",
          "[sweep]") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("a.sqlite");
  const Words model = {"llama3-8b", "--microbatches", "8", "--sweep", "pp=2,4"};
  const BinaryResult none = Swept(path, model);
  CHECK(none.exit_code == 2);
  for (const char* way : {"--system", "--analytic", "--profile", "--forward"}) {
    CHECK(absl::StrContains(none.err, way));
  }
  CHECK(::access(path.c_str(), F_OK) != 0);
  CHECK(Swept(path, Plus(model, {"--dry-run"})).exit_code == 2);
  // An axis may give them, to some points.
  const BinaryResult some =
      Swept(path, Plus(model, {"--sweep", "costs.analytic.device=h100,h200"}));
  INFO(some.err);
  CHECK(some.exit_code == 0);
}

TEST_CASE("sweep: one in which no point can run is no success", "[sweep]") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("a.sqlite");
  const Words odd = {
      "--schedule", "interleaved-1f1b", "--vpp", "2", "--microbatches",
      "7",          "--sweep",          "pp=2,4"};
  // The second time they are rows.
  for (const int earlier : {0, 2}) {
    const BinaryResult run = Swept(path, Plus(odd, {"--json"}));
    INFO(run.err);
    CHECK(run.exit_code == 2);
    CHECK(absl::StrContains(run.err,
                            "no point of the sweep can run; all 2 points"));
    CHECK(absl::StrContains(run.err, "strategy.microbatches: 7"));
    const Json counts = Json::parse(run.out);
    CHECK(counts["earlier"] == earlier);
    CHECK(counts["refusals"][0]["points"] == 2);
    CHECK(counts["time_unit"].is_null());
  }
  // Some that can run are a success, which says what the others lack.
  const Words some = {
      "--schedule", "interleaved-1f1b", "--vpp", "2", "--microbatches",
      "8",          "--sweep",          "pp=2,3"};
  const BinaryResult run = Swept(folder.Path("b.sqlite"), some);
  CHECK(run.exit_code == 0);
  CHECK(absl::StrContains(run.err, "refused: 1 of 2 points: "));
}

TEST_CASE("sweep: each note of points is said once, with their number",
          "[sweep]") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("a.sqlite");
  const Words words = {"llama3-8b", "--system", "dgx-h100", "--sweep",
                       "tp=4,8"};
  const BinaryResult run = Swept(path, words);
  INFO(run.err);
  CHECK(run.exit_code == 0);
  for (const char* note : {"all 2 points: costs: no times are given: estimated",
                           "all 2 points: schedule.name: none is given: 1f1b",
                           // Of one and of two replicas.
                           "all 2 points (1 of them with other numbers): "
                           "strategy.microbatches: "}) {
    INFO(note);
    const size_t found = run.err.find(note);
    REQUIRE(found != std::string::npos);
    CHECK(run.err.find(note, found + 1) == std::string::npos);
  }
  // Rows that are there have said theirs.
  CHECK(Swept(path, words).err == "");
  // The same as JSON.
  const BinaryResult again =
      Swept(folder.Path("b.sqlite"), Plus(words, {"--json"}));
  CHECK(again.err == run.err);
  bool seen = false;
  for (const Json& note : Json::parse(again.out)["notes"]) {
    CHECK(note["points"].get<int>() >= 1);
    seen |= absl::StrContains(note["text"].get<std::string>(), "1f1b") &&
            note["points"] == 2;
  }
  CHECK(seen);
}

TEST_CASE("sweep: points of a framework's file", "[sweep]") {
  const TemporaryFolder folder;
  const std::string script =
      folder.Write("train.sh",
                   "torchrun --nnodes 1 --nproc-per-node 8 pretrain_gpt.py "
                   "--num-layers 8 --hidden-size 1024 --num-attention-heads 16 "
                   "--seq-length 1024 --max-position-embeddings 1024 "
                   "--micro-batch-size 1 --global-batch-size 64 --vocab-size "
                   "50257 --bf16\n");
  const std::string csv = folder.Path("a.csv");
  const Words axes = {
      "--system", "dgx-h100", "--csv",     csv,
      "--sweep",  "tp=1,2,4", "--columns", "strategy.tp,dp,time_unit"};
  for (const Words& given : {Words{script}, Words{"--from-args", script}}) {
    const BinaryResult run = Swept(
        folder.Path(absl::StrCat(given.size(), ".sqlite")), Plus(given, axes));
    INFO(run.err);
    CHECK(run.exit_code == 0);
    // The file's devices are shared out anew for each point.
    CHECK(LinesOf(csv) ==
          Words{"strategy.tp,dp,time_unit", "1,8,s", "2,4,s", "4,2,s"});
    CHECK(absl::StrContains(run.err, "all 3 points"));
  }
}

}  // namespace
}  // namespace pipewright::said_test
