#include "sim/cli/output_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/check.h"
#include "sim/base/file.h"
#include "sim/base/gzip.h"
#include "sim/base/status.h"
#include "sim/cli/common.h"

namespace pipewright {
namespace {

struct FormatRow {
  FileFormat format;
  const char* name;
  std::vector<std::string> endings;
  bool may_be_packed = false;
};

const std::vector<FormatRow>& Formats() {
  static const auto* const rows = new std::vector<FormatRow>{
      {FileFormat::kText, "text", {".txt", ".text", ".log", ".md"}},
      {FileFormat::kSchedule, "a schedule", {".pws", ".txt", ".text"}},
      {FileFormat::kJson, "JSON", {".json"}},
      {FileFormat::kCsv, "CSV", {".csv"}},
      {FileFormat::kSvg, "SVG", {".svg"}},
      {FileFormat::kHtml, "HTML", {".html", ".htm"}},
      {FileFormat::kTrace, "JSON", {".json"}, true},
      {FileFormat::kPerfetto,
       "a Perfetto trace",
       {".perfetto-trace", ".pftrace", ".perfetto", ".pb"},
       true},
      {FileFormat::kYaml, "YAML", {".yaml", ".yml"}},
      {FileFormat::kTextProto,
       "text protobuf",
       {".txtpb", ".textproto", ".pbtxt"}},
      {FileFormat::kPng, "PNG", {".png"}},
      {FileFormat::kPdf, "PDF", {".pdf"}},
      {FileFormat::kJsonLines, "JSON Lines", {".jsonl", ".ndjson"}},
      {FileFormat::kDatabase,
       "an SQLite database",
       {".sqlite", ".sqlite3", ".db"}},
      {FileFormat::kShell, "arguments of a shell", {".sh", ".txt"}},
      {FileFormat::kToml, "TOML", {".toml"}},
      {FileFormat::kXml, "XML", {".xml"}},
      {FileFormat::kPython, "Python", {".py"}}};
  return *rows;
}

// Formats that no verb writes.
constexpr const char* kForeignEndings[] = {
    ".jpg", ".jpeg", ".gif",  ".webp", ".bmp",   ".tiff", ".ps",
    ".eps", ".gz",   ".bz2",  ".xz",   ".zst",   ".zip",  ".tar",
    ".tsv", ".xls",  ".xlsx", ".ods",  ".proto", ".tex",  ".docx",
    ".cc",  ".h",    ".ini",  ".pt"};

const FormatRow& RowOf(FileFormat format) {
  for (const FormatRow& row : Formats()) {
    if (row.format == format) return row;
  }
  PW_CHECK(false);
  return Formats()[0];
}

bool IsAmong(const std::vector<std::string>& endings,
             absl::string_view ending) {
  return std::find(endings.begin(), endings.end(), ending) != endings.end();
}

bool IsKnown(absl::string_view ending) {
  for (const char* const each : kForeignEndings) {
    if (ending == each) return true;
  }
  for (const FormatRow& row : Formats()) {
    if (IsAmong(row.endings, ending)) return true;
  }
  return false;
}

// ".svg" of "x/y.SVG"; "" where the name has none.
std::string EndingOf(absl::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash != absl::string_view::npos) path.remove_prefix(slash + 1);
  const size_t dot = path.rfind('.');
  return dot == absl::string_view::npos || dot == 0
             ? ""
             : absl::AsciiStrToLower(path.substr(dot));
}

constexpr absl::string_view kPacked = ".gz";

bool IsPacked(absl::string_view path, FileFormat format) {
  return RowOf(format).may_be_packed && EndingOf(path) == kPacked;
}

absl::Status CheckEnding(const std::string& flag, const std::string& path,
                         FileFormat format) {
  const FormatRow& row = RowOf(format);
  const std::string ending = EndingOf(absl::string_view(path).substr(
      0, path.size() - (IsPacked(path, format) ? kPacked.size() : 0)));
  if (!IsKnown(ending) || IsAmong(row.endings, ending)) {
    return absl::OkStatus();
  }
  return BadValue(
      flag, path,
      absl::StrCat("a name that ends in ", absl::StrJoin(row.endings, ", "),
                   row.may_be_packed ? ", one of these and .gz," : "",
                   " or in no format's ending (what is written is ", row.name,
                   ")"));
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

absl::Status CheckWritable(const std::string& flag, const std::string& path) {
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
  if (replaced && !IsDescriptor(path) && ::access(folder.c_str(), W_OK) != 0) {
    return BadValue(flag, path,
                    absl::StrCat("a path in a folder that can be written; ",
                                 folder, " cannot"));
  }
  return absl::OkStatus();
}

// What a path stands for: device and inode of the file, or of the folder
// together with a name that is not there yet. Nothing for what two may share:
// a terminal, /dev/null.
using Identity = std::tuple<dev_t, ino_t, std::string>;

std::optional<Identity> IdentityOf(const struct stat& info) {
  if (S_ISCHR(info.st_mode)) return std::nullopt;
  return Identity(info.st_dev, info.st_ino, "");
}

std::optional<Identity> IdentityOf(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) == 0) return IdentityOf(info);
  if (::stat(FolderOf(path).c_str(), &info) != 0) return std::nullopt;
  const size_t slash = path.rfind('/');
  return Identity(info.st_dev, info.st_ino,
                  slash == std::string::npos ? path : path.substr(slash + 1));
}

bool IsStandardOutput(absl::string_view path) {
  return path == "/dev/stdout" || path == "/dev/fd/1" ||
         path == "/proc/self/fd/1";
}

