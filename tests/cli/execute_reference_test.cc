// The float64 reference and tied embeddings as a user of the verb execute sees
// them.
#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "execute/report/execute_report.h"
#include "sim/base/status.h"
#include "tests/support/execute_job.h"
#include "tests/support/json.h"
#include "tests/support/run_binary.h"

namespace pipewright::execute_reference_test {
namespace {

using testing::BinaryResult;
using testing::Json;
using testing::RunBinary;
using testing::WordsOf;

BinaryResult Execute(const std::string& more) {
  return RunBinary(WordsOf(absl::StrCat(
      "execute --model gpt-tiny --p2p 0ms --steps 2 --json "
      "--set model.layers=8 --set model.hidden=32 --set model.heads=4 "
      "--set model.ffn_hidden=64 --set model.vocabulary=61 "
      "--set model.sequence=32 --schedule ",
      more)));
}

TEST_CASE("cli: execute holds the first step against the float64 reference",
          "[cli][execute]") {
  for (const std::string options :
       {"zb-h1 --pp 4", "zb-v --pp 2 --dp 2 --data-parallel fsdp",
        "dualpipe --pp 4", "seq1f1b --pp 2 --slices 2", "pipedream-2bw --pp 4",
        "pipeoptim --pp 4", "1f1b --pp 2 --recompute full",
        "1f1b --pp 2 --no-check", "1f1b --pp 2 --optimizer none"}) {
    const BinaryResult run =
        Execute(absl::StrCat(options, " --microbatches 8"));
    INFO(options << ": " << run.err);
    REQUIRE(run.exit_code == 0);
    const Json execute = Json::parse(run.out)["execute"];
    const Json& reference = execute["reference"];
    REQUIRE(reference.is_object());
    CHECK(reference["agrees"] == true);
    CHECK(reference["gradient_error"].get<double>() > 0);
    CHECK(reference["gradient_error"].get<double>() < 1e-4);
    CHECK(reference["loss"].get<double>() ==
          Approx(reference["reference_loss"].get<double>()).epsilon(1e-6));
    CHECK(absl::StrContains(reference["worst_gradient"].get<std::string>(),
                            " of stage "));
    const bool steps_once = !absl::StartsWith(options, "pipeoptim") &&
                            !absl::EndsWith(options, "none");
    CHECK(reference["weight_error"].is_number() == steps_once);
    CHECK(absl::StrContains(execute["not_validated"].get<std::string>(),
                            "the float64 reference is of the first step"));
  }
}

TEST_CASE("cli: execute without the float64 reference says so",
          "[cli][execute]") {
  const std::string base = "1f1b --pp 2 --microbatches 4";
  const BinaryResult without = Execute(absl::StrCat(base, " --no-reference"));
  REQUIRE(without.exit_code == 0);
  const Json execute = Json::parse(without.out)["execute"];
  CHECK(execute["reference"].is_null());
  CHECK(absl::StrContains(execute["not_validated"].get<std::string>(),
                          "no float64 reference (--no-reference)"));
  const BinaryResult both =
      Execute(absl::StrCat(base, " --no-reference --reference"));
  CHECK(both.exit_code == 2);
  CHECK(absl::StrContains(absl::StrCat(both.out, both.err), "--reference"));
  CHECK(
      Execute(absl::StrCat(base, " --reference --replay-rank all")).exit_code ==
      2);
}

TEST_CASE("cli: a reference that differs is exit code 1", "[cli][execute]") {
  ExecuteReport report;
  report.type = "fp32";
  report.no_reference = "it would take 1e15 multiply-adds";
  CHECK(VerdictOf(report).ok());
  CHECK(absl::StrContains(NotValidated(report),
                          "no float64 reference (it would take 1e15"));
  ReferenceCheck check;
  check.loss = check.reference_loss = 4;
  check.tolerance = 1e-4;
  check.gradient_error = 1e-5;
  check.worst_gradient = "layer 3 qkv of stage 1";
  report.trained.reference = check;
  CHECK(VerdictOf(report).ok());
  CHECK(absl::StartsWith(ReferenceInWords(check), "agree with the float64"));
  check.gradient_error = 1e-2;
  report.trained.reference = check;
  CHECK(ExitCode(VerdictOf(report)) == 1);
  CHECK(absl::StrContains(VerdictOf(report).message(), "float64 reference"));
  CHECK(absl::StrContains(ReferenceInWords(check),
                          "DIFFER from the float64 reference"));
  CHECK(absl::StrContains(ReferenceInWords(check), check.worst_gradient));
  check.gradient_error = 0;
  check.weight_error = 0.1;
  report.trained.reference = check;
  CHECK(ExitCode(VerdictOf(report)) == 1);
  check.weight_error = 0;
  check.loss = 4.1;
  report.trained.reference = check;
  CHECK(ExitCode(VerdictOf(report)) == 1);
}

TEST_CASE("cli: execute trains tied embeddings as one table",
          "[cli][execute]") {
  const auto execute = [](const std::string& options) {
    return Execute(absl::StrCat(
        options, " --set model.tied_embeddings=true --microbatches 8"));
  };
  for (const char* const options :
       {"1f1b --pp 1", "1f1b --pp 2", "1f1b --pp 4", "zb-v --pp 4",
        "zb-h1 --pp 2 --dp 2 --data-parallel zero1"}) {
    const BinaryResult run = execute(options);
    INFO(options << ": " << run.err);
    REQUIRE(run.exit_code == 0);
    CHECK_FALSE(absl::StrContains(run.err, "trained apart"));
    const Json report = Json::parse(run.out)["execute"];
    CHECK(report["check"]["agrees"] == true);
    CHECK(report["reference"]["agrees"] == true);
  }
  for (const char* const options :
       {"pipeoptim --pp 2", "1f1b --pp 2 --dp 2 --data-parallel fsdp",
        "zb-v --pp 2 --dp 2 --data-parallel zero2"}) {
    const BinaryResult run = execute(options);
    INFO(options << ": " << run.out << run.err);
    CHECK(run.exit_code == 2);
    CHECK(absl::StrContains(absl::StrCat(run.out, run.err),
                            "model.tied_embeddings"));
  }
}

}  // namespace
}  // namespace pipewright::execute_reference_test
