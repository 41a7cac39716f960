// Executed runs with activations on the host as a user reads them; byte by byte
// and bit by bit it is tests/execute/offload_test.cc.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/base/file.h"
#include "tests/support/json.h"
#include "tests/support/run_binary.h"

namespace pipewright::execute_offload_test {
namespace {

using testing::BinaryResult;
using testing::Json;
using testing::RunBinary;
using testing::TemporaryFolder;
using Arguments = std::vector<std::string>;

BinaryResult Execute(const Arguments& more) {
  Arguments arguments = {"execute",
                         "--model",
                         "gpt-tiny",
                         "--set",
                         "model.hidden=64",
                         "--set",
                         "model.ffn_hidden=128",
                         "--set",
                         "model.sequence=64",
                         "--steps",
                         "2",
                         "--p2p",
                         "0ms"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunBinary(arguments);
}

const Arguments& Copies() {
  static const Arguments copies = {
      "--forward",         "2ms", "--backward-input", "2ms",
      "--backward-weight", "2ms", "--offload-ratio",  "0.7"};
  return copies;
}

Arguments With(Arguments arguments, const Arguments& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST_CASE("cli: executed peaks on device and host are the predicted ones",
          "[cli][execute][memory][offload]") {
  for (const Arguments& schedule : std::vector<Arguments>{
           {"po-h", "--pp", "4", "--vpp", "4", "--microbatches", "8"},
           {"po-f", "--pp", "4", "--vpp", "4", "--microbatches", "8"},
           {"zb-v", "--pp", "4", "--microbatches", "8", "--offload",
            "selective"},
           {"1f1b", "--pp", "8", "--microbatches", "16", "--offload", "full"},
           {"po-f", "--pp", "8", "--vpp", "2", "--microbatches", "16"}}) {
    INFO(schedule[0] << " pp " << schedule[2]);
    const BinaryResult run =
        Execute(With(With({"--json", "--schedule"}, schedule), Copies()));
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    const Json report = Json::parse(run.out);
    const Json& execute = report["execute"];
    CHECK(execute["check"]["same_bits"] == true);
    CHECK(execute["peak_bytes"] == execute["predicted_peak_bytes"]);
    CHECK(execute["peak_host_bytes"] == execute["predicted_peak_host_bytes"]);
    CHECK(report["peak_host_bytes"] == execute["peak_host_bytes"]);
    CHECK(execute["peak_host_bytes"][0].get<double>() > 0);
    CHECK(report["offload"]["ranks"][0]["offloaded"].get<int>() > 0);
  }
}

TEST_CASE("cli: execute says what is on the host, and compare reads its trace",
          "[cli][execute][offload]") {
  const TemporaryFolder folder;
  const Arguments schedule = With({"--schedule", "1f1b", "--pp", "4",
                                   "--microbatches", "8", "--offload", "full"},
                                  Copies());
  const std::string measured = folder.Path("measured.json");
  const std::string page = folder.Path("page.html");
  const BinaryResult run = Execute(
      With(schedule, {"--clock", "real", "--trace", measured, "--html", page}));
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  CHECK(absl::StrContains(run.out, "on the host   rank 0: "));
  CHECK(absl::StrContains(ReadFile(page).value(), "on the host"));
  const std::string simulated = folder.Path("simulated.json");
  const BinaryResult model =
      RunBinary(With({"simulate", "--trace", simulated, "--p2p", "0ms",
                      "--optimizer", "synchronised", "--iterations", "2"},
                     schedule));
  INFO(model.err);
  REQUIRE(model.exit_code == 0);
  const BinaryResult compared = RunBinary({"compare", simulated, measured});
  INFO(compared.err);
  CHECK(compared.exit_code == 0);
}

TEST_CASE("cli: execute without copies does not speak of the host",
          "[cli][execute][offload]") {
  const Arguments sizes = {"--pp", "4", "--microbatches", "8"};
  const BinaryResult plain = Execute(With({"--schedule", "1f1b"}, sizes));
  CHECK(plain.exit_code == 0);
  CHECK_FALSE(absl::StrContains(plain.out, "on the host"));
  // Nothing tells what its copies take.
  const BinaryResult order = Execute(With({"--schedule", "po-h"}, sizes));
  CHECK(order.exit_code == 0);
  CHECK(absl::StrContains(order.err, "nothing is offloaded"));
  CHECK_FALSE(absl::StrContains(order.out, "on the host"));
}

}  // namespace
}  // namespace pipewright::execute_offload_test
