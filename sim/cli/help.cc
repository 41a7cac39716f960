#include "sim/cli/help.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sim/base/names.h"
#include "sim/base/status.h"
#include "sim/cli/common.h"
#include "sim/cli/option_table.h"
#include "sim/cli/verbs.h"
#include "sim/config/config_reference.h"
#include "sim/config/flags.h"

namespace pipewright {
namespace {

constexpr size_t kIndent = 2;
// The place CONFIG, as users read it.
constexpr char kModelOrConfig[] = "MODEL|CONFIG";
constexpr size_t kNameColumns = 27;  // of the names of options
// Flags that most runs need, of those that a verb takes: a line of them.
constexpr const char* kUsualFlags[] = {
    "--model",        "--system",  "--nodes",    "--pp",
    "--tp",           "--dp",      "--schedule", "--microbatches",
    "--global-batch", "--forward", "--set"};

// Words in lines of at most kMostHelpColumns, the first behind `head`.
std::string Wrapped(std::string head, size_t indent, absl::string_view text) {
  std::string out;
  std::string line = std::move(head);
  bool begins = true;
  for (const absl::string_view word :
       absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (!begins && line.size() + 1 + word.size() > kMostHelpColumns) {
      absl::StrAppend(&out, line, "\n");
      line.assign(indent, ' ');
      begins = true;
    }
    absl::StrAppend(&line, begins ? "" : " ", word);
    begins = false;
  }
  return absl::StrCat(out, line, "\n");
}

// The first clause, as much as a line holds.
std::string Clause(const std::string& help, size_t most) {
  std::string text = help.substr(0, help.find(';'));
  if (text.size() <= most) return text;
  const size_t aside = text.find(" (");
  if (aside != std::string::npos && aside <= most) return text.substr(0, aside);
  text.resize(text.rfind(' ', most - 3));
  return absl::StrCat(text, "...");
}

// "  --nodes N                text"
std::string OptionLine(const std::string& name, const std::string& help) {
  std::string line = absl::StrCat(std::string(kIndent, ' '), name);
  line.resize(std::max(line.size() + 2, kIndent + kNameColumns), ' ');
  return absl::StrCat(line, Clause(help, kMostHelpColumns - line.size()), "\n");
}

std::string NameOf(const OptionRow& row) {
  if (row.names.empty()) {
    return row.place == "CONFIG" ? kModelOrConfig : row.place;
  }
  std::string name = absl::StrJoin(row.names, ", ");
  if (!row.value.empty()) absl::StrAppend(&name, " ", row.value);
  return name;
}

std::string PathOf(const CLI::App& verb) {
  const CLI::App* const above = verb.get_parent();
  if (above == nullptr) return "";
  const std::string path = PathOf(*above);
  return absl::StrCat(path, path.empty() ? "" : " ", verb.get_name());
}

std::string ExamplesText(const std::string& path) {
  const std::vector<HelpExample>& examples = HelpExamples(path);
  if (examples.empty()) return "";
  std::string out = "\nExamples:\n";
  size_t longest = 0;
  constexpr size_t kMostAligned = 62;
  const auto length = [](const HelpExample& example) {
    return std::string("  pipewright ").size() +
           absl::string_view(example.words).size();
  };
  for (const HelpExample& example : examples) {
    if (length(example) <= kMostAligned) {
      longest = std::max(longest, length(example));
    }
  }
  for (const HelpExample& example : examples) {
    const std::string line = absl::StrCat("  pipewright ", example.words);
    const std::string note = absl::StrCat("  # ", example.note);
    const size_t at = std::max(line.size(), longest);
    // What does not fit beside a long command stands above it.
    if (at + note.size() > kMostHelpColumns) {
      absl::StrAppend(&out, note, "\n", line, "\n");
    } else {
      absl::StrAppend(&out, line, std::string(at - line.size(), ' '), note,
                      "\n");
    }
  }
  return out;
}

// Those of the configuration that most runs need, without their meanings.
std::string UsualFlags(const VerbRow& verb) {
  std::vector<std::string> flags;
  size_t all = 0;
  for (const OptionRow& row : verb.options) {
    all += row.group == kConfigGroup;
  }
  for (const char* const flag : kUsualFlags) {
    for (const OptionRow& row : verb.options) {
      if (row.group == kConfigGroup && !row.names.empty() &&
          row.names.back() == flag) {
        flags.push_back(row.names.back());
      }
    }
  }
  if (flags.empty()) return "";
  return absl::StrCat("\nMost used of ", all, " flags of the configuration:\n",
                      Wrapped("  ", kIndent, absl::StrJoin(flags, " ")));
}

std::string Below(const CLI::App& verb) {
  std::string out;
  for (const CLI::App* below : verb.get_subcommands(nullptr)) {
    absl::StrAppend(&out,
                    OptionLine(below->get_name(), below->get_description()));
  }
  return out.empty()
             ? ""
             : absl::StrCat("\nVerbs", PathOf(verb).empty() ? "" : " below it",
                            ":\n", out);
}

std::string Usage(const VerbRow& row) {
  std::string usage = "Usage: pipewright";
  if (row.path.empty()) return absl::StrCat(usage, " VERB [options]\n");
  absl::StrAppend(&usage, " ", row.path);
  for (const OptionRow& option : row.options) {
    if (!option.names.empty()) continue;
    absl::StrAppend(&usage, " ",
                    option.place == "CONFIG"
                        ? absl::StrCat("[", kModelOrConfig, "]")
                        : option.place);
  }
  return absl::StrCat(usage, " [options]\n");
}

std::string OwnOptions(const VerbRow& row) {
  std::string out;
  for (const OptionRow& option : row.options) {
    if (option.group == kConfigGroup || option.group.empty()) continue;
    absl::StrAppend(&out, OptionLine(NameOf(option), option.help));
  }
  return out.empty() ? "" : absl::StrCat("\nOptions:\n", out);
}

std::string More(const VerbRow& row) {
  const bool configures = std::any_of(
      row.options.begin(), row.options.end(),
      [](const OptionRow& option) { return option.group == kConfigGroup; });
  std::string out = absl::StrCat("\nEverything: pipewright ", row.path,
                                 row.path.empty() ? "" : " ", "--help all\n");
  if (configures || row.path.empty()) {
    out += Wrapped("help TOPIC: ", kIndent, absl::StrJoin(HelpTopics(), " "));
  }
  return out;
}

struct Topic {
  const char* name;
  const char* text;
};

constexpr Topic kTopics[] = {
    {"defaults",
     "What holds if nothing else is said; a note or the report names each.\n\n"
     "times         a model on a system is estimated (--analytic); a model "
     "without a\n              system, device, profile or times is refused; "
     "without a model F, B\n              and W take one unit each, and "
     "nothing "
     "is in seconds\n"
     "schedule      1f1b; interleaved-1f1b if --vpp is above 1\n"
     "degrees       of a model one rank (--pp 1); with at most one degree as "
     "many\n              replicas as fill --nodes, else the nodes it needs, "
     "or with --dp\n              tensor ranks; with --pp and --nodes, "
     "replicas fill the nodes\n"
     "batch         of a model about 4 million tokens a step, as near as the "
     "schedule\n              runs\n"
     "names         a preset wins over a folder of its name (./NAME), a file "
     "over the\n              preset (--model NAME)\n"
     "engine        simgrid, whose transfers share links\n"},
    {"exit-codes",
     "0  success\n1  a failure of Pipewright or of what is around it; a "
     "comparison off its limit\n2  bad usage; input that is missing or does "
     "not parse; impossible parameters\n3  does not fit in memory, or a limit "
     "cannot be met; the report is printed\n4  a schedule that misses, doubles "
     "or unpairs passes, or deadlocks\n"},
};

// "strategy" of "strategy.pp"; `schedule` is a verb.
std::string SectionOf(const std::string& path) {
  const std::string section = path.substr(0, path.find('.'));
  return section == "schedule" ? "schedules" : section;
}

std::string SectionPage(const std::string& section) {
  std::string out =
      absl::StrCat("Flags of ", section,
                   " (all fields: pipewright list fields; docs/config.md)\n");
  for (const ConfigFlag& flag : ConfigFlags()) {
    if (SectionOf(flag.path) != section) continue;
    absl::StrAppend(&out, "\n  ", flag.flag, " ", flag.value, "\n",
                    Wrapped("      ", 6, HelpOfFlag(flag)));
  }
  return out;
}

}  // namespace

std::string HelpPage(const CLI::App& app, const CLI::App& verb) {
  const std::string path = PathOf(verb);
  VerbRow row;
  for (VerbRow& each : TableOfOptions(app)) {
    if (each.path == path) row = std::move(each);
  }
  return absl::StrCat(Wrapped("", 0, absl::StrCat(verb.get_description(), ".")),
                      "\n", Usage(row), ExamplesText(path), UsualFlags(row),
                      OwnOptions(row), Below(verb), More(row));
}

// CLI11's help() is that of the verb that was parsed, which may be `help`.
std::string WholeHelp(const CLI::App& verb) {
  return verb.get_formatter()->make_help(&verb, "", CLI::AppFormatMode::Normal);
}

std::vector<std::string> HelpTopics() {
  std::vector<std::string> names;
  for (const ConfigFlag& flag : ConfigFlags()) {
    const std::string section = SectionOf(flag.path);
    // A field without a section has nothing beside it.
    if (!absl::StrContains(flag.path, '.') ||
        std::find(names.begin(), names.end(), section) != names.end()) {
      continue;
    }
    names.push_back(section);
  }
  for (const Topic& topic : kTopics) names.emplace_back(topic.name);
  return names;
}

absl::StatusOr<std::string> HelpOn(const CLI::App& app,
                                   const std::vector<std::string>& words) {
  const CLI::App* verb = &app;
  size_t used = 0;
  while (used < words.size()) {
    const CLI::App* next = nullptr;
    for (const CLI::App* below : verb->get_subcommands(nullptr)) {
      if (below->get_name() == words[used]) next = below;
    }
    if (next == nullptr) break;
    verb = next;
    ++used;
  }
  if (used == words.size()) return HelpPage(app, *verb);
  const std::string& word = words[used];
  if (word == "all") return WholeHelp(*verb);
  std::vector<std::string> known = HelpTopics();
  if (verb == &app) {
    for (const Topic& topic : kTopics) {
      if (word == topic.name) return std::string(topic.text);
    }
    if (std::find(known.begin(), known.end(), word) != known.end()) {
      return SectionPage(word);
    }
  } else {
    known = {"all"};
  }
  for (const CLI::App* below : verb->get_subcommands(nullptr)) {
    known.push_back(below->get_name());
  }
  return AboutField("TOPIC", UnknownName("topic", word, known));
}

void AddHelp(CLI::App* app, Action* action) {
  CLI::App* verb = app->add_subcommand(
      "help", "Explain a verb, or a topic of the configuration");
  auto words = std::make_shared<std::vector<std::string>>();
  verb->add_option("TOPIC", *words, "a verb, a verb and \"all\", or a topic")
      ->type_name("");
  verb->callback([app, action, words] {
    *action = [app, words]() -> absl::Status {
      PW_ASSIGN_OR_RETURN(const std::string page, HelpOn(*app, *words));
      return Print(page);
    };
  });
}

}  // namespace pipewright
