// A field does something or is warned of. What is looked at is the output of
// runs: from one legal value of a field to another the report changes beyond
// its echo of the configuration, or the field is refused or warned of by name.
// kSilent has the few for which that is not so, with the reason.
#include <algorithm>
#include <catch2/catch.hpp>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "sim/config/config_fields.h"
#include "sim/config/run_config.h"
#include "sim/config/unused_fields.h"
#include "tests/support/base_runs.h"
#include "tests/support/json.h"
#include "tests/support/run_here.h"

namespace pipewright::unused_fields_test {
namespace {

using testing::BaseRun;
using testing::BaseRuns;
using testing::BinaryResult;
using testing::FieldSample;
using testing::FieldSamples;
using testing::Json;
using testing::RunHere;

// Keys of a report that repeat what was configured. `engine` is none: it says
// who has computed the numbers.
constexpr const char* kEcho[] = {"schedule",
                                 "network",
                                 "pp",
                                 "vpp",
                                 "microbatches",
                                 "slices",
                                 "tp",
                                 "cp",
                                 "dp",
                                 "data_parallel",
                                 "iterations",
                                 "params",
                                 "model",
                                 "system",
                                 "gradient_sync",
                                 "optimizer",
                                 "waiting",
                                 "warnings",
                                 "held_until_weight"};

struct Outcome {
  int exit_code = 0;
  bool refused = false;
  // A warning says that the field has no effect, or none of some kind ("on any
  // time", "other than that of ...").
  bool named = false;
  bool named_without_limits = false;
  std::string report;  // without the echo; of a refusal the message
  std::string err;
};

// Twelve digits, so that a sum in another order is the same number.
std::string Rounded(const Json& value) {
  if (value.is_number_float()) {
    return absl::StrFormat("%.12g", value.get<double>());
  }
  if (!value.is_structured()) return value.dump();
  std::string text = value.is_array() ? "[" : "{";
  for (const auto& [key, each] : value.items()) {
    absl::StrAppend(&text, key, ": ", Rounded(each), ", ");
  }
  return text + (value.is_array() ? "]" : "}");
}

Outcome OutcomeOf(const std::string& config, const std::string& edit) {
  std::vector<std::string> words = {"simulate", config, "--json"};
  if (!edit.empty()) words.insert(words.end(), {"--set", edit});
  const BinaryResult run = RunHere(words);
  Outcome outcome;
  outcome.exit_code = run.exit_code;
  outcome.err = run.err;
  outcome.refused = run.exit_code != 0 && run.exit_code != 3;
  const std::string unused =
      absl::StrCat(edit.substr(0, edit.find('=')), " has no effect");
  outcome.named = !edit.empty() && absl::StrContains(run.err, unused);
  outcome.named_without_limits = outcome.named;
  for (const char* limit : {" on ", " other than ", " beyond "}) {
    if (absl::StrContains(run.err, unused + limit)) {
      outcome.named_without_limits = false;
    }
  }
  // A schedule that cannot keep to a limit has no report.
  outcome.report = run.err;
  if (outcome.refused || run.out.empty()) return outcome;
  const Json report = Json::parse(run.out);
  const std::string network = report.value("network", "");
  outcome.report.clear();
  for (const auto& [key, value] : report.items()) {
    if (std::find(std::begin(kEcho), std::end(kEcho), key) == std::end(kEcho)) {
      absl::StrAppend(&outcome.report, key, ": ", Rounded(value), "\n");
    }
  }
  // As `engine`, it says who has computed the numbers.
  for (const char* model : {"fluid", "simgrid"}) {
    if (absl::StrContains(network, model)) outcome.report += model;
  }
  return outcome;
}

// Does a refusal name a field, be it the one that the new value contradicts,
// or the value?
bool Names(absl::string_view refusal, absl::string_view value) {
  for (const std::string& path : ConfigPaths()) {
    const bool is_long = absl::StrContains(path, '.');
    if (absl::StrContains(refusal, is_long ? path : path + ": ")) return true;
  }
  return absl::StrContains(refusal, value);
}

std::string EditOf(const BaseRuns& runs, const FieldSample& sample,
                   const std::string& value) {
  return absl::StrCat(sample.path, sample.is_mapping() ? "." : "=",
                      runs.Value(value));
}

struct Judged {
  std::string fault;
  bool silent = false;  // the fault is that nothing names the field
};

// What is wrong with the outcomes of a field's values, [edit]; "" for nothing.
// `absent`: the run without the field. `unread`: no run reads the field.
Judged Judge(const std::vector<std::pair<std::string, Outcome>>& outcomes,
             const Outcome& absent, bool unread) {
  std::vector<std::pair<std::string, std::string>> reports;
  for (const auto& [edit, outcome] : outcomes) {
    if (outcome.refused) {
      if (Names(outcome.err, edit.substr(edit.find('=') + 1))) continue;
      return {absl::StrCat(edit, " is refused without a name: ", outcome.err)};
    }
    if (outcome.named) {
      if (!outcome.named_without_limits || absent.refused ||
          outcome.report == absent.report) {
        continue;
      }
      return {absl::StrCat(edit, " has an effect, but: ", outcome.err)};
    }
    if (unread) return {absl::StrCat(edit, " is not warned of"), true};
    for (const auto& [before, report] : reports) {
      if (report != outcome.report) continue;
      return {absl::StrCat(edit, " does what ", before, " does: ", outcome.err),
              true};
    }
    reports.emplace_back(edit, outcome.report);
  }
  return {};
}

Judged JudgeField(const BaseRuns& runs, const BaseRun& run,
                  const FieldSample& sample, const Outcome& plain) {
  const std::string config = runs.PathOf(run.name);
  // Of a mapping each value names a key of its own. A field that the run does
  // not have is absent already.
  const std::string key = sample.path.substr(sample.path.rfind('.') + 1);
  const bool is_set =
      !sample.is_mapping() && absl::StrContains(run.yaml, key + ":");
  const Outcome absent = is_set ? OutcomeOf(config, sample.path + "=") : plain;
  std::vector<std::pair<std::string, Outcome>> outcomes;
  for (const std::string& value : sample.values) {
    const std::string edit = EditOf(runs, sample, value);
    outcomes.emplace_back(edit, OutcomeOf(config, edit));
  }
  Judged judged = Judge(outcomes, absent, sample.base.empty());
  if (!judged.fault.empty()) {
    judged.fault = absl::StrCat(run.name, ": ", judged.fault);
  }
  return judged;
}

struct SilentField {
  const char* path;
  const char* reason;
};

// Fields that have no effect in some runs, without a warning.
constexpr SilentField kSilent[] = {
    {"costs.analytic.contention", "no collective may run beside passes"},
    {"costs.held_until_weight", "the peak may be elsewhere"},
    {"costs.scale_shapes", "the profile may have the model's shapes"},
    {"model.rotary_dim", "estimates alone know the embedding's work"},
    {"model.tied_embeddings",
     "embedding and head may be on ranks that sum no gradients"},
    {"strategy.collectives", "all collectives may be rings anyway"},
    {"strategy.data_parallel", "modes may hold the same while hops are free"},
    {"strategy.fp8_attention", "no such kernel may have been measured"},
    {"strategy.mapping", "two orders may place the ranks alike"},
    {"strategy.optimizer", "modes do not differ on one rank"},
    {"strategy.parameter_bytes_per_parameter",
     "master weights are what layers are gathered of"},
    {"strategy.precision", "without estimates some have the same bytes"},
    {"strategy.split", "the even split may be balanced"},
    {"system.devices_per_node", "one node may have room for all ranks"},
    {"system.host.memory_bandwidth", "copies may not fill the memory"},
    {"system.nics_per_node", "on engine fast only collectives share a card"},
    {"system.nvlink.latency", "estimated exchanges alone may cross NVLink"},
    {"system.shape", "shapes are the same inside of a node"},
};
constexpr int kMostSilent = 20;

TEST_CASE("options: every field has a run where it matters", "[config][long]") {
  const BaseRuns runs;
  std::set<std::string> paths;
  for (const FieldSample& sample : FieldSamples()) {
    INFO(sample.path << " in run '" << sample.base << "'");
    CHECK(paths.insert(sample.path).second);
    REQUIRE(sample.values.size() >= 2);
    if (sample.base.empty()) continue;
    const std::string config = runs.PathOf(sample.base);
    std::vector<Outcome> outcomes;
    for (size_t index = 0; index < 2; ++index) {
      outcomes.push_back(
          OutcomeOf(config, EditOf(runs, sample, sample.values[index])));
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

TEST_CASE("options: no field does nothing in silence", "[config][long]") {
  const BaseRuns runs;
  std::set<std::string> allowed;
  for (const SilentField& field : kSilent) {
    CHECK(*field.reason != '\0');
    allowed.insert(field.path);
  }
  CHECK(allowed.size() == std::size(kSilent));
  CHECK(std::size(kSilent) <= kMostSilent);
  std::set<std::string> silent;
  for (const BaseRun& run : runs.all()) {
    const Outcome plain = OutcomeOf(runs.PathOf(run.name), "");
    if (plain.exit_code != 0) FAIL_CHECK(run.name << ": " << plain.err);
    for (const FieldSample& sample : FieldSamples()) {
      const Judged judged = JudgeField(runs, run, sample, plain);
      if (judged.silent) silent.insert(sample.path);
      const bool is_fault = !judged.silent || allowed.count(sample.path) == 0;
      if (is_fault && !judged.fault.empty()) FAIL_CHECK(judged.fault);
    }
  }
  // A field that is silent nowhere does not stand in the list.
  CHECK(silent == allowed);
}

TEST_CASE("options: every need is a field, a degree or a condition",
          "[config]") {
  const absl::StatusOr<RunConfig> config =
      ReadConfig("schedule: {name: 1f1b}\nstrategy: {pp: 2, microbatches: 2}\n",
                 "run.yaml");
  REQUIRE(config.ok());
  const absl::StatusOr<PreparedRun> run = Prepare(*config);
  INFO(run.status());
  REQUIRE(run.ok());
  int needs = 0;
  for (const ConfigField& field : ConfigFields()) {
    for (const absl::string_view all :
         absl::StrSplit(field.needs, ", ", absl::SkipEmpty())) {
      for (const absl::string_view need : absl::StrSplit(all, " or ")) {
        INFO(field.path << " needs " << need);
        // An unknown one fails a check.
        const std::string missing = MissingNeed(need, *run, RunSizes());
        CHECK(missing != need);
        ++needs;
      }
    }
  }
  CHECK(needs > 100);
  CHECK(MissingNeed("pp > 1", *run, {.pp = 2}).empty());
  CHECK(MissingNeed("pp > 1", *run, {.pp = 1}) == "with pp 1");
  CHECK(MissingNeed("pp > 1 or dp > 1", *run, {.dp = 2}).empty());
  CHECK(MissingNeed("model or W passes", *run, RunSizes()) ==
        "without a model and in a schedule without W passes");
  CHECK(MissingNeed("pp > 1, system", *run, {.pp = 2}) == "without a system");
  CHECK(MissingNeed("model or system", *run, RunSizes()) ==
        "without a model or a system");
  CHECK(MissingNeed("pp > 1 or tp > 1", *run, RunSizes()) ==
        "with pp 1 and tp 1");
  CHECK(MissingNeed("strategy.offload = full|selective", *run, RunSizes()) ==
        "unless strategy.offload is full or selective");
  CHECK(MissingNeed("no strategy.offload", *run, RunSizes()).empty());
  CHECK(MissingNeed("no schedule.name = gpipe|1f1b", *run, RunSizes()) ==
        "with schedule.name 1f1b");
  CHECK(MissingNeed("no schedule.name = gpipe", *run, RunSizes()).empty());
}

TEST_CASE("options: silence and false warnings are found", "[config]") {
  Outcome plain;
  plain.report = "iteration_s: 1";
  Outcome other = plain;
  other.report = "iteration_s: 2";
  CHECK(Judge({{"a=1", plain}, {"a=2", other}}, plain, false).fault.empty());
  CHECK(Judge({{"a=1", plain}, {"a=2", plain}}, plain, false).silent);
  CHECK(Judge({{"a=1", plain}, {"a=2", other}}, plain, true).silent);
  Outcome warned = plain;
  warned.named = warned.named_without_limits = true;
  CHECK(Judge({{"a=1", plain}, {"a=2", warned}}, plain, false).fault.empty());
  warned.report = other.report;
  const Judged wrong = Judge({{"a=2", warned}}, plain, false);
  CHECK(absl::StrContains(wrong.fault, "has an effect"));
  CHECK_FALSE(wrong.silent);
  Outcome refused = plain;
  refused.refused = true;
  refused.err = "no";
  CHECK(absl::StrContains(Judge({{"a=2", refused}}, plain, false).fault,
                          "refused without a name"));
}

}  // namespace
}  // namespace pipewright::unused_fields_test
