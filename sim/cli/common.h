// What the verbs share: the configuration's options, and output that is
// written only once all of it is there.
#pragma once

#include <CLI/CLI.hpp>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/config/config_edit.h"
#include "sim/config/run_config.h"

namespace pipewright {

// What the chosen verb does; set while the command line is parsed.
using Action = std::function<absl::Status()>;

// CONFIG (or --config), --set and the flags of sim/config/flags.h. Must stay
// where it is while CLI11 parses.
class ConfigOptions {
 public:
  enum class File { kPositional, kOption };
  // `only`: the flags taken, empty for all.
  void AddTo(CLI::App* verb, File file,
             const std::vector<std::string>& only = {});

  // Was any of them given?
  bool given() const;

  // File, --set and flags as one. `extra`: flag edits of the verb's own.
  absl::StatusOr<RunConfig> Read(std::vector<ConfigEdit> extra = {}) const;

 private:
  std::string file_;
  std::vector<std::string> sets_;
  // One a row of ConfigFlags(); a deque keeps addresses.
  std::deque<std::vector<std::string>> values_;
};

// Files that a verb was asked for. Check() before the work, Write() after it.
class OutputFiles {
 public:
  void AddTo(CLI::App* verb, const std::string& flag, const std::string& help);
  bool wanted(absl::string_view flag) const;
  // "" where it was not given.
  std::string path(absl::string_view flag) const;

  // The folder of each is there, and no two are the same file.
  absl::Status Check() const;
  void Put(absl::string_view flag, std::string content);
  // To standard output what has no file (-o not given), files otherwise.
  absl::Status Write() const;

 private:
  struct File {
    std::string flag;
    std::string path;
    std::string content;
    CLI::Option* option = nullptr;
  };
  std::deque<File> files_;
};

// Standard output, all of it or an error (a full disk, a closed pipe).
absl::Status Print(absl::string_view text);
// Standard error.
void PrintWarnings(const std::vector<std::string>& warnings);

absl::Status NotAvailable(absl::string_view what);

}  // namespace pipewright
