// The files of one call: what it writes, and what it reads, so that it writes
// nothing that it reads. Every verb that reads or writes a file has one.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace pipewright {

// The format of an output, which says how its name may end.
enum class FileFormat : uint8_t {
  kText,
  kSchedule,
  kJson,
  kCsv,
  kSvg,
  kHtml,
  kTrace,  // as kPerfetto packed with gzip if its name ends in .gz
  kPerfetto,
  kYaml,
  kTextProto,
  kPng,
  kPdf,
  kJsonLines,
  kDatabase,
  kShell,
  kToml,
  kXml,
  kPython,
};

// Check() once all inputs are known and before the work, Write() after it.
class OutputFiles {
 public:
  void AddTo(CLI::App* verb, const std::string& flag, const std::string& help,
             FileFormat format);
  // -o for what the verb prints, `what` in its help, and --json, which makes
  // one JSON object of it.
  void AddReport(CLI::App* verb, const std::string& what);
  bool json() const { return json_; }
  // Sets the format of an output where the options choose it.
  void SetFormat(absl::string_view flag, FileFormat format);
  // The path of an output that was not given; one is written either way.
  void SetPath(absl::string_view flag, std::string path);
  bool wanted(absl::string_view flag) const;
  // "" where it was not given.
  std::string path(absl::string_view flag) const;

  // `name`: of the argument, flag or field. An empty path is none.
  void Reads(absl::string_view name, absl::string_view path);
  // A file that the work writes by itself, under the name of `flag`. Without a
  // format its name may end as it likes.
  void AlsoWrites(absl::string_view flag, absl::string_view path,
                  std::optional<FileFormat> format = std::nullopt);

  // Checks that each can be written, and that none ends as another format does,
  // is read by this call or is the same file as another, standard output
  // included. Files are told apart by device and inode, so links are seen
  // through. Error: kInvalidArgument naming the flag.
  absl::Status Check() const;
  void Put(absl::string_view flag, std::string content);
  // Outputs that are not written after all.
  void Drop(const std::set<std::string>& flags);
  // Writes the files, and to standard output what has no file (-o not given).
  absl::Status Write() const;

 private:
  struct File {
    std::string flag;
    std::string path;
    std::string content;
    FileFormat format;
    CLI::Option* option = nullptr;
    bool is_set = false;  // by SetPath
  };
  struct NamedPath {
    std::string name;
    std::string path;
    std::optional<FileFormat> format;  // for an output
  };
  static bool IsGiven(const File& file);
  const File* Find(absl::string_view flag) const;
  // All that this call writes.
  std::vector<NamedPath> Written() const;

  bool json_ = false;
  std::deque<File> files_;
  std::vector<NamedPath> inputs_;
  std::vector<NamedPath> more_outputs_;
};

}  // namespace pipewright
