#include "sim/cli/common.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "sim/base/error_parts.h"
#include "sim/base/gzip.h"
#include "sim/base/input.h"
#include "sim/base/json.h"
#include "sim/base/nearest.h"
#include "sim/base/shell_word.h"
#include "sim/base/status.h"
#include "sim/cli/given_form.h"
#include "sim/config/config_reference.h"
#include "sim/config/flags.h"
#include "sim/foreign/foreign_args.h"
#include "sim/topology/system.h"

namespace pipewright {
namespace {

struct Spoken {
  bool json = false;      // refusals as JSON
  bool reported = false;  // something is on standard output, or in its file
};

Spoken& State() {
  static Spoken state;
  return state;
}

std::string& GivenWords() {
  static std::string words;
  return words;
}

// A grid ends in a line of its own; no empty one behind it.
std::string Words(const absl::Status& status) {
  return std::string(absl::StripTrailingAsciiWhitespace(status.message()));
}

template <typename Part>
Json OrNull(const std::optional<Part>& part) {
  return part ? Json(*part) : Json();
}

constexpr char kFromArgs[] = "--from-args";

void AddFromArgs(CLI::App* verb, std::string* file,
                 std::vector<std::string>* environment) {
  verb->add_option(kFromArgs, *file,
                   "arguments of another trainer: Megatron's (a script or "
                   "flags), a Megatron-Bridge recipe (.yaml) or overrides, "
                   "torchtitan's TOML (.toml) or Python (.py), DeepSpeed's "
                   "JSON (.json)")
      ->type_name("FILE")
      ->group(kConfigGroup);
  verb->add_option("--env", *environment,
                   "with --from-args: value of a variable that a script does "
                   "not set; NAME alone takes it from the environment")
      ->type_name("NAME[=VALUE]")
      ->allow_extra_args(false)
      ->group(kConfigGroup);
}

}  // namespace

void ConfigOptions::AddTo(CLI::App* verb, File file,
                          const std::vector<std::string>& only) {
  if (file == File::kPositional) {
    verb->add_option("CONFIG", file_,
                     "a model or a configuration: a preset, a Hugging Face "
                     "folder or file, a file of --from-args, or YAML, JSON or "
                     "text protobuf (pipewright init)")
        ->type_name("");
  } else {
    verb->add_option(
            "--config", file_,
            "configuration: YAML, JSON or text protobuf (pipewright init)")
        ->type_name("FILE")
        ->group(kConfigGroup);
  }
  verb->add_option("--set", sets_, "any field: --set strategy.pp=8")
      ->type_name("PATH=VALUE")
      ->allow_extra_args(false)
      ->group(kConfigGroup);
  for (const ConfigFlag& flag : ConfigFlags()) {
    values_.emplace_back();
    if (!only.empty() &&
        std::find(only.begin(), only.end(), flag.flag) == only.end()) {
      continue;
    }
    CLI::Option* option =
        verb->add_option(flag.flag, values_.back(), HelpOfFlag(flag))
            ->type_name(flag.value)
            ->allow_extra_args(false)
            ->group(kConfigGroup);
    if (!flag.alone.empty()) {
      option->expected(0, 1);
    } else if (!flag.repeats) {
      option->expected(1);
    }
  }
  if (file == File::kPositional ||
      std::find(only.begin(), only.end(), kFromArgs) != only.end()) {
    AddFromArgs(verb, &from_args_, &environment_);
  }
}

namespace {

// Frameworks pad the embedding table, wherever its size came from.
void PadVocabulary(int64_t multiple, RunConfig* config) {
  std::optional<int64_t>& rows = config->model.vocabulary;
  if (multiple <= 1 || !rows || *rows % multiple == 0) return;
  const int64_t padded = (*rows + multiple - 1) / multiple * multiple;
  config->notes.push_back(absl::StrCat(config->Field("model.vocabulary"), ": ",
                                       *rows, " is padded to ", padded,
                                       ", a multiple of ", multiple));
  rows = padded;
}

}  // namespace

void ConfigOptions::Give(std::string file, std::optional<std::string> text,
                         std::vector<ConfigEdit> sets,
                         std::vector<ConfigEdit> flags) {
  file_ = std::move(file);
  text_ = std::move(text);
  given_sets_ = std::move(sets);
  given_flags_ = std::move(flags);
}

bool ConfigOptions::given() const {
  return !file_.empty() || !from_args_.empty() || !sets_.empty() ||
         !given_sets_.empty() || !given_flags_.empty() ||
         std::any_of(values_.begin(), values_.end(),
                     [](const auto& values) { return !values.empty(); });
}

absl::StatusOr<RunConfig> ConfigOptions::Read(
    OutputFiles* files, std::vector<ConfigEdit> extra) const {
  return ReadLayers(files, file_, std::move(extra), {});
}

absl::StatusOr<RunConfig> ConfigOptions::ReadOther(
    OutputFiles* files, const std::string& other) const {
  const size_t equals = other.find('=');
  const size_t slash = other.find('/');
  if (equals == std::string::npos || slash < equals) {
    return ReadLayers(files, other, {}, {});
  }
  std::vector<ConfigEdit> last;
  std::string text;
  const auto add = [&]() -> absl::Status {
    PW_ASSIGN_OR_RETURN(ConfigEdit edit, EditOfSet(text));
    edit.origin = absl::StrCat("--versus ", text);
    last.push_back(std::move(edit));
    return absl::OkStatus();
  };
  // A part without "=" goes on with a list.
  for (absl::string_view part : absl::StrSplit(other, ',')) {
    if (!text.empty() && absl::StrContains(part, '=')) {
      PW_RETURN_IF_ERROR(add());
      text.clear();
    }
    absl::StrAppend(&text, text.empty() ? "" : ",", part);
  }
  PW_RETURN_IF_ERROR(add());
  return ReadLayers(files, file_, {}, std::move(last));
}

absl::StatusOr<std::vector<std::vector<ConfigEdit>>> ConfigOptions::Layers(
    std::vector<ConfigEdit> extra) const {
  std::vector<ConfigEdit> sets = given_sets_;
  for (const std::string& text : sets_) {
    PW_ASSIGN_OR_RETURN(ConfigEdit edit, EditOfSet(text));
    sets.push_back(std::move(edit));
  }
  std::vector<ConfigEdit> flags = std::move(extra);
  flags.insert(flags.end(), given_flags_.begin(), given_flags_.end());
  for (size_t row = 0; row < values_.size(); ++row) {
    for (const std::string& value : values_[row]) {
      PW_ASSIGN_OR_RETURN(ConfigEdit edit,
                          EditOfFlag(ConfigFlags()[row], value));
      flags.push_back(std::move(edit));
    }
  }
  std::vector<std::vector<ConfigEdit>> layers;
  layers.push_back(std::move(sets));
  layers.push_back(std::move(flags));
  return layers;
}

namespace {

// The fields of a configuration's file, whatever its form.
absl::StatusOr<std::vector<ConfigEdit>> EditsOfFile(absl::string_view text,
                                                    const std::string& file) {
  PW_ASSIGN_OR_RETURN(const RunConfig config, ReadConfig(text, file));
  const std::string lines = ToString(config);
  std::vector<ConfigEdit> edits;
  for (const absl::string_view line :
       absl::StrSplit(lines, '\n', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> field =
        absl::StrSplit(line, absl::MaxSplits(": ", 1));
    if (std::find(config.defaulted.begin(), config.defaulted.end(),
                  field.first) == config.defaulted.end()) {
      edits.push_back({field.first, field.second, file});
    }
  }
  return edits;
}

}  // namespace

ForeignSurroundings GivenConfig::Around(
    const std::vector<std::vector<ConfigEdit>>& given) const {
  ForeignSurroundings around;
  for (const std::vector<ConfigEdit>& layer : given) {
    for (const ConfigEdit& edit : layer) around.given[edit.path] = edit.value;
  }
  const auto system = around.given.find("system.preset");
  if (system != around.given.end()) {
    const absl::StatusOr<ShapeParams> shape = FindSystem(system->second);
    if (shape.ok()) around.devices_per_node = shape->devices_per_node;
  }
  around.environment = [values = variables](const std::string& name) {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt
                                 : std::optional<std::string>(found->second);
  };
  return around;
}

absl::StatusOr<RunConfig> GivenConfig::Read(
    const std::vector<ConfigEdit>& last) const {
  std::vector<std::vector<ConfigEdit>> all = layers;
  all.push_back(last);
  ForeignArgs foreign;
  if (!arguments_file.empty()) {
    // The configuration's file lies above the foreign one.
    std::vector<ConfigEdit> above;
    if (!source.empty()) {
      PW_ASSIGN_OR_RETURN(above, EditsOfFile(text, source));
    }
    std::vector<std::vector<ConfigEdit>> given = all;
    given.insert(given.begin(), above);
    PW_ASSIGN_OR_RETURN(
        foreign, ReadForeignArgs(arguments, arguments_file, Around(given)));
    std::erase_if(foreign.edits, [&above](const ConfigEdit& edit) {
      return std::any_of(
          above.begin(), above.end(),
          [&edit](const ConfigEdit& key) { return key.path == edit.path; });
    });
    all.insert(all.begin(), std::move(foreign.edits));
  }
  PW_ASSIGN_OR_RETURN(RunConfig config, parsed ? parsed->With(all)
                                               : ReadConfig(text, source, all));
  PadVocabulary(foreign.vocabulary_multiple, &config);
  config.notes.insert(config.notes.end(), foreign.notes.begin(),
                      foreign.notes.end());
  config.notes.insert(config.notes.end(), notes.begin(), notes.end());
  return config;
}

absl::StatusOr<GivenConfig> ConfigOptions::GivenWith(
    const std::string& file, std::vector<ConfigEdit> extra) const {
  GivenConfig given = {.source = file, .arguments_file = from_args_};
  PW_ASSIGN_OR_RETURN(given.layers, Layers(std::move(extra)));
  if (text_ && file == file_) {
    given.text = *text_;
  } else {
    PW_RETURN_IF_ERROR(TakeGiven(&given));
    if (!given.source.empty()) {
      PW_ASSIGN_OR_RETURN(given.text, ReadFile(given.source));
    }
  }
  if (given.arguments_file.empty()) return given;
  PW_ASSIGN_OR_RETURN(given.arguments, ReadFile(given.arguments_file));
  for (const std::string& text : environment_) {
    const size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    if (equals != std::string::npos) {
      given.variables[name] = text.substr(equals + 1);
      continue;
    }
    const char* const value = std::getenv(name.c_str());
    if (value == nullptr) {
      return BadValue("--env", name, "a variable that is set, or NAME=VALUE");
    }
    given.variables[name] = value;
  }
  return given;
}

absl::StatusOr<RunConfig> ConfigOptions::ReadLayers(
    OutputFiles* files, const std::string& file, std::vector<ConfigEdit> extra,
    std::vector<ConfigEdit> last) const {
  PW_ASSIGN_OR_RETURN(const GivenConfig given,
                      GivenWith(file, std::move(extra)));
  return ReadGiven(files, given, std::move(last));
}

absl::StatusOr<RunConfig> ConfigOptions::ReadGiven(
    OutputFiles* files, const GivenConfig& given,
    std::vector<ConfigEdit> last) {
  if (files != nullptr && !given.arguments_file.empty()) {
    files->Reads("--from-args", given.arguments_file);
  }
  PW_ASSIGN_OR_RETURN(RunConfig config, given.Read(last));
  if (files != nullptr) {
    files->Reads("the configuration", given.source);
    for (const InputField& input : InputFields(config)) {
      files->Reads(input.field, input.path);
    }
  }
  return config;
}

CLI::Validator IntegerCheck(const std::string& flag, int64_t least,
                            int64_t most) {
  const auto check = [=](const std::string& text) {
    int64_t value = 0;
    if (!absl::SimpleAtoi(text, &value) || value < least || value > most) {
      throw RefusedOption(WithDigits(
          text,
          BadValue(flag, text,
                   absl::StrCat("an integer from ", least, " to ", most))));
    }
    return std::string();
  };
  return CLI::Validator(check, "");
}

CLI::Validator NumberCheck(const std::string& flag, double above, double most) {
  const auto check = [=](const std::string& text) {
    double value = 0;
    if (!absl::SimpleAtod(text, &value) || !(value > above && value <= most)) {
      throw RefusedOption(
          BadValue(flag, text,
                   absl::StrCat("a number above ", above, ", at most ", most)));
    }
    return std::string();
  };
  return CLI::Validator(check, "");
}

void SetCommandLine(int argc, const char* const* argv) {
  GivenWords() = "pipewright";
  for (int index = 1; index < argc; ++index) {
    absl::StrAppend(&GivenWords(), " ", QuotedWord(argv[index]));
  }
}

const std::string& CommandLine() { return GivenWords(); }

absl::Status Print(absl::string_view text) {
  MarkReported();
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (written && std::fflush(stdout) == 0) return absl::OkStatus();
  return absl::UnknownError(
      absl::StrCat("cannot write to standard output: ", std::strerror(errno)));
}

void MarkReported() { State().reported = true; }

void SetJson(bool json) { State() = {.json = json}; }

Json ErrorToJson(const absl::Status& status) {
  const ErrorParts parts = PartsOf(status);
  return {{"exit", ExitCode(status)},     {"file", OrNull(parts.file)},
          {"line", OrNull(parts.line)},   {"field", OrNull(parts.field)},
          {"value", OrNull(parts.value)}, {"allowed", OrNull(parts.allowed)},
          {"message", Words(status)}};
}

int Refuse(const absl::Status& status) {
  if (status.ok() || status.message().empty()) return ExitCode(status);
  std::fprintf(stderr, "pipewright: error: %s\n", Words(status).c_str());
  if (State().json && !State().reported) {
    const Json object = {{"error", ErrorToJson(status)}};
    // It makes no difference any more whether this can be written.
    Print(absl::StrCat(object.dump(2), "\n")).IgnoreError();
  }
  return ExitCode(status);
}

void PrintWarnings(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) {
    std::fprintf(stderr, "pipewright: warning: %s\n", warning.c_str());
  }
}

absl::Status NotAvailable(absl::string_view what) {
  return FieldError(what, "not available in this version");
}

absl::StatusOr<std::string> ReadText(const std::string& path, int64_t most) {
  PW_ASSIGN_OR_RETURN(const auto in,
                      InputFile::Open(path, InputKind::kProfile));
  std::string text;
  std::string block(size_t{1} << 16, '\0');
  while (most < 0 || static_cast<int64_t>(text.size()) < most) {
    in->stream().read(block.data(), static_cast<std::streamsize>(block.size()));
    if (in->stream().gcount() == 0) break;
    text.append(block, 0, static_cast<size_t>(in->stream().gcount()));
  }
  if (most < 0) PW_RETURN_IF_ERROR(in->status());
  return text;
}

absl::StatusOr<std::string> ReadHead(const std::string& path) {
  constexpr int64_t kHeadBytes = int64_t{1} << 20;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return "";
  return ReadText(path, kHeadBytes);
}

bool IsFolder(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

absl::StatusOr<std::vector<std::string>> TracesOfFolder(
    const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  std::filesystem::directory_iterator at(folder, error);
  for (; !error && at != std::filesystem::directory_iterator();
       at.increment(error)) {
    const std::string path = at->path().string();
    if (absl::EndsWith(path, ".json") || absl::EndsWith(path, ".json.gz")) {
      paths.push_back(path);
    }
  }
  if (error) {
    return absl::NotFoundError(absl::StrCat(folder, ": ", error.message()));
  }
  std::sort(paths.begin(), paths.end(),
            [](const std::string& a, const std::string& b) {
              return std::make_pair(a.size(), a) < std::make_pair(b.size(), b);
            });
  return paths;
}

}  // namespace pipewright
