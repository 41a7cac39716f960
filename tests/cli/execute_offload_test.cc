// Executed runs with activations on the host as a user reads them; byte by byte
// and bit by bit it is tests/execute/offload_test.cc.
#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/base/file.h"
#include "tests/support/execute_job.h"
#include "tests/support/json.h"
#include "tests/support/run_binary.h"

namespace pipewright::execute_offload_test {
namespace {

using testing::BinaryResult;
using testing::Json;
using testing::RunBinary;
using testing::TemporaryFolder;
using testing::WordsOf;

BinaryResult Execute(const std::string& more) {
  return RunBinary(WordsOf(absl::StrCat(
      "execute --model gpt-tiny --set model.hidden=64 --set "
      "model.ffn_hidden=128 --set model.sequence=64 --steps 2 --p2p 0ms ",
      more)));
}

constexpr char kCopies[] =
    " --forward 2ms --backward-input 2ms --backward-weight 2ms "
    "--offload-ratio 0.7";

TEST_CASE("cli: executed peaks on device and host are the predicted ones",
          "[cli][execute][memory][offload]") {
  for (const char* const schedule :
       {"po-h --pp 4 --vpp 4 --microbatches 8",
        "po-f --pp 4 --vpp 4 --microbatches 8",
        "zb-v --pp 4 --microbatches 8 --offload selective",
        "1f1b --pp 8 --microbatches 16 --offload full",
        "po-f --pp 8 --vpp 2 --microbatches 16",
        "optimal --pp 4 --microbatches 8 --max-activations 2 "
        "--param offload=choose --param steps=300",
        "optimal --pp 2 --vpp 2 --microbatches 6 --max-activations 1.5 "
        "--param offload=choose --param recompute=choose --param steps=300"}) {
    INFO(schedule);
    const BinaryResult run =
        Execute(absl::StrCat("--json --schedule ", schedule, kCopies));
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

TEST_CASE("cli: a searched order with copies is a file that runs as predicted",
          "[cli][execute][memory][offload]") {
  const TemporaryFolder folder;
  const std::string file = folder.Path("found.pws");
  const std::string searched =
      "--pp 4 --microbatches 8 --max-activations 2 --param offload=choose "
      "--param steps=300";
  const BinaryResult written = RunBinary(WordsOf(absl::StrCat(
      "schedule optimal --p2p 0ms -o ", file, " ", searched, kCopies)));
  INFO(written.err);
  REQUIRE(written.exit_code == 0);
  for (const char* const token : {" O", " FREE", " L"}) {
    CHECK(absl::StrContains(ReadFile(file).value(), token));
  }
  // As the search has it, and as the engine that everybody uses.
  const auto report = [&](const std::string& schedule) {
    const BinaryResult run = RunBinary(WordsOf(absl::StrCat(
        "simulate --p2p 0ms --engine fast --json --iterations 1 --schedule ",
        schedule, kCopies)));
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    return Json::parse(run.out);
  };
  const Json found = report(absl::StrCat("optimal ", searched));
  const Json read = report(file);
  CHECK(read["span_s"] == found["span_s"]);
  CHECK(read["span_s"]["per_rank"].get<double>() ==
        Approx(found["found_order"]["time_s"].get<double>()));
  CHECK(read["peak_activations"] == found["peak_activations"]);
  for (const Json& peak : read["peak_activations"]) CHECK(peak <= 2.0);
  const BinaryResult checked =
      RunBinary({"check", file, "--max-activations", "2"});
  INFO(checked.out << checked.err);
  CHECK(checked.exit_code == 0);
  const BinaryResult run =
      Execute(absl::StrCat("--json --schedule ", file, kCopies));
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const Json execute = Json::parse(run.out)["execute"];
  CHECK(execute["check"]["same_bits"] == true);
  CHECK(execute["peak_bytes"] == execute["predicted_peak_bytes"]);
  CHECK(execute["peak_host_bytes"] == execute["predicted_peak_host_bytes"]);
}

TEST_CASE("cli: who lets a search choose copies says what they take",
          "[cli][offload]") {
  const auto fails = [](const std::string& more, const std::string& what) {
    const BinaryResult run = RunBinary(WordsOf(absl::StrCat(
        "simulate --schedule optimal --pp 2 --microbatches 4 "
        "--max-activations 1 --param offload=choose --forward 2ms --backward "
        "4ms ",
        more)));
    INFO(run.err);
    CHECK(run.exit_code == 2);
    CHECK(absl::StrContains(run.err, what));
  };
  fails("", "costs.offload_ratio");
  fails("--offload full --offload-ratio 0.7", "strategy.offload: full");
  fails("--offload-ratio 0.7 --param offload=maybe", "none, choose");
  fails("--offload-ratio 0.7 --set strategy.offload_fraction=0.5",
        "strategy.offload_fraction: 0.5");
}

TEST_CASE("cli: execute says what is on the host, and compare reads its trace",
          "[cli][execute][offload]") {
  const TemporaryFolder folder;
  const std::string schedule = absl::StrCat(
      "--schedule 1f1b --pp 4 --microbatches 8 --offload full", kCopies);
  const std::string measured = folder.Path("measured.json");
  const std::string page = folder.Path("page.html");
  const BinaryResult run = Execute(absl::StrCat(
      schedule, " --clock real --trace ", measured, " --html ", page));
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  CHECK(absl::StrContains(run.out, "on the host   rank 0: "));
  CHECK(absl::StrContains(ReadFile(page).value(), "on the host"));
  const std::string simulated = folder.Path("simulated.json");
  const BinaryResult model = RunBinary(WordsOf(
      absl::StrCat("simulate --p2p 0ms --optimizer synchronised --iterations 2 "
                   "--trace ",
                   simulated, " ", schedule)));
  INFO(model.err);
  REQUIRE(model.exit_code == 0);
  const BinaryResult compared = RunBinary({"compare", simulated, measured});
  INFO(compared.err);
  CHECK(compared.exit_code == 0);
}

TEST_CASE("cli: no run takes less than the bound with copies over PCIe",
          "[cli][offload]") {
  for (const char* const engine : {"fast", "simgrid"}) {
    INFO(engine);
    const BinaryResult run = RunBinary(WordsOf(absl::StrCat(
        "simulate gpt2-xl --system dgx-h100 --pp 4 --microbatches 16 "
        "--max-activations 1 --host-memory 2TB --schedule optimal "
        "--param offload=choose --param steps=50 --json --engine ",
        engine)));
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    const Json report = Json::parse(run.out);
    CHECK(report["found_order"]["least_time_s"].get<double>() <=
          report["span_s"]["global"].get<double>() * (1 + 1e-9));
  }
}

TEST_CASE("cli: execute without copies does not speak of the host",
          "[cli][execute][offload]") {
  const BinaryResult plain = Execute("--schedule 1f1b --pp 4 --microbatches 8");
  CHECK(plain.exit_code == 0);
  CHECK_FALSE(absl::StrContains(plain.out, "on the host"));
  // Nothing tells what its copies take.
  const BinaryResult order = Execute("--schedule po-h --pp 4 --microbatches 8");
  CHECK(order.exit_code == 0);
  CHECK(absl::StrContains(order.err, "nothing is offloaded"));
  CHECK_FALSE(absl::StrContains(order.out, "on the host"));
}

}  // namespace
}  // namespace pipewright::execute_offload_test
