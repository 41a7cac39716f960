// Refusals under --json: one object on standard output, whatever the verb and
// whatever has failed.
#include <CLI/CLI.hpp>
#include <catch2/catch.hpp>
#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/cli/verbs.h"
#include "tests/support/json.h"
#include "tests/support/run_binary.h"

namespace pipewright::json_error_test {
namespace {

using testing::BinaryResult;
using testing::Json;
using testing::RunBinary;
using testing::TemporaryFolder;
using Words = std::vector<std::string>;
using Value = std::variant<std::nullptr_t, int, std::string>;

struct Refusal {
  std::string verb;
  Words words;  // behind the verb, --json added
  int exit;
  // That the object must have, null included.
  std::map<std::string, Value> parts;
};

Json ErrorOf(const BinaryResult& run) {
  const Json object = Json::try_parse(run.out);
  REQUIRE(object.is_object());
  REQUIRE(object.size() == 1);
  return object["error"];
}

void CheckAll(const std::vector<Refusal>& table) {
  for (const Refusal& row : table) {
    Words words;
    for (const char* at = row.verb.c_str(); *at != '\0';) {
      const std::string rest = at;
      words.push_back(rest.substr(0, rest.find(' ')));
      at += words.back().size();
      if (*at == ' ') ++at;
    }
    words.insert(words.end(), row.words.begin(), row.words.end());
    words.push_back("--json");
    const BinaryResult run = RunBinary(words);
    INFO(absl::StrJoin(words, " ") << "\n" << run.out << run.err);
    CHECK(run.exit_code == row.exit);
    const Json error = ErrorOf(run);
    Words keys;
    for (const auto& item : error.items()) keys.push_back(item.key());
    CHECK(keys == Words{"exit", "file", "line", "field", "value", "allowed",
                        "message"});
    CHECK(error["exit"] == row.exit);
    CHECK(absl::StrContains(
        run.err,
        absl::StrCat("error: ", error["message"].get<std::string>(), "\n")));
    for (const auto& [key, value] : row.parts) {
      INFO(key);
      const Json found = error[key];
      std::visit([&](const auto& part) { CHECK(found == part); }, value);
    }
  }
}

std::set<std::string> VerbsWithJson() {
  CLI::App app;
  Action action;
  AddVerbs(&app, &action);
  std::set<std::string> found;
  const std::function<void(const CLI::App*, const std::string&)> collect =
      [&](const CLI::App* verb, const std::string& path) {
        for (const CLI::Option* option : verb->get_options()) {
          if (option->get_name() == "--json") found.insert(path);
        }
        for (const CLI::App* below : verb->get_subcommands(nullptr)) {
          collect(below, path.empty()
                             ? below->get_name()
                             : absl::StrCat(path, " ", below->get_name()));
        }
      };
  collect(&app, "");
  return found;
}

const Words kRun = {"--schedule",     "1f1b", "--pp",     "2",
                    "--microbatches", "4",    "--engine", "fast"};

Words Run(const Words& more) {
  Words words = kRun;
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::vector<Refusal> Table(const TemporaryFolder& folder) {
  const std::string bad =
      folder.Write("bad.yaml", "schedule: {name: 1f1b}\nstrategy:\n  pp: 0\n");
  const std::string broken = folder.Write("broken.json", "{\"strategy\": [}");
  const std::string empty = folder.Write("empty.yaml", "");
  const std::string dead = folder.Write(
      "dead.pws",
      "pipewright-schedule 1\n"
      "pp 2 vpp 1 microbatches 2 slices 1 replicas 1 placement plain\n"
      "0: F0 BW0 F1 BW1\n1: F1 BW1 F0 BW0\n");
  const std::string token = folder.Write(
      "token.pws",
      "pipewright-schedule 1\npp 1 vpp 1 microbatches 1\n0: F0 Q0\n");
  const std::string negative = folder.Write(
      "negative.csv",
      "step,dp_rank,stage,optype,seq,mb,chunk,start_ns,duration_ns\n"
      "0,0,0,gc,0,-1,-1,0,-1\n");
  const std::string none = folder.Path("none");
  return {
      {"simulate",
       {bad},
       2,
       {{"file", bad},
        {"line", 3},
        {"field", "strategy.pp"},
        {"value", "0"},
        {"allowed", "an integer from 1 to 65536"}}},
      {"simulate",
       {"--pp", "abc"},
       2,
       {{"file", nullptr},
        {"line", nullptr},
        {"field", "strategy.pp"},
        {"value", "abc"},
        {"allowed", "an integer from 1 to 65536"}}},
      {"explain", {empty}, 2, {{"file", empty}, {"field", "strategy.pp"}}},
      {"explain",
       Run({"--what-if", "W*x"}),
       2,
       {{"field", "--what-if"}, {"value", "W*x"}}},
      {"simulate", {empty}, 2, {{"file", empty}, {"field", "strategy.pp"}}},
      {"simulate", {broken}, 2, {{"file", broken}, {"line", 1}}},
      {"simulate", {none}, 2, {{"file", none}, {"line", nullptr}}},
      {"simulate",
       Run({"--model", "llama3-8"}),
       2,
       {{"field", "model.preset"}, {"value", "llama3-8"}}},
      {"simulate",
       Run({"--model", "llama3-8b", "--tp", "3"}),
       2,
       {{"field", "strategy.tp"}, {"value", "3"}}},
      {"simulate",
       Run({"--p2p", "1"}),
       2,
       {{"field", "costs.p2p"}, {"value", "1"}}},
      {"simulate",
       Run({"--svg", folder.Path("x.pdf")}),
       2,
       {{"field", "--svg"}, {"value", folder.Path("x.pdf")}}},
      {"simulate", Run({"--no-such"}), 2, {{"field", "--no-such"}}},
      {"simulate", Run({"--pp", "3"}), 2, {{"field", "--pp"}}},
      {"simulate",
       {"--schedule", dead, "--engine", "fast"},
       4,
       {{"file", dead}}},
      {"simulate",
       {"--schedule", token},
       2,
       {{"file", token}, {"line", 3}, {"value", "Q0"}}},
      {"simulate", Run({"-o", "/dev/full"}), 1, {{"file", "/dev/full"}}},
      {"schedule",
       {"1f2b", "--pp", "2"},
       2,
       {{"field", "schedule.name"}, {"value", "1f2b"}}},
      {"schedule",
       {"1f1b", "--pp", "2", "--microbatches", "0"},
       2,
       {{"field", "strategy.microbatches"}, {"value", "0"}}},
      {"check", {token}, 2, {{"file", token}, {"line", 3}}},
      {"check", {none}, 2, {{"file", none}}},
      {"check",
       {token, "--semantics", "ncl"},
       2,
       {{"field", "--semantics"}, {"value", "ncl"}}},
      {"list", {"schedule"}, 2, {{"value", "schedule"}}},
      {"compare", {none, none}, 2, {{"file", none}}},
      {"compare",
       {"a", "b", "--limit", "much"},
       2,
       {{"field", "--limit"}, {"value", "much"}}},
      {"compare",
       {"a", "b", "--iteration", "-1"},
       2,
       {{"field", "--iteration"},
        {"value", "-1"},
        {"allowed", "an integer from 0 to 1000000"}}},
      {"compare", {}, 2, {{"field", "SIM"}}},
      {"diagnose", {none}, 2, {{"file", none}, {"line", nullptr}}},
      {"diagnose",
       {negative},
       2,
       {{"file", negative},
        {"line", 2},
        {"field", "duration_ns"},
        {"value", "-1"},
        {"allowed", "an integer from 0 to 1000000000000000"}}},
      {"diagnose",
       {negative, "--ideal", "best"},
       2,
       {{"field", "--ideal"}, {"value", "best"}, {"allowed", "mean, median"}}},
      {"reproduce",
       {"zero-bubble-tabel5"},
       2,
       {{"value", "zero-bubble-tabel5"}}},
      {"reproduce",
       {"all", "--diff", "/no/such.json"},
       2,
       {{"file", "/no/such.json"}}},
      {"reproduce",
       {"all", "--engine", "slow"},
       2,
       {{"field", "--engine"}, {"value", "slow"}}},
      {"calibrate", {}, 2, {{"field", "--model"}}},
      {"calibrate",
       {"--device", "tpu"},
       2,
       {{"field", "--device"}, {"value", "tpu"}, {"allowed", "cpu, cuda"}}},
      {"calibrate", {"--tp", "two"}, 2, {{"field", "--tp"}, {"value", "two"}}},
      {"version", {"--no-such"}, 2, {{"field", "--no-such"}}},
      {"plan",
       {"--model", "llama3-8b", "--global-batch", "0"},
       2,
       {{"field", "strategy.global_batch"}, {"value", "0"}}},
      {"sweep",
       Run({"--sweep", "strategy.pp=0", "-o", folder.Path("s.sqlite")}),
       2,
       {{"value", "0"}}},
      {"sweep merge", {none}, 2, {{"file", none}}},
      {"calibrate show", {none}, 2, {{"file", none}}},
      {"calibrate diff", {none, none}, 2, {{"file", none}}},
      {"execute",
       Run({"--steps", "0"}),
       2,
       {{"field", "--steps"},
        {"value", "0"},
        {"allowed", "an integer from 1 to 1000"}}},
      {"execute",
       Run({"--clock", "vitual"}),
       2,
       {{"field", "--clock"}, {"value", "vitual"}}},
  };
}

TEST_CASE("json errors: every verb refuses with one object", "[cli]") {
  const TemporaryFolder folder;
  const std::vector<Refusal> table = Table(folder);
  std::set<std::string> covered;
  for (const Refusal& row : table) covered.insert(row.verb);
  CHECK(covered == VerbsWithJson());
  CheckAll(table);
}

TEST_CASE("json errors: beside a report there is no second object", "[cli]") {
  const TemporaryFolder folder;
  // It does not fit, and the report says so.
  const BinaryResult over = RunBinary(
      {"simulate", "--schedule", "1f1b", "--pp", "2", "--microbatches", "4",
       "--engine", "fast", "--max-activations", "1", "--json"});
  CHECK(over.exit_code == 3);
  const Json report = Json::try_parse(over.out);
  REQUIRE(report.is_object());
  CHECK(report["fits"] == false);
  CHECK(!report.contains("error"));
  // With -o it is in the file.
  const std::string file = folder.Path("report.json");
  const BinaryResult kept = RunBinary(
      {"simulate", "--schedule", "1f1b", "--pp", "2", "--microbatches", "4",
       "--engine", "fast", "--max-activations", "1", "--json", "-o", file});
  CHECK(kept.exit_code == 3);
  CHECK(kept.out.empty());
  // The report of a check has its verdict in it.
  const std::string dead = folder.Write(
      "dead.pws",
      "pipewright-schedule 1\n"
      "pp 2 vpp 1 microbatches 2 slices 1 replicas 1 placement plain\n"
      "0: F0 BW0 F1 BW1\n1: F1 BW1 F0 BW0\n");
  const BinaryResult check = RunBinary({"check", dead, "--json"});
  CHECK(check.exit_code == 4);
  const Json checked = Json::try_parse(check.out);
  REQUIRE(checked.is_object());
  CHECK(checked["valid"] == false);
  CHECK(checked["error"]["exit"] == 4);
  CHECK(checked["error"]["file"] == dead);
  CHECK(absl::StrContains(check.err,
                          checked["error"]["message"].get<std::string>()));
}

TEST_CASE("json errors: without --json standard output stays empty", "[cli]") {
  const BinaryResult run = RunBinary({"simulate", "--pp", "abc"});
  CHECK(run.exit_code == 2);
  CHECK(run.out.empty());
  CHECK(run.err ==
        "pipewright: error: --pp: strategy.pp: abc is not allowed; allowed: an "
        "integer from 1 to 65536\n");
}

}  // namespace
}  // namespace pipewright::json_error_test
