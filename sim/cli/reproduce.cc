#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/analysis/reproduce/paper.h"
#include "sim/analysis/reproduce/steps.h"
#include "sim/analysis/reproduce/validation.h"
#include "sim/base/error_parts.h"
#include "sim/base/input.h"
#include "sim/base/json.h"
#include "sim/base/names.h"
#include "sim/base/status.h"
#include "sim/cli/output_files.h"
#include "sim/cli/progress_bar.h"
#include "sim/cli/verbs.h"
#include "sim/engine/engine.h"

namespace pipewright {
namespace {

struct Reproduce {
  std::vector<std::string> names;
  std::string engine = "fluid";  // simgrid takes a multiple for the same times
  std::string old_file;
  bool json = false;
  OutputFiles files;

  absl::Status Run();
};

struct Count {
  int compared = 0;
  int off = 0;

  std::string ToString() const {
    return absl::StrCat(compared - off, " of ", compared);
  }
};

absl::StatusOr<std::vector<const Paper*>> Choose(
    const std::vector<std::string>& names) {
  std::vector<std::string> known;
  for (const Paper* paper : AllPapers()) known.push_back(paper->name);
  known.push_back("all");
  std::vector<const Paper*> chosen;
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return AboutField("NAME", UnknownName("experiment", name, known));
    }
    for (const Paper* paper : AllPapers()) {
      if (name == "all" || name == paper->name) chosen.push_back(paper);
    }
  }
  return chosen;
}

std::string Verdict(const Comparison& row) {
  if (row.step) {
    const StepFacts& facts = *row.step;
    std::string verdict =
        facts.refused.empty()
            ? absl::StrFormat("%+.1f %%", 100 * StepError(row))
            : absl::StrCat("not expressed: ", facts.refused);
    if (!facts.excluded.empty()) {
      absl::StrAppend(&verdict, " (not counted: ", facts.excluded, ")");
    }
    return verdict;
  }
  if (row.matches()) return "match";
  return row.is_judged() ? "OFF" : "differs";
}

std::string ToText(const Paper& paper,
                   const std::vector<Comparison>& comparisons) {
  std::string text = absl::StrFormat(
      "%s: %s\n%s\n\n%-30s %-28s %10s %10s\n", paper.name, paper.summary,
      paper.metric, "setting", "schedule", "expected", "simulated");
  for (const Comparison& row : comparisons) {
    const std::string rule = row.step ? "" : row.RuleNote();
    absl::StrAppendFormat(&text, "%-30s %-28s %10s %10s  %s%s%s\n", row.setting,
                          row.schedule, row.published, row.rounded,
                          Verdict(row),
                          rule.empty() ? "" : absl::StrCat(" (", rule, ")"),
                          row.in_paper ? "" : " (reference, not in the paper)");
  }
  return text;
}

absl::Status Reproduce::Run() {
  PW_RETURN_IF_ERROR(InField("--engine", FindEngine(engine).status()));
  PW_ASSIGN_OR_RETURN(const std::vector<const Paper*> papers, Choose(names));
  files.Reads("--diff", old_file);
  PW_RETURN_IF_ERROR(files.Check());
  std::string old_json;
  if (!old_file.empty()) {
    PW_ASSIGN_OR_RETURN(old_json, ReadFile(old_file, InputKind::kProfile));
    // Before minutes of work.
    PW_RETURN_IF_ERROR(Prefix(absl::StrCat("--diff: ", old_file),
                              DiffValidation(old_json, {}).status()));
  }
  std::vector<PaperResult> results;
  std::vector<Comparison> steps;
  std::string text;
  Json experiments = Json::array();
  Count published;
  Count references;
  int shown = 0;
  ProgressBar bar;
  for (const Paper* paper : papers) {
    bar.At(static_cast<double>(results.size()) /
               static_cast<double>(papers.size()),
           paper->name);
    PW_ASSIGN_OR_RETURN(const std::vector<Comparison> comparisons,
                        paper->run(engine));
    for (const Comparison& row : comparisons) {
      if (row.step) steps.push_back(row);
      if (!row.is_judged()) {
        ++shown;
        continue;
      }
      Count& count = row.in_paper ? published : references;
      ++count.compared;
      count.off += row.matches() ? 0 : 1;
    }
    absl::StrAppend(&text, ToText(*paper, comparisons), "\n");
    results.push_back({paper, comparisons});
    experiments.push_back(PaperToJson(results.back()));
  }
  bar.Wipe();
  const StepSummary summary = SummarizeSteps(steps);
  if (!steps.empty()) absl::StrAppend(&text, StepSummaryToText(summary), "\n");
  const int compared = published.compared + references.compared;
  const int off = published.off + references.off;
  absl::StrAppend(
      &text, published.ToString(), " published values match, ",
      references.ToString(), " references that are not in the paper",
      shown == 0 ? "" : absl::StrCat(", ", shown, " are shown and not judged"),
      " (engine ", engine, ")\n");
  Json object = {{"engine", engine},
                 {"compared", compared},
                 {"published", published.compared},
                 {"off", off},
                 {"match", off == 0},
                 {"experiments", experiments}};
  if (!steps.empty()) object["steps"] = StepSummaryToJson(summary);
  if (!old_file.empty()) {
    PW_ASSIGN_OR_RETURN(const ValidationDiff diff,
                        DiffValidation(old_json, results));
    absl::StrAppend(&text, DiffToText(diff));
    object["diff"] = DiffToJson(diff);
  }
  files.Put("--markdown", ValidationMarkdown(results, engine));
  files.Put("--html", ValidationHtml(results, engine));
  PW_RETURN_IF_ERROR(files.Write());
  PW_RETURN_IF_ERROR(Print(json ? absl::StrCat(object.dump(2), "\n") : text));
  if (off == 0) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(off, " of ", compared, " values are off the table"));
}

}  // namespace

void AddReproduce(CLI::App* app, Action* action) {
  CLI::App* verb = app->add_subcommand(
      "reproduce", "Compute published tables again and compare");
  auto reproduce = std::make_shared<Reproduce>();
  std::string known = "all";
  for (const Paper* paper : AllPapers()) {
    absl::StrAppend(&known, ", ", paper->name);
  }
  verb->add_option("NAME", reproduce->names, known)->required()->type_name("");
  verb->add_option("--engine", reproduce->engine, "simgrid, fluid, fast")
      ->type_name("NAME");
  verb->add_option("--diff", reproduce->old_file,
                   "what has changed against this output of --json")
      ->type_name("OLD.json");
  verb->add_flag("--json", reproduce->json,
                 "one JSON object on standard output")
      ->group("Output");
  reproduce->files.AddTo(verb, "--markdown", "all results as a page",
                         FileFormat::kText);
  reproduce->files.AddTo(verb, "--html", "the same for a browser",
                         FileFormat::kHtml);
  verb->callback([action, reproduce] {
    *action = [reproduce] { return reproduce->Run(); };
  });
}

}  // namespace pipewright
