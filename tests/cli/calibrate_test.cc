// `calibrate` as a user calls it: what is refused, what is left as it was.
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "sim/base/file.h"
#include "sim/profile/profile.h"
#include "tests/support/example_profile.h"
#include "tests/support/gzip_text.h"
#include "tests/support/mpirun.h"
#include "tests/support/paths.h"
#include "tests/support/run_binary.h"

namespace pipewright::calibrate_test {
namespace {

using testing::BinaryResult;
using testing::RunBinary;
using testing::TemporaryFolder;

BinaryResult Tiny(const std::string& output,
                  const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {
      "calibrate", "--device",    "cpu", "--model", "gpt-tiny", "-o",
      output,      "--sequences", "16",  "--quick", "--budget", "0.1s"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunBinary(arguments);
}

void CheckRefused(const BinaryResult& run, int exit_code,
                  const std::string& part) {
  INFO(run.err);
  CHECK(run.exit_code == exit_code);
  CHECK(run.out.empty());
  CHECK(absl::StrContains(run.err, part));
}

TEST_CASE("calibrate: bad input is refused before anything is measured",
          "[cli]") {
  const TemporaryFolder folder;
  const std::string old = folder.Write("p.txtpb", "old");
  CheckRefused(Tiny("/nonexistent/p.txtpb"), 2, "a folder that exists");
  CheckRefused(RunBinary({"calibrate", "-o", old}), 2, "--model is missing");
  CheckRefused(RunBinary({"calibrate", "--model", "gpt-tiny"}), 2,
               "-o is missing");
  CheckRefused(RunBinary({"calibrate", "--model", "gpt-tny", "-o", old}), 2,
               "gpt-tiny");
  CheckRefused(RunBinary({"calibrate", "--device", "gpu", "--model", "gpt-tiny",
                          "-o", old}),
               2, "unknown --device 'gpu'");
  CheckRefused(RunBinary({"calibrate", "--model", "deepseek-v2", "-o", old}), 2,
               "latent attention");
  CheckRefused(Tiny(old, {"--ep", "2"}), 2, "--ep: 2");
  CheckRefused(Tiny(old, {"--tp", "3"}), 2, "--tp: 3");
  CheckRefused(Tiny(old, {"--microbatch-sizes", "0"}), 2,
               "--microbatch-sizes: 0");
  CheckRefused(Tiny(old, {"--type", "fp64"}), 2, "fp64");
  CheckRefused(Tiny(old, {"--transport", "mpi"}), 2, "under mpirun");
  CheckRefused(Tiny(old, {"--transport", "tcp"}), 2, "'tcp'");
  CheckRefused(Tiny(old, {"--transport", "nccl"}), 2,
               "nccl with --device cuda");
  CheckRefused(Tiny(old, {"--resume"}), 2, "nothing to go on with");
  CheckRefused(Tiny(old, {"--merge", old}), 2, "which this call reads");
  CheckRefused(Tiny(folder.Path("q.txtpb"), {"--merge", old}), 2, "p.txtpb:1");
  CheckRefused(
      Tiny(old, {"--microbatch-sizes", "60000", "--sequences", "4194304"}), 3,
      "usable");
  CHECK(ReadFile(old).value() == "old");
  CHECK(folder.Files() == std::vector<std::string>{"p.txtpb"});
}

TEST_CASE("calibrate: one command, and show and diff read what it wrote",
          "[cli]") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("p.txtpb");
  const BinaryResult run = Tiny(path, {"--json"});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  CHECK(absl::StartsWith(run.out, "{"));
  CHECK(folder.Files() == std::vector<std::string>{"p.txtpb"});
  const Profile profile = ReadProfile(ReadFile(path).value(), path).value();
  CHECK(profile.complete);
  const BinaryResult show =
      RunBinary({"calibrate", "show", path, "--model", "gpt-tiny"});
  CHECK(show.exit_code == 0);
  CHECK(absl::StrContains(show.out, "measured b1 s16 tp1 fp32\n"));
  const BinaryResult other =
      RunBinary({"calibrate", "show", path, "--model", "gpt2"});
  CHECK(absl::StrContains(other.out, "no shape of its layer is measured"));
  const BinaryResult same = RunBinary({"calibrate", "diff", path, path});
  CHECK(same.exit_code == 0);
  CHECK(absl::StrContains(same.out, " 0 differ"));
}

TEST_CASE("calibrate: a profile in fp8 is for runs in fp8", "[cli]") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("p.txtpb");
  const BinaryResult run = Tiny(path, {"--type", "fp8"});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  CHECK(absl::StrContains(run.err, "fp8 is emulated here"));
  const auto simulate = [&](const std::string& precision) {
    return RunBinary({"simulate", "--schedule", "zb-h1", "--pp", "2",
                      "--microbatches", "4", "--model", "gpt-tiny",
                      "--sequence", "16", "--profile", path, "--precision",
                      precision, "--p2p", "1us"});
  };
  const BinaryResult eight = simulate("fp8");
  INFO(eight.err);
  CHECK(eight.exit_code == 0);
  CheckRefused(simulate("bf16"), 2,
               "a profile with passes of bf16 (pipewright calibrate --type");
}

TEST_CASE("calibrate: transfers of processes under mpirun", "[cli][mpi]") {
  if (!testing::HaveMpirun()) return;
  const TemporaryFolder folder;
  const std::string path = folder.Path("p.txtpb");
  const std::vector<std::string> arguments = {
      "calibrate",   "--model", "gpt-tiny", "-o",   path,
      "--sequences", "16",      "--budget", "0.1s", "--quick"};
  const BinaryResult run = testing::RunBinaryUnderMpirun(2, arguments);
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  CHECK(folder.Files() == std::vector<std::string>{"p.txtpb"});
  const Profile profile = ReadProfile(ReadFile(path).value(), path).value();
  CHECK(profile.complete);
  CHECK(absl::StrContains(profile.sources.at(0).libraries, "MPI"));
  std::set<std::string> operations;
  for (const TransferEntry& entry : profile.transfers) {
    INFO(KeyOf(entry));
    CHECK(entry.transport == "mpi");
    CHECK(entry.ranks == 2);
    CHECK(entry.time.median_s > 0);
    CHECK(entry.time.count >= 6);
    operations.insert(entry.operation);
  }
  CHECK(operations == std::set<std::string>{"all_gather", "all_reduce",
                                            "reduce_scatter", "send_recv"});
  CHECK(profile.transfers.size() == 8);
  // One of the processes says what is wrong, and none is left behind.
  std::vector<std::string> wrong = arguments;
  wrong[2] = "gpt-tny";
  const BinaryResult refused = testing::RunBinaryUnderMpirun(2, wrong);
  CHECK(refused.exit_code == 2);
  CHECK(absl::StrContains(refused.err, "gpt-tiny"));
  wrong = arguments;
  wrong.insert(wrong.end(), {"--transport", "threads"});
  const BinaryResult threads = testing::RunBinaryUnderMpirun(2, wrong);
  CHECK(threads.exit_code == 2);
  CHECK(absl::StrContains(threads.err, "mpirun -n: 2 is not allowed"));
  // GPUs over NCCL: without CUDA process 0 says so and lets the other go.
  ::setenv("PIPEWRIGHT_CUDA_LIBRARY", "/nonexistent/cuda.so", 1);
  wrong = arguments;
  wrong.insert(wrong.end(), {"--device", "cuda"});
  const BinaryResult cuda = testing::RunBinaryUnderMpirun(2, wrong);
  ::unsetenv("PIPEWRIGHT_CUDA_LIBRARY");
  CHECK(cuda.exit_code == 1);
  CHECK(absl::StrContains(cuda.err, "--device cuda: "));
}

TEST_CASE("calibrate: diff names what changed", "[cli]") {
  const TemporaryFolder folder;
  Profile profile = testing::ExampleProfile();
  const std::string before = folder.Write("a", WriteProfile(profile));
  Distribution& time = profile.passes[0].time;
  time.median_s *= 1.5;
  time.p90_s = time.max_s = time.confidence_high_s = time.prediction_high_s =
      time.median_s;
  time.prediction_low_s = 1.4 / 1.5 * time.median_s;
  profile.copies.pop_back();
  const std::string after = folder.Write("b", WriteProfile(profile));
  const BinaryResult diff = RunBinary({"calibrate", "diff", before, after});
  INFO(diff.out);
  CHECK(diff.exit_code == 0);
  CHECK(absl::StrContains(diff.out, "1 differ"));
  CHECK(absl::StrContains(
      diff.out, "layer F llama h4096 a32/8 d128 f14336 bf16 b1 s4096 tp1"));
  CHECK(absl::StrContains(diff.out, "x1.500"));
  CHECK(absl::StrContains(diff.out, "only in the first: d2d 1000 B"));
}

TEST_CASE("calibrate: import does not guess the layers of a region", "[cli]") {
  const TemporaryFolder folder;
  std::vector<std::string> words = {
      "calibrate", "import",
      "--kineto",  testing::SourcePath("tests/calibrate/data/kineto.json"),
      "--model",   "gpt-tiny",
      "--device",  "toy",
      "-o",        folder.Path("p.txtpb")};
  const BinaryResult missing = RunBinary(words);
  CheckRefused(missing, 2, "--layers: missing; allowed: with --kineto");
  CHECK(absl::StrContains(missing.err, "the model's 16 over the stages"));
  CHECK(folder.Files().empty());
  const auto forward_s = [&](const char* layers) {
    std::vector<std::string> more = words;
    more.insert(more.end(), {"--layers", layers});
    const BinaryResult run = RunBinary(more);
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    return ReadProfile(ReadFile(folder.Path("p.txtpb")).value(), "p")
        ->passes.at(0)
        .time.median_s;
  };
  CHECK(forward_s("1") == Approx(4 * forward_s("4")));
}

TEST_CASE("calibrate: import reads a trace that is a gzip file", "[cli]") {
  const TemporaryFolder folder;
  const std::string trace =
      ReadFile(testing::SourcePath("tests/calibrate/data/kineto.json")).value();
  const auto import = [&folder](const std::string& file) {
    return RunBinary({"calibrate", "import", "--kineto", file, "--model",
                      "gpt-tiny", "--layers", "2", "--device", "toy", "-o",
                      folder.Path("p.txtpb")});
  };
  const BinaryResult plain = import(folder.Write("t.json", trace));
  INFO(plain.err);
  REQUIRE(plain.exit_code == 0);
  const Profile expected =
      ReadProfile(ReadFile(folder.Path("p.txtpb")).value(), "p").value();
  const std::string packed = testing::Gzip(trace);
  REQUIRE(import(folder.Write("t.json.gz", packed)).exit_code == 0);
  const Profile profile =
      ReadProfile(ReadFile(folder.Path("p.txtpb")).value(), "p").value();
  CHECK(profile.passes == expected.passes);
  const BinaryResult broken =
      import(folder.Write("cut.json.gz", packed.substr(0, packed.size() / 2)));
  CheckRefused(broken, 2, "cut.json.gz: the gzip file ends in the middle");
}

TEST_CASE("calibrate: coverage by kind, printed and as a file", "[cli]") {
  const TemporaryFolder folder;
  Profile profile = testing::ExampleProfile();
  Distribution& time = profile.passes[0].time;
  const std::string first = folder.Write("a", WriteProfile(profile));
  // Outside of the interval that the first run gave.
  time.median_s = 2 * time.prediction_high_s;
  time.p90_s = time.max_s = time.confidence_high_s = time.prediction_high_s =
      time.median_s;
  const std::string second = folder.Write("b", WriteProfile(profile));
  const std::string csv = folder.Path("c.csv");
  const BinaryResult run =
      RunBinary({"calibrate", "coverage", "--csv", csv, first, second});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const std::string table = ReadFile(csv).value();
  INFO(table);
  const auto inside = [&table](const std::string& kind) {
    int share = -1;
    int compared = 0;
    const size_t line = table.find("\n" + kind + ",");
    REQUIRE(line != std::string::npos);
    REQUIRE(std::sscanf(table.c_str() + line + kind.size() + 2, "%d,%d", &share,
                        &compared) == 2);
    return compared - share;
  };
  CHECK(absl::StartsWith(table, "kind,inside,compared,share,next_inside,"));
  CHECK(inside("all") == 1);
  CHECK(inside("layer") == 1);
  CHECK(absl::StrContains(run.out, "layer "));
  CHECK(RunBinary(
            {"calibrate", "coverage", "--csv", "/nonexistent/c", first, second})
            .exit_code == 2);
}

TEST_CASE("calibrate: a resumed run needs nothing more of a whole one",
          "[cli]") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("p.txtpb");
  REQUIRE(Tiny(path).exit_code == 0);
  const std::string text = ReadFile(path).value();
  folder.Write(
      "p.txtpb.partial",
      absl::StrReplaceAll(text, {{"complete: true", "complete: false"}}));
  const BinaryResult resumed = Tiny(path, {"--resume"});
  INFO(resumed.err);
  CHECK(resumed.exit_code == 0);
  CHECK(ReadFile(path).value() == text);
  CHECK(folder.Files() == std::vector<std::string>{"p.txtpb"});
}

}  // namespace
}  // namespace pipewright::calibrate_test
