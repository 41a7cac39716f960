#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "sim/analysis/sweep/points.h"
#include "sim/base/json.h"
#include "sim/base/version.h"
#include "sim/cli/build_facts.h"
#include "sim/cli/verbs.h"
#include "sim/report/html_parts.h"

namespace pipewright {
namespace {

std::string VersionText() {
  const std::string charts = ChartLibrary();
  const std::string commit = kBuildFacts.commit;
  std::string text = absl::StrCat(
      "pipewright ", kVersion, "\ncommit           ",
      commit.empty() ? "unknown: built without git"
                     : absl::StrCat(commit, " of ", kBuildFacts.commit_date),
      "\nmodel version    ", kModelVersion,
      ": results of equal ones can be compared\ncompiler         ",
      kBuildFacts.compiler, ", ", kBuildFacts.build_type, "\ncharts of pages: ",
      charts.empty() ? "static pictures (built without npm)" : charts,
      "\nlibraries:\n");
  for (const auto& [name, version] : kBuildFacts.libraries) {
    std::string row = absl::StrCat("  ", name);
    row.resize(17, ' ');
    absl::StrAppend(&text, row, version, "\n");
  }
  return text;
}

// Unknown values are null.
Json VersionJson() {
  const std::string charts = ChartLibrary();
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? Json() : Json(text);
  };
  Json object = {{"version", kVersion},
                 {"commit", text_or_null(kBuildFacts.commit)},
                 {"commit_date", text_or_null(kBuildFacts.commit_date)},
                 {"model_version", kModelVersion},
                 {"compiler", kBuildFacts.compiler},
                 {"build_type", kBuildFacts.build_type},
                 {"charts", charts.empty() ? "static" : charts},
                 {"libraries", Json::object()}};
  for (const auto& [name, version] : kBuildFacts.libraries) {
    object["libraries"][name] = version;
  }
  return object;
}

}  // namespace

void AddVersion(CLI::App* app, Action* action) {
  CLI::App* verb = app->add_subcommand(
      "version", "Print the version, the commit and what it was built with");
  auto json = std::make_shared<bool>(false);
  verb->add_flag("--json", *json, "one JSON object on standard output");
  verb->callback([action, json] {
    *action = [json] {
      return Print(*json ? absl::StrCat(VersionJson().dump(2), "\n")
                         : VersionText());
    };
  });
}

}  // namespace pipewright
