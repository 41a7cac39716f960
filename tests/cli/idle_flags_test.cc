// Flags that do nothing for a verb are refused or warned of by name, those
// that stand for fields of the configuration and those of the verb's own.
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sim/config/flags.h"
#include "tests/support/base_runs.h"
#include "tests/support/json.h"
#include "tests/support/paths.h"
#include "tests/support/run_here.h"

namespace pipewright::idle_flags_test {
namespace {

using testing::BaseRuns;
using testing::BinaryResult;
using testing::FieldSample;
using testing::FieldSamples;
using testing::RunHere;
using testing::TemporaryFolder;
using Words = std::vector<std::string>;

Words Plus(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// The flags in the help of a verb, "-o" and long ones.
std::set<std::string> FlagsOf(const Words& verb) {
  std::set<std::string> flags;
  const BinaryResult help = RunHere(Plus(verb, {"--help", "all"}));
  for (const absl::string_view line : absl::StrSplit(help.out, '\n')) {
    if (!absl::StartsWith(line, "  -")) continue;
    for (const absl::string_view name :
         absl::StrSplit(line.substr(2, line.find(' ', 2) - 2), ',')) {
      if (name != "-h") flags.insert(std::string(name));
    }
  }
  return flags;
}

TEST_CASE("flags: every one stands for a field that has a base run", "[cli]") {
  std::set<std::string> fields;
  for (const FieldSample& sample : FieldSamples()) fields.insert(sample.path);
  for (const ConfigFlag& flag : ConfigFlags()) {
    INFO(flag.flag);
    CHECK(fields.count(flag.path) == 1);
    CHECK((flag.other_path.empty() || fields.count(flag.other_path) == 1));
  }
  for (const char* verb : {"simulate", "execute", "schedule"}) {
    const std::set<std::string> flags = FlagsOf({verb});
    for (const ConfigFlag& flag : ConfigFlags()) {
      INFO(verb << " " << flag.flag);
      CHECK(flags.count(flag.flag) == 1);
    }
  }
}

// From one legal value to another the order changes, or a message names the
// field.
void CheckSchedule(const Words& base, const FieldSample& sample,
                   const BaseRuns& runs) {
  std::vector<std::string> orders;
  for (const std::string& value : sample.values) {
    const std::string edit = absl::StrCat(
        sample.path, sample.is_mapping() ? "." : "=", runs.Value(value));
    const BinaryResult run = RunHere(Plus(base, {"--set", edit}));
    if (run.exit_code != 0) continue;
    const std::string name = edit.substr(0, edit.find('='));
    if (absl::StrContains(run.err, name + " has no effect")) continue;
    INFO(edit << ": " << run.err);
    for (const std::string& other : orders) CHECK(other != run.out);
    orders.push_back(run.out);
  }
}

TEST_CASE("flags: those that an order does not depend on are named", "[cli]") {
  const BaseRuns runs;
  const Words sizes = {"--pp", "4", "--microbatches", "8"};
  for (const char* name : {"gpipe", "zb-h1"}) {
    for (const FieldSample& sample : FieldSamples()) {
      // What the words above give already wins over --set.
      if (sample.path == "strategy.pp" || sample.path == "schedule.name" ||
          sample.path == "schedule.file" ||
          sample.path == "strategy.microbatches") {
        continue;
      }
      CheckSchedule(Plus({"schedule", name}, sizes), sample, runs);
    }
  }
}

TEST_CASE("flags: check names what it does not read", "[cli]") {
  const TemporaryFolder folder;
  const std::string file = folder.Write(
      "a.pws",
      "pipewright-schedule 1\n"
      "pp 1 vpp 1 microbatches 1 slices 1 replicas 1 placement plain\n"
      "0: F0 BW0\n");
  const BinaryResult run = RunHere(
      {"check", file, "--held-until-weight", "0.5", "--set", "costs.p2p=1ms"});
  CHECK(run.exit_code == 0);
  CHECK(absl::StrContains(run.err, "costs.held_until_weight has no effect"));
  CHECK(absl::StrContains(run.err, "costs.p2p has no effect"));
  const BinaryResult quiet = RunHere({"check", file, "--max-activations", "2"});
  CHECK(quiet.err.empty());
}

TEST_CASE("flags: execute names what it makes nothing of", "[cli]") {
  const BinaryResult paced = RunHere({"execute",
                                      "--schedule",
                                      "1f1b",
                                      "--pp",
                                      "2",
                                      "--microbatches",
                                      "2",
                                      "--forward",
                                      "1ms",
                                      "--backward-input",
                                      "1ms",
                                      "--backward-weight",
                                      "1ms",
                                      "--steps",
                                      "1",
                                      "--clock",
                                      "paced",
                                      "--no-check",
                                      "--one-at-a-time",
                                      "--train-seed",
                                      "7"});
  INFO(paced.err);
  CHECK(paced.exit_code == 0);
  for (const char* flag : {"--no-check", "--one-at-a-time", "--train-seed"}) {
    CHECK(absl::StrContains(
        paced.err, absl::StrCat(flag, " has no effect with --clock paced")));
  }
}

TEST_CASE("flags: execute takes the time of links on clocks that compute it",
          "[cli]") {
  const std::vector<std::string> words = absl::StrSplit(
      "execute --model gpt-tiny --set model.hidden=64 --set "
      "model.ffn_hidden=256 --schedule 1f1b --pp 2 --microbatches 2 --steps 2 "
      "--json",
      ' ');
  const BinaryResult hops = RunHere(Plus(words, {"--p2p", "50ms"}));
  INFO(hops.err);
  REQUIRE(hops.exit_code == 0);
  CHECK_FALSE(absl::StrContains(hops.err, "no effect"));
  // 50 ms there and back.
  const auto report = testing::Json::parse(hops.out);
  CHECK(report["iteration_s"].get<double>() > 0.1);
  const BinaryResult links = RunHere(Plus(words, {"--system", "dgx-a100"}));
  INFO(links.err);
  REQUIRE(links.exit_code == 0);
  CHECK_FALSE(absl::StrContains(links.err, "no effect"));
  // Engines are for the prediction alone, and there is none.
  const BinaryResult engine = RunHere(Plus(words, {"--engine", "fast"}));
  CHECK(absl::StrContains(engine.err, "engine has no effect"));
}

TEST_CASE("flags: options of traces need a trace", "[cli]") {
  const TemporaryFolder folder;
  const Words import = {
      "calibrate",
      "import",
      "--nccl-tests",
      testing::SourcePath("tests/calibrate/data/nccl_tests.json"),
      "-o",
      folder.Path("p.txtpb")};
  const std::set<std::string> others = {
      "--help",   "--kineto", "--nccl-tests", "--nvbandwidth",
      "--device", "-o",       "--buffer",     "--silicon"};
  int checked = 0;
  for (const std::string& flag : FlagsOf({"calibrate", "import"})) {
    if (others.count(flag) > 0) continue;
    Words words = Plus(import, {flag});
    if (flag != "--sum-kernels" && flag != "--some-ranks") {
      words.push_back("1");
    }
    const BinaryResult run = RunHere(words);
    INFO(flag << ": " << run.err);
    CHECK(run.exit_code == 2);
    CHECK(absl::StrContains(run.err, flag));
    CHECK(absl::StrContains(run.err, "--kineto"));
    ++checked;
  }
  CHECK(checked == 18);
}

TEST_CASE("flags: compare refuses what only other traces need", "[cli]") {
  const BaseRuns runs;
  const TemporaryFolder folder;
  const std::string trace = folder.Path("a.json");
  REQUIRE(
      RunHere({"simulate", runs.PathOf("delay"), "--trace", trace}).exit_code ==
      0);
  for (const std::string flag :
       {"--forward", "--backward", "--backward-input", "--backward-weight",
        "--recompute", "--optimizer", "--rank-of", "--skip"}) {
    const std::string value = flag == "--skip" ? "1" : "file";
    const BinaryResult own = RunHere({"compare", trace, trace, flag, value});
    INFO(flag << ": " << own.err);
    CHECK(own.exit_code == 2);
    CHECK(absl::StrContains(own.err, absl::StrCat(flag, ": ", value)));
    const BinaryResult summary =
        RunHere({"compare", trace, "--summary", flag, value});
    CHECK(summary.exit_code == 2);
    CHECK(absl::StrContains(summary.err, flag));
  }
}

}  // namespace
}  // namespace pipewright::idle_flags_test
