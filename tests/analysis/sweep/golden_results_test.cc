// Results of a few dozen runs, kept as numbers: what changes them needs a
// higher kModelVersion, since rows of a sweep are found by it. UPDATE_GOLDEN=1
// writes the file anew.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sim/analysis/sweep/cell.h"
#include "sim/analysis/sweep/points.h"
#include "sim/base/file.h"
#include "sim/run/simulated_run.h"
#include "tests/support/paths.h"

namespace pipewright::golden_results_test {
namespace {

constexpr char kFile[] = "tests/golden/model_results.csv";
constexpr char kOnlyHigher[] =
    "results change only with a higher model version (kModelVersion, "
    "sim/analysis/sweep/points.h); then UPDATE_GOLDEN=1 writes the file anew";
// Beyond the last digits, in which compilers may differ.
constexpr double kAlike = 1e-9;

// Iteration, bubble, peak of activations and of memory.
using Numbers = std::vector<double>;

struct GoldenTable {
  int version = 0;
  std::map<std::string, Numbers> rows;
};

std::string Label(const std::string& schedule, const std::string& engine,
                  const std::string& costs) {
  return absl::StrCat(schedule, " ", engine, " ", costs);
}

Numbers NumbersOf(const std::string& yaml) {
  RunContext context;
  const RunConfig config = ReadConfig(yaml, "golden.yaml").value();
  const absl::StatusOr<SimulatedRun> run = Simulate(config, &context);
  INFO(yaml << run.status());
  REQUIRE(run.ok());
  const Report& report = run->report;
  double activations = 0;
  for (const double peak : report.peak_activations) {
    activations = std::max(activations, peak);
  }
  double memory = 0;
  if (report.memory) {
    for (const RankMemory& rank : report.memory->memory->ranks) {
      memory = std::max(memory, static_cast<double>(rank.peak()));
    }
  }
  return {report.iteration_s, report.bubble_fraction.global, activations,
          memory};
}

GoldenTable Computed() {
  const std::map<std::string, std::string> costs = {
      {"given",
       "costs: {uniform: {forward: 3ms, backward_input: 5ms, backward_weight: "
       "7ms}, p2p: 0.5ms}\n"},
      {"system",
       "system: {preset: dgx-h100}\ncosts: {uniform: {forward: 3ms, "
       "backward_input: 5ms, backward_weight: 7ms}, hop_bytes: 64MiB}\n"},
      {"analytic",
       "model: {preset: gpt-tiny}\nsystem: {preset: dgx-h100}\ncosts: "
       "{analytic: {}}\n"},
      {"jitter",
       "costs: {uniform: {forward: 3ms, backward_input: 5ms, backward_weight: "
       "7ms}, p2p: 0.5ms, jitter: 3%, seed: 7}\n"}};
  GoldenTable table = {.version = kModelVersion};
  for (const char* schedule :
       {"gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "zb-v", "dualpipe-v"}) {
    for (const char* engine : {"fast", "simgrid"}) {
      for (const auto& [name, text] : costs) {
        table.rows[Label(schedule, engine, name)] = NumbersOf(
            absl::StrCat("schedule: {name: ", schedule,
                         "}\nstrategy: {pp: 4, microbatches: 8, dp: 1}\n",
                         "engine: ", engine, "\n", text));
      }
    }
  }
  return table;
}

GoldenTable ReadTable(const std::string& text) {
  GoldenTable table;
  for (const absl::string_view line :
       absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> words = absl::StrSplit(line, ',');
    if (words[0] == "model_version") {
      REQUIRE(absl::SimpleAtoi(words[1], &table.version));
      continue;
    }
    if (words[0] == "run") continue;
    Numbers& numbers = table.rows[words[0]];
    for (size_t index = 1; index < words.size(); ++index) {
      double number = 0;
      REQUIRE(absl::SimpleAtod(words[index], &number));
      numbers.push_back(number);
    }
  }
  return table;
}

std::string TextOf(const GoldenTable& table) {
  std::string text = absl::StrCat(
      "model_version,", table.version,
      "\nrun,iteration_s,bubble_fraction,peak_activations,peak_memory_bytes\n");
  for (const auto& [name, numbers] : table.rows) {
    absl::StrAppend(&text, name);
    for (const double number : numbers) {
      absl::StrAppend(&text, ",", ToString(SweepCell::Number(number)));
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

// Names of runs that both have with other numbers.
std::vector<std::string> Changed(const GoldenTable& before,
                                 const GoldenTable& now) {
  std::vector<std::string> names;
  for (const auto& [name, numbers] : now.rows) {
    const auto known = before.rows.find(name);
    if (known == before.rows.end()) continue;
    bool alike = known->second.size() == numbers.size();
    for (size_t index = 0; alike && index < numbers.size(); ++index) {
      alike = std::abs(numbers[index] - known->second[index]) <=
              kAlike * std::abs(known->second[index]);
    }
    if (!alike) names.push_back(name);
  }
  return names;
}

// "" where the table may stand beside that of the file.
std::string Fault(const GoldenTable& before, const GoldenTable& now) {
  if (now.version < before.version) return "the model version went back";
  const std::vector<std::string> changed = Changed(before, now);
  if (changed.empty() || now.version > before.version) return "";
  return absl::StrCat(changed.size(), " results changed, the first is ",
                      changed[0], ": ", kOnlyHigher);
}

TEST_CASE("sweep: results change only with a higher model version", "[sweep]") {
  const GoldenTable now = Computed();
  const std::string path = testing::SourcePath(kFile);
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (std::getenv("UPDATE_GOLDEN") != nullptr) {
    if (text.ok()) {
      INFO(Fault(ReadTable(*text), now));
      REQUIRE(Fault(ReadTable(*text), now).empty());
    }
    REQUIRE(WriteFile(path, TextOf(now)).ok());
    return;
  }
  REQUIRE(text.ok());
  const GoldenTable before = ReadTable(*text);
  INFO(Fault(before, now));
  CHECK(Fault(before, now).empty());
  // A file of an older version, or with other runs, is to be written anew.
  CHECK(before.version == now.version);
  CHECK(before.rows.size() == now.rows.size());
  CHECK(now.rows.size() >= 36);
}

TEST_CASE("sweep: the golden results catch a change", "[sweep]") {
  const GoldenTable before = {.version = 1, .rows = {{"a", {1, 2}}}};
  GoldenTable now = before;
  CHECK(Fault(before, now).empty());
  now.rows["b"] = {3};
  CHECK(Fault(before, now).empty());
  now.rows["a"][1] = 2.0000001;
  CHECK_FALSE(Fault(before, now).empty());
  now.version = 2;
  CHECK(Fault(before, now).empty());
  now.version = 0;
  CHECK_FALSE(Fault(before, now).empty());
}

}  // namespace
}  // namespace pipewright::golden_results_test
