#include "sim/cli/common.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "sim/base/check.h"
#include "sim/base/file.h"
#include "sim/base/status.h"
#include "sim/config/flags.h"

namespace pipewright {
namespace {

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

absl::Status CheckOutput(const std::string& flag, const std::string& path) {
  struct stat info;
  const std::string folder = FolderOf(path);
  if (path.empty()) return BadValue(flag, "\"\"", "the path of a file");
  if (path == "-") {
    return BadValue(flag, path,
                    "the path of a file; without -o a report goes to standard "
                    "output (./- is a file of that name)");
  }
  if (::stat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    return BadValue(
        flag, path,
        absl::StrCat("a path in a folder that exists; ", folder, " does not"));
  }
  const bool exists = ::stat(path.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) {
    return BadValue(flag, path, "the path of a file; this is a folder");
  }
  if (exists && ::access(path.c_str(), W_OK) != 0) {
    return BadValue(flag, path, "a file that can be written");
  }
  // A device is written where it is; all else is replaced as a whole.
  const bool replaced = !exists || S_ISREG(info.st_mode);
  if (replaced && ::access(folder.c_str(), W_OK) != 0) {
    return BadValue(flag, path,
                    absl::StrCat("a path in a folder that can be written; ",
                                 folder, " cannot"));
  }
  return absl::OkStatus();
}

}  // namespace

void ConfigOptions::AddTo(CLI::App* verb, File file,
                          const std::vector<std::string>& only) {
  const std::string group = "Configuration (each flag stands for one path)";
  const std::string help =
      "configuration: YAML, JSON or text protobuf (pipewright init)";
  if (file == File::kPositional) {
    verb->add_option("CONFIG", file_, help)->type_name("");
  } else {
    verb->add_option("--config", file_, help)->type_name("FILE")->group(group);
  }
  verb->add_option("--set", sets_, "any field: --set strategy.pp=8")
      ->type_name("PATH=VALUE")
      ->allow_extra_args(false)
      ->group(group);
  for (const ConfigFlag& flag : ConfigFlags()) {
    values_.emplace_back();
    if (!only.empty() &&
        std::find(only.begin(), only.end(), flag.flag) == only.end()) {
      continue;
    }
    CLI::Option* option =
        verb->add_option(flag.flag, values_.back(),
                         absl::StrCat(flag.path, ": ", flag.help))
            ->type_name(flag.value)
            ->allow_extra_args(false)
            ->group(group);
    if (!flag.alone.empty()) {
      option->expected(0, 1)->default_str(flag.alone);
    } else if (!flag.repeats) {
      option->expected(1);
    }
  }
}

bool ConfigOptions::given() const {
  return !file_.empty() || !sets_.empty() ||
         std::any_of(values_.begin(), values_.end(),
                     [](const auto& values) { return !values.empty(); });
}

absl::StatusOr<RunConfig> ConfigOptions::Read(
    std::vector<ConfigEdit> extra) const {
  std::vector<ConfigEdit> sets;
  for (const std::string& text : sets_) {
    PW_ASSIGN_OR_RETURN(ConfigEdit edit, EditOfSet(text));
    sets.push_back(std::move(edit));
  }
  std::vector<ConfigEdit> flags = std::move(extra);
  for (size_t row = 0; row < values_.size(); ++row) {
    for (const std::string& value : values_[row]) {
      PW_ASSIGN_OR_RETURN(ConfigEdit edit,
                          EditOfFlag(ConfigFlags()[row], value));
      flags.push_back(std::move(edit));
    }
  }
  std::string text;
  if (!file_.empty()) {
    PW_ASSIGN_OR_RETURN(text, ReadFile(file_));
  }
  return ReadConfig(text, file_, {std::move(sets), std::move(flags)});
}

void OutputFiles::AddTo(CLI::App* verb, const std::string& flag,
                        const std::string& help) {
  files_.emplace_back();
  files_.back().flag = flag;
  files_.back().option = verb->add_option(flag, files_.back().path, help)
                             ->type_name("FILE")
                             ->group("Output");
}

bool OutputFiles::wanted(absl::string_view flag) const {
  for (const File& file : files_) {
    if (file.flag == flag) return file.option->count() > 0;
  }
  return false;
}

std::string OutputFiles::path(absl::string_view flag) const {
  for (const File& file : files_) {
    if (file.flag == flag) return file.path;
  }
  return "";
}

absl::Status OutputFiles::Check() const {
  for (const File& file : files_) {
    if (file.option->count() == 0) continue;
    PW_RETURN_IF_ERROR(CheckOutput(file.flag, file.path));
    for (const File& before : files_) {
      if (&before == &file) break;
      if (before.option->count() > 0 && before.path == file.path) {
        return BadValue(
            file.flag, file.path,
            absl::StrCat("another file than that of ", before.flag));
      }
    }
  }
  return absl::OkStatus();
}

void OutputFiles::Put(absl::string_view flag, std::string content) {
  for (File& file : files_) {
    if (file.flag == flag) file.content = std::move(content);
  }
}

absl::Status OutputFiles::Write() const {
  StagedFiles staged;
  for (const File& file : files_) {
    if (file.option->count() > 0) {
      PW_RETURN_IF_ERROR(staged.Add(file.path, file.content));
    }
  }
  for (const File& file : files_) {
    if (file.flag == "-o" && file.option->count() == 0) {
      PW_RETURN_IF_ERROR(Print(file.content));
    }
  }
  return staged.Commit();
}

absl::Status Print(absl::string_view text) {
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (written && std::fflush(stdout) == 0) return absl::OkStatus();
  return absl::UnknownError(
      absl::StrCat("cannot write to standard output: ", std::strerror(errno)));
}

void PrintWarnings(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) {
    std::fprintf(stderr, "pipewright: warning: %s\n", warning.c_str());
  }
}

absl::Status NotAvailable(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": not available in this version"));
}

}  // namespace pipewright
