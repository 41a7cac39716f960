// The scripts for machines with GPUs, as far as they need none: which GPUs a
// program sees, what a step is, which packages are taken along.
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "execute/transport/nccl_transport.h"
#include "tests/support/paths.h"
#include "tests/support/run_binary.h"

namespace pipewright::gpu_scripts_test {
namespace {

using testing::RunProgram;
using testing::TemporaryFolder;

constexpr char kTwoGpus[] =
    "GPU 0: NVIDIA H100 (UUID: GPU-aaaa-1)\n"
    "GPU 1: NVIDIA H100 (UUID: GPU-bbbb-2)\n";
constexpr char kInstances[] =
    "GPU 0: NVIDIA H100 (UUID: GPU-aaaa-1)\n"
    "  MIG 3g.40gb     Device  0: (UUID: MIG-cccc-3)\n"
    "  MIG 3g.40gb     Device  1: (UUID: MIG-dddd-4)\n"
    "GPU 1: NVIDIA H100 (UUID: GPU-bbbb-2)\n";

// What bash prints for `commands` behind run_steps.sh, on a machine whose
// `nvidia-smi -L` prints `list`.
std::string Steps(const std::string& list, const std::string& commands,
                  const std::vector<std::string>& environment = {}) {
  const TemporaryFolder folder;
  folder.Write("list", list);
  const std::string smi = folder.Write(
      "nvidia-smi",
      absl::StrCat("#!/bin/sh\n[ \"$1\" != -L ] || cat ", folder.Path("list")));
  REQUIRE(RunProgram({"chmod", "+x", smi}).exit_code == 0);
  std::vector<std::string> words = {"env", "-u", "CUDA_VISIBLE_DEVICES"};
  words.insert(words.end(), environment.begin(), environment.end());
  for (const std::string& word : std::vector<std::string>{
           "bash", "-c",
           absl::StrCat("PATH=", folder.Path(""),
                        ":$PATH; out=", folder.Path(""), " deadline=0; . ",
                        testing::SourcePath("calibrate/run_steps.sh"), "; ",
                        commands)}) {
    words.push_back(word);
  }
  return RunProgram(words).out;
}

TEST_CASE("gpu scripts: the GPUs that a program sees", "[calibrate]") {
  const struct {
    const char* list;
    const char* visible;  // null: not set
    const char* count;
  } rows[] = {
      {"", nullptr, "0"},          {kTwoGpus, nullptr, "2"},
      {kTwoGpus, "", "0"},         {kTwoGpus, "1", "1"},
      {kTwoGpus, "1,0", "2"},      {kTwoGpus, "0,7,1", "1"},
      {kTwoGpus, "-1", "0"},       {kTwoGpus, "GPU-bbbb", "1"},
      {kTwoGpus, "GPU-xx", "0"},   {kInstances, nullptr, "1"},
      {kInstances, "0", "0"},      {kInstances, "MIG-dddd-4", "1"},
      {kInstances, "MIG-xx", "0"}, {kInstances, "MIG-cccc-3,MIG-dddd-4", "1"},
  };
  for (const auto& [list, visible, count] : rows) {
    INFO(list << (visible == nullptr ? "not set" : visible));
    std::vector<std::string> environment;
    if (visible != nullptr) {
      environment.push_back(absl::StrCat("CUDA_VISIBLE_DEVICES=", visible));
    }
    CHECK(Steps(list, "visible_gpus", environment) ==
          absl::StrCat(count, "\n"));
  }
}

TEST_CASE("gpu scripts: a step that leaves no result has failed",
          "[calibrate]") {
  const std::string out = Steps(
      "",
      "makes=$out/a step one 9 touch $out/a; makes=$out/b step two 9 sh -c "
      "\"echo > $out/b\"; echo old > $out/c; makes=$out/c step three 9 true; "
      "step four 9 true; step five 9 sh -c 'exit 3'; echo $failures");
  INFO(out);
  const std::vector<std::string> lines =
      absl::StrSplit(out, '\n', absl::SkipEmpty());
  REQUIRE(lines.size() == 6);
  CHECK(absl::EndsWith(lines[0], "FAILED: it has not written a"));
  CHECK(absl::EndsWith(lines[1], " ok"));
  CHECK(absl::EndsWith(lines[2], "FAILED: it has not written c"));
  CHECK(absl::EndsWith(lines[3], " ok"));
  CHECK(absl::EndsWith(lines[4], "FAILED: exit 3"));
  CHECK(lines[5] == "3");
}

TEST_CASE("gpu scripts: a profile without transfers is a failure",
          "[calibrate]") {
  const std::string commands =
      "printf '%s\\n' \"$TEXT\" > $out/p; nccl_calibrated $out/p; echo "
      "$failures";
  CHECK(absl::EndsWith(
      Steps("", commands, {"TEXT=warnings: \"transfers over NCCL are not\""}),
      ": 0 transfers over NCCL\nwarnings: \"transfers over NCCL are not\"\n"
      "1\n"));
  CHECK(absl::EndsWith(Steps("", commands, {"TEXT=transport: \"nccl\""}),
                       ": 1 transfers over NCCL\n0\n"));
}

std::set<std::string> Packages(const std::string& part) {
  const testing::BinaryResult run =
      RunProgram({testing::SourcePath("setup.sh"), "packages", part});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  return absl::StrSplit(run.out, '\n', absl::SkipEmpty());
}

TEST_CASE("gpu scripts: packages for a machine without network",
          "[calibrate]") {
  const std::set<std::string> gpu = Packages("gpu");
  std::set<std::string> left_out;
  for (const std::string& package : Packages("build")) {
    if (absl::EndsWith(package, "-dev") && gpu.count(package) == 0) {
      left_out.insert(package);
    }
  }
  // What gpu_run.sh does not build, or builds without.
  CHECK(left_out == std::set<std::string>{"libbenchmark-dev", "libdnnl-dev",
                                          "libopenmpi-dev", "libsimgrid-dev",
                                          "pybind11-dev", "python3-dev"});
  CHECK(RunProgram({testing::SourcePath("setup.sh"), "packages", "gpus"})
            .exit_code == 1);
  // Libraries that the program needs, by Debian's rule for their packages.
  const testing::BinaryResult needed =
      RunProgram({"objdump", "-p", testing::BinaryPath()});
  REQUIRE(needed.exit_code == 0);
  const std::set<std::string> of_any_machine = {"libc", "libm", "libgcc_s",
                                                "libstdc++", "libz"};
  int libraries = 0;
  for (const absl::string_view line : absl::StrSplit(needed.out, '\n')) {
    if (!absl::StrContains(line, "NEEDED")) continue;
    const std::vector<std::string> words =
        absl::StrSplit(line, ' ', absl::SkipEmpty());
    std::pair<std::string, std::string> name =
        absl::StrSplit(words.back(), absl::MaxSplits(".so.", 1));
    if (name.second.empty() || of_any_machine.count(name.first) > 0 ||
        absl::StartsWith(name.first, "ld-")) {
      continue;
    }
    if (absl::StartsWith(name.first, "libabsl_")) name.first = "libabsl";
    const bool digit = name.first.back() >= '0' && name.first.back() <= '9';
    INFO(words.back());
    CHECK(gpu.count(absl::StrCat(name.first, digit ? "-" : "", name.second)) ==
          1);
    ++libraries;
  }
  CHECK(libraries > 3);
}

TEST_CASE("nccl: the GPU of a process", "[calibrate][nccl]") {
  using Variables = std::map<std::string, std::string>;
  const auto gpu = [](int process, int gpus, const Variables& variables) {
    return GpuOf(process, gpus, [&](const char* name) {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
  };
  const Variables open_mpi = {{"OMPI_COMM_WORLD_RANK", "9"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}};
  const Variables mpich = {{"PMI_RANK", "5"}, {"MPI_LOCALRANKID", "2"}};
  const Variables slurm = {{"SLURM_PROCID", "6"}, {"SLURM_LOCALID", "2"}};
  const Variables torchrun = {{"RANK", "3"}, {"LOCAL_RANK", "0"}};
  const Variables shell = {{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}};
  CHECK(gpu(9, 8, open_mpi).value() == 1);
  CHECK(gpu(5, 8, mpich).value() == 2);
  CHECK(gpu(6, 8, slurm).value() == 2);
  CHECK(gpu(3, 8, torchrun).value() == 0);
  // Nobody says it, or says it of another process: of a shell of srun.
  CHECK(gpu(5, 4, {}).value() == 1);
  CHECK(gpu(0, 4, shell).value() == 0);
  CHECK(gpu(3, 4, shell).value() == 3);
  CHECK(gpu(3, 4, {{"SLURM_LOCALID", "0"}}).value() == 3);
  CHECK(gpu(3, 4, {{"SLURM_PROCID", "3"}}).value() == 3);
  CHECK(gpu(3, 4, {{"SLURM_PROCID", "3"}, {"SLURM_LOCALID", "x"}}).value() ==
        3);
  // mpirun within a shell of srun.
  Variables both = open_mpi;
  both.insert(shell.begin(), shell.end());
  CHECK(gpu(9, 8, both).value() == 1);
  // One visible GPU a task; an instance of MIG is one.
  CHECK(gpu(6, 1, slurm).value() == 0);
  CHECK(gpu(7, 1, {}).value() == 0);
  const absl::Status too_many = gpu(6, 2, slurm).status();
  CHECK(too_many.code() == absl::StatusCode::kInvalidArgument);
  CHECK(absl::StrContains(too_many.message(),
                          "process 6 is number 2 of its machine "
                          "(SLURM_LOCALID), where it sees 2 GPUs"));
}

}  // namespace
}  // namespace pipewright::gpu_scripts_test
