// The verb execute as a user runs it.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/base/file.h"
#include "tests/support/execute_job.h"
#include "tests/support/json.h"
#include "tests/support/mpirun.h"
#include "tests/support/run_binary.h"

namespace pipewright::execute_test {
namespace {

using testing::BinaryResult;
using testing::Json;
using testing::RunBinary;
using testing::TemporaryFolder;
using testing::WordsOf;

// Layers that take next to no time, with the pass times of nobody.
std::vector<std::string> Small(const std::string& verb,
                               const std::string& more) {
  return WordsOf(absl::StrCat(
      verb,
      " --set model.layers=8 --set model.hidden=32 --set model.heads=4 "
      "--set model.ffn_hidden=64 --set model.vocabulary=61 "
      "--set model.sequence=32 --model gpt-tiny --pp 4 --forward 3ms "
      "--backward-input 4ms --backward-weight 2ms --p2p 0ms ",
      more));
}

BinaryResult Execute(const std::string& more) {
  return RunBinary(Small("execute", more));
}

TEST_CASE("cli: execute trains as the sequential run does", "[cli][execute]") {
  for (const std::string options :
       {"1f1b --microbatches 8", "zb-v --microbatches 8",
        "dualpipe --microbatches 8", "seq1f1b --microbatches 4 --slices 2",
        "pipedream-2bw --microbatches 4", "pipeoptim --microbatches 4",
        "1f1b --microbatches 8 --optimizer post-validated",
        "zb-h1 --microbatches 8 --optimizer none",
        "1f1b --microbatches 4 --layers 5,1,1,1"}) {
    const BinaryResult run =
        Execute(absl::StrCat("--steps 3 --json --schedule ", options));
    INFO(options << ": " << run.err);
    REQUIRE(run.exit_code == 0);
    const auto report = Json::parse(run.out);
    const auto& execute = report["execute"];
    CHECK(execute["check"]["agrees"] == true);
    // Two directions add up in another order.
    const bool in_order = !absl::StartsWith(options, "dualpipe");
    CHECK(execute["check"]["same_order"] == in_order);
    CHECK((!in_order || execute["check"]["same_bits"] == true));
    CHECK(execute["check"]["losses"].size() == 3);
    for (size_t rank = 0; rank < 4; ++rank) {
      // Sums in another order.
      CHECK(report["peak_activations"][rank].get<double>() ==
            Approx(execute["predicted_peak_activations"][rank].get<double>())
                .epsilon(1e-12));
    }
    CHECK(report.contains("staleness") ==
          (absl::StartsWith(options, "pipedream-2bw") ||
           absl::StartsWith(options, "pipeoptim")));
  }
}

// Both streams end on one terminal.
TEST_CASE("cli: execute says a warning once", "[cli][execute]") {
  const testing::TemporaryFolder folder;
  const std::string words =
      "--schedule 1f1b --microbatches 4 --clock paced --no-check";
  const auto count = [](const std::string& text) {
    int found = 0;
    for (size_t at = text.find("--no-check has no effect");
         at != std::string::npos;
         at = text.find("--no-check has no effect", at + 1)) {
      ++found;
    }
    return found;
  };
  const BinaryResult run = Execute(words);
  INFO(run.err << run.out);
  REQUIRE(run.exit_code == 0);
  CHECK(count(run.err) == 1);
  CHECK(count(run.out) == 0);
  // A file is read without them.
  const std::string file = folder.Path("report.txt");
  REQUIRE(Execute(absl::StrCat(words, " -o ", file)).exit_code == 0);
  CHECK(count(ReadFile(file).value()) == 1);
}

TEST_CASE("cli: execute refuses what would hang, never come or not count",
          "[cli][execute]") {
  struct Case {
    const char* options;
    const char* words;
  };
  for (const auto& [options, words] :
       {Case{"--timeout inf", "--timeout: inf is not allowed"},
        Case{"--timeout 1e300", "at most 1e6 s"},
        Case{"--timeout nan", "--timeout: nan is not allowed"},
        Case{"--fault-late 7:0:0:1", "--fault-late: rank 7"},
        Case{"--fault-late 1:0:8:1",
             "--fault-late: message 8 is not allowed; allowed: 0 to 7"},
        Case{"--fault-slow W:2", "--fault-slow: W"},
        Case{"--iterations 5", "--iterations: 5 is not allowed"}}) {
    const BinaryResult run =
        Execute(absl::StrCat("--schedule 1f1b --microbatches 4 ", options));
    INFO(run.err);
    CHECK(run.exit_code == 2);
    CHECK(absl::StrContains(run.err, words));
  }
}

TEST_CASE("cli: processes that cannot write say so once and exit alike",
          "[cli][execute][mpi]") {
  if (!testing::HaveMpirun()) return;
  for (const char* const options : {"--svg /proc/none.svg", "--timeout inf"}) {
    const BinaryResult run = testing::RunBinaryUnderMpirun(
        4, Small("execute",
                 absl::StrCat("--schedule 1f1b --microbatches 4 --steps 1 ",
                              options)));
    INFO(run.err);
    CHECK(run.exit_code == 2);
    const size_t first = run.err.find("pipewright: error:");
    REQUIRE(first != std::string::npos);
    CHECK(run.err.find("pipewright: error:", first + 1) == std::string::npos);
  }
}

// More than MPI sends before somebody takes it, and never taken: the forwards
// of an iteration that does not come, or all that was under way when a rank
// failed.
TEST_CASE("cli: processes end whose last messages nobody takes",
          "[cli][execute][mpi]") {
  if (!testing::HaveMpirun()) return;
  struct Case {
    const char* options;
    int exit_code;
  };
  for (const auto& [options, exit_code] :
       {Case{"pipedream-2bw", 0}, Case{"pipeoptim", 0},
        Case{"1f1b --fault-late 1:0:99:1", 2}}) {
    const BinaryResult run = testing::RunBinaryUnderMpirun(
        4, Small("execute",
                 absl::StrCat("--microbatches 4 --microbatch-size 64 --steps 2 "
                              "--schedule ",
                              options)));
    INFO(options << ": " << run.err);
    CHECK(run.exit_code == exit_code);
  }
}

TEST_CASE("cli: a rank that is given up is said with what the others wait for",
          "[cli][execute]") {
  const BinaryResult run = RunBinary(
      WordsOf("execute --schedule 1f1b --pp 3 --microbatches 2 --clock paced "
              "--p2p 0ms --steps 1 --forward 1ms --fault-slow F@1:100000 "
              "--backward-input 1ms --backward-weight 1ms --timeout 0.05"));
  INFO(run.err);
  CHECK(run.exit_code == 1);
  CHECK(absl::StrContains(run.err, "given up"));
  CHECK(absl::StrContains(run.err, "rank 1: computes and sees nothing"));
  for (const char* const rank : {"rank 0", "rank 2"}) {
    CHECK(absl::StrContains(run.err, absl::StrCat(rank, ", iteration 0")));
  }
}

TEST_CASE("cli: what the executor cannot do as asked is refused",
          "[cli][execute]") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& options, int exit,
                           const std::string& words) {
    const BinaryResult run = Execute(options);
    INFO(run.err);
    CHECK(run.exit_code == exit);
    CHECK(absl::StrContains(run.err, words));
  };
  refused(
      "--schedule interleaved-1f1b --vpp 2 --microbatches 4 --recompute full "
      "--set strategy.recompute_chunks=0",
      2, "strategy.recompute_chunks");
  refused("--schedule 1f1b --microbatches 4 --max-activations 1", 3, "");
  refused("--schedule 1f1b --microbatches 4 --memory 64KiB", 3, "does not fit");
  // Passes may run again one by one.
  const std::string file = folder.Write("some.txt", R"(pipewright-schedule 1
pp 2 vpp 1 microbatches 2 slices 1 replicas 1 placement plain
0: F0 F1 R0 BW0 BW1
1: F0 BW0 F1 BW1
)");
  const BinaryResult some = RunBinary(
      WordsOf(absl::StrCat("execute --model gpt-tiny --sequence 16 --steps 1 "
                           "--schedule ",
                           file)));
  INFO(some.err);
  CHECK(some.exit_code == 0);
  // The optimizer steps here, whatever simulate does by default.
  const BinaryResult steps = Execute(
      "--schedule 1f1b --microbatches 4 --steps 1 --optimizer-time 5ms "
      "--no-check");
  CHECK(steps.exit_code == 0);
  CHECK_FALSE(absl::StrContains(steps.err, "has no effect"));
}

