// The verbs and their options as data, read from the command line's own
// definition, so that completion and the manual page say what --help says.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace pipewright {

struct OptionRow {
  std::vector<std::string> names;   // "-o", "--pp"; empty: by its place
  std::string place;                // "CONFIG", of an option without a name
  std::string value;                // "N", "FILE"; "": takes none
  bool needs_value = false;         // false with `value`: may stand alone
  bool file = false;                // a value may be a file
  std::vector<std::string> values;  // those that have a name
  std::string fallback;
  std::string help;
  std::string group;
};

struct VerbRow {
  std::string path;  // "calibrate import"; "" for the program itself
  std::string help;
  std::vector<std::string> below;  // verbs of its own
  std::vector<OptionRow> options;  // without --help
};

// The program first, then each verb before those below it. Verbs that are not
// in this version are left out.
std::vector<VerbRow> TableOfOptions(const CLI::App& app);

// Names that a field takes, by its path: those of models for "model.preset".
std::vector<std::string> NamesOfField(const std::string& path);

// The options of each verb besides the configuration's flags, as Markdown:
// read from the command line's own definition.
std::string VerbReferenceMarkdown(const CLI::App& app);

}  // namespace pipewright
