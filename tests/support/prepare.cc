#include "tests/support/prepare.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"

namespace pipewright::testing {

absl::StatusOr<PreparedRun> PrepareText(const std::string& yaml) {
  const absl::StatusOr<RunConfig> config = ReadConfig(yaml, "run.yaml");
  if (!config.ok()) return config.status();
  return Prepare(*config);
}

PreparedRun Prepared(const std::string& yaml) {
  const absl::StatusOr<PreparedRun> run = [&]() -> absl::StatusOr<PreparedRun> {
    absl::StatusOr<RunConfig> config = ReadConfig(yaml, "run.yaml");
    if (!config.ok()) return config.status();
    RunContext context;
    absl::StatusOr<RunConfig> timed = WithTimes(*config, &context);
    if (!timed.ok()) return timed.status();
    config->only_order = !CheckTimed(*timed, &context).ok();
    return Prepare(*config, &context);
  }();
  INFO(run.status());
  REQUIRE(run.ok());
  return *run;
}

bool Warns(const PreparedRun& run, absl::string_view part) {
  for (const std::string& warning : run.warnings) {
    if (absl::StrContains(warning, part)) return true;
  }
  return false;
}

}  // namespace pipewright::testing
