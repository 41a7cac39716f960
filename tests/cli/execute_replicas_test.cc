// Replicas that differ, on the command line of execute, and what has no layers.
#include <catch2/catch.hpp>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/support/execute_job.h"
#include "tests/support/json.h"
#include "tests/support/mpirun.h"
#include "tests/support/run_binary.h"

namespace pipewright::testing::execute_replicas_test {
namespace {

constexpr char kModel[] =
    " --set model.layers=4 --set model.hidden=32 --set model.heads=4"
    " --set model.ffn_hidden=64 --set model.vocabulary=61"
    " --set model.sequence=64 ";
constexpr char kPacked[] =
    " --schedule 1f1b --pp 1 --dp 4 --lengths lognormal:24,0.6,4,64"
    " --minibatch 3 --packer lb-mini --no-reference --steps 2 ";

bool Agrees(const std::string& out) {
  return absl::StrContains(out, "agree with the sequential run");
}

// What runs have left in shared memory, by name.
std::vector<std::string> SharedNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename();
    if (absl::StartsWith(name, "pipewright-")) names.push_back(name);
  }
  return names;
}

TEST_CASE("cli: execute runs replicas of several classes and lengths",
          "[cli][replicas]") {
  for (const char* const options :
       {"--data-parallel odc --pp 2 --dp-classes 1,2 --dp-microbatches 4,2",
        "--data-parallel zero1 --pp 2 --dp-classes 1,1 --dp-microbatches 1,3",
        "--data-parallel fsdp --shard-blocks layer --pp 2 --dp 2 "
        "--microbatches 2 "
        "--set strategy.reshard_after_forward=false"}) {
    const BinaryResult run = RunBinary(WordsOf(
        absl::StrCat("execute --schedule 1f1b --steps 2", kModel, options)));
    INFO(options << run.err);
    CHECK(run.exit_code == 0);
    CHECK(Agrees(run.out));
  }
  for (const char* const mode : {"odc", "ddp"}) {
    const BinaryResult run = RunBinary(WordsOf(
        absl::StrCat("execute", kModel, kPacked, "--data-parallel ", mode)));
    INFO(mode << run.err);
    CHECK(run.exit_code == 0);
    CHECK(Agrees(run.out));
  }
}

TEST_CASE("cli: odc on four processes shares their memory",
          "[cli][replicas][sockets]") {
  ExecuteJob job(4,
                 WordsOf(absl::StrCat(kModel, kPacked, "--data-parallel odc")));
  CHECK(job.Await() == std::vector<int>{0, 0, 0, 0});
  INFO(job.Err(0));
  CHECK(Agrees(job.Out(0)));
  CHECK(SharedNames().empty());
}

TEST_CASE("cli: a process of odc that is killed leaves no memory behind",
          "[cli][replicas][sockets]") {
  ExecuteJob job(
      4, WordsOf(absl::StrCat(kModel, kPacked,
                              "--data-parallel odc --no-check --timeout 2 "
                              "--set strategy.owner_poll=0.5s")));
  job.AwaitMeeting();
  job.Kill(1, SIGKILL);
  const std::vector<int> codes = job.Await();
  INFO(job.Err(0));
  CHECK(codes == std::vector<int>{1, -1, 1, 1});
  CHECK(SharedNames().empty());
}

TEST_CASE("cli: odc under mpirun", "[cli][replicas][mpi]") {
  if (!HaveMpirun()) return;
  const BinaryResult run = RunBinaryUnderMpirun(
      4,
      WordsOf(absl::StrCat("execute", kModel, kPacked, "--data-parallel odc")));
  INFO(run.err);
  CHECK(run.exit_code == 0);
  CHECK(Agrees(run.out));
}

TEST_CASE("cli: what execute cannot do with replicas that differ",
          "[cli][replicas]") {
  struct Refusal {
    const char* options;
    int exit_code;
    const char* words;
  };
  const std::string base =
      absl::StrCat("execute --schedule 1f1b --pp 1 --steps 1", kModel);
  for (const Refusal& refusal : std::vector<Refusal>{
           {"--data-parallel odc --dp 4 --microbatches 2 --set "
            "strategy.near_group=2",
            2, "strategy.near_group: 2 is not allowed; allowed: 0 or all 4"},
           {"--data-parallel odc --dp 4 --microbatches 2 --set "
            "strategy.shard_group=2",
            2, "strategy.shard_group: 2 is not allowed; allowed: 0 or all 4"},
           {"--data-parallel odc --dp 2 --microbatches 2 --replay-rank 0", 2,
            "--replay-rank"},
           {"--data-parallel ddp --dp-classes 1,1 --dp-microbatches 2,1 "
            "--dp-slower 1,1.5",
            2, "strategy.dp_classes.slower: 1.5 is not allowed; allowed: 1"},
           {"--data-parallel fsdp --shard-blocks layer --dp-classes 1,1 "
            "--dp-microbatches 2,1",
            4, "strategy.dp_classes"},
           {"--data-parallel odc --dp 2 --lengths constant:96 --minibatch 2 "
            "--set strategy.sequence=64",
            2, "strategy.sequence: 64 is not allowed; allowed: at least 96"},
           {"--data-parallel odc --dp 2 --microbatches 2 --timeout 10 "
            "--set strategy.owner_poll=5s",
            2, "allowed: less than half of --timeout (10 s)"},
       }) {
    const BinaryResult run =
        RunBinary(WordsOf(absl::StrCat(base, refusal.options)));
    INFO(refusal.options << "\n" << run.err);
    CHECK(run.exit_code == refusal.exit_code);
    CHECK(absl::StrContains(run.err, refusal.words));
  }
}

