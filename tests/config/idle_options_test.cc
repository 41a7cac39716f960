// No field of the configuration does nothing in silence. What is looked at is
// the output of runs: from one legal value of a field to another the report
// changes beyond its echo of the configuration, or the field is refused or
// warned of by name.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/config/run_config.h"
#include "tests/support/base_runs.h"
#include "tests/support/run_here.h"

namespace pipewright {
namespace {

using testing::BaseRun;
using testing::BaseRuns;
using testing::BinaryResult;
using testing::FieldSample;
using testing::FieldSamples;
using testing::RunHere;

// Keys of a report that repeat what was configured. `engine` is none: it says
// who has computed the numbers.
constexpr const char* kEcho[] = {
    "schedule",   "network", "pp",      "vpp",    "microbatches",
    "slices",     "tp",      "cp",      "dp",     "data_parallel",
    "iterations", "params",  "model",   "system", "gradient_sync",
    "optimizer",  "waiting", "warnings"};

struct Outcome {
  bool refused = false;
  bool named = false;  // in the refusal, or in a warning of no effect
  std::string report;  // without the echo; of a refusal the message
  std::string err;
};

Outcome OutcomeOf(const std::string& config, const std::string& path,
                  const std::string& edit) {
  const BinaryResult run =
      RunHere({"simulate", config, "--json", "--set", edit});
  Outcome outcome;
  outcome.err = run.err;
  outcome.refused = run.exit_code != 0 && run.exit_code != 3;
  outcome.named =
      absl::StrContains(run.err, absl::StrCat(path, " has no effect"));
  if (outcome.refused) {
    outcome.report = run.err;
    return outcome;
  }
  // A schedule that cannot keep to a limit has no report.
  if (run.out.empty()) {
    outcome.report = run.err;
    return outcome;
  }
  nlohmann::json report = nlohmann::json::parse(run.out);
  for (const char* key : kEcho) report.erase(key);
  outcome.report = report.dump();
  return outcome;
}

// Does a refusal name a field, be it the one that the new value contradicts,
// or the value?
bool Names(absl::string_view refusal, absl::string_view value) {
  for (const std::string& path : ConfigPaths()) {
    if (absl::StrContains(refusal, path + ": ")) return true;
  }
  return absl::StrContains(refusal, value);
}

std::string EditOf(const BaseRuns& runs, const FieldSample& sample,
                   const std::string& value) {
  return absl::StrCat(sample.path, sample.path == "schedule.params" ? "." : "=",
                      runs.Value(value));
}

// What is wrong with the field in the run, "" for nothing.
std::string Silent(const BaseRuns& runs, const BaseRun& run,
                   const FieldSample& sample) {
  const std::string config = runs.PathOf(run.name);
  const Outcome absent = OutcomeOf(config, sample.path, sample.path + "=");
  std::vector<Outcome> silent;
  for (const std::string& value : sample.values) {
    const std::string edit = EditOf(runs, sample, value);
    Outcome outcome = OutcomeOf(config, sample.path, edit);
    const std::string what = absl::StrCat(run.name, ": ", edit);
    if (outcome.refused) {
      if (Names(outcome.err, value)) continue;
      return absl::StrCat(what, " is refused without a name: ", outcome.err);
    }
    if (outcome.named) {
      if (absent.refused || outcome.report == absent.report) continue;
      return absl::StrCat(what, " has an effect, but: ", outcome.err);
    }
    for (const Outcome& other : silent) {
      if (other.report == outcome.report) {
        return absl::StrCat(what, " does as another value: ", outcome.err);
      }
    }
    silent.push_back(std::move(outcome));
  }
  return "";
}

TEST_CASE("options: every field has a run where it matters", "[config]") {
  const BaseRuns runs;
  std::set<std::string> paths;
  for (const FieldSample& sample : FieldSamples()) {
    INFO(sample.path << " in run '" << sample.base << "'");
    CHECK(paths.insert(sample.path).second);
    REQUIRE(sample.values.size() >= 2);
    const std::string config = runs.PathOf(sample.base);
    std::vector<Outcome> outcomes;
    for (size_t index = 0; index < 2; ++index) {
      outcomes.push_back(OutcomeOf(config, sample.path,
                                   EditOf(runs, sample, sample.values[index])));
    }
    INFO(sample.values[0] << ": " << outcomes[0].err);
    INFO(sample.values[1] << ": " << outcomes[1].err);
    CHECK_FALSE(outcomes[0].refused);
    CHECK_FALSE(outcomes[0].named);
    CHECK_FALSE(outcomes[1].named);
    CHECK(outcomes[0].report != outcomes[1].report);
  }
  const std::vector<std::string> fields = ConfigPaths();
  CHECK(std::set<std::string>(fields.begin(), fields.end()) == paths);
}

TEST_CASE("options: no field does nothing in silence", "[config]") {
  const BaseRuns runs;
  for (const BaseRun& run : runs.all()) {
    const BinaryResult base = RunHere({"simulate", runs.PathOf(run.name)});
    INFO(run.name << ": " << base.err);
    REQUIRE(base.exit_code == 0);
    CHECK_FALSE(absl::StrContains(base.err, "has no effect"));
    for (const FieldSample& sample : FieldSamples()) {
      const std::string fault = Silent(runs, run, sample);
      if (!fault.empty()) FAIL_CHECK(fault);
    }
  }
}

}  // namespace
}  // namespace pipewright
