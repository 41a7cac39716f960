// Models with experts as a user meets them: measured, simulated, trained.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "sim/base/file.h"
#include "sim/profile/profile.h"
#include "tests/support/paths.h"
#include "tests/support/run_binary.h"

namespace pipewright::experts_test {
namespace {

using testing::BinaryResult;
using testing::RunBinary;
using testing::TemporaryFolder;

TEST_CASE("experts: measured, simulated, trained", "[cli]") {
  const TemporaryFolder folder;
  const std::string file = folder.Path("p.txtpb");
  const BinaryResult measured =
      RunBinary({"calibrate", "--device", "cpu", "--model", "moe-tiny", "-o",
                 file, "--sequences", "16", "--quick", "--budget", "0.1s"});
  INFO(measured.err);
  REQUIRE(measured.exit_code == 0);
  const auto run = [&](std::vector<std::string> arguments,
                       const std::string& sequence) {
    for (const char* more : {"--pp", "2", "--microbatches", "4", "--schedule",
                             "zb-h1", "--model", "moe-tiny", "--sequence"}) {
      arguments.push_back(more);
    }
    arguments.push_back(sequence);
    return RunBinary(arguments);
  };
  const BinaryResult simulated = run({"simulate", "--profile", file}, "16");
  INFO(simulated.err);
  CHECK(simulated.exit_code == 0);
  CHECK(absl::StrContains(simulated.out, "expert-layer W"));
  CHECK(absl::StrContains(simulated.out, "uneven load of the experts"));
  const BinaryResult trained =
      run({"execute", "--profile", file, "--steps", "1"}, "16");
  INFO(trained.err);
  CHECK(trained.exit_code == 0);
  CHECK(absl::StrContains(trained.out, "bit for bit"));
  const BinaryResult mixtral = RunBinary(
      {"simulate", "--schedule", "1f1b", "--pp", "2", "--microbatches", "4",
       "--model", "mixtral-8x7b", "--profile", file});
  CHECK(mixtral.exit_code == 2);
  CHECK(absl::StrContains(mixtral.err, "expert-layer F"));
  CHECK(absl::StrContains(mixtral.err, "e8/2 f14336"));
  const BinaryResult shown =
      RunBinary({"calibrate", "show", file, "--model", "moe-tiny"});
  CHECK(absl::StrContains(shown.out, "model moe-tiny: measured b1 s16 tp1"));
  CHECK_FALSE(absl::StrContains(shown.out, "missing"));
}

TEST_CASE("experts: a trace of a model with experts is imported", "[cli]") {
  const TemporaryFolder folder;
  const std::string file = folder.Path("p.txtpb");
  const auto import = [&](const std::string& model, const std::string& ep) {
    return RunBinary({"calibrate", "import", "--kineto",
                      testing::SourcePath("tests/calibrate/data/kineto.json"),
                      "--model", model, "--ep", ep, "--layers", "2", "--device",
                      "toy", "-o", file});
  };
  const BinaryResult imported = import("mixtral-8x7b", "4");
  INFO(imported.err);
  REQUIRE(imported.exit_code == 0);
  const Profile profile = ReadProfile(ReadFile(file).value(), "p").value();
  REQUIRE(!profile.passes.empty());
  CHECK(profile.passes[0].part == ProfilePart::kExpertLayer);
  CHECK(profile.passes[0].ep == 4);
  const auto refused = [&](const std::string& model, const std::string& ep) {
    const BinaryResult run = import(model, ep);
    CHECK(run.exit_code == 2);
    return run.err;
  };
  CHECK(absl::StrContains(refused("mixtral-8x7b", "3"), "--ep: 3"));
  CHECK(absl::StrContains(refused("gpt-tiny", "2"), "has no experts"));
  CHECK(absl::StrContains(refused("moe-tiny", "1"), "does not tell apart"));
}

}  // namespace
}  // namespace pipewright::experts_test
