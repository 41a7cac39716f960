// Numbers in texts that today's program, or raw data of the repository, gives:
// README's table of errors, and what experiments/h100 and h200 say. Each text
// is written again here, with the numbers put in. (docs/validation.md as a
// whole: tests/papers/step_tables_test.cc.)
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sim/base/median.h"
#include "sim/profile/profile.h"
#include "sim/profile/store.h"
#include "sim/reproduce/paper.h"
#include "tests/support/experiment_csv.h"
#include "tests/support/json.h"
#include "tests/support/markdown.h"
#include "tests/support/paths.h"
#include "tests/support/run_binary.h"

namespace pipewright::tables_test {
namespace {

using absl::StrCat;
using absl::StrFormat;
using testing::ExperimentRow;
using testing::ExperimentRows;
using testing::Json;
using testing::NumberIn;
using testing::RunBinary;
using Values = std::vector<double>;
using Words = std::vector<std::string>;

constexpr char kReadme[] = "README.md";
constexpr char kH100[] = "experiments/h100/README.md";
constexpr char kH200[] = "experiments/h200/README.md";

// Tables of these pages that nothing here computes, by the heading that they
// stand under, and why.
struct NotComputed {
  const char* page;
  const char* heading;
  const char* why;
};
constexpr NotComputed kNotComputed[] = {
    {kH100, "H100: what did the first GPU show?", "which runs there were"},
    {kH100, "Rates of our own kernels",
     "rounded by hand from profiles of which two were not committed"},
};

double Least(const Values& values) {
  return *std::min_element(values.begin(), values.end());
}
double Most(const Values& values) {
  return *std::max_element(values.begin(), values.end());
}
Values Magnitudes(Values values) {
  for (double& value : values) value = std::abs(value);
  return values;
}
std::string Percent(double part) { return StrFormat("%+.1f", 100 * part); }
// "-9.5 to -2.1 %"
std::string Range(const Values& values) {
  return StrCat(Percent(Least(values)), " to ", Percent(Most(values)), " %");
}

const std::vector<Comparison>& RowsOf(const std::string& paper) {
  static std::map<std::string, std::vector<Comparison>> known;
  if (known.count(paper) == 0) {
    for (const Paper* each : AllPapers()) {
      // Its replicas share cards, which engine fast does not know.
      const char* const engine = paper == "llama3-table4" ? "simgrid" : "fast";
      if (each->name == paper) known[paper] = each->run(engine).value();
    }
  }
  return known.at(paper);
}

Values ErrorsOf(const std::string& paper) {
  Values errors;
  for (const Comparison& row : RowsOf(paper)) {
    if (!row.in_paper) continue;
    errors.push_back(row.simulated / std::stod(row.published) - 1);
  }
  return errors;
}

// README's table. Text behind the first cell; `conditions` is in the row too.
struct ReadmeRow {
  std::string text;
  std::string conditions;
};

ReadmeRow ZeroBubble() {
  int matches = 0;
  std::map<Comparison::Rule, int> rules;
  int published = 0;
  for (const Comparison& row : RowsOf("zero-bubble-table5")) {
    if (!row.in_paper || !row.is_judged()) continue;
    ++published;
    matches += row.matches() ? 1 : 0;
    ++rules[row.rule];
  }
  return {StrFormat("| zero-bubble paper, table 5 | %d of %d published values "
                    "match: %d to four decimals; the %d of the planner may be "
                    "smaller than published |",
                    matches, published, rules[Comparison::Rule::kDigits],
                    rules[Comparison::Rule::kAtMost]),
          ""};
}

// compare --summary has the control, whose step is made of schedules; the rest
// is computed here.
struct ClosedLoop {
  Json summary;
  Values errors;  // of medians
};
const ClosedLoop& Loop() {
  static const ClosedLoop loop = [] {
    ClosedLoop made;
    const std::string table = "experiments/closed_loop/measured.csv";
    const auto run = RunBinary(
        {"compare", testing::SourcePath(table), "--summary", "--json"});
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    made.summary = Json::parse(run.out);
    std::map<std::string, std::pair<Values, Values>> runs;
    for (const ExperimentRow& row :
         ExperimentRows("closed_loop/measured.csv")) {
      auto& [predicted, executed] = runs[StrCat(
          row.at("schedule"), " ", row.at("pp"), " ", row.at("layers"))];
      predicted.push_back(NumberIn(row, "predicted_s"));
      executed.push_back(NumberIn(row, "executed_s"));
    }
    for (auto& [name, each] : runs) {
      made.errors.push_back(Median(each.first) / Median(each.second) - 1);
    }
    return made;
  }();
  return loop;
}

double LeastTau(bool control) {
  double least = 1;
  for (const Json& size : Loop().summary["sizes"]) {
    const Json of = control ? size["control"] : size;
    least = std::min(least, of["tau"].get<double>());
  }
  return least;
}
// "0.97 and above": rounded down.
std::string TauText(bool control) {
  return StrFormat("%.2f", std::floor(100 * LeastTau(control)) / 100);
}

ReadmeRow Executed() {
  const Values errors = Magnitudes(Loop().errors);
  return {StrFormat("| runs of `execute` | step time off by %.1f %% in the "
                    "median, %.1f %% at worst; schedules nearly in order: "
                    "Kendall's tau (1: same, 0: unrelated) %s and above |",
                    100 * Median(errors), 100 * Most(errors), TauText(false)),
          StrFormat("[%d runs]", errors.size())};
}

ReadmeRow Control() {
  const Json control = Loop().summary["control"];
  return {StrFormat("| the same runs, control without calibration | %.1f %% in "
                    "the median, %.1f %% at worst; tau %s and above |",
                    100 * control["median_error"].get<double>(),
                    100 * std::abs(control["worst_error"].get<double>()),
                    TauText(true)),
          ""};
}

ReadmeRow BetweenRanks() {
  std::map<std::string, std::map<std::string, std::pair<Values, Values>>> runs;
  for (const ExperimentRow& row :
       ExperimentRows("real_clock/between_ranks.csv")) {
    if (row.at("progress_thread") != "0") continue;
    auto& [predicted, step] = runs[row.at("transport")][row.at("schedule")];
    predicted.push_back(NumberIn(row, "interference_s"));
    step.push_back(NumberIn(row, "step_s"));
  }
  const auto range = [&](const std::string& transport) {
    Values errors;
    for (auto& [schedule, each] : runs.at(transport)) {
      errors.push_back(1 - Median(each.first) / Median(each.second));
    }
    return StrFormat("%.0f to %.0f %%", 100 * Least(errors),
                     100 * Most(errors));
  };
  return {StrCat("| runs of `execute` in wall time, two processes over MPI | ",
                 range("shm"), " too fast over shared memory, ", range("tcp"),
                 " over TCP |"),
          runs.at("shm").size() == 4 ? "[four schedules]" : "?"};
}

Values ExecutedErrors(const std::string& card, const std::string& model,
                      const std::string& clock) {
  Values errors;
  for (const ExperimentRow& row :
       ExperimentRows(StrCat(card, "/executed.csv"))) {
    if (row.at("model") != model || row.at("clock") != clock) continue;
    if (row.at("predicted_s").empty() ||
        absl::StrContains(row.at("schedule"), "copies")) {
      continue;
    }
    errors.push_back(
        NumberIn(row, "predicted_s") / NumberIn(row, "executed_s") - 1);
  }
  return errors;
}

ReadmeRow OnGpus() {
  Values steps = ExecutedErrors("h100", "gpt-1.7b", "virtual");
  for (const double error : ExecutedErrors("h200", "gpt-1.7b", "virtual")) {
    steps.push_back(error);
  }
  return {StrCat("| `execute` on H100, H200 | step ", Range(steps),
                 "; wall time (H100) ",
                 Range(ExecutedErrors("h100", "gpt-1.7b", "real")), " |"),
          ""};
}

ReadmeRow StepIntervals() {
  std::map<std::string, std::pair<int, int>> inside;
  for (const ExperimentRow& row :
       ExperimentRows("step_interval/measured.csv")) {
    auto& [in, all] = inside[row.at("calibration")];
    const double step_s = NumberIn(row, "step_s");
    in += step_s >= NumberIn(row, "low_s") && step_s <= NumberIn(row, "high_s");
    ++all;
  }
  return {
      StrFormat("| 90 %% interval of a step | %d of %d and %d of %d executed "
                "steps inside |",
                inside.at("1").first, inside.at("1").second,
                inside.at("2").first, inside.at("2").second),
      ""};
}

ReadmeRow MegatronTable() {
  return {StrCat("| Megatron-LM, table 1 | step time ",
                 Range(ErrorsOf("megatron-table1")), " |"),
          StrCat(RowsOf("megatron-table1").size(), " steps")};
}
ReadmeRow KorthikantiTable() {
  return {StrCat("| Korthikanti et al., table 5 | step time ",
                 Range(ErrorsOf("korthikanti-table5")), " |"),
          StrCat(RowsOf("korthikanti-table5").size(), " steps")};
}
ReadmeRow Llama3Table() {
  const std::vector<Comparison>& rows = RowsOf("llama3-table4");
  return {StrFormat("| Llama 3, table 4 | MFU %.0f and %.0f %% against %s and "
                    "%s %% |",
                    rows.at(0).simulated, rows.at(1).simulated,
                    rows.at(0).published, rows.at(1).published),
          ""};
}

// Of docs/validation.md, which the program writes.
ReadmeRow Validation() {
  const std::string page = testing::ReadPage("docs/validation.md");
  std::map<std::string, double> mean;  // of sizes, by kind
  for (const absl::string_view line : absl::StrSplit(page, '\n')) {
    const Words cells = absl::StrSplit(line, " | ");
    if (cells.size() != 8 || !absl::EndsWith(cells[4], " %")) continue;
    mean[std::string(absl::StripPrefix(cells[0], "| "))] = std::stod(cells[4]);
  }
  Values dense;
  Values experts;
  double nvfp4 = 0;
  for (const auto& [kind, percent] : mean) {
    if (absl::StartsWith(kind, "experts")) experts.push_back(percent);
    if (kind == "dense, nvfp4") {
      nvfp4 = percent;
    } else if (absl::StartsWith(kind, "dense")) {
      dense.push_back(percent);
    }
  }
  REQUIRE(dense.size() == 3);
  REQUIRE(experts.size() == 2);
  const auto number_behind = [&page](absl::string_view before) {
    const size_t at = page.find(std::string(before));
    INFO(before);
    REQUIRE(at != std::string::npos);
    return std::stod(page.substr(at + before.size()));
  };
  const double inside = number_behind("of them (");
  const auto number_before = [&page](absl::string_view behind) {
    const size_t at = page.find(std::string(behind));
    INFO(behind);
    REQUIRE(at != std::string::npos);
    return std::stod(page.substr(page.find_last_of(" \n", at - 1) + 1));
  };
  const double dropped = number_before(" more steps do not count");
  const double with_dropped = number_behind("would lie inside (");
  return {StrFormat("| %.0f steps, H100 to GB300 | mean error: dense %.0f to "
                    "%.0f %% (nvfp4 %.0f %%), experts %.0f to %.0f %%; %.0f %% "
                    "in the interval (%.0f %% with %.0f that drop tokens) |",
                    number_before(" steps count, "), Least(dense), Most(dense),
                    nvfp4, Least(experts), Most(experts), inside, with_dropped,
                    dropped),
          ""};
}

ReadmeRow MemoryPeaks() {
  const Values errors = Magnitudes(ErrorsOf("simumax-memory"));
  double sum = 0;
  for (const double error : errors) sum += error;
  return {StrFormat("| measured memory peaks | %.2f %% in the mean, %.1f %% at "
                    "worst |",
                    100 * sum / static_cast<double>(errors.size()),
                    100 * Most(errors)),
          errors.size() == 10 ? "[ten runs]" : "?"};
}

// Rows of a page's tables, as they stand, by the heading above them.
std::map<std::string, Words> TablesOf(const std::string& page) {
  std::map<std::string, Words> tables;
  std::string heading;
  bool has_header = false;
  for (const std::string& line : Words(absl::StrSplit(page, '\n'))) {
    if (absl::StartsWith(line, "#")) {
      heading = line.substr(line.find(' ') + 1);
    }
    if (!absl::StartsWith(line, "|")) {
      has_header = false;
    } else if (absl::StartsWith(line, "|-")) {
      has_header = true;
    } else if (has_header) {
      tables[heading].push_back(line);
    }
  }
  return tables;
}

TEST_CASE("tables: README's errors are those of today", "[papers][docs]") {
  const std::vector<ReadmeRow> computed = {
      ZeroBubble(),  Executed(),      Control(),       BetweenRanks(),
      OnGpus(),      StepIntervals(), MegatronTable(), KorthikantiTable(),
      Llama3Table(), Validation(),    MemoryPeaks()};
  const Words rows =
      TablesOf(testing::ReadPage(kReadme)).at("How far off it is");
  CHECK(rows.size() >= computed.size());
  for (const std::string& row : rows) {
    const std::string name = row.substr(0, row.find(" | "));
    const auto found =
        std::find_if(computed.begin(), computed.end(), [&](const auto& each) {
          return absl::StartsWith(each.text, StrCat(name, " | "));
        });
    INFO(row);
    REQUIRE(found != computed.end());
    CHECK_THAT(row, Catch::StartsWith(found->text) &&
                        Catch::Contains(found->conditions));
  }
}

// A setting of experiments/*/passes.csv: what is estimated and calibrated.
struct Setting {
  const char* model;
  const char* type;
  int microbatch;
  int sequence;
  int tp;
};
constexpr Setting kSettings[] = {
    {"llama3-8b", "bf16", 1, 8192, 1},     {"llama3-8b", "bf16", 2, 8192, 1},
    {"llama3-8b", "bf16", 1, 4096, 1},     {"llama3-8b", "fp8", 1, 8192, 1},
    {"gpt-1.7b", "bf16", 1, 2048, 1},      {"gpt-1.7b", "bf16", 2, 2048, 1},
    {"qwen3-30b-a3b", "bf16", 1, 4096, 1}, {"llama3-8b", "bf16", 1, 4096, 2},
    {"llama3-8b", "bf16", 1, 8192, 2},     {"llama3-8b", "bf16", 2, 8192, 2},
    {"llama3-8b", "bf16", 1, 4096, 4},     {"llama3-8b", "bf16", 1, 8192, 4},
    {"llama3-8b", "bf16", 2, 8192, 4},     {"llama3-8b", "fp8", 1, 8192, 4},
    {"llama3-70b", "bf16", 1, 8192, 4},    {"llama3-70b", "bf16", 1, 8192, 8},
};

struct Compared {
  Setting setting;
  std::string block;
  std::string pass;
  double estimated_s = 0;
  double calibrated_s = 0;
  double error() const { return estimated_s / calibrated_s - 1; }
};

// Of today's program, from the profiles that ship.
std::vector<Compared> Estimates(const std::string& card) {
  std::vector<Compared> all;
  for (const Setting& setting : kSettings) {
    Words words = {"simulate",
                   "--analytic",
                   card,
                   "--model",
                   setting.model,
                   "--schedule",
                   "1f1b",
                   "--microbatches",
                   "4",
                   "--engine",
                   "fast",
                   "--json",
                   "--sequence",
                   StrCat(setting.sequence),
                   "--microbatch-size",
                   StrCat(setting.microbatch),
                   "--precision",
                   setting.type};
    const Words more =
        setting.tp == 1 ? Words{"--pp", "2"}
                        : Words{"--system", StrCat("dgx-", card),
                                "--pp",     "1",
                                "--dp",     "1",
                                "--tp",     StrCat(setting.tp),
                                "--set",    "strategy.sequence_parallel=false"};
    words.insert(words.end(), more.begin(), more.end());
    const auto run = RunBinary(words);
    INFO(absl::StrJoin(words, " ") << "\n" << run.err);
    REQUIRE((run.exit_code == 0 || run.exit_code == 3));
    std::vector<Compared> own;
    for (const Json& op : Json::parse(run.out)["costs"]["ops"]) {
      const std::string block = op["block"];
      const std::string pass = op["pass"];
      auto found =
          std::find_if(own.begin(), own.end(), [&](const Compared& each) {
            return each.block == block && each.pass == pass;
          });
      if (found == own.end()) {
        found = own.insert(own.end(), {setting, block, pass});
      }
      found->estimated_s += op["seconds"].get<double>();
    }
    const Profile profile =
        FindProfile(StrCat(card, "-", setting.model)).value();
    for (Compared& each : own) {
      const bool expert = each.block == "expert layer";
      for (const PassEntry& entry : profile.passes) {
        const ProfilePart part = each.block == "head" ? ProfilePart::kHead
                                 : expert ? ProfilePart::kExpertLayer
                                          : ProfilePart::kLayer;
        const ProfilePass pass = each.pass == "F" ? ProfilePass::kForward
                                 : each.pass == "B"
                                     ? ProfilePass::kBackwardInput
                                     : ProfilePass::kBackwardWeight;
        if (entry.part != part || entry.pass != pass ||
            entry.type != setting.type || entry.slices > 0 ||
            entry.microbatch_size != setting.microbatch ||
            entry.sequence != setting.sequence || entry.tp != setting.tp ||
            entry.ep > 1) {
          continue;
        }
        each.calibrated_s = entry.time.median_s;
      }
    }
    for (Compared& each : own) {
      const bool wanted =
          each.block != "embedding" &&
          (setting.tp == 1 || each.block != "head") &&
          (each.pass == "F" || each.pass == "B" || each.pass == "W");
      if (!wanted) continue;
      if (each.block == "expert layer") each.block = "expert-layer";
      REQUIRE(each.calibrated_s > 0);
      all.push_back(each);
    }
  }
  return all;
}

std::string Milliseconds(double seconds) {
  return seconds >= 1e-3 ? StrFormat("%.2f", 1e3 * seconds)
                         : StrFormat("%.3f", 1e3 * seconds);
}

// As experiments/h100/passes.py --markdown prints them.
Words EstimateRows(const std::vector<Compared>& all) {
  Words rows;
  std::string block;
  for (const Compared& each : all) {
    const Setting& of = each.setting;
    std::string begin = StrFormat(
        "| %s, %s, b%d s%d%s | %s |", of.model, of.type, of.microbatch,
        of.sequence, of.tp > 1 ? StrCat(", tp ", of.tp) : "", each.block);
    if (begin != block) rows.push_back(begin);
    block = std::move(begin);
    absl::StrAppend(&rows.back(), " ", Milliseconds(each.estimated_s), ", ",
                    Milliseconds(each.calibrated_s), ": ",
                    Percent(each.error()), " % |");
  }
  return rows;
}

Values ErrorsWhere(const std::vector<Compared>& all,
                   const std::function<bool(const Compared&)>& fits) {
  Values errors;
  for (const Compared& each : all) {
    if (fits(each)) errors.push_back(each.error());
  }
  REQUIRE_FALSE(errors.empty());
  return errors;
}

Values ErrorsOf(const std::vector<Compared>& all, const std::string& model,
                int tp, const std::string& block = "layer",
                const std::string& pass = "") {
  return ErrorsWhere(all, [&](const Compared& each) {
    return (model.empty() || each.setting.model == model) &&
           each.setting.tp == tp && each.block == block &&
           (pass.empty() || each.pass == pass);
  });
}

std::string OneMore(double part) { return StrFormat("%.1f %%", 100 * part); }

// Sentences with numbers.
Words EstimateTexts(const std::vector<Compared>& all) {
  const Values at_tp1 = Magnitudes(ErrorsWhere(
      all, [](const Compared& each) { return each.setting.tp == 1; }));
  const auto experts = [&](const char* pass) {
    return ErrorsOf(all, "qwen3-30b-a3b", 1, "expert-layer", pass)[0];
  };
  const Values short_w = ErrorsOf(all, "gpt-1.7b", 1, "layer", "W");
  return {
      StrCat("Layers of `llama3-8b` at tp 1 are within ",
             OneMore(Most(Magnitudes(ErrorsOf(all, "llama3-8b", 1)))),
             " in bf16 and fp8, half of all ", at_tp1.size(),
             " passes at tp 1 within ", OneMore(Median(at_tp1)), "."),
      StrCat("`llama3-8b` at tp 2 ", Range(ErrorsOf(all, "llama3-8b", 2)),
             ", at tp 4 ", Range(ErrorsOf(all, "llama3-8b", 4)),
             ", `llama3-70b` at tp 4 ", Range(ErrorsOf(all, "llama3-70b", 4)),
             ", at tp 8 ", Range(ErrorsOf(all, "llama3-70b", 8)), "."),
      StrFormat("**Experts** (%+.0f and %+.0f %%)", 100 * experts("F"),
                100 * experts("B")),
      StrFormat("**W of short microbatches** (%+.0f %% with 2048 tokens, %+.0f "
                "%% with 4096)",
                100 * short_w.at(0), 100 * short_w.at(1)),
      StrFormat("**The head** (F up to %+.0f %%)",
                100 * Most(ErrorsOf(all, "", 1, "head", "F"))),
  };
}

// What other pages take from these.
std::string Within(const std::vector<Compared>& all) {
  return StrFormat(
      "within %.0f %%",
      std::ceil(100 * Most(Magnitudes(ErrorsOf(all, "llama3-8b", 1)))));
}

std::string Joined(const std::string& page) {
  return absl::StrJoin(
      Words(absl::StrSplit(page, absl::ByAnyChar(" \n"), absl::SkipEmpty())),
      " ");
}

void CheckSays(const std::string& page, const Words& texts) {
  const std::string joined = Joined(testing::ReadPage(page));
  for (const std::string& text : texts) {
    INFO(page << " does not say: " << text);
    CHECK(absl::StrContains(joined, text));
  }
}

TEST_CASE("tables: estimated passes of H100 and H200 are those of today",
          "[papers][docs]") {
  const std::map<std::string, const char*> pages = {{"h100", kH100},
                                                    {"h200", kH200}};
  std::map<std::string, std::string> within;
  for (const auto& [card, page] : pages) {
    const std::vector<Compared> all = Estimates(card);
    INFO("renew it: python3 experiments/h100/passes.py PIPEWRIGHT " << card);
    const Words rows = TablesOf(testing::ReadPage(page))
                           .at("Estimates against calibrated passes");
    CHECK(rows == EstimateRows(all));
    CheckSays(page, EstimateTexts(all));
    within[card] = Within(all);
    // The same as raw data.
    size_t index = 0;
    for (const ExperimentRow& row :
         ExperimentRows(StrCat(card, "/passes.csv"))) {
      REQUIRE(index < all.size());
      const Compared& each = all[index++];
      CHECK(row.at("model") == each.setting.model);
      CHECK(row.at("tp") == StrCat(each.setting.tp));
      CHECK(row.at("pass") == each.pass);
      CHECK(NumberIn(row, "estimated_s") ==
            Approx(each.estimated_s).epsilon(1e-5));
      CHECK(NumberIn(row, "calibrated_s") ==
            Approx(each.calibrated_s).epsilon(1e-5));
    }
    CHECK(index == all.size());
  }
  CheckSays("docs/gpu.md",
            {StrCat("estimates (`--analytic h100`) of layers of `llama3-8b` | ",
                    within["h100"], " of the calibrated passes"),
             StrCat("estimates (`--analytic h200`) of layers of `llama3-8b` ",
                    within["h200"])});
  CheckSays("experiments/papers/llama3_table4/README.md",
            {StrCat("calibrated on an H100 are ", within["h100"],
                    " of such estimates at tp 1")});
}

std::string Step(double seconds) {
  return seconds >= 0.1 ? StrFormat("%.1f", 1e3 * seconds)
                        : StrFormat("%.2f", 1e3 * seconds);
}

Words ExecutedRows(const std::string& card, bool has_clock) {
  Words rows;
  for (const ExperimentRow& row :
       ExperimentRows(StrCat(card, "/executed.csv"))) {
    if (row.at("predicted_s").empty()) continue;
    std::string schedule = row.at("schedule");
    if (absl::EndsWith(schedule, "-copies.pws")) {
      schedule = StrCat(absl::StripSuffix(schedule, "-copies.pws"), ", copies");
    }
    const double predicted = NumberIn(row, "predicted_s");
    const double executed = NumberIn(row, "executed_s");
    rows.push_back(StrFormat(
        "| %s | %s |%s %s ms | %s to %s ms | %s ms | %s %% | %s of 2 |",
        row.at("model"), schedule,
        has_clock ? StrCat(" ", row.at("clock"), " |") : "", Step(predicted),
        Step(NumberIn(row, "predicted_low_s")),
        Step(NumberIn(row, "predicted_high_s")), Step(executed),
        Percent(predicted / executed - 1), row.at("steps_inside")));
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

TEST_CASE("tables: executed steps of H100 and H200 are those of their raw data",
          "[papers][docs]") {
  const std::string heading = "Executed against predicted";
  for (const auto& [card, page] :
       {std::pair{"h100", kH100}, std::pair{"h200", kH200}}) {
    Words rows = TablesOf(testing::ReadPage(page)).at(heading);
    // Run 3 has no predictions.
    rows.erase(std::remove_if(rows.begin(), rows.end(),
                              [](const std::string& row) {
                                return !absl::StrContains(row, " of 2 |");
                              }),
               rows.end());
    std::sort(rows.begin(), rows.end());
    CHECK(rows == ExecutedRows(card, std::string(card) == "h100"));
  }
}

// A new table is computed, or listed with a reason.
TEST_CASE("tables: nothing is left out but what is listed", "[papers][docs]") {
  const std::set<std::string> computed = {"Estimates against calibrated passes",
                                          "Executed against predicted"};
  std::set<std::pair<std::string, std::string>> listed;
  for (const NotComputed& each : kNotComputed) {
    CHECK(std::string(each.why).size() > 10);
    listed.emplace(each.page, each.heading);
  }
  for (const char* const page : {kH100, kH200}) {
    for (const auto& [heading, rows] : TablesOf(testing::ReadPage(page))) {
      INFO(page << ": " << heading);
      const bool is_listed = listed.erase({page, heading}) > 0;
      CHECK(computed.count(heading) + (is_listed ? 1 : 0) == 1);
    }
  }
  CHECK(listed.empty());
}

}  // namespace
}  // namespace pipewright::tables_test
