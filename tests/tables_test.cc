// Numbers in texts that today's program, or raw data of the repository, gives:
// README's table of errors, and what experiments/h100 and h200 say. Each text
// is written again here, with the numbers put in. (docs/dev/validation.md as a
// whole: tests/papers/step_tables_test.cc.)
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sim/analysis/reproduce/paper.h"
#include "sim/base/statistics.h"
#include "sim/profile/profile.h"
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
constexpr char kExecute[] = "docs/execute.md";
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
  Values errors;  // errors of medians
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

// Row of docs/dev/validation.md, which the program writes.
ReadmeRow Validation() {
  const std::string page = testing::ReadPage("docs/dev/validation.md");
  std::map<std::string, double> mean;  // mean of sizes, by kind
  Values left_out;                     // inside by model, device, framework
  for (const absl::string_view line : absl::StrSplit(page, '\n')) {
    const Words cells = absl::StrSplit(line, " | ");
    if (cells.size() == 6 && cells[0] == "| all") {
      for (const int at : {3, 4, 5}) left_out.push_back(std::stod(cells[at]));
    }
    if (cells.size() != 8 || !absl::EndsWith(cells[4], " %")) continue;
    mean[std::string(absl::StripPrefix(cells[0], "| "))] = std::stod(cells[4]);
  }
  Values dense;
  Values experts;
  double nvfp4 = 0;
  double context = 0;
  for (const auto& [kind, percent] : mean) {
    if (absl::StartsWith(kind, "experts")) experts.push_back(percent);
    if (kind == "dense, nvfp4") {
      nvfp4 = percent;
    } else if (kind == "dense, long, PyTorch") {
      context = percent;
    } else if (absl::StartsWith(kind, "dense")) {
      dense.push_back(percent);
    }
  }
  REQUIRE(dense.size() == 3);
  REQUIRE(experts.size() == 2);
  REQUIRE(left_out.size() == 3);
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
  return {
      StrFormat("| %.0f steps, H100 to GB300 | in an interval that runs of "
                "another model, device or framework gave: %.0f, %.0f and %.0f; "
                "in the one that is printed %.0f %% (%.0f %% with %.0f that "
                "drop tokens). Mean error: dense %.0f to %.0f %% (nvfp4 %.0f "
                "%%, PyTorch's long contexts %.0f %%), experts %.0f to %.0f "
                "%% |",
                number_before(" steps count, "), left_out[0], left_out[1],
                left_out[2], inside, with_dropped, dropped, Least(dense),
                Most(dense), nvfp4, context, Least(experts), Most(experts)),
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

TEST_CASE("tables: errors in README and of execute are those of today",
          "[papers][docs]") {
  const std::vector<ReadmeRow> computed = {
      ZeroBubble(),  Executed(),      Control(),       BetweenRanks(),
      OnGpus(),      StepIntervals(), MegatronTable(), KorthikantiTable(),
      Llama3Table(), Validation(),    MemoryPeaks()};
  // README has estimates against others' runs, the page of `execute` its own.
  Words rows;
  for (const char* page : {kReadme, kExecute}) {
    const Words more =
        TablesOf(testing::ReadPage(page)).at("How far off it is");
    rows.insert(rows.end(), more.begin(), more.end());
  }
  CHECK(rows.size() == computed.size());
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

Profile ProfileOf(const std::string& card, const std::string& model) {
  return FindProfile(StrCat(card, "-", model)).value();
}

// Operations that today's program estimates for a setting.
const Json& OpsOf(const std::string& card, const Setting& setting) {
  static std::map<std::pair<std::string, const Setting*>, Json> known;
  const auto [found, is_new] = known.try_emplace({card, &setting});
  if (is_new) {
    Words words = {"simulate", "--analytic", card, "--model", setting.model,
                   "--schedule", "1f1b", "--microbatches", "4", "--engine",
                   "fast", "--json", "--sequence", StrCat(setting.sequence),
                   "--microbatch-size", StrCat(setting.microbatch),
                   "--precision", setting.type,
                   // No Python launches these kernels.
                   "--set", "costs.analytic.launch_time=13.48us"};
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
    found->second = Json::parse(run.out)["costs"]["ops"];
  }
  return found->second;
}

// Estimates of today's program, from the profiles that ship.
std::vector<Compared> Estimates(const std::string& card) {
  std::vector<Compared> all;
  for (const Setting& setting : kSettings) {
    std::vector<Compared> own;
    for (const Json& op : OpsOf(card, setting)) {
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
    const Profile profile = ProfileOf(card, setting.model);
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

// Estimated operations; OpsNamed has all of that name in bf16 on one device.
struct Op {
  double seconds = 0;
  double flops_per_s = 0;
};
std::vector<Op> OpsNamed(const std::string& card, const std::string& model,
                         int tokens, const std::string& block,
                         const std::string& name, const std::string& pass) {
  std::vector<Op> ops;
  for (const Setting& of : kSettings) {
    if (of.tp > 1 || std::string(of.type) != "bf16" ||
        (!model.empty() && of.model != model) ||
        (tokens > 0 && of.microbatch * of.sequence != tokens)) {
      continue;
    }
    for (const Json& op : OpsOf(card, of)) {
      if (op["block"] != block || op["pass"] != pass ||
          (!name.empty() && op["name"] != name)) {
        continue;
      }
      const double seconds = op["seconds"];
      ops.push_back({seconds, op["flops"].get<double>() / seconds});
    }
  }
  REQUIRE_FALSE(ops.empty());
  return ops;
}

// The same of calibrated kernels of these shapes; 0: any size.
using Shapes = std::vector<std::vector<int64_t>>;
std::vector<Op> KernelsNamed(const std::string& card, const std::string& model,
                             const std::string& name, const Shapes& shapes) {
  std::vector<Op> kernels;
  for (const std::vector<int64_t>& shape : shapes) {
    for (const KernelEntry& each : ProfileOf(card, model).kernels) {
      if (each.name == name && each.type == "bf16" &&
          std::equal(shape.begin(), shape.end(), each.shape.begin(),
                     each.shape.end(), [](int64_t size, int64_t given) {
                       return size == 0 || size == given;
                     })) {
        const double seconds = each.time.median_s;
        kernels.push_back({seconds, each.flops / seconds});
      }
    }
  }
  REQUIRE(kernels.size() >= shapes.size());
  return kernels;
}

// "411 to 500", in TFLOP/s.
std::string Rates(const std::vector<std::vector<Op>>& all) {
  Values rates;
  for (const std::vector<Op>& ops : all) {
    for (const Op& op : ops) rates.push_back(op.flops_per_s / 1e12);
  }
  return StrFormat("%.0f to %.0f", Least(rates), Most(rates));
}

// Why estimates of the H100 are off.
Words CauseTexts(const std::vector<Compared>& all) {
  const char* const experts = "qwen3-30b-a3b";
  const char* const gpt = "gpt-1.7b";
  const auto estimated = [](const char* model, int tokens, const char* block,
                            const char* name, const char* pass) {
    return OpsNamed("h100", model, tokens, block, name, pass).at(0).seconds;
  };
  const auto measured = [](const char* model, const char* name,
                           const Shapes& shapes) {
    return KernelsNamed("h100", model, name, shapes);
  };
  const auto expert = [&](const char* name, const char* pass) {
    return estimated(experts, 4096, "expert layer", name, pass);
  };
  const auto of_gpt = [&](const char* name, const char* pass) {
    return estimated(gpt, 2048, "layer", name, pass);
  };
  const double apart_s = expert("experts gate-up", "F");
  for (const char* const name : {"experts gate-up", "experts down"}) {
    CHECK(expert(name, "F") == Approx(apart_s).epsilon(1e-3));
    CHECK(expert(name, "B") == Approx(apart_s).epsilon(1e-3));
  }
  const Shapes groups = {{32768, 2048, 1536, 128}, {32768, 768, 2048, 128}};
  const auto forward = measured(experts, "grouped_gemm.forward", groups);
  const auto input = measured(experts, "grouped_gemm.backward_input", groups);
  const double weight = ErrorsOf(all, experts, 1, "expert-layer", "W").at(0);
  return {
      StrFormat("launched by the host at %.1f us each, so %.2f ms for 128.",
                1e6 * apart_s / 128, 1e3 * apart_s),
      StrFormat(
          "one grouped call: %.2f and %.2f ms in F, %.2f and %.2f ms in "
          "B (%s TFLOP/s). W, one product for each expert in both, is within "
          "%.0f %%.",
          1e3 * forward[0].seconds, 1e3 * forward[1].seconds,
          1e3 * input[0].seconds, 1e3 * input[1].seconds,
          Rates({forward, input}), std::ceil(100 * std::abs(weight))),
      StrFormat("The norms of queries and keys, %.2f and %.2f ms of the "
                "estimate,",
                1e3 * expert("query and key norm", "F"),
                1e3 * expert("query and key norm", "B")),
      StrCat("Its products reach ",
             Rates({measured(gpt, "gemm.backward_weight",
                             {{2048, 9216, 2304},
                              {2048, 2304, 9216},
                              {2048, 2304, 2304},
                              {2048, 2304, 6912}})}),
             " TFLOP/s with 2048 tokens in `gpt-1.7b` where the estimate has ",
             Rates({OpsNamed("h100", gpt, 2048, "layer", "", "W")}), "."),
      StrFormat("Attention is %.0f and %.0f us in the estimate, %.0f and %.0f "
                "us in cuDNN",
                1e6 * of_gpt("attention", "F"), 1e6 * of_gpt("attention", "B"),
                1e6 * measured(gpt, "attention.causal.forward",
                               {{1, 2048, 24, 24, 96}})[0]
                          .seconds,
                1e6 * measured(gpt, "attention.causal.backward",
                               {{1, 2048, 24, 24, 96}})[0]
                          .seconds),
      StrFormat("the residuals, %.0f us in the estimate",
                1e6 * (of_gpt("attention residual", "F") +
                       of_gpt("feed-forward residual", "F"))),
      StrCat(
          "its forward product at ",
          Rates({OpsNamed("h100", "", 0, "head", "output head", "F")}),
          " TFLOP/s, for Llama and Qwen3 outside of the tables; measured are ",
          Rates({measured("llama3-8b", "gemm.forward", {{0, 4096, 128256}}),
                 measured(gpt, "gemm.forward", {{0, 2304, 51200}}),
                 measured(experts, "gemm.forward", {{0, 2048, 151936}})}),
          "."),
      StrFormat("(%.2f against %.2f ms with 8192 x 128256)",
                1e3 * estimated("llama3-8b", 8192, "head", "loss", "F"),
                1e3 * measured("llama3-8b", "cross_entropy.forward",
                               {{8192, 128256}})[0]
                          .seconds),
  };
}

// What `calibrate show` says of a profile that ships.
struct Shown {
  double known = 0;     // half of the medians, to so many %
  double left_out = 0;  // shapes left out, in %; 0: it has one
  Values splits;        // passes by themselves over back to back, in %
  Values alone;         // products alone over their pass, as a part
};
Shown ShownOf(const std::string& card, const std::string& model) {
  const auto run =
      RunBinary({"calibrate", "show",
                 testing::SourcePath(StrCat("calibrate/profiles/", card, "-",
                                            model, ".txtpb"))});
  REQUIRE(run.exit_code == 0);
  Shown shown;
  for (const std::string& line : Words(absl::StrSplit(run.out, '\n'))) {
    const auto behind = [&line](const std::string& text) {
      const size_t at = line.find(text);
      return at == std::string::npos ? std::string()
                                     : line.substr(at + text.size());
    };
    const std::string known = behind("half of them are known to +-");
    const std::string split = behind("its passes by themselves take ");
    const std::string alone = behind("its matrix products alone take ");
    const std::string whole = behind("the whole pass ");
    if (!known.empty()) shown.known = std::stod(known);
    if (!behind(" %  of all ").empty()) shown.left_out = std::stod(line);
    if (!split.empty()) shown.splits.push_back(std::stod(split));
    if (!alone.empty()) {
      // Both in one unit.
      REQUIRE(Words(absl::StrSplit(alone, absl::ByAnyChar(" ,")))[1] ==
              Words(absl::StrSplit(whole, ' '))[1]);
      shown.alone.push_back(std::stod(alone) / std::stod(whole) - 1);
    }
  }
  REQUIRE(shown.known > 0);
  return shown;
}

// What the pages say of the profiles.
Words ProfileTexts(const std::string& card) {
  std::map<std::string, Shown> of;
  Values splits;
  Values alone;
  Values beside;
  Values wide;
  for (const char* const model :
       {"llama3-8b", "llama3-70b", "qwen3-30b-a3b", "gpt-1.7b"}) {
    const Shown& shown = of[model] = ShownOf(card, model);
    splits.insert(splits.end(), shown.splits.begin(), shown.splits.end());
    alone.insert(alone.end(), shown.alone.begin(), shown.alone.end());
    for (const InterferenceEntry& each : ProfileOf(card, model).interference) {
      beside.push_back(each.pass_slowdown - 1);
      wide.push_back(each.pass_high - each.pass_low);
    }
  }
  const std::string known =
      StrFormat("known to %.1f (`qwen3-30b-a3b`) to %.1f %% (`llama3-8b`).",
                of["qwen3-30b-a3b"].known, of["llama3-8b"].known);
  for (const auto& [model, shown] : of) {
    CHECK(shown.known >= of["qwen3-30b-a3b"].known);
    CHECK(shown.known <= of["llama3-8b"].known);
  }
  if (card == "h200") {
    return {known, StrFormat("splits of passes are up to %.1f %% off where 3 "
                             "%% is plausible.",
                             Most(Magnitudes(splits)))};
  }
  return {
      known,
      StrFormat("`llama3-8b` predicts a shape that is left out to %.1f %% "
                "(median), `llama3-70b` to %.1f %% and `gpt-1.7b` to %.1f %%,",
                of["llama3-8b"].left_out, of["llama3-70b"].left_out,
                of["gpt-1.7b"].left_out),
      StrFormat("products alone take up to %.0f %% longer than the pass that "
                "they are in, and passes by themselves between %.0f %% less "
                "and %.0f %% more than back to back.",
                100 * Most(alone), -Least(splits), Most(splits)),
      StrFormat("copies takes between %.0f %% less and %.0f %% more; "
                "intervals of that are up to %.0f %% wide.",
                -100 * Least(beside), 100 * Most(beside), 100 * Most(wide))};
}

std::string Joined(const std::string& page) {
  return absl::StrJoin(
      Words(absl::StrSplit(page, absl::ByAnyChar(" \n"), absl::SkipEmpty())),
      " ");
}

// A page's text under a heading, without its tables.
std::string TextUnder(const std::string& page, const std::string& heading) {
  std::string text;
  std::string under;
  for (const std::string& line :
       Words(absl::StrSplit(testing::ReadPage(page), '\n'))) {
    if (absl::StartsWith(line, "#")) under = line.substr(line.find(' ') + 1);
    if (under == heading && !absl::StartsWith(line, "|") &&
        !absl::StartsWith(line, "#")) {
      absl::StrAppend(&text, line, "\n");
    }
  }
  REQUIRE_FALSE(text.empty());
  return text;
}

// Other numbers under that heading say that they cannot be computed.
void CheckNoOthers(const std::string& page, const std::string& heading,
                   const Words& computed) {
  std::string text = Joined(TextUnder(page, heading));
  for (const std::string& each : computed) {
    text = absl::StrReplaceAll(text, {{each, ""}});
  }
  static const std::regex number("[0-9] (%|ms|us|TFLOP/s)");
  for (const std::string& sentence : Words(absl::StrSplit(text, ". "))) {
    INFO(page << " is not computed: " << sentence);
    CHECK((absl::StrContains(sentence, "(not recomputable: ") ||
           !std::regex_search(sentence, number)));
  }
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
  for (const auto& [card, page] : pages) {
    const std::vector<Compared> all = Estimates(card);
    INFO("renew it: python3 experiments/h100/passes.py PIPEWRIGHT " << card);
    const Words rows = TablesOf(testing::ReadPage(page))
                           .at("Estimates against calibrated passes");
    CHECK(rows == EstimateRows(all));
    Words texts = EstimateTexts(all);
    if (card == "h100") {
      for (std::string& text : CauseTexts(all)) texts.push_back(text);
    }
    CheckSays(page, texts);
    CheckNoOthers(page, "Estimates against calibrated passes", texts);
    CheckSays(page, ProfileTexts(card));
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

// What experiments/h100 says of its executed steps.
Words ExecutedTexts() {
  struct Run {
    double predicted_s = 0;
    double executed_s = 0;
  };
  std::map<std::string, Run> runs;
  int replays = 0;
  Words settled;
  Words rest;
  Words texts;
  for (const ExperimentRow& row : ExperimentRows("h100/executed.csv")) {
    const double executed_s = NumberIn(row, "executed_s");
    if (row.at("predicted_s").empty()) {
      texts.push_back(row.at("type") == "fp8"
                          ? StrFormat("| fp8, %s | %s ms |", row.at("schedule"),
                                      Step(executed_s))
                          : StrFormat("| `--green-contexts`, %s, %s | %s ms |",
                                      row.at("schedule"), row.at("type"),
                                      Step(executed_s)));
      continue;
    }
    runs[StrCat(row.at("model"), " ", row.at("clock"), " ",
                row.at("schedule"))] = {NumberIn(row, "predicted_s"),
                                        executed_s};
    if (row.at("clock") != "real") continue;
    ++replays;
    const bool is_settled = row.at("replay_settled") == "True";
    if (is_settled) {
      settled.push_back(
          StrFormat("`%s` under `%s`", row.at("model"), row.at("schedule")));
    } else {
      rest.push_back(row.at("replay_passes"));
    }
  }
  CHECK(std::set<std::string>(rest.begin(), rest.end()).size() == 1);
  const Values real = Magnitudes(ExecutedErrors("h100", "gpt-tiny", "real"));
  const auto longer = [&](const char* schedule) {
    const Run& run = runs.at(StrCat("gpt-tiny virtual ", schedule));
    return 100 * (run.executed_s / run.predicted_s - 1);
  };
  const auto copies_ms = [&](const std::string& schedule) {
    const std::string without = StrCat("gpt-tiny real ", schedule);
    return 1e3 * (runs.at(StrCat(without, "-copies.pws")).executed_s -
                  runs.at(without).executed_s);
  };
  // "Both clocks put the schedules in the predicted order. The virtual clock
  // is faster than predicted, the real one slower."
  CHECK(Least(ExecutedErrors("h100", "gpt-1.7b", "virtual")) > 0);
  CHECK(Most(ExecutedErrors("h100", "gpt-1.7b", "real")) < 0);
  for (const char* const clock : {"virtual", "real"}) {
    const std::string begin = StrCat("gpt-1.7b ", clock, " ");
    const Run& slow = runs.at(StrCat(begin, "1f1b"));
    const Run& middle = runs.at(StrCat(begin, "zb-h1"));
    const Run& fast = runs.at(StrCat(begin, "zb-v"));
    CHECK(slow.predicted_s > middle.predicted_s);
    CHECK(middle.predicted_s > fast.predicted_s);
    CHECK(slow.executed_s > middle.executed_s);
    CHECK(middle.executed_s > fast.executed_s);
  }
  texts.push_back(StrFormat("predictions are %.0f to %.0f %% too short.",
                            100 * Least(real), 100 * Most(real)));
  texts.push_back(
      StrFormat("With copies the steps took %.1f and %.1f ms longer than "
                "without.",
                copies_ms("1f1b"), copies_ms("zb-h1")));
  texts.push_back(StrFormat(
      "%d of %d replays settled (`replay_settled`), that of %s. The others "
      "were repeated %s times,",
      settled.size(), replays, absl::StrJoin(settled, ", "), rest.at(0)));
  texts.push_back(
      StrFormat("under `zb-h1` and `zb-v` takes %.0f to %.0f %% "
                "longer than predicted",
                longer("zb-h1"), longer("zb-v")));
  return texts;
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
    const bool is_h100 = std::string(card) == "h100";
    CHECK(rows == ExecutedRows(card, is_h100));
    const Words texts = is_h100 ? ExecutedTexts() : Words();
    CheckSays(page, texts);
    CheckNoOthers(page, heading, texts);
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
