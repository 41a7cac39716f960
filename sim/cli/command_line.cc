#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sim/base/error_parts.h"
#include "sim/base/input.h"
#include "sim/base/names.h"
#include "sim/base/status.h"
#include "sim/base/version.h"
#include "sim/cli/help.h"
#include "sim/cli/progress_bar.h"
#include "sim/cli/verbs.h"

namespace pipewright {
namespace {

// The verb, or what stands below it ("calibrate import").
const CLI::App* LastVerb(const CLI::App& app) {
  const CLI::App* last = &app;
  while (!last->get_subcommands().empty()) {
    last = last->get_subcommands()[0];
  }
  return last;
}

std::string PathOf(const CLI::App& app, const CLI::App* verb) {
  if (verb == &app) return app.get_name();
  return absl::StrCat(PathOf(app, verb->get_parent()), " ", verb->get_name());
}

// For an unknown option the nearest known one.
absl::Status UnknownOption(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* const verb = LastVerb(app);
  std::vector<std::string> known;
  for (const CLI::Option* option : verb->get_options()) {
    for (const std::string& name : option->get_lnames()) {
      known.push_back(absl::StrCat("--", name));
    }
  }
  const std::string message = error.what();
  for (const absl::string_view word : absl::StrSplit(message, ' ')) {
    if (!absl::StartsWith(word, "-")) continue;
    const absl::string_view name = word.substr(0, word.find('='));
    const std::string nearest = NearestName(name, known);
    if (nearest == name) {
      const std::string path = PathOf(app, verb);
      return AboutField(
          name,
          absl::InvalidArgumentError(absl::StrCat(
              "option '", name,
              "' stands in front of the verb; allowed: ", path, " ", name)));
    }
    return AboutField(
        name,
        absl::InvalidArgumentError(absl::StrCat(
            "unknown option '", name, "'",
            nearest.empty() ? ""
                            : absl::StrCat("; did you mean '", nearest, "'?"),
            " (all of them: ", PathOf(app, verb), " --help all)")));
  }
  return absl::InvalidArgumentError(message);
}

// The message of CLI11, with the option that it is about.
absl::Status UsageError(const CLI::App& app, const CLI::ParseError& error) {
  if (const auto* refused = dynamic_cast<const RefusedOption*>(&error)) {
    return refused->status();
  }
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    return UnknownOption(app, error);
  }
  const absl::Status status = absl::InvalidArgumentError(error.what());
  const bool mismatch =
      dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr;
  const bool required =
      dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  for (const CLI::Option* option : LastVerb(app)->get_options()) {
    if (mismatch && option->get_items_expected_max() == 1 &&
        option->count() > 1) {
      return AboutField(option->get_name(),
                        absl::InvalidArgumentError(absl::StrCat(
                            option->get_name(), " is given twice")));
    }
    if (required && option->get_required() && option->count() == 0) {
      const std::string& what = option->get_description();
      return what.empty() ? AboutField(option->get_name(), status)
                          : MissingValue(option->get_name(), what);
    }
  }
  return status;
}

std::vector<std::string> VerbNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands(nullptr)) {
    names.push_back(verb->get_name());
  }
  return names;
}

struct VerbEntry {
  const char* name;
  void (*add)(CLI::App* app, Action* action);
};

// In the order of --help.
constexpr VerbEntry kVerbs[] = {
    {"simulate", &AddSimulate},
    {"schedule", &AddSchedule},
    {"check", &AddCheck},
    {"list", &AddList},
    {"compare", &AddCompare},
    {"reproduce", &AddReproduce},
    {"explain", &AddExplain},
    {"diagnose", &AddDiagnose},
    {"plot", &AddPlot},
    {"init", &AddInit},
    {"calibrate", &AddCalibrate},
    {"execute", &AddExecute},
    {"sweep", &AddSweep},
    {"plan", &AddPlan},
    {"version", &AddVersion},
    {"completion", &AddCompletion},
    {"man", &AddMan},
    {"help", &AddHelp},
};

