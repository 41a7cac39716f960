// Shared by the verbs: the configuration's options, numbers among their own
// options, standard output and standard error.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/cli/output_files.h"
#include "sim/config/config_edit.h"
#include "sim/config/config_text.h"
#include "sim/config/run_config.h"
#include "sim/foreign/foreign_args.h"

namespace pipewright {

class Json;

// What the chosen verb does; set while the command line is parsed.
using Action = std::function<absl::Status()>;

// The group of --help that the configuration's options are in.
inline constexpr char kConfigGroup[] =
    "Configuration (each flag stands for one path)";

// What was given of a configuration, its files in memory: it can be read many
// times, with more on top.
struct GivenConfig {
  std::string source;                // the configuration's file, "" without one
  std::string text;                  // and what is in it
  std::optional<ConfigText> parsed;  // the same, if many read it
  std::string arguments_file;  // of --from-args, whose fields lie below all
  std::string arguments;
  std::map<std::string, std::string> variables;  // of --env
  std::vector<std::vector<ConfigEdit>> layers;   // --set, then flags
  std::vector<std::string> notes;                // how it was understood

  // `last` lies on top. Thread-safe. Error: that of ReadConfig and
  // ReadForeignArgs.
  absl::StatusOr<RunConfig> Read(const std::vector<ConfigEdit>& last) const;

 private:
  // What the command line says beside the file of --from-args.
  ForeignSurroundings Around(
      const std::vector<std::vector<ConfigEdit>>& given) const;
};

// CONFIG (or --config), --set and the flags of sim/config/flags.h. Must stay
// where it is while CLI11 parses.
class ConfigOptions {
 public:
  enum class File { kPositional, kOption };
  // `only`: the flags taken, empty for all.
  // With kPositional, or with it in `only`, --from-args and --env too.
  void AddTo(CLI::App* verb, File file,
             const std::vector<std::string>& only = {});

  // Was any of them given?
  bool given() const;

  // The same without a command line: a file, or in its place the text of one,
  // and what --set and flags would say.
  void Give(std::string file, std::optional<std::string> text,
            std::vector<ConfigEdit> sets, std::vector<ConfigEdit> flags);

  const std::string& file() const { return file_; }
  const std::string& from_args() const { return from_args_; }
  // What was given, not yet read. `extra`: flag edits of the verb's own. Error:
  // a file that is not there, words that say two things.
  absl::StatusOr<GivenConfig> Given(std::vector<ConfigEdit> extra = {}) const {
    return GivenWith(file_, std::move(extra));
  }

  // File, --set and flags as one. `extra`: flag edits of the verb's own. Tells
  // `files`, if not null, of every file that the run is read from.
  absl::StatusOr<RunConfig> Read(OutputFiles* files,
                                 std::vector<ConfigEdit> extra = {}) const;
  // The same of what Given has made, `last` on top.
  static absl::StatusOr<RunConfig> ReadGiven(OutputFiles* files,
                                             const GivenConfig& given,
                                             std::vector<ConfigEdit> last);
  // Another run for comparison: `other` is a configuration to read in place of
  // the file, with the same --set and flags on top, or "PATH=VALUE[,...]" on
  // top of everything.
  absl::StatusOr<RunConfig> ReadOther(OutputFiles* files,
                                      const std::string& other) const;

 private:
  absl::StatusOr<std::vector<std::vector<ConfigEdit>>> Layers(
      std::vector<ConfigEdit> extra) const;
  absl::StatusOr<GivenConfig> GivenWith(const std::string& file,
                                        std::vector<ConfigEdit> extra) const;
  absl::StatusOr<RunConfig> ReadLayers(OutputFiles* files,
                                       const std::string& file,
                                       std::vector<ConfigEdit> extra,
                                       std::vector<ConfigEdit> last) const;

  std::string file_;
  std::optional<std::string> text_;  // of Give, in place of the file's
  std::vector<ConfigEdit> given_sets_;
  std::vector<ConfigEdit> given_flags_;
  std::string from_args_;
  std::vector<std::string> environment_;  // NAME=VALUE, or NAME
  std::vector<std::string> sets_;
  // One a row of ConfigFlags(); a deque keeps addresses.
  std::deque<std::vector<std::string>> values_;
};

// For an option that takes an integer, or several: the error for another value
// says which values it takes.
CLI::Validator IntegerCheck(const std::string& flag, int64_t least,
                            int64_t most);
template <typename Integer>
CLI::Option* AddInteger(CLI::App* verb, const std::string& flag,
                        Integer* target, int64_t least, int64_t most,
                        const std::string& help) {
  return verb->add_option(flag, *target, help)
      ->check(IntegerCheck(flag, least, most));
}
CLI::Validator NumberCheck(const std::string& flag, double above, double most);

// What a check of options throws, so that nothing is lost on the way through
// CLI11.
class RefusedOption : public CLI::ParseError {
 public:
  explicit RefusedOption(absl::Status status)
      : CLI::ParseError("RefusedOption", std::string(status.message()),
                        CLI::ExitCodes::InvalidError),
        status_(std::move(status)) {}
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

// The words of this call as a shell reads them back, "pipewright sweep a.yaml".
void SetCommandLine(int argc, const char* const* argv);
const std::string& CommandLine();

// Standard output, all of it or an error (a full disk, a closed pipe).
absl::Status Print(absl::string_view text);
// Says that the report has gone where it belongs, to a file or standard output.
void MarkReported();

// Says on standard error what has failed and, for a caller that wants JSON
// (SetJson) and has no report, as one object on standard output. Returns the
// exit code. Another process has reported an error without a message.
int Refuse(const absl::Status& status);
// Are refusals wanted as JSON? Once, from the command line.
void SetJson(bool json);
// {"exit", "file", "line", "field", "value", "allowed", "message"}.
Json ErrorToJson(const absl::Status& status);
// Standard error.
void PrintWarnings(const std::vector<std::string>& warnings);

absl::Status NotAvailable(absl::string_view what);

// At most `most` bytes of a file, gzip or not; below 0 all of them. Error: that
// of InputFile.
absl::StatusOr<std::string> ReadText(const std::string& path,
                                     int64_t most = -1);

// First bytes of a file, gzip or not, enough to tell what it is; "" of a pipe,
// which cannot be read again.
absl::StatusOr<std::string> ReadHead(const std::string& path);

// Folders of traces of PyTorch's profiler, one file a rank.
bool IsFolder(const std::string& path);

// Its .json and .json.gz files in the order of their names, 2 before 10.
// Error: kNotFound for a folder that cannot be read.
absl::StatusOr<std::vector<std::string>> TracesOfFolder(
    const std::string& folder);

}  // namespace pipewright
