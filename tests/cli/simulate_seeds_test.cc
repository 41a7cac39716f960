// Lengths and draws from the command line.
#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sim/base/file.h"
#include "tests/support/json.h"
#include "tests/support/run_binary.h"

namespace pipewright::testing::simulate_seeds_test {
namespace {

constexpr char kBase[] =
    "simulate --schedule gpipe --pp 1 --dp 4 --forward 1s --backward-input 1s "
    "--backward-weight 1s --p2p 0ms --gradient-bytes 1GiB "
    "--engine fast ";

// Options separated by blanks.
BinaryResult Run(const std::string& options) {
  const char* const mode = absl::StrContains(options, "--data-parallel")
                               ? ""
                               : "--data-parallel ddp ";
  return RunBinary(absl::StrSplit(absl::StrCat(kBase, mode, options), ' ',
                                  absl::SkipEmpty()));
}

TEST_CASE("lengths: a file's samples on uneven replicas", "[sequences]") {
  const TemporaryFolder folder;
  const std::string file =
      folder.Write("l.csv", "tokens\n640\n320\n64\n64\n128\n64\n640\n64\n");
  const BinaryResult run =
      Run(absl::StrCat("--json --packer lb-mini --lengths ", file));
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const Json report = Json::parse(run.out);
  const Json& sequences = report.at("sequences");
  CHECK(sequences.at("samples") == 8);
  CHECK(sequences.at("tokens") == 1984);
  CHECK(sequences.at("max_token_len") == 640);
  // Two have a sample of 640 alone, the rest is 320 and 384.
  CHECK(sequences.at("tokens_of_replica") ==
        std::vector<int>{640, 640, 384, 320});
  CHECK(report.at("iteration_s").get<double>() == Approx(3));
  const BinaryResult text =
      Run(absl::StrCat("--packer lb-mini --lengths ", file));
  CHECK(absl::StrContains(text.out, "320 to 640 tokens"));
}

TEST_CASE("lengths: refusals", "[sequences]") {
  struct Refusal {
    std::string options;
    int exit_code;
    std::string words;
  };
  const TemporaryFolder folder;
  const std::string file = folder.Write("l.csv", "10\n20\n30\n40\n50\n");
  for (const Refusal& refusal : std::vector<Refusal>{
           {absl::StrCat("--minibatch 2 --lengths ", file), 2,
            "has 5 lengths, and dp is 4"},
           {absl::StrCat("--packer lb-micro --lengths ", file), 2,
            "multiple of 4"},
           {absl::StrCat("--max-token-len 30 --minibatch 1 --lengths ", file),
            2, "sample 3 has 40 tokens"},
           {"--lengths longalign --minibatch 2 --microbatches 3", 2,
            "3 microbatches are more than the 2 samples of device 0"},
           {"--lengths longalign --minibatch 4 --packer lb-mini "
            "--data-parallel fsdp",
            4, "deadlocks with strategy.data_parallel fsdp"},
           {"--lengths longalign --minibatch 4 --packer best", 2, "lb-micro"},
           {"--microbatches 2 --versus strategy.dp=2", 2, "--seeds"},
           {"--microbatches 2 --seeds 3 --svg x.svg", 2, "--svg"},
           {"--microbatches 2 --seeds 0", 2, "1 to 1000000"},
           {"--microbatches 2 --seeds 2 --versus strategy.pq=2", 2,
            "strategy.pq"}}) {
    INFO(refusal.options);
    const BinaryResult run = Run(refusal.options);
    INFO(run.err);
    CHECK(run.exit_code == refusal.exit_code);
    CHECK(absl::StrContains(run.err, refusal.words));
  }
}

TEST_CASE("draws: a report of many, as text and JSON, whatever -j",
          "[sequences]") {
  const std::string options =
      "--lengths longalign --minibatch 4 --packer lb-mini --packer-cost fit "
      "--seeds 40 --versus sequences.packer=lb-micro ";
  const BinaryResult one = Run(options + "--json -j 1");
  INFO(one.err);
  REQUIRE(one.exit_code == 0);
  CHECK(Run(options + "--json -j 3").out == one.out);
  const Json report = Json::parse(one.out);
  CHECK(report.at("draws") == 40);
  REQUIRE(report.at("strategies").size() == 2);
  for (const Json& strategy : report.at("strategies")) {
    CHECK(strategy.at("iterations_s").size() == 40);
    CHECK(strategy.at("p5_s") < strategy.at("p50_s"));
    CHECK(strategy.at("p50_s") < strategy.at("p95_s"));
  }
  CHECK(report.at("tests").at(0).at("significant") == true);
  CHECK(report.at("tests").at(0).at("difference_s") > 0);
  const BinaryResult text = Run(options);
  CHECK(absl::StrContains(text.out, "P95"));
  CHECK(absl::StrContains(text.out, "sequences.packer=lb-micro is slower"));
}

TEST_CASE("draws: a file as the other strategy, flags on top", "[sequences]") {
  const TemporaryFolder folder;
  const std::string other = folder.Write(
      "b.yaml", "schedule: {name: gpipe}\nsequences: {packer: none}\n");
  const BinaryResult run = Run(absl::StrCat(
      "--lengths longalign --minibatch 4 --seeds 5 --json --versus ", other));
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const Json report = Json::parse(run.out);
  CHECK(report.at("strategies").at(1).at("strategy") == other);
  CHECK(report.at("strategies").at(0).at("mean_s") !=
        report.at("strategies").at(1).at("mean_s"));
}

TEST_CASE("draws: what draws nothing says so", "[sequences]") {
  const BinaryResult run = Run("--microbatches 2 --seeds 3");
  CHECK(run.exit_code == 0);
  CHECK(absl::StrContains(run.err, "all draws are alike"));
}

}  // namespace
}  // namespace pipewright::testing::simulate_seeds_test