// Most of a start is the description of options, so only the verb that is asked
// for has some: if it says nothing of other verbs, and no other is named.
const VerbEntry* OnlyVerb(int argc, char** argv) {
  const VerbEntry* only = nullptr;
  for (int index = 1; index < argc; ++index) {
    const absl::string_view word = argv[index];
    for (const VerbEntry& verb : kVerbs) {
      if (word != verb.name) continue;
      if (index > 1) return nullptr;
      only = &verb;
    }
  }
  if (only == nullptr) return nullptr;
  for (const char* const name : {"list", "completion", "man", "help"}) {
    if (absl::string_view(name) == only->name) return nullptr;
  }
  return only;
}

}  // namespace

void AddVersionFlag(CLI::App* app) {
  app->set_version_flag("--version",
                        absl::StrCat("pipewright ", kVersion));
}

void AddVerbs(CLI::App* app, Action* action) {
  for (const VerbEntry& verb : kVerbs) verb.add(app, action);
}

namespace {

// The words that `help` would be asked with where --help or -h is among them;
// nothing where it is not.
std::optional<std::vector<std::string>> AskedFor(int argc, char** argv) {
  std::vector<std::string> words;
  bool leading = true;
  for (int index = 1; index < argc; ++index) {
    const absl::string_view word = argv[index];
    if (word == "--help" || word == "-h") {
      if (index + 1 < argc && absl::string_view(argv[index + 1]) == "all") {
        words.emplace_back("all");
      }
      return words;
    }
    leading = leading && !absl::StartsWith(word, "-");
    if (leading) words.emplace_back(word);
  }
  return std::nullopt;
}

// The help that was asked for: of the verbs among the leading words, others
// are what it would be run with.
std::string HelpAsked(const CLI::App& app,
                      const std::vector<std::string>& words) {
  const CLI::App* verb = &app;
  for (const std::string& word : words) {
    for (const CLI::App* below : verb->get_subcommands(nullptr)) {
      if (below->get_name() == word) {
        verb = below;
        break;
      }
    }
  }
  return !words.empty() && words.back() == "all" ? WholeHelp(*verb)
                                                 : HelpPage(app, *verb);
}

}  // namespace

namespace {

// A bar for each file that takes long to read, if the main thread reads it.
void ShowReading(const std::string& path, double part) {
  struct Reading {
    std::thread::id thread = std::this_thread::get_id();
    std::string path;
    std::optional<ProgressBar> bar;
  };
  static Reading reading;
  if (std::this_thread::get_id() != reading.thread) return;
  if (part >= 1) {
    reading.bar.reset();
    reading.path.clear();
    return;
  }
  if (path != reading.path) {
    reading.bar.emplace();
    reading.path = path;
  }
  reading.bar->At(part, path);
}

}  // namespace

int RunCommandLine(int argc, char** argv) {
  if (::isatty(STDERR_FILENO) != 0) WatchInput(&ShowReading);
  CLI::App app("Pipewright simulates pipeline-parallel training", "pipewright");
  app.require_subcommand(1);
  AddVersionFlag(&app);
  Action action;
  if (const VerbEntry* const only = OnlyVerb(argc, argv); only != nullptr) {
    only->add(&app, &action);
  } else {
    AddVerbs(&app, &action);
  }

  SetCommandLine(argc, argv);
  SetJson(std::find_if(argv, argv + argc, [](const char* word) {
            return absl::string_view(word) == "--json";
          }) != argv + argc);
  if (argc < 2) {
    std::fputs(HelpPage(app, app).c_str(), stderr);
    return Refuse(absl::InvalidArgumentError("a verb is missing"));
  }
  const std::string first = argv[1];
  const std::vector<std::string> verb_names = VerbNames(app);
  if (!absl::StartsWith(first, "-") &&
      std::find(verb_names.begin(), verb_names.end(), first) ==
          verb_names.end()) {
    return Refuse(UnknownName("verb", first, verb_names));
  }
  if (const auto words = AskedFor(argc, argv)) {
    return Refuse(Print(HelpAsked(app, *words)));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForVersion& version) {
    return Refuse(Print(absl::StrCat(version.what(), "\n")));
  } catch (const CLI::ParseError& error) {
    return Refuse(UsageError(app, error));
  }
  return Refuse(WithoutExceptions(action));
}

}  // namespace pipewright
