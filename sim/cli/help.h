// Help in layers: a page of a screen for each verb, with examples that a test
// runs; everything with --help all; and pages of topics, `pipewright help
// TOPIC`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pipewright {

// Limits of a short page.
inline constexpr size_t kMostHelpLines = 45;
inline constexpr size_t kMostHelpColumns = 100;

struct HelpExample {
  const char* words;  // behind "pipewright"
  const char* note;
};

// Those of a verb ("calibrate show"; "" for the program), in an order in which
// they run in one folder; empty for a verb that has none.
const std::vector<HelpExample>& HelpExamples(absl::string_view verb);

// The short page of `verb`, which is below `app` or `app` itself.
std::string HelpPage(const CLI::App& app, const CLI::App& verb);

// Everything: what CLI11 makes of the verb.
std::string WholeHelp(const CLI::App& verb);

// Names of topics: sections of the configuration and others.
std::vector<std::string> HelpTopics();

// What `pipewright help WORDS` prints: the program, a verb, a verb and "all",
// or a topic. Error: kInvalidArgument for a word that is none, with the nearest
// one.
absl::StatusOr<std::string> HelpOn(const CLI::App& app,
                                   const std::vector<std::string>& words);

}  // namespace pipewright