TEST_CASE("cli: a table of runs is written once and summarized",
          "[cli][execute]") {
  const TemporaryFolder folder;
  const std::string table = folder.Path("runs.csv");
  const std::string sizes =
      absl::StrCat("--microbatches 4 --steps 1 --row ", table);
  for (const char* const schedule : {"gpipe", "1f1b", "gpipe"}) {
    const BinaryResult run =
        Execute(absl::StrCat(sizes, " --schedule ", schedule));
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
  }
  // The third run was there.
  const BinaryResult again = Execute(absl::StrCat(sizes, " --schedule 1f1b"));
  CHECK(again.exit_code == 0);
  CHECK(again.out.empty());
  CHECK(absl::StrContains(again.err, "is not run again"));
  // Unless it shall be there more often.
  for (const bool runs : {true, false}) {
    const BinaryResult more = Execute(
        absl::StrCat(sizes, " --schedule 1f1b --no-check --row-runs 2"));
    CHECK(more.exit_code == 0);
    CHECK(more.out.empty() != runs);
  }
  // Other options are another run, a row that was not checked is no check, and
  // one that differs stays a failure.
  const auto row = [&](const std::string& options) {
    return Execute(absl::StrCat("--microbatches 4 --steps 1 --row ",
                                folder.Path("other.csv"), " --schedule ",
                                options));
  };
  CHECK_FALSE(row("1f1b --no-check").out.empty());
  CHECK_FALSE(row("1f1b").out.empty());
  CHECK(row("1f1b").out.empty());
  CHECK(row("1f1b --no-check").out.empty());
  CHECK_FALSE(row("1f1b --recompute full").out.empty());
  CHECK_FALSE(row("1f1b --dp 2").out.empty());
  for (const bool there : {false, true}) {
    const BinaryResult differs = row("chimera --data-parallel none");
    CHECK(differs.exit_code == 1);
    CHECK(differs.out.empty() == there);
  }
  const BinaryResult summary =
      RunBinary({"compare", table, "--summary", "--json", "--html",
                 folder.Path("r.html"), "--svg", folder.Path("r.svg")});
  INFO(summary.err);
  REQUIRE(summary.exit_code == 0);
  const auto json = Json::parse(summary.out);
  CHECK(json["runs"] == 2);
  CHECK(json["executions"] == 3);
  CHECK(json["gradients_same_bits"] == 2);
  CHECK(json["peak_activations_agree"] == 2);
  CHECK(json["sizes"][0]["rows"][0]["layers"] == "2 2 2 2");
  CHECK(absl::StrContains(ReadFile(folder.Path("r.html")).value(),
                          "id=\"provenance\""));
  // Predicted for another machine.
  CHECK(RunBinary({"compare", table, "--summary", "--limit", "5%"}).exit_code ==
        1);
}

