// Measured steps of whole runs: their rows, and what the summary, the page and
// the diff make of rows that are planted here.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/analysis/reproduce/paper.h"
#include "sim/analysis/reproduce/steps.h"
#include "sim/analysis/reproduce/table.h"
#include "sim/analysis/reproduce/validation.h"
#include "sim/base/input.h"
#include "sim/base/json.h"
#include "sim/model/model.h"
#include "tests/support/markdown.h"
#include "tests/support/paths.h"
#include "tests/support/run_binary.h"

namespace pipewright::step_tables_test {
namespace {

using testing::RunBinary;

const std::vector<std::string>& Folders() {
  static const std::vector<std::string> folders = {
      "mlperf_405b", "mlperf_gpt3", "megatron_bridge", "simumax_b200",
      "torchtitan"};
  return folders;
}

const Paper& PaperOf(const std::string& name) {
  for (const Paper* paper : AllPapers()) {
    if (paper->name == name) return *paper;
  }
  FAIL(name);
  return *AllPapers()[0];
}

// Measured steps judge estimates: no source that makes one can read a table of
// them, so without them every estimate stays what it is.
TEST_CASE("steps: nothing that estimates reads them", "[papers]") {
  int readers = 0;
  int sources = 0;
  for (const char* folder :
       {"sim", "calibrate", "kernels", "schedules", "topologies", "execute"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(
             testing::SourcePath(folder))) {
      const std::string path = entry.path().string();
      if (!absl::EndsWith(path, ".cc") && !absl::EndsWith(path, ".h")) continue;
      ++sources;
      const std::string text = ReadFile(path).value();
      const bool reads = absl::StrContains(text, "EmbeddedPaperTables") ||
                         absl::StrContains(text, "sim/analysis/reproduce/");
      if (!reads) continue;
      ++readers;
      INFO(path);
      // The folder itself, the verb, and the names of its tables.
      CHECK((absl::StrContains(path, "/sim/analysis/reproduce/") ||
             absl::EndsWith(path, "/sim/cli/reproduce.cc") ||
             absl::EndsWith(path, "/sim/cli/option_table.cc")));
    }
  }
  CHECK(sources > 300);
  CHECK(readers > 3);
}

// The degrees of a row make its devices, and its stages all layers.
TEST_CASE("steps: rows are consistent in themselves", "[papers]") {
  int rows = 0;
  for (const std::string& folder : Folders()) {
    for (const TableRow& row : ReadSteps(folder)) {
      INFO(folder << " " << row.Text("entry"));
      ++rows;
      CHECK(row.Integer("strategy.tp") * row.Integer("strategy.pp") *
                row.Integer("strategy.cp") * row.Integer("strategy.dp") ==
            row.Integer("gpus"));
      CHECK(row.Number("seconds") > 0);
      CHECK_FALSE(row.Text("counts").empty());
      const auto config = ConfigOfStep(row, "fast");
      if (!config.ok() || config->strategy.layers.empty()) continue;
      int64_t layers = 0;
      for (const int64_t each : config->strategy.layers) layers += each;
      int64_t of_model = config->model.layers.value_or(0);
      for (const ModelSpec& model : AllModels()) {
        if (model.name == config->model.preset) of_model = model.layers;
      }
      CHECK(layers == of_model);
      CHECK(static_cast<int>(config->strategy.layers.size()) ==
            row.Integer("strategy.pp") * row.Integer("strategy.vpp"));
    }
  }
  CHECK(rows == 16 + 22 + 12 + 149);
}

// Overlap of tensor parallelism, as the public configurations have it: of 199
// rows of these tables, seven of MLPerf's, three of torchtitan's.
TEST_CASE("steps: notes and recipes say what runs beside products",
          "[papers]") {
  const auto overlaps = [](const std::string& folder) {
    std::vector<std::string> found;
    for (const TableRow& row : ReadSteps(folder)) {
      const auto config = ConfigOfStep(row, "fast");
      if (config.ok() && config->strategy.overlap_tensor.value_or(false)) {
        found.push_back(row.Text("entry"));
      }
    }
    return found;
  };
  CHECK(overlaps("mlperf_405b").size() == 5);
  for (const std::string& entry : overlaps("mlperf_405b")) {
    CHECK(absl::StartsWith(entry, "v5.0 "));
  }
  CHECK(overlaps("mlperf_gpt3").size() == 2);
  CHECK(overlaps("torchtitan").size() == 3);
  CHECK(overlaps("simumax_b200").empty());
  // Llama of 70B and 405B in 8 bit with tp above 1.
  int recipes = 0;
  for (const TableRow& recipe : ReadTable("megatron_bridge/recipes")) {
    if (!recipe.Has("strategy.overlap_tensor")) continue;
    ++recipes;
    CHECK(absl::StrContains(recipe.Text("entry"), "LLAMA3"));
    CHECK(absl::StrContains(recipe.Text("source"), "FP8"));
  }
  CHECK(recipes == 6);
}

TEST_CASE("steps: docs/memory.md has torchtitan's errors", "[papers]") {
  const auto rows = ReproduceSteps("torchtitan", "fast");
  REQUIRE(rows.ok());
  int runs = 0;
  double sum = 0;
  double worst = 0;
  for (const Comparison& row : *rows) {
    if (row.step->reserved_bytes <= 0) continue;
    const double error = row.step->needed_bytes / row.step->reserved_bytes - 1;
    ++runs;
    sum += std::abs(error);
    if (std::abs(error) > std::abs(worst)) worst = error;
  }
  const std::string text = absl::StrFormat("mean error %.1f %%, worst %+.1f %%",
                                           100 * sum / runs, 100 * worst);
  INFO(runs << " runs: " << text);
  const std::string page = testing::ReadPage("docs/memory.md");
  CHECK(
      absl::StrContains(page, absl::StrCat("| ", runs, " runs of torchtitan")));
  CHECK(absl::StrContains(page, text));
}

// A note stands beside the field that it explains.
TEST_CASE("steps: fields are what the notes say", "[papers]") {
  int notes = 0;
  for (const std::string& folder : Folders()) {
    for (const TableRow& row : ReadTable(absl::StrCat(folder, "/steps"))) {
      const std::string& note = row.Text("note");
      INFO(folder << " " << row.Text("entry") << " " << note);
      const auto says = [&](const char* words) {
        return absl::StrContains(note, words);
      };
      const auto field = [&](const char* column) {
        return row.Has(column) ? row.Text(column) : "";
      };
      const bool compiled = says("compiled");
      const bool graphs = says("CUDA graph");
      CHECK(field("strategy.launch") == (compiled ? "compiled"
                                         : graphs ? "graphs"
                                                  : ""));
      CHECK(field("costs.analytic.kernels") == (compiled ? "compiled" : ""));
      CHECK((field("strategy.overlap_tensor") == "true") ==
            (says("tensor exchanges overlapped") ||
             says("asynchronous tensor parallelism")));
      CHECK((field("strategy.fused_optimizer") == "false") ==
            says("AdamW not fused"));
      CHECK((field("strategy.fused_cross_entropy") == "true") ==
            says("with the loss"));
      CHECK((field("strategy.shard_blocks") == "layer") ==
            (row.Text("strategy.data_parallel") == "fsdp"));
      CHECK((field("strategy.etp") == "1") ==
            (row.Integer("strategy.ep") > 1 && row.Integer("strategy.tp") > 1));
      notes += note.empty() ? 0 : 1;
    }
  }
  CHECK(notes == 28);
}

// The numbers stand here a second time on purpose.
TEST_CASE("steps: published numbers are those of the sources", "[papers]") {
  std::map<std::string, std::string> seconds;
  for (const std::string& folder : Folders()) {
    for (const TableRow& row : ReadSteps(folder)) {
      seconds[row.Fill("{entry} {strategy.microbatches}")] =
          row.Text("seconds");
    }
  }
  CHECK(seconds.at("v5.0 NVIDIA eos-dfw_n256_ngc25.01_nemo @0fdc28f01325 72") ==
        "14.2199");
  CHECK(seconds.at("v4.1 NVIDIA eos_n64_ngc24.09_nemo @b87b9e396f77 64") ==
        "9.5004");
  CHECK(seconds.at("DeepSeek-V3 4 layers 32") == "4.1412");
  CHECK(seconds.at("26.08 DeepSeekV3 (summary line 45) 32") == "10.4180");
  // 2 * 8192 tokens of a device at 10938 a second.
  CHECK(std::stod(seconds.at("h200-2025-06 1")) ==
        Approx(2 * 8192 / 10753.0).epsilon(1e-3));
}

// The newest release of a strategy counts, and no other one.
TEST_CASE("steps: one release of a strategy counts", "[papers]") {
  std::map<std::string, std::vector<std::string>> releases;
  std::map<std::string, std::string> counted;
  for (const TableRow& row : ReadTable("megatron_bridge/steps")) {
    std::string key = row.Fill("{model}|{system.preset}|{gpus}");
    for (const char* field :
         {"precision", "tp", "pp", "vpp", "cp", "ep", "dp", "sequence",
          "microbatch_size", "microbatches", "data_parallel"}) {
      absl::StrAppend(&key, "|", row.Text(absl::StrCat("strategy.", field)));
    }
    const std::string entry = row.Text("entry");
    const std::string release = entry.substr(0, entry.find(' '));
    const std::string& counts = row.Text("counts");
    if (counts == "yes") {
      INFO(key);
      CHECK(counted.count(key) == 0);
      counted[key] = release;
    } else if (absl::StartsWith(counts, "older than ")) {
      releases[key].push_back(release);
    }
  }
  CHECK(counted.size() == 41);
  int older = 0;
  for (const auto& [key, all] : releases) {
    REQUIRE(counted.count(key) == 1);
    for (const std::string& release : all) {
      ++older;
      INFO(key << " " << release << " " << counted.at(key));
      CHECK(release < counted.at(key));  // names have equal width
    }
  }
  CHECK(older > 50);
}

TEST_CASE("steps: a row that cannot be expressed says why", "[papers]") {
  const auto rows = PaperOf("megatron-bridge").run("fast");
  REQUIRE(rows.ok());
  int refused = 0;
  for (const Comparison& row : *rows) {
    REQUIRE(row.step);
    CHECK_FALSE(row.is_judged());
    if (absl::StrContains(row.setting, "DeepSeekV4")) {
      CHECK(absl::StrContains(row.step->refused, "DeepSeekV4 Flash"));
    }
    if (row.has_estimate()) {
      CHECK(row.simulated > 0);
      CHECK_FALSE(row.step->kind.empty());
    } else {
      ++refused;
      CHECK(row.rounded == "-");
    }
  }
  CHECK(refused > 0);
  for (const char* name : {"mlperf-405b", "mlperf-gpt3"}) {
    CHECK(absl::StrContains(PaperOf(name).summary,
                            "not an MLPerf metric, not verified by MLCommons"));
  }
}

Comparison Row(const std::string& kind, const std::string& published,
               double simulated, double low, double high) {
  Comparison row;
  row.setting = absl::StrCat("run of ", published);
  row.schedule = "1f1b";
  row.published = published;
  row.simulated = simulated;
  row.rounded = absl::StrCat(simulated);
  row.rule = Comparison::Rule::kShown;
  row.step =
      StepFacts{.kind = kind, .group = "one group", .low = low, .high = high};
  return row;
}

std::vector<Comparison> Planted() {
  const std::string kind = StepGoals()[0].kind;
  std::vector<Comparison> rows = {
      Row(kind, "10", 11, 9, 12),     // +10 %, inside
      Row(kind, "20", 19, 18, 19.5),  // -5 %, above the interval by 0.5
      Row(kind, "40", 50, 45, 55),    // +25 %, below by 5
      Row(StepGoals()[1].kind, "5", 20, 0, 0)};
  rows.push_back(Row(kind, "1", 3, 0, 0));
  rows.back().step->excluded = "old";
  rows.push_back(Row(kind, "1", 0, 0, 0));
  rows.back().step->refused = "no such field";
  return rows;
}

// By hand: sizes 10, 5, 25 %; of six pairs 20 against 10 (estimated 19, 11)
// and so on, where only 5 against 10 and 20 is reversed (estimated 20).
TEST_CASE("steps: the summary is that of a count by hand", "[papers]") {
  const StepSummary summary = SummarizeSteps(Planted());
  CHECK(summary.counted == 4);
  CHECK(summary.excluded == 1);
  CHECK(summary.refused == 1);
  const KindSummary& kind = summary.kinds[0];
  CHECK(kind.rows == 3);
  CHECK(kind.mean == Approx(0.10));
  CHECK(kind.absolute == Approx(0.40 / 3));
  CHECK(kind.worst == Approx(0.25));
  CHECK(kind.worst_row == "run of 40");
  CHECK(summary.kinds[1].worst == Approx(3));
  REQUIRE(summary.small_orders.size() == 1);
  CHECK(summary.orders.empty());
  CHECK(summary.small_orders[0].pairs == 6);
  CHECK(summary.small_orders[0].tau == Approx((4 - 2) / 6.0));
  const IntervalSummary& interval = summary.interval;
  CHECK(interval.rows == 3);
  CHECK(interval.inside == 1);
  CHECK(interval.half_width == Approx((1.5 / 11 + 0.75 / 19 + 5.0 / 50) / 3));
  CHECK(
      interval.score ==
      Approx((3 / 10.0 + (1.5 + 20 * 0.5) / 20.0 + (10 + 20 * 5) / 40.0) / 3));
  // The best constant band reaches 40 from 50, a fifth of it.
  CHECK(interval.constant == Approx(0.2).margin(0.003));
  CHECK(interval.constant_score ==
        Approx(0.4 * (1.1 + 0.95 + 1.25) / 3).margin(0.02));
}

TEST_CASE("steps: what those that drop tokens would change is said",
          "[papers]") {
  std::vector<Comparison> rows = Planted();
  const StepSummary before = SummarizeSteps(rows);
  CHECK(before.dropped == 0);
  CHECK_FALSE(absl::StrContains(StepSummaryToText(before), "drop tokens"));
  rows.push_back(Row(StepGoals()[0].kind, "10", 15, 9, 16));  // +50 %, inside
  rows.back().step->excluded = kTokensDropped;
  rows.push_back(Row(StepGoals()[0].kind, "1", 0, 0, 0));
  rows.back().step->excluded = kTokensDropped;
  rows.back().step->refused = "no such field";
  rows.back().rounded = "-";
  const StepSummary after = SummarizeSteps(rows);
  CHECK(after.counted == 4);
  CHECK(after.excluded == 3);
  CHECK(after.dropped == 1);
  CHECK(after.interval.inside == 1);
  CHECK(after.interval_with_dropped.rows == 4);
  CHECK(after.interval_with_dropped.inside == 2);
  REQUIRE(after.kinds_with_dropped.size() == 1);
  CHECK(after.kinds_with_dropped[0].absolute == Approx(0.90 / 4));
  CHECK(absl::StrContains(StepSummaryToText(after), "With them 2 of 4"));
  // The tables write it so.
  const auto steps = PaperOf("simumax-b200").run("fast");
  REQUIRE(steps.ok());
  CHECK(SummarizeSteps(*steps).dropped == 6);
}

TEST_CASE("steps: a diff finds the planted change alone", "[papers]") {
  const Paper paper = {.name = "planted", .metric = "seconds"};
  const PaperResult before = {&paper, Planted()};
  const Json old = {{"experiments", Json::array({PaperToJson(before)})}};
  PaperResult after = before;
  auto same = DiffValidation(old.dump(), {after});
  REQUIRE(same.ok());
  CHECK(same->compared == 6);
  CHECK(same->changed.empty());
  after.rows[2].simulated = 42;
  after.rows[5].step->refused = "";
  after.rows[5].simulated = 2;
  const auto diff = DiffValidation(old.dump(), {after});
  REQUIRE(diff.ok());
  REQUIRE(diff->changed.size() == 2);
  CHECK(diff->changed[0].setting == "run of 40");
  CHECK(*diff->changed[0].before == 50);
  CHECK(*diff->changed[0].after == 42);
  CHECK_FALSE(diff->changed[1].before);
  REQUIRE(diff->kinds.size() == 2);
  CHECK(diff->kinds[0].before == Approx(0.40 / 3));
  CHECK(diff->kinds[0].after == Approx(0.20 / 3));
  CHECK(absl::StrContains(DiffToText(*diff), "+25.0 % -> +5.0 %"));
  for (const char* bad : {"", "[]", "{}", "{\"experiments\": [{}]}",
                          "{\"experiments\": [{\"name\": \"a\", \"rows\": "
                          "[{\"setting\": 1}]}]}"}) {
    INFO(bad);
    CHECK_FALSE(DiffValidation(bad, {after}).ok());
  }
}

TEST_CASE("steps: both pages have every row and its error", "[papers]") {
  const Paper paper = {.name = "planted", .summary = "Planted", .metric = "s"};
  const std::vector<PaperResult> results = {{&paper, Planted()}};
  const std::string markdown = ValidationMarkdown(results, "fast");
  CHECK(absl::StrContains(markdown,
                          "| run of 40 | 1f1b | | 40 | 50 | +25.0 % |"));
  CHECK(absl::StrContains(markdown, "not expressed: no such field"));
  CHECK(absl::StrContains(markdown, "| run of 1 | 1f1b | old | 1 | 3 |"));
  CHECK(absl::StrContains(ValidationHtml(results, "fast"), "+25.0 %"));
}

TEST_CASE("steps: docs/dev/validation.md is what the program writes",
          "[papers][cli][docs][long]") {
  const testing::TemporaryFolder folder;
  const std::string page = folder.Write("validation.md", "");
  const auto result = RunBinary(
      {"reproduce", "all", "--engine", "fast", "--json", "--markdown", page});
  INFO(result.err);
  CHECK(result.exit_code == 0);
  INFO(
      "renew it: pipewright reproduce all --engine fast --markdown "
      "docs/dev/validation.md");
  const bool is_fresh =
      ReadFile(page).value() == testing::ReadPage("docs/dev/validation.md");
  CHECK(is_fresh);
  const auto json = ParseJson(result.out).value();
  CHECK(json["steps"]["counted"].get<int>() > 60);
}

}  // namespace
}  // namespace pipewright::step_tables_test
