#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "sim/cli/verbs.h"

namespace pipewright {

void AddVersion(CLI::App* app, Action* action) {
  CLI::App* verb = app->add_subcommand("version", "Print the version");
  auto json = std::make_shared<bool>(false);
  verb->add_flag("--json", *json, "one JSON object on standard output");
  verb->callback([action, json] {
    *action = [json] {
      if (!*json) return Print("pipewright " PIPEWRIGHT_VERSION "\n");
      const nlohmann::ordered_json object = {{"version", PIPEWRIGHT_VERSION}};
      return Print(absl::StrCat(object.dump(2), "\n"));
    };
  });
}

}  // namespace pipewright
