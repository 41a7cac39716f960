// Memory of executed runs as a user reads it; byte by byte it is
// tests/execute/memory_test.cc.
#include <catch2/catch.hpp>
#include <cmath>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/support/execute_job.h"
#include "tests/support/json.h"
#include "tests/support/run_binary.h"

namespace pipewright::execute_memory_test {
namespace {

using testing::BinaryResult;
using testing::Json;
using testing::RunBinary;
using testing::WordsOf;

BinaryResult Execute(const std::string& more) {
  return RunBinary(WordsOf(absl::StrCat(
      "execute --model gpt-tiny --set model.hidden=64 --set "
      "model.ffn_hidden=128 --set model.sequence=64 --pp 4 --microbatches 8 "
      "--steps 1 --p2p 0ms --no-check ",
      more)));
}

TEST_CASE("cli: executed and predicted peaks of memory agree",
          "[cli][execute][memory]") {
  for (const char* const schedule :
       {"1f1b", "gpipe", "zb-h1", "zb-h2", "zb-v"}) {
    for (const char* const recompute : {"none", "full"}) {
      INFO(schedule << " recompute " << recompute);
      const BinaryResult run = Execute(absl::StrCat(
          "--schedule ", schedule, " --recompute ", recompute, " --json"));
      INFO(run.err);
      REQUIRE(run.exit_code == 0);
      const Json report = Json::parse(run.out);
      const Json& execute = report["execute"];
      REQUIRE(execute["predicted_peak_bytes"].size() == 4);
      for (int rank = 0; rank < 4; ++rank) {
        const double executed = execute["peak_bytes"][rank].get<double>();
        const double predicted =
            execute["predicted_peak_bytes"][rank].get<double>();
        CHECK(std::abs(executed / predicted - 1) <= 0.05);
        CHECK(executed == report["peak_memory_bytes"][rank].get<double>());
        CHECK(executed > execute["resident_bytes"][rank].get<double>());
        CHECK(report["peak_activations"][rank].get<double>() ==
              Approx(execute["predicted_peak_activations"][rank].get<double>())
                  .epsilon(1e-12));
      }
      // Somebody has waited for somebody.
      CHECK(execute["message_bytes"][0].get<double>() > 0);
    }
  }
}

TEST_CASE("cli: execute says both peaks, and its limit is of its own memory",
          "[cli][execute][memory]") {
  const BinaryResult fits = Execute("--schedule 1f1b --memory 100MiB");
  INFO(fits.err);
  CHECK(fits.exit_code == 0);
  CHECK(absl::StrContains(fits.out, "MiB predicted (+0.00 %); of it weights"));
  const BinaryResult exceeds = Execute("--schedule 1f1b --memory 5MiB");
  CHECK(exceeds.exit_code == 3);
  CHECK(absl::StrContains(exceeds.err, "system.memory"));
}

}  // namespace
}  // namespace pipewright::execute_memory_test
