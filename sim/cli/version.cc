#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "sim/base/json.h"
#include "sim/cli/verbs.h"
#include "sim/report/html_parts.h"

namespace pipewright {

void AddVersion(CLI::App* app, Action* action) {
  CLI::App* verb = app->add_subcommand("version", "Print the version");
  auto json = std::make_shared<bool>(false);
  verb->add_flag("--json", *json, "one JSON object on standard output");
  verb->callback([action, json] {
    *action = [json] {
      const std::string charts = ChartLibrary();
      if (!*json) {
        return Print(absl::StrCat(
            "pipewright " PIPEWRIGHT_VERSION "\ncharts of pages: ",
            charts.empty() ? "static pictures (built without npm)" : charts,
            "\n"));
      }
      const Json object = {{"version", PIPEWRIGHT_VERSION},
                           {"charts", charts.empty() ? "static" : charts}};
      return Print(absl::StrCat(object.dump(2), "\n"));
    };
  });
}

}  // namespace pipewright
