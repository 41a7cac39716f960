// What the program is not linked with, and that it finds it when it needs it:
// beside itself, and after an installation.
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "sim/base/file.h"
#include "tests/support/paths.h"
#include "tests/support/run_binary.h"

namespace pipewright::modules_test {
namespace {

using testing::BinaryPath;
using testing::BinaryResult;
using testing::RunBinary;
using testing::RunProgram;
using testing::TemporaryFolder;
using Words = std::vector<std::string>;

std::string BuildFolder() {
  return std::filesystem::path(BinaryPath()).parent_path().string();
}

bool Exists(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0;
}

const Words kSimulate = {"simulate", "--schedule",     "1f1b",   "--pp",
                         "2",        "--microbatches", "4",      "--forward",
                         "1ms",      "--backward",     "2ms",    "--p2p",
                         "0.1ms",    "--engine",       "simgrid"};

Words With(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST_CASE("modules: the program is linked with none of them", "[cli]") {
  const BinaryResult read = RunProgram({"readelf", "-dW", BinaryPath()});
  INFO(read.err);
  REQUIRE(read.exit_code == 0);
  REQUIRE(absl::StrContains(read.out, "(NEEDED)"));
  CHECK(absl::StrContains(read.out, "libprotobuf"));
  for (const char* const library :
       {"libsimgrid", "libdnnl", "libgomp", "libmpi", "libcuda", "libnccl"}) {
    INFO(library);
    CHECK_FALSE(absl::StrContains(read.out, library));
  }
}

TEST_CASE("modules: a missing one is named, with what to do", "[cli]") {
  ::setenv("PIPEWRIGHT_SIMGRID_LIBRARY", "/nowhere/simgrid.so", 1);
  const BinaryResult run = RunBinary(kSimulate);
  Words words(kSimulate.begin(), kSimulate.end() - 1);
  words.push_back("fast");
  const BinaryResult fast = RunBinary(words);
  ::unsetenv("PIPEWRIGHT_SIMGRID_LIBRARY");
  CHECK(run.exit_code == 1);
  CHECK(absl::StrContains(run.err, "/nowhere/simgrid.so"));
  CHECK(absl::StrContains(run.err, "engine fluid does not"));
  CHECK(fast.exit_code == 0);
}

// Before anything runs: the executor's own library is missing too, and that is
// not what is said.
TEST_CASE("modules: execute misses its engine before it begins", "[cli]") {
  ::setenv("PIPEWRIGHT_SIMGRID_LIBRARY", "/nowhere/simgrid.so", 1);
  ::setenv("PIPEWRIGHT_ONEDNN_LIBRARY", "/nowhere/onednn.so", 1);
  const BinaryResult run =
      RunBinary({"execute", "--model", "gpt-tiny", "--schedule", "1f1b", "--pp",
                 "2", "--microbatches", "2", "--engine", "simgrid"});
  ::unsetenv("PIPEWRIGHT_ONEDNN_LIBRARY");
  ::unsetenv("PIPEWRIGHT_SIMGRID_LIBRARY");
  INFO(run.err);
  CHECK(run.exit_code == 1);
  CHECK(absl::StrContains(run.err, "/nowhere/simgrid.so"));
  CHECK_FALSE(absl::StrContains(run.err, "/nowhere/onednn.so"));
}

TEST_CASE("modules: sweep misses its engine at once, plan needs none",
          "[cli]") {
  ::setenv("PIPEWRIGHT_SIMGRID_LIBRARY", "/nowhere/simgrid.so", 1);
  const TemporaryFolder folder;
  const BinaryResult sweep = RunBinary(
      {"sweep", "--schedule", "1f1b", "--pp", "2", "--microbatches", "4",
       "--forward", "1ms", "--backward", "2ms", "--p2p", "0ms", "--engine",
       "simgrid", "--sweep", "strategy.pp=2,4", "-o", folder.Path("x.sqlite")});
  const Words plan = {"plan",     "--model",        "llama3-8b", "--system",
                      "dgx-h100", "--global-batch", "64",        "--analytic"};
  const BinaryResult planned = RunBinary(plan);
  ::unsetenv("PIPEWRIGHT_SIMGRID_LIBRARY");
  INFO(sweep.err);
  CHECK(sweep.exit_code == 1);
  CHECK(absl::StrContains(sweep.err, "/nowhere/simgrid.so"));
  CHECK(sweep.err.size() < 1500);
  INFO(planned.err);
  CHECK(planned.exit_code == 0);
}

TEST_CASE("modules: a library of something else is refused", "[cli]") {
  ::setenv("PIPEWRIGHT_SIMGRID_LIBRARY", "libm.so.6", 1);
  const BinaryResult run = RunBinary(kSimulate);
  ::unsetenv("PIPEWRIGHT_SIMGRID_LIBRARY");
  CHECK(run.exit_code == 1);
  CHECK(absl::StrContains(run.err, "libm.so.6 has no pipewright_simgrid"));
}

TEST_CASE("modules: without oneDNN's there is no CPU device", "[cli]") {
  if (!Exists(absl::StrCat(BuildFolder(), "/libpipewright_onednn.so"))) {
    WARN("skipped: this build has no oneDNN");
    return;
  }
  ::setenv("PIPEWRIGHT_ONEDNN_LIBRARY", "/nowhere/onednn.so", 1);
  const BinaryResult run =
      RunBinary({"execute", "--model", "gpt-tiny", "--schedule", "1f1b", "--pp",
                 "2", "--microbatches", "2"});
  ::unsetenv("PIPEWRIGHT_ONEDNN_LIBRARY");
  INFO(run.err);
  CHECK(run.exit_code != 0);
  CHECK(absl::StrContains(run.err, "/nowhere/onednn.so"));
  CHECK(absl::StrContains(run.err, "PIPEWRIGHT_ONEDNN_LIBRARY"));
}

TEST_CASE("modules: an installed program finds its own", "[cli]") {
  // CMake writes its list of installed files there.
  if (::access(BuildFolder().c_str(), W_OK) != 0) {
    WARN("skipped: the build folder cannot be written");
    return;
  }
  const TemporaryFolder folder;
  const std::string prefix = folder.Path("usr");
  for (const char* const component : {"pipewright", "simgrid", "mpi"}) {
    const BinaryResult install =
        RunProgram({"cmake", "--install", BuildFolder(), "--prefix", prefix,
                    "--component", component});
    INFO(install.out << install.err);
    REQUIRE(install.exit_code == 0);
  }
  for (const char* const file :
       {"share/man/man1/pipewright.1",
        "share/bash-completion/completions/pipewright",
        "share/zsh/site-functions/_pipewright",
        "share/fish/vendor_completions.d/pipewright.fish"}) {
    INFO(file);
    CHECK(Exists(absl::StrCat(prefix, "/", file)));
  }
  const std::string program = absl::StrCat(prefix, "/bin/pipewright");
  const bool simgrid =
      Exists(absl::StrCat(prefix, "/lib/pipewright/libpipewright_simgrid.so"));
  if (!simgrid) WARN("skipped: this build has no SimGrid");
  if (simgrid) {
    const BinaryResult run = RunProgram(With({program}, kSimulate));
    INFO(run.err);
    CHECK(run.exit_code == 0);
    CHECK(run.out == RunBinary(kSimulate).out);
    // It is this folder's, and no other, that it finds.
    std::filesystem::rename(absl::StrCat(prefix, "/lib/pipewright"),
                            absl::StrCat(prefix, "/lib/moved"));
    const BinaryResult without = RunProgram(With({program}, kSimulate));
    CHECK(without.exit_code == 1);
    CHECK(absl::StrContains(without.err, "libpipewright_simgrid.so is not"));
    std::filesystem::rename(absl::StrCat(prefix, "/lib/moved"),
                            absl::StrCat(prefix, "/lib/pipewright"));
  }
  const BinaryResult trained = RunProgram(
      {program, "execute", "--model", "gpt-tiny", "--schedule", "1f1b", "--pp",
       "2", "--microbatches", "2", "--no-reference"});
  INFO(trained.err);
  CHECK(trained.exit_code == 0);
}

// A build of the program alone leaves modules out; here one looks as if it did.
TEST_CASE("modules: what was not built is not installed", "[cli]") {
  if (::access(BuildFolder().c_str(), W_OK) != 0) {
    WARN("skipped: the build folder cannot be written");
    return;
  }
  const std::string script =
      ReadFile(absl::StrCat(BuildFolder(), "/cmake_install.cmake")).value();
  const TemporaryFolder folder;
  const std::string prefix = folder.Path("usr");
  std::vector<std::string> modules;
  for (const auto& entry : std::filesystem::directory_iterator(BuildFolder())) {
    const std::string name = entry.path().filename().string();
    if (absl::StartsWith(name, "libpipewright_") &&
        absl::EndsWith(name, ".so") && absl::StrContains(script, name)) {
      modules.push_back(name);
    }
  }
  REQUIRE_FALSE(modules.empty());
  for (size_t index = 1; index < modules.size(); ++index) {
    std::filesystem::copy(absl::StrCat(BuildFolder(), "/", modules[index]),
                          folder.Path(modules[index]));
  }
  const std::string moved =
      folder.Write("cmake_install.cmake",
                   absl::StrReplaceAll(
                       script, {{absl::StrCat(BuildFolder(), "/libpipewright_"),
                                 folder.Path("libpipewright_")}}));
  const BinaryResult install = RunProgram(
      {"cmake", absl::StrCat("-DCMAKE_INSTALL_PREFIX=", prefix), "-P", moved});
  INFO(install.out << install.err);
  CHECK(install.exit_code == 0);
  for (const std::string& module : modules) {
    INFO(module);
    CHECK(Exists(absl::StrCat(prefix, "/lib/pipewright/", module)) ==
          (module != modules[0]));
  }
}

// `cmake --build --target pipewright` gives what runs under mpirun.
TEST_CASE("modules: the program is built with its module of MPI", "[cli]") {
  const BinaryResult query = RunProgram(
      {"ninja", "-C", BuildFolder(), "-t", "query", "libpipewright_mpi.so"});
  if (query.exit_code != 0) {
    WARN("skipped: this build has no MPI, or is not one of ninja");
    return;
  }
  const BinaryResult program =
      RunProgram({"ninja", "-C", BuildFolder(), "-t", "query", "pipewright"});
  INFO(program.out << program.err);
  CHECK(absl::StrContains(program.out, "libpipewright_mpi.so"));
}

}  // namespace
}  // namespace pipewright::modules_test
