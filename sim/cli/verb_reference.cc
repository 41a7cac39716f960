#include "sim/cli/verb_reference.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "sim/cli/common.h"
#include "sim/config/config_reference.h"

namespace pipewright {
namespace {

// "-o FILE", "--steps N"; "" for what every verb has.
std::string NameOf(const CLI::Option& option) {
  const std::string name = option.get_name(option.get_positional(), true);
  if (absl::StrContains(name, "--help") ||
      absl::StrContains(name, "--version")) {
    return "";
  }
  std::string type =
      option.get_type_size_max() == 0 ? "" : option.get_type_name();
  if (!type.empty()) type = absl::StrCat(" ", type);
  return absl::StrReplaceAll(absl::StrCat(name, type), {{"|", "\\|"}});
}

void AddRows(const CLI::App& verb, const std::string& path, std::string* text) {
  std::string rows;
  for (const CLI::Option* option : verb.get_options()) {
    const std::string name = NameOf(*option);
    if (name.empty() || option->get_group() == kConfigGroup ||
        option->get_group().empty()) {
      continue;
    }
    absl::StrAppend(&rows, "| `", name, "` | ",
                    MarkdownCell(option->get_default_str()), " | ",
                    MarkdownCell(option->get_description()), " |\n");
  }
  if (!rows.empty()) {
    absl::StrAppend(text, "\n### `", path, "`\n\n", verb.get_description(),
                    ".\n\n| Option | Default | Meaning |\n|---|---|---|\n",
                    rows);
  }
  for (const CLI::App* below : verb.get_subcommands(nullptr)) {
    AddRows(*below, absl::StrCat(path, " ", below->get_name()), text);
  }
}

}  // namespace

std::string VerbReferenceMarkdown(const CLI::App& app) {
  std::string text =
      "\n## Options of each verb\n\nThe flags above set fields of the "
      "configuration. `pipewright VERB --help` lists those that a verb takes. "
      "These are its other options.\n";
  for (const CLI::App* verb : app.get_subcommands(nullptr)) {
    AddRows(*verb, verb->get_name(), &text);
  }
  return text;
}

}  // namespace pipewright
