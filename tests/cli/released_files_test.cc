// Files of commit 2f1c9bae, the oldest that releases promise to read: a
// schedule, a configuration, a system and a profile, as they were committed
// there; of the profile most kernels and copies are left out.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/base/file.h"
#include "tests/support/json.h"
#include "tests/support/paths.h"
#include "tests/support/run_binary.h"

namespace pipewright::released_files_test {
namespace {

using testing::BinaryResult;
using testing::Json;
using testing::RunBinary;

std::string Released(const std::string& name) {
  return testing::SourcePath(absl::StrCat("tests/released/", name));
}

TEST_CASE("released: a schedule and a configuration give the numbers of then",
          "[cli]") {
  CHECK(RunBinary({"check", Released("four_patches.pws")}).exit_code == 0);
  const BinaryResult run =
      RunBinary({"simulate", Released("run.yaml"), "--json"});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const Json report = Json::parse(run.out);
  // As experiments/01_patch_pipeline/expected.csv had them.
  CHECK(report["iteration_s"].get<double>() == Approx(0.26));
  CHECK(report["span_s"]["global"].get<double>() == Approx(0.293));
  CHECK(report["busy_s"].get<double>() == Approx(0.24));
}

TEST_CASE("released: a system and a profile are read", "[cli]") {
  const std::string profile = Released("h100-gpt-1.7b.txtpb");
  const auto simulated = [](const std::string& system,
                            const std::string& given) {
    return RunBinary({"simulate", "gpt-1.7b", "--system", system, "--profile",
                      given, "--pp", "4", "--microbatches", "8", "--engine",
                      "fast", "--json"});
  };
  const BinaryResult then = simulated(Released("dgx-h100.textproto"), profile);
  INFO(then.err);
  REQUIRE(then.exit_code == 0);
  // The profile that this release carries is that of then. The system may have
  // been corrected since.
  const BinaryResult now =
      simulated(Released("dgx-h100.textproto"), "h100-gpt-1.7b");
  REQUIRE(now.exit_code == 0);
  CHECK(Json::parse(then.out)["iteration_s"] ==
        Json::parse(now.out)["iteration_s"]);
  // A field that no release had is refused, so reading is no matter of course.
  const testing::TemporaryFolder folder;
  const std::string changed = folder.Write(
      "changed.textproto",
      absl::StrCat(ReadFile(Released("dgx-h100.textproto")).value(),
                   "\nnever_a_field: 1\n"));
  const BinaryResult refused = simulated(changed, profile);
  CHECK(refused.exit_code == 2);
  CHECK(absl::StrContains(refused.err, "never_a_field"));
}

}  // namespace
}  // namespace pipewright::released_files_test
