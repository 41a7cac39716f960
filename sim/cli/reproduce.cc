#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/error_parts.h"
#include "sim/base/names.h"
#include "sim/base/status.h"
#include "sim/cli/verbs.h"
#include "sim/engine/engine.h"
#include "sim/reproduce/paper.h"

namespace pipewright {
namespace {

using Json = nlohmann::ordered_json;

struct Reproduce {
  std::vector<std::string> names;
  std::string engine = "simgrid";
  bool json = false;

  absl::Status Run() const;
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

absl::string_view Verdict(const Comparison& row) {
  if (row.matches()) return "match";
  return row.is_judged() ? "OFF" : "differs";
}

std::string ToText(const Paper& paper,
                   const std::vector<Comparison>& comparisons) {
  std::string text = absl::StrFormat(
      "%s: %s\n%s\n\n%-30s %-28s %10s %10s\n", paper.name, paper.summary,
      paper.metric, "setting", "schedule", "expected", "simulated");
  for (const Comparison& row : comparisons) {
    const std::string rule = row.RuleNote();
    absl::StrAppendFormat(&text, "%-30s %-28s %10s %10s  %s%s%s\n", row.setting,
                          row.schedule, row.published, row.rounded,
                          Verdict(row),
                          rule.empty() ? "" : absl::StrCat(" (", rule, ")"),
                          row.in_paper ? "" : " (reference, not in the paper)");
  }
  return text;
}

const char* RuleName(Comparison::Rule rule) {
  switch (rule) {
    case Comparison::Rule::kDigits:
      return "digits";
    case Comparison::Rule::kWithin:
      return "within";
    case Comparison::Rule::kShown:
      return "shown";
    case Comparison::Rule::kAtMost:
      return "at most";
  }
  return "";
}

Json ToJson(const Paper& paper, const std::vector<Comparison>& comparisons) {
  Json rows = Json::array();
  for (const Comparison& row : comparisons) {
    rows.push_back(
        {{"setting", row.setting},
         {"schedule", row.schedule},
         {row.in_paper ? "published" : "reference", std::stod(row.published)},
         {"simulated", row.simulated},
         {"rounded", std::stod(row.rounded)},
         {"rule", RuleName(row.rule)},
         {"tolerance", row.tolerance},
         {"in_paper", row.in_paper},
         {"match", row.matches()}});
  }
  return {{"name", paper.name}, {"metric", paper.metric}, {"rows", rows}};
}

absl::Status Reproduce::Run() const {
  PW_RETURN_IF_ERROR(InField("--engine", FindEngine(engine).status()));
  PW_ASSIGN_OR_RETURN(const std::vector<const Paper*> papers, Choose(names));
  std::string text;
  Json experiments = Json::array();
  Count published;
  Count references;
  int shown = 0;
  for (const Paper* paper : papers) {
    PW_ASSIGN_OR_RETURN(const std::vector<Comparison> comparisons,
                        paper->run(engine));
    for (const Comparison& row : comparisons) {
      if (!row.is_judged()) {
        ++shown;
        continue;
      }
      Count& count = row.in_paper ? published : references;
      ++count.compared;
      count.off += row.matches() ? 0 : 1;
    }
    absl::StrAppend(&text, ToText(*paper, comparisons), "\n");
    experiments.push_back(ToJson(*paper, comparisons));
  }
  const int compared = published.compared + references.compared;
  const int off = published.off + references.off;
  absl::StrAppend(
      &text, published.ToString(), " published values match, ",
      references.ToString(), " references that are not in the paper",
      shown == 0 ? "" : absl::StrCat(", ", shown, " are shown and not judged"),
      " (engine ", engine, ")\n");
  const Json object = {{"engine", engine},
                       {"compared", compared},
                       {"published", published.compared},
                       {"off", off},
                       {"match", off == 0},
                       {"experiments", experiments}};
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
  verb->add_option("--engine", reproduce->engine, "simgrid, fast")
      ->type_name("NAME");
  verb->add_flag("--json", reproduce->json,
                 "one JSON object on standard output");
  verb->callback([action, reproduce] {
    *action = [reproduce] { return reproduce->Run(); };
  });
}

}  // namespace pipewright
