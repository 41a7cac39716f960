// check --from-args: would a framework start with its file? Verdicts, words of
// the user and exit codes.
#include <catch2/catch.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/support/json.h"
#include "tests/support/run_here.h"

namespace pipewright::check_start_test {
namespace {

using testing::BinaryResult;
using testing::Json;
using testing::RunHere;
using testing::TemporaryFolder;
using Words = std::vector<std::string>;

std::string Job(const std::string& more) {
  return absl::StrCat(
      "torchrun --nnodes 1 --nproc-per-node 8 pretrain_gpt.py \\\n"
      "  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 \\\n"
      "  --num-attention-heads 32 --group-query-attention \\\n"
      "  --num-query-groups 8 --swiglu --disable-bias-linear \\\n"
      "  --normalization RMSNorm --untie-embeddings-and-output-weights \\\n"
      "  --position-embedding-type rope --vocab-size 128256 \\\n"
      "  --seq-length 8192 --max-position-embeddings 8192 --bf16 \\\n"
      "  --micro-batch-size 1 --global-batch-size 64 \\\n"
      "  --tensor-model-parallel-size 2 \\\n"
      "  --pipeline-model-parallel-size 2 ",
      more, "\n");
}

BinaryResult Check(const TemporaryFolder& folder, const std::string& job,
                   const Words& more) {
  Words words = {"check", "--from-args", folder.Write("job.sh", job)};
  words.insert(words.end(), more.begin(), more.end());
  return RunHere(words);
}

TEST_CASE("check: a job that would start", "[cli]") {
  const TemporaryFolder folder;
  const BinaryResult run =
      Check(folder, Job("--use-distributed-optimizer --sequence-parallel"),
            {"--system", "dgx-h100"});
  INFO(run.out << run.err);
  CHECK(run.exit_code == 0);
  for (const char* const part :
       {"job.sh: would start\n", "  rules: hold\n", "H100", "): fits, ",
        "  order: 1f1b on 2 ranks, 2 communicators between ranks: runs to its "
        "end\n"}) {
    INFO(part);
    CHECK(absl::StrContains(run.out, part));
  }
}

TEST_CASE("check: memory that nobody knows is not looked at", "[cli]") {
  const TemporaryFolder folder;
  const BinaryResult run = Check(folder, Job(""), {"--json"});
  INFO(run.out << run.err);
  CHECK(run.exit_code == 0);
  const Json report = Json::try_parse(run.out);
  REQUIRE(report.is_object());
  CHECK(report["starts"] == true);
  CHECK(report["framework"] == "megatron");
  CHECK(report["rules"]["hold"] == true);
  CHECK(report["memory"]["looked_at"] == false);
  CHECK(absl::StrContains(report["memory"]["text"].get<std::string>(),
                          "not looked at without a device (--system NAME); "
                          "rank 0 needs most, "));
  CHECK(report["order"]["ends"] == true);
}

TEST_CASE("check: a job that does not fit", "[cli]") {
  const TemporaryFolder folder;
  const std::string job =
      Job("--recompute-granularity selective --optimizer adam");
  const BinaryResult run = Check(
      folder, job, {"--system", "dgx-h100", "--memory", "16GiB", "--json"});
  INFO(run.out << run.err);
  CHECK(run.exit_code == 3);
  const Json report = Json::try_parse(run.out);
  REQUIRE(report.is_object());
  CHECK(report["starts"] == false);
  CHECK(report["rules"]["hold"] == true);
  CHECK(report["memory"]["fits"] == false);
  CHECK(report["order"]["ends"] == true);
  // In the words of the job, with its line, and ours.
  const Json helps = report["memory"]["would_help"];
  REQUIRE(helps.size() > 0);
  bool found = false;
  for (size_t index = 0; index < helps.size(); ++index) {
    const std::string text = helps[index].get<std::string>();
    INFO(text);
    found |= absl::StrContains(text, "--") && absl::StrContains(text, " [") &&
             absl::StrContains(text, "strategy.");
    CHECK_FALSE(absl::StrContains(text, "odc"));
    CHECK_FALSE(absl::StrContains(text, "--use-distributed-optimizer"));
  }
  CHECK(found);
}

TEST_CASE("check: a job that Megatron-LM refuses", "[cli]") {
  const TemporaryFolder folder;
  for (const auto& [more, part] :
       {std::pair("--context-parallel-size 3",
                  "job.sh:1: --nnodes: 1: Megatron-LM refuses this: 8 devices "
                  "are no multiple of tp * pp * cp = 12"),
        {"--recompute-granularity some",
         "job.sh:10: --recompute-granularity"}}) {
    const BinaryResult run =
        Check(folder, Job(more), {"--system", "dgx-h100", "--json"});
    INFO(more << run.out << run.err);
    CHECK(run.exit_code == 2);
    const Json report = Json::try_parse(run.out);
    REQUIRE(report.is_object());
    CHECK(report["starts"] == false);
    CHECK(report["rules"]["hold"] == false);
    CHECK(absl::StrContains(report["rules"]["text"].get<std::string>(), part));
    CHECK_FALSE(report.contains("memory"));
  }
}

TEST_CASE("check: errors that are no framework's rule", "[cli]") {
  const TemporaryFolder folder;
  for (const auto& [more, system, part] :
       {std::tuple("--optimizer soap", "dgx-h100",
                   "job.sh:10: --optimizer: soap is not allowed"),
        {"", "nosuch", "nosuch"}}) {
    const BinaryResult run =
        Check(folder, Job(more), {"--system", system, "--json"});
    INFO(more << run.out << run.err);
    CHECK(run.exit_code == 2);
    const Json report = Json::try_parse(run.out);
    REQUIRE(report.is_object());
    CHECK(report["starts"].is_null());
    CHECK(report["rules"]["hold"].is_null());
    const std::string text = report["rules"]["text"].get<std::string>();
    CHECK(absl::StartsWith(text, "not known: "));
    CHECK(absl::StrContains(text, part));
    CHECK(absl::StrContains(Check(folder, Job(more), {"--system", system}).out,
                            "not known whether it would start\n"));
  }
}

TEST_CASE("check: options of files of schedules", "[cli]") {
  const TemporaryFolder folder;
  for (const auto& [option, value] :
       {std::pair("--semantics", "rendezvous"), {"--max-activations", "4"}}) {
    const BinaryResult run = Check(folder, Job(""), {option, value});
    INFO(run.out << run.err);
    CHECK(run.exit_code == 2);
    CHECK(absl::StrContains(run.err, "--from-args"));
  }
  CHECK(Check(folder, Job(""), {"--semantics", "nccl"}).exit_code == 0);
}

TEST_CASE("check: a file, and one file", "[cli]") {
  const TemporaryFolder folder;
  CHECK(RunHere({"check"}).exit_code == 2);
  const BinaryResult both = Check(folder, Job(""), {"order.pws"});
  CHECK(both.exit_code == 2);
  CHECK(absl::StrContains(both.err, "FILE: given together with --from-args"));
  CHECK(RunHere({"check", "--from-args", folder.Path("none.sh")}).exit_code !=
        0);
}

}  // namespace
}  // namespace pipewright::check_start_test
