#include <algorithm>
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sim/base/exceptions.h"
#include "sim/base/names.h"
#include "sim/base/status.h"
#include "sim/cli/verbs.h"

namespace pipewright {
namespace {

// In DESIGN section 4, but not in this version.
constexpr const char* kLaterVerbs[] = {"sweep", "plan", "explain", "plot"};

void AddLaterVerbs(CLI::App* app, Action* action) {
  for (const char* name : kLaterVerbs) {
    CLI::App* verb =
        app->add_subcommand(name, "(not available in this version)");
    verb->allow_extras();
    verb->callback(
        [name, action] { *action = [name] { return NotAvailable(name); }; });
  }
}

int Fail(const absl::Status& status) {
  // An error without words: another process of the run has said them.
  if (!status.ok() && !status.message().empty()) {
    // A grid ends in a line of its own; no empty one behind it.
    std::fprintf(
        stderr, "pipewright: error: %s\n",
        std::string(absl::StripTrailingAsciiWhitespace(status.message()))
            .c_str());
  }
  return ExitCode(status);
}

// The message of CLI11, and for an unknown option the nearest known one.
absl::Status UsageError(const CLI::App& app, const CLI::ParseError& error) {
  std::string message = error.what();
  const std::vector<CLI::App*> verbs = app.get_subcommands();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr &&
      !verbs.empty()) {
    std::vector<std::string> known;
    for (const CLI::Option* option : verbs[0]->get_options()) {
      for (const std::string& name : option->get_lnames()) {
        known.push_back(absl::StrCat("--", name));
      }
    }
    for (const absl::string_view word : absl::StrSplit(message, ' ')) {
      if (!absl::StartsWith(word, "-")) continue;
      const absl::string_view name = word.substr(0, word.find('='));
      const std::string nearest = NearestName(name, known);
      message = absl::StrCat(
          "unknown option '", name, "'",
          nearest.empty() ? ""
                          : absl::StrCat("; did you mean '", nearest, "'?"),
          " (all of them: pipewright ", verbs[0]->get_name(), " --help)");
      break;
    }
  }
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr &&
      !verbs.empty()) {
    for (const CLI::Option* option : verbs[0]->get_options()) {
      if (option->get_items_expected_max() == 1 && option->count() > 1) {
        message = absl::StrCat(option->get_name(), " is given twice");
      }
    }
  }
  return absl::InvalidArgumentError(message);
}

std::vector<std::string> VerbNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands(nullptr)) {
    names.push_back(verb->get_name());
  }
  return names;
}

}  // namespace

int RunCommandLine(int argc, char** argv) {
  CLI::App app(
      "Pipewright: simulates pipeline-parallel training. Exit codes: 0 "
      "success, 1 failure, 2 bad usage or input, 3 does not fit or a limit "
      "cannot be met, 4 a schedule that is incomplete or deadlocks.",
      "pipewright");
  app.require_subcommand(1);
  app.set_version_flag("--version",
                       std::string("pipewright " PIPEWRIGHT_VERSION));
  Action action;
  AddSimulate(&app, &action);
  AddSchedule(&app, &action);
  AddCheck(&app, &action);
  AddList(&app, &action);
  AddCompare(&app, &action);
  AddReproduce(&app, &action);
  AddInit(&app, &action);
  AddCalibrate(&app, &action);
  AddExecute(&app, &action);
  AddVersion(&app, &action);
  AddLaterVerbs(&app, &action);

  if (argc < 2) {
    std::fputs(app.help().c_str(), stderr);
    return Fail(absl::InvalidArgumentError("a verb is missing"));
  }
  const std::string first = argv[1];
  const std::vector<std::string> verb_names = VerbNames(app);
  if (!absl::StartsWith(first, "-") &&
      std::find(verb_names.begin(), verb_names.end(), first) ==
          verb_names.end()) {
    return Fail(UnknownName("verb", first, verb_names));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const std::vector<CLI::App*> verbs = app.get_subcommands();
    return Fail(Print(verbs.empty() ? app.help() : verbs[0]->help()));
  } catch (const CLI::CallForVersion& version) {
    return Fail(Print(absl::StrCat(version.what(), "\n")));
  } catch (const CLI::ParseError& error) {
    return Fail(UsageError(app, error));
  }
  return Fail(WithoutExceptions(action));
}

}  // namespace pipewright
