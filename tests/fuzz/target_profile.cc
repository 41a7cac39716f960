#include <string>

#include "absl/strings/match.h"
#include "calibrate/import_benchmarks.h"
#include "sim/base/check.h"
#include "sim/profile/profile.h"
#include "tests/fuzz/targets.h"

namespace pipewright::testing {
namespace {

constexpr char kSource[] = "fuzz.txtpb";

void CheckUserError(const absl::Status& status) {
  PW_CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  PW_CHECK(absl::StartsWith(status.message(), kSource));
}

bool CheckProfile(const absl::StatusOr<Profile>& profile) {
  if (!profile.ok()) {
    CheckUserError(profile.status());
    return false;
  }
  const std::string text = WriteProfile(*profile);
  const absl::StatusOr<Profile> again = ReadProfile(text, "again.txtpb");
  PW_CHECK(again.ok() && WriteProfile(*again) == text);
  const absl::StatusOr<Profile> merged = MergeProfiles(*profile, *again);
  PW_CHECK(merged.ok());
  PW_CHECK(merged->passes.size() == profile->passes.size());
  return true;
}

}  // namespace

bool FuzzProfile(absl::string_view input) {
  return CheckProfile(ReadProfile(input, kSource));
}

bool FuzzNcclTests(absl::string_view input) {
  return CheckProfile(ImportNcclTests(input, kSource));
}

bool FuzzNvbandwidth(absl::string_view input) {
  return CheckProfile(ImportNvbandwidth(input, kSource));
}

}  // namespace pipewright::testing