TEST_CASE("cli: what a table of runs cannot be is refused", "[cli][execute]") {
  const TemporaryFolder folder;
  const auto failed = [](const BinaryResult& run, const std::string& words) {
    INFO(run.err);
    CHECK(run.exit_code == 2);
    CHECK(absl::StrContains(run.err, words));
  };
  const std::string other = folder.Write("other.csv", "a,b\n1,2\n");
  const std::string run = "--schedule 1f1b --microbatches 4 ";
  const std::string row = absl::StrCat("--row ", folder.Path("new.csv"));
  failed(Execute(absl::StrCat(run, "--row ", other)), "other.csv:1");
  failed(RunBinary(WordsOf(
             absl::StrCat("execute --model gpt-tiny --pp 4 ", run, row))),
         "pass times");
  failed(Execute(absl::StrCat(run, row, " --row-runs 0")), "--row-runs");
  failed(Execute(absl::StrCat(run, "--row-runs 2")), "--row");
  failed(RunBinary({"compare", other, "--summary"}), "other.csv:1");
  failed(RunBinary({"compare", other}),
         "MEASURED: missing; allowed: the trace");
  failed(RunBinary({"compare", other, other, "--summary"}), "MEASURED");
}

// Both verbs, one schedule: the prediction against the run.
TEST_CASE("cli: compare takes the traces of simulate and of execute",
          "[cli][execute]") {
  const TemporaryFolder folder;
  const std::string simulated = folder.Path("simulated.json");
  const std::string measured = folder.Path("measured.json");
  const auto run = [&](const std::string& verb, const std::string& more) {
    const BinaryResult result = RunBinary(
        Small(verb, absl::StrCat("--schedule zb-h1 --microbatches 8 ", more)));
    INFO(result.err);
    REQUIRE(result.exit_code == 0);
  };
  run("simulate",
      absl::StrCat("--iterations 2 --optimizer synchronised --trace ",
                   simulated));
  const std::string report = folder.Path("report.json");
  run("execute",
      absl::StrCat("--steps 2 --json --trace ", measured, " -o ", report));
  const BinaryResult compared =
      RunBinary({"compare", simulated, measured, "--json", "--html",
                 folder.Path("c.html")});
  INFO(compared.err);
  REQUIRE(compared.exit_code == 0);
  const auto json = Json::parse(compared.out);
  CHECK(json["ranks"].size() == 4);
  CHECK(json["step_s"]["simulated"].get<double>() > 0);
  CHECK(json["step_s"]["measured"].get<double>() > 0);
  for (const auto& rank : json["ranks"]) {
    CHECK(rank["peak_activations"]["simulated"] ==
          rank["peak_activations"]["measured"]);
  }
  // Two counters: the model by its formulas, and what the executor has
  // allocated.
  const auto peaks = Json::parse(ReadFile(report).value())["peak_memory_bytes"];
  REQUIRE(peaks.size() == 4);
  // They are two different things, so they are no pair.
  CHECK(json["memory"]["simulated"]["meaning"] == "allocator");
  CHECK(json["memory"]["measured"]["meaning"] == "executor");
  const auto& measured_bytes = json["memory"]["measured"]["peak_bytes"];
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(json["ranks"][rank].count("peak_memory_bytes") == 0);
    CHECK(json["memory"]["simulated"]["peak_bytes"][rank].get<double>() > 0);
    const double peak = peaks[rank].get<double>();
    CHECK(measured_bytes[rank].get<double>() > 0.9 * peak);
    CHECK(measured_bytes[rank].get<double>() <= peak);
  }
  // The last rank holds one microbatch, the first as many as there are ranks.
  CHECK(measured_bytes[0] != measured_bytes[1]);
  // Nothing of the step is left besides the differences.
  double together = 0;
  for (const auto& difference : json["differences"]) {
    together += difference["seconds"].get<double>();
  }
  CHECK(together == Approx(json["step_s"]["measured"].get<double>() -
                           json["step_s"]["simulated"].get<double>()));
}

}  // namespace
}  // namespace pipewright::execute_test
