#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sim/base/status.h"
#include "sim/foreign/deepspeed.h"
#include "sim/foreign/foreign_args.h"
#include "sim/foreign/key_table.h"
#include "sim/foreign/megatron.h"
#include "sim/foreign/titan.h"

namespace pipewright {
namespace {

constexpr size_t kMostBytes = size_t{8} << 20;

// Fields of comment lines, "# pipewright: strategy.split=balanced".
std::vector<ConfigEdit> CommentsOf(absl::string_view text,
                                   const std::string& path) {
  std::vector<ConfigEdit> comments;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (!absl::ConsumePrefix(&line, kCommentMark)) continue;
    line = absl::StripAsciiWhitespace(line);
    const size_t equals = line.find('=');
    if (equals == absl::string_view::npos) continue;
    comments.push_back({std::string(line.substr(0, equals)),
                        std::string(line.substr(equals + 1)),
                        absl::StrCat(path, ":", number)});
  }
  return comments;
}

bool HasKey(const std::vector<GivenKey>& keys, absl::string_view spelled) {
  for (const GivenKey& key : keys) {
    const std::string whole = key.Spelled();
    if (whole == spelled || key.section == spelled ||
        absl::StartsWith(key.section, absl::StrCat(spelled, "."))) {
      return true;
    }
  }
  return false;
}

// Files of frameworks that are not read: keys that tell them, and what to give
// in their place.
absl::Status CheckKnown(const std::vector<GivenKey>& keys,
                        const std::string& path) {
  for (const auto& row : KeyRows("recognise")) {
    bool all = true;
    for (const std::string& key :
         std::vector<std::string>(absl::StrSplit(row.at("keys"), '|'))) {
      all &= HasKey(keys, key);
    }
    if (!all) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": this is a file of ", row.at("framework"),
                     ", which is not read; give ", row.at("instead")));
  }
  return absl::OkStatus();
}

absl::StatusOr<ForeignArgs> ReadForm(absl::string_view text,
                                     const std::string& path,
                                     const std::set<std::string>& said,
                                     const ForeignSurroundings& around) {
  if (absl::EndsWith(path, ".toml")) {
    PW_ASSIGN_OR_RETURN(std::vector<GivenKey> keys, KeysOfToml(text, path));
    PW_RETURN_IF_ERROR(CheckKnown(keys, path));
    return ReadTitan(std::move(keys), path, said, around);
  }
  if (absl::EndsWith(path, ".py"))
    return ReadTitanPython(text, path, said, around);
  if (absl::EndsWith(path, ".json")) {
    PW_ASSIGN_OR_RETURN(std::vector<GivenKey> keys, KeysOfJson(text, path));
    PW_RETURN_IF_ERROR(CheckKnown(keys, path));
    return ReadDeepSpeed(std::move(keys), path, said, around);
  }
  if (absl::EndsWith(path, ".yaml") || absl::EndsWith(path, ".yml")) {
    PW_ASSIGN_OR_RETURN(std::vector<GivenKey> keys, KeysOfYaml(text, path));
    PW_RETURN_IF_ERROR(CheckKnown(keys, path));
    return ReadBridge(std::move(keys), path, said, around);
  }
  std::vector<GivenKey> keys = KeysOfShell(text, around.environment);
  for (const GivenKey& key : keys) {
    if (key.is_flag ? key.name == "recipe"
                    : absl::StartsWith(key.section, "model")) {
      return ReadBridge(std::move(keys), path, said, around);
    }
  }
  if (keys.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        ": no arguments; allowed: Megatron's flags, a YAML dump of a recipe "
        "(.yaml), torchtitan's TOML (.toml) or Python (.py), or DeepSpeed's "
        "JSON (.json)"));
  }
  return ReadMegatron(std::move(keys), path, said, around);
}

}  // namespace

int64_t ForeignSurroundings::Int(const std::string& field,
                                 int64_t fallback) const {
  const auto found = given.find(field);
  int64_t value = 0;
  return found != given.end() && absl::SimpleAtoi(found->second, &value)
             ? value
             : fallback;
}

absl::StatusOr<ForeignArgs> ReadForeignArgs(absl::string_view text,
                                            const std::string& path,
                                            const ForeignSurroundings& around) {
  if (text.size() > kMostBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", text.size(), " bytes; allowed: at most ",
                     kMostBytes, " of a file of arguments"));
  }
  std::vector<ConfigEdit> comments = CommentsOf(text, path);
  std::set<std::string> said;
  for (const ConfigEdit& comment : comments) said.insert(comment.path);
  // Said to be absent: the model's own sequence, for example.
  std::erase_if(comments,
                [](const ConfigEdit& edit) { return edit.value.empty(); });
  PW_ASSIGN_OR_RETURN(ForeignArgs out, ReadForm(text, path, said, around));
  out.edits.insert(out.edits.end(), comments.begin(), comments.end());
  return out;
}

}  // namespace pipewright