TEST_CASE("cli: the class that needs most memory decides, whichever it is",
          "[cli][replicas][memory]") {
  const std::string base = absl::StrCat(
      "execute --schedule gpipe --pp 1 --data-parallel ddp --steps 1", kModel);
  const auto run = [&](const std::string& options) {
    return RunBinary(WordsOf(absl::StrCat(base, options)));
  };
  double needed = 0;
  for (const char* const order : {"1,6", "6,1"}) {
    const std::string classes =
        absl::StrCat(" --dp-classes 1,1 --dp-microbatches ", order);
    const BinaryResult told = run(absl::StrCat(classes, " --json"));
    INFO(order << told.err);
    REQUIRE(told.exit_code == 0);
    const Json execute = Json::parse(told.out)["execute"];
    const double predicted = execute["predicted_peak_bytes"][0];
    CHECK(execute["peak_bytes"][0].get<double>() ==
          Approx(predicted).epsilon(0.001));
    CHECK(execute["predicted_peak_activations"][0] == 6);
    if (needed == 0) needed = predicted;
    CHECK(predicted == needed);
    const auto limit = static_cast<int64_t>(predicted) - 1;
    const BinaryResult refused =
        run(absl::StrCat(classes, " --memory ", limit, "B"));
    INFO(refused.err);
    CHECK(refused.exit_code == 3);
    CHECK(run(absl::StrCat(classes, " --memory ", limit + 1, "B")).exit_code ==
          0);
  }
}

// A microbatch is one sample of 32 tokens, whatever microbatch_size says.
TEST_CASE("cli: with lengths memory is that of what the packer has made",
          "[cli][replicas][memory]") {
  const BinaryResult run = RunBinary(WordsOf(absl::StrCat(
      "execute --schedule 1f1b --pp 1 --dp 2 --data-parallel ddp --steps 1 "
      "--json --lengths constant:32 --minibatch 2 --packer local-sort "
      "--set strategy.microbatch_size=4",
      kModel)));
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const Json execute = Json::parse(run.out)["execute"];
  const double predicted = execute["predicted_peak_bytes"][0];
  CHECK(execute["peak_bytes"][0].get<double>() ==
        Approx(predicted).epsilon(0.001));
  CHECK(absl::StrContains(run.err, "strategy.microbatch_size has no effect"));
  CHECK_FALSE(absl::StrContains(run.err, "memory is that of microbatches"));
}

TEST_CASE("cli: rotary positions have no longest sample", "[cli][replicas]") {
  const BinaryResult run = RunBinary(WordsOf(absl::StrCat(
      "execute --schedule 1f1b --pp 1 --dp 2 --data-parallel odc --steps 1 "
      "--lengths constant:96 --minibatch 2 --set strategy.sequence=64 "
      "--set model.gated=true",
      kModel)));
  INFO(run.err);
  CHECK(run.exit_code == 0);
  CHECK(Agrees(run.out));
}

TEST_CASE("cli: what has no layers as units is refused by name",
          "[cli][replicas]") {
  struct Refusal {
    const char* options;
    const char* words;
  };
  const std::string base =
      "simulate --model gpt-tiny --forward 1ms --backward-input 1ms "
      "--backward-weight 1ms --p2p 0ms --engine fast --dp 2 "
      "--microbatches 8 ";
  for (const char* const mode :
       {"--data-parallel odc", "--data-parallel fsdp --shard-blocks layer"}) {
    for (const Refusal& refusal : std::vector<Refusal>{
             {"--schedule dualpipe-v --pp 2",
              "without overlapped pairs of passes"},
             {"--schedule 1f1b --pp 4 --offload full --offload-ratio 0.1",
              "full is not allowed; allowed: none with"},
             {"--schedule zb-h1 --pp 2 --optimizer post-validated",
              "allowed: none, synchronised with"},
             {"--schedule pipedream-2bw --pp 2", "that is flushed"},
             {"--schedule chimera --pp 2", "none, ddp"},
         }) {
      const BinaryResult run =
          RunBinary(WordsOf(absl::StrCat(base, mode, " ", refusal.options)));
      INFO(mode << " " << refusal.options << "\n" << run.err);
      CHECK(run.exit_code == 2);
      CHECK(absl::StrContains(run.err, refusal.words));
    }
    const BinaryResult on_host = RunBinary(WordsOf(absl::StrCat(
        "simulate --model gpt-tiny --forward 1ms --backward-input 1ms "
        "--backward-weight 1ms --engine fast --dp 2 --microbatches 8 "
        "--schedule 1f1b --pp 2 --optimizer-placement zero-offload --system "
        "dgx-a100 --set system.host.memory_bandwidth=36GBps --set "
        "system.host.flush_rate=1e9 ",
        mode)));
    INFO(on_host.err);
    CHECK(on_host.exit_code == 2);
    CHECK(absl::StrContains(on_host.err,
                            "zero-offload is not allowed; allowed: gpu with "));
  }
  const BinaryResult zero2 = RunBinary(WordsOf(absl::StrCat(
      base,
      "--schedule 1f1b --pp 2 --data-parallel zero2 --shard-blocks layer")));
  INFO(zero2.err);
  CHECK(zero2.exit_code == 2);
  CHECK(absl::StrContains(zero2.err, "strategy.shard_blocks"));
}

}  // namespace
}  // namespace pipewright::testing::execute_replicas_test