// Identity of standard output, if it is a file of its own.
std::optional<Identity> StandardOutput() {
  struct stat info;
  if (::fstat(STDOUT_FILENO, &info) != 0 || !S_ISREG(info.st_mode)) {
    return std::nullopt;
  }
  return IdentityOf(info);
}

}  // namespace

void OutputFiles::AddTo(CLI::App* verb, const std::string& flag,
                        const std::string& help, FileFormat format) {
  files_.emplace_back();
  files_.back().flag = flag;
  files_.back().format = format;
  files_.back().option = verb->add_option(flag, files_.back().path, help)
                             ->type_name("FILE")
                             ->group("Output");
}

void OutputFiles::AddReport(CLI::App* verb, const std::string& what) {
  verb->add_flag_callback(
          "--json",
          [this] {
            json_ = true;
            SetFormat("-o", FileFormat::kJson);
          },
          "one JSON object on standard output")
      ->group("Output");
  AddTo(verb, "-o", absl::StrCat(what, ", instead of standard output"),
        FileFormat::kText);
}

const OutputFiles::File* OutputFiles::Find(absl::string_view flag) const {
  for (const File& file : files_) {
    if (file.flag == flag) return &file;
  }
  return nullptr;
}

void OutputFiles::SetFormat(absl::string_view flag, FileFormat format) {
  for (File& file : files_) {
    if (file.flag == flag) file.format = format;
  }
}

void OutputFiles::SetPath(absl::string_view flag, std::string path) {
  for (File& file : files_) {
    if (file.flag != flag) continue;
    file.path = std::move(path);
    file.is_set = true;
  }
}

bool OutputFiles::IsGiven(const File& file) {
  return file.is_set || file.option->count() > 0;
}

bool OutputFiles::wanted(absl::string_view flag) const {
  const File* const file = Find(flag);
  return file != nullptr && IsGiven(*file);
}

std::string OutputFiles::path(absl::string_view flag) const {
  const File* const file = Find(flag);
  return file == nullptr ? "" : file->path;
}

void OutputFiles::Reads(absl::string_view name, absl::string_view path) {
  if (path.empty()) return;
  inputs_.push_back({std::string(name), std::string(path), std::nullopt});
}

void OutputFiles::AlsoWrites(absl::string_view flag, absl::string_view path,
                             std::optional<FileFormat> format) {
  more_outputs_.push_back({std::string(flag), std::string(path), format});
}

std::vector<OutputFiles::NamedPath> OutputFiles::Written() const {
  std::vector<NamedPath> written;
  for (const File& file : files_) {
    if (!IsGiven(file)) continue;
    written.push_back({file.flag, file.path, file.format});
  }
  written.insert(written.end(), more_outputs_.begin(), more_outputs_.end());
  return written;
}

absl::Status OutputFiles::Check() const {
  for (const File& file : files_) {
    if (!IsGiven(file)) continue;
    PW_RETURN_IF_ERROR(CheckWritable(file.flag, file.path));
  }
  const std::optional<Identity> printed = StandardOutput();
  for (const NamedPath& input : inputs_) {
    if (printed && IdentityOf(input.path) == printed) {
      return BadValue("standard output", input.path,
                      absl::StrCat("another file than ", input.name,
                                   ", which this call reads"));
    }
  }
  const std::vector<NamedPath> written = Written();
  const File* const report = Find("-o");
  const bool prints_json = report != nullptr && !IsGiven(*report) &&
                           report->format == FileFormat::kJson;
  for (size_t index = 0; index < written.size(); ++index) {
    const std::string& flag = written[index].name;
    const std::string& path = written[index].path;
    if (prints_json && IsStandardOutput(path)) {
      return BadValue(flag, path,
                      "another file, or the JSON in a file of its own (-o): "
                      "standard output is one JSON object");
    }
    const std::optional<Identity> identity = IdentityOf(path);
    if (!identity) continue;
    for (const NamedPath& input : inputs_) {
      if (IdentityOf(input.path) != identity) continue;
      return BadValue(flag, path,
                      absl::StrCat("another file than ", input.name,
                                   ", which this call reads"));
    }
    for (size_t before = 0; before < index; ++before) {
      if (IdentityOf(written[before].path) != identity) continue;
      return BadValue(
          flag, path,
          absl::StrCat("another file than that of ", written[before].name));
    }
    if (printed == identity && !IsDescriptor(path)) {
      return BadValue(flag, path, "another file than that of standard output");
    }
  }
  for (const NamedPath& file : written) {
    if (!file.format) continue;
    PW_RETURN_IF_ERROR(CheckEnding(file.name, file.path, *file.format));
  }
  return absl::OkStatus();
}

void OutputFiles::Put(absl::string_view flag, std::string content) {
  for (File& file : files_) {
    if (file.flag == flag) file.content = std::move(content);
  }
}

void OutputFiles::Drop(const std::set<std::string>& flags) {
  std::erase_if(files_, [&flags](const File& file) {
    return flags.count(file.flag) > 0;
  });
}

absl::Status OutputFiles::Write() const {
  StagedFiles staged;
  for (const File& file : files_) {
    if (IsGiven(file)) {
      PW_RETURN_IF_ERROR(staged.Add(file.path, IsPacked(file.path, file.format)
                                                   ? Gzip(file.content)
                                                   : file.content));
    }
  }
  for (const File& file : files_) {
    if (file.flag != "-o") continue;
    if (!IsGiven(file)) {
      PW_RETURN_IF_ERROR(Print(file.content));
    } else {
      MarkReported();
    }
  }
  return staged.Commit();
}

}  // namespace pipewright
