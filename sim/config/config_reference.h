// The reference of the configuration, made from the rows that the program
// itself reads (config_fields.h). docs/config.md is this as Markdown.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "sim/config/flags.h"

namespace pipewright {

struct FieldReference {
  std::string path;      // "strategy.pp"
  std::string type;      // "integer", "list of times"
  std::string allowed;   // "1 to 65536", "flash, unfused"; "": see `meaning`
  std::string fallback;  // where the field is not given; "": none
  std::string flag;      // "--pp N"; "": only --set and the file
  std::string meaning;
};

// In the order of ConfigFields().
const std::vector<FieldReference>& ConfigReference();

// What --help says of a flag: its path, the field's meaning and default.
std::string HelpOfFlag(const ConfigFlag& flag);

// One table for each section of the configuration.
std::string ConfigReferenceMarkdown();

// `text` as a cell of a Markdown table.
std::string MarkdownCell(absl::string_view text);

}  // namespace pipewright
