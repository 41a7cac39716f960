// The reference of fields agrees with the fields, and its defaults with what
// the program does.
#include "sim/config/config_reference.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cctype>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sim/config/config_fields.h"
#include "sim/config/run_config.h"
#include "tests/support/json.h"
#include "tests/support/run_binary.h"

namespace pipewright::config_reference_test {
namespace {

using testing::BinaryResult;
using testing::Json;
using testing::RunBinary;

FieldReference RowOf(const std::string& path) {
  for (const FieldReference& row : ConfigReference()) {
    if (row.path == path) return row;
  }
  return {};
}

TEST_CASE("reference: every field has its words, no field has two",
          "[config][docs]") {
  std::vector<std::string> paths;
  for (const FieldReference& row : ConfigReference()) {
    paths.push_back(row.path);
  }
  std::sort(paths.begin(), paths.end());
  CHECK(std::adjacent_find(paths.begin(), paths.end()) == paths.end());
  std::vector<std::string> known = ConfigPaths();
  std::sort(known.begin(), known.end());
  // All but second paths of keys of a mapping have a row.
  std::vector<std::string> rowless;
  std::set_difference(known.begin(), known.end(), paths.begin(), paths.end(),
                      std::back_inserter(rowless));
  CHECK(rowless == std::vector<std::string>{"system.nodes_per_leaf",
                                            "system.oversubscription"});
  for (const FieldReference& row : ConfigReference()) {
    INFO(row.path);
    // A section is no path of its own.
    CHECK((row.type == "section" ||
           std::binary_search(known.begin(), known.end(), row.path)));
    CHECK(row.meaning.size() >= 5);
    CHECK_FALSE(absl::EndsWith(row.meaning, "."));
    CHECK_FALSE(row.type.empty());
  }
}

TEST_CASE("reference: types, ranges and flags are the program's",
          "[config][docs]") {
  CHECK(RowOf("strategy.pp").allowed == "1 to 65536");
  CHECK(RowOf("strategy.pp").flag == "--pp N");
  CHECK(RowOf("strategy.attention").allowed == "flash, unfused");
  // What is refused as not in this version is not offered.
  CHECK(RowOf("strategy.data_parallel").allowed ==
        "none, ddp, zero1, zero2, fsdp, odc");
  CHECK(RowOf("costs.p2p").type == "time");
  CHECK(RowOf("model.hf").flag == RowOf("model.preset").flag);
  CHECK(RowOf("strategy.master_bytes_per_parameter").flag.empty());

  const BinaryResult help = RunBinary({"simulate", "--help", "all"});
  for (const ConfigFlag& flag : ConfigFlags()) {
    INFO(flag.flag);
    CHECK(absl::StrContains(help.out, HelpOfFlag(flag)));
  }
}

// "1" of "1", and of "1; the model's with ...". "" of what is a rule.
std::string PlainValue(const std::string& fallback) {
  const std::string first = fallback.substr(0, fallback.find(';'));
  return absl::StrContains(first, ' ') || absl::StrContains(first, '\'') ||
                 absl::StrContains(first, '.') || first == "all"
             ? ""
             : first;
}

std::vector<std::string> With(std::vector<std::string> words,
                              const std::string& set) {
  words.insert(words.end(), {"--json", "--set", set});
  return words;
}

// A field set to what the reference calls its default changes nothing, in
// every base run that takes it.
TEST_CASE("reference: defaults are the ones that hold",
          "[config][docs][long]") {
  const std::string model =
      "--set model.layers=8 --set model.hidden=256 --set model.heads=4 --set "
      "model.ffn_hidden=1024 --set model.vocabulary=1024 --set "
      "model.sequence=128";
  const std::string system =
      "--set system.shape=nic-switch --set system.nic.bandwidth=25GBps";
  const std::vector<std::string> bases = {
      "simulate --schedule 1f1b --pp 2 --microbatches 4 --engine fast",
      absl::StrCat("simulate --schedule zb-h1 --pp 2 --dp 2 --microbatches 4 "
                   "--forward 1ms --backward 2ms ",
                   model, " ", system),
      absl::StrCat("simulate --schedule 1f1b --pp 2 --microbatches 4 "
                   "--analytic h100 ",
                   model),
  };
  // A field that changes nothing is warned of.
  const auto report_of = [](const BinaryResult& run) {
    return Json::parse(run.out).without("warnings");
  };
  std::vector<Json> expected;
  for (const std::string& base : bases) {
    const BinaryResult run =
        RunBinary(With(absl::StrSplit(base, ' '), "iterations="));
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    expected.push_back(report_of(run));
  }
  int tried = 0;
  for (const FieldReference& row : ConfigReference()) {
    const std::string value = PlainValue(row.fallback);
    // Given alone they are refused; the next test has them together.
    if (value.empty() || absl::StartsWith(row.path, "costs.uniform.")) continue;
    // After a semicolon comes a rule for some runs, and only the first base is
    // sure not to be one of them.
    const bool always = !absl::StrContains(row.fallback, ';');
    int taken = 0;
    for (size_t base = 0; base < (always ? bases.size() : 1); ++base) {
      const BinaryResult given =
          RunBinary(With(absl::StrSplit(bases[base], ' '),
                         absl::StrCat(row.path, "=", value)));
      if (given.exit_code != 0) continue;
      ++taken;
      INFO(row.path << " = " << value << " in " << bases[base]);
      CHECK(report_of(given) == expected[base]);
    }
    INFO(row.path << " = " << value);
    CHECK(taken > 0);
    ++tried;
  }
  CHECK(tried > 50);
}

TEST_CASE("reference: without pass times each takes the same, a unit",
          "[config][docs]") {
  const std::vector<std::string> words = {
      "simulate", "--schedule", "zb-h1",          "--pp",
      "2",        "--json",     "--microbatches", "4"};
  std::vector<std::string> given = words;
  for (const char* field : {"forward", "backward_input", "backward_weight"}) {
    const std::string path = absl::StrCat("costs.uniform.", field);
    given.push_back("--set");
    given.push_back(absl::StrCat(path, "=1s"));
    CHECK(absl::StartsWith(RowOf(path).fallback, "one unit"));
  }
  const auto expected = Json::parse(RunBinary(words).out);
  const auto found = Json::parse(RunBinary(given).out);
  CHECK(found["iteration_s"] == expected["iteration_s"]);
  CHECK(found["busy_s"] == expected["busy_s"]);
  CHECK(found["time_unit"] == "s");
  CHECK(expected["time_unit"] == "unit");
}

TEST_CASE("reference: list prints it as text, JSON and Markdown",
          "[cli][docs]") {
  const BinaryResult json = RunBinary({"list", "fields", "--json"});
  REQUIRE(json.exit_code == 0);
  const auto rows = Json::parse(json.out)["fields"];
  CHECK(rows.size() == ConfigReference().size());
  CHECK(rows[0]["name"] == "model.preset");
  const BinaryResult text = RunBinary({"list", "fields"});
  CHECK(absl::StrContains(text.out, "strategy.microbatches"));
  CHECK(RunBinary({"list", "schedules", "--markdown"}).exit_code == 2);
  CHECK(RunBinary({"list", "fields", "--markdown", "--json"}).exit_code == 2);
  const BinaryResult page = RunBinary({"list", "fields", "--markdown"});
  CHECK(absl::StrContains(page.out, "| `strategy.pp` | `--pp N` |"));
  CHECK(absl::StrContains(page.out, "### `calibrate import`"));
}

}  // namespace
}  // namespace pipewright::config_reference_test
