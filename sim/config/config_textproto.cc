// The text protobuf syntax of config_message.h.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sim/base/error_parts.h"
#include "sim/base/names.h"
#include "sim/base/status.h"
#include "sim/config/config_mapping.h"
#include "sim/config/config_message.h"

namespace pipewright {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::Reflection;
using ::google::protobuf::TextFormat;

constexpr int kMaxDepth = 32;

// The sections of type `full_name` below `descriptor`, as paths.
void FindSections(const Descriptor* descriptor, absl::string_view full_name,
                  const std::string& path, const Descriptor** found,
                  std::vector<std::string>* paths) {
  if (descriptor->full_name() == full_name) {
    *found = descriptor;
    paths->push_back(path);
  }
  for (int index = 0; index < descriptor->field_count(); ++index) {
    const FieldDescriptor* field = descriptor->field(index);
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    FindSections(field->message_type(), full_name,
                 absl::StrCat(path, field->name(), "."), found, paths);
  }
}

class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  FirstError(absl::string_view source, absl::string_view text,
             const ConfigMessage& target)
      : source_(source), lines_(absl::StrSplit(text, '\n')), target_(target) {}

  void AddError(int line, int column, const std::string& message) override {
    if (!status_.ok()) return;
    const bool out_of_range =
        absl::StrContains(message, "Integer out of range");
    status_ =
        InFile(source_, line + 1,
               out_of_range ? OutOfRange(line, column) : Explain(message));
  }
  void AddWarning(int line, int column, const std::string& message) override {
    AddError(line, column, message);
  }
  const absl::Status& status() const { return status_; }

 private:
  // "strategy.dp_classes." for a place within these two. Braces in strings and
  // comments are few, and a wrong path is no path of the field.
  std::string OpenSection(int line, size_t split) const {
    std::vector<std::string> open;
    std::string word;
    for (int index = 0; index <= line; ++index) {
      if (static_cast<size_t>(index) >= lines_.size()) break;
      absl::string_view text = lines_[index];
      if (index == line) text = text.substr(0, split);
      text = text.substr(0, text.find('#'));
      for (const char letter : text) {
        if (absl::ascii_isalnum(letter) || letter == '_') {
          word += letter;
        } else if (letter == '{' || letter == '<') {
          open.push_back(word);
          word.clear();
        } else if (letter == '}' || letter == '>') {
          if (!open.empty()) open.pop_back();
          word.clear();
        } else if (letter != ' ' && letter != '\t') {
          word.clear();
        }
      }
      word.clear();
    }
    std::string path;
    for (const std::string& section : open) absl::StrAppend(&path, section, ".");
    return path;
  }

  // The parser tells where the number stands; its field stands before it.
  absl::Status OutOfRange(int line, int column) const {
    absl::string_view text;
    if (line >= 0 && static_cast<size_t>(line) < lines_.size()) {
      text = lines_[line];
    }
    // The tokenizer's columns count a tab up to the next multiple of 8.
    size_t split = 0;
    for (int at = 0; split < text.size() && at < column; ++split) {
      at = text[split] == '\t' ? (at / 8 + 1) * 8 : at + 1;
    }
    absl::string_view value = text.substr(split);
    size_t digits = 0;
    while (digits < value.size() && absl::ascii_isalnum(value[digits])) {
      ++digits;
    }
    value = value.substr(0, digits);
    absl::string_view before =
        absl::StripTrailingAsciiWhitespace(text.substr(0, split));
    absl::ConsumeSuffix(&before, ":");
    before = absl::StripTrailingAsciiWhitespace(before);
    size_t start = before.size();
    while (start > 0 && (absl::ascii_isalnum(before[start - 1]) ||
                         before[start - 1] == '_')) {
      --start;
    }
    std::string field(before.substr(start));
    std::vector<std::string> paths;
    for (std::string& path : FieldPaths(target_.message->GetDescriptor())) {
      if (absl::EndsWith(path, absl::StrCat(".", field))) {
        paths.push_back(std::move(path));
      }
    }
    // Several sections may have the field: it is that of the open one.
    const std::string here = absl::StrCat(OpenSection(line, split), field);
    if (std::find(paths.begin(), paths.end(), here) != paths.end()) {
      paths = {here};
    }
    if (paths.size() == 1) field = paths[0];
    std::string allowed;
    if (paths.size() == 1) allowed = target_.allowed_of(paths[0]);
    const bool wide = !paths.empty() &&
                      FindField(*target_.message, paths[0]).field->cpp_type() ==
                          FieldDescriptor::CPPTYPE_INT64;
    if (allowed.empty()) {
      allowed = absl::StrCat("an integer below 2^", wide ? 63 : 31);
    }
    return BadValue(field, value, allowed);
  }

  // 'Message type "pipewright.proto.X" has no field named "Y".' becomes the
  // message that the other syntaxes give.
  absl::Status Explain(const std::string& message) const {
    const std::vector<std::string> parts = absl::StrSplit(message, '"');
    if (parts.size() != 5 || !absl::StrContains(parts[2], "has no field")) {
      return absl::InvalidArgumentError(message);
    }
    const Descriptor* section = nullptr;
    std::vector<std::string> paths;
    FindSections(target_.message->GetDescriptor(), parts[1], "", &section,
                 &paths);
    if (section == nullptr) return absl::InvalidArgumentError(message);
    // Where several sections have this type, only the line tells which.
    const std::string full =
        absl::StrCat(paths.size() == 1 ? paths[0] : "", parts[3]);
    for (const std::string& refused : target_.not_available) {
      if (refused == full) {
        return FieldError(full, "not available in this version");
      }
    }
    std::vector<std::string> known;
    for (int index = 0; index < section->field_count(); ++index) {
      known.push_back(section->field(index)->name());
    }
    return InField(full, UnknownName("field", parts[3], known));
  }

  std::string source_;
  std::vector<std::string> lines_;
  const ConfigMessage& target_;
  absl::Status status_;
};

void RecordOrigins(const Message& message, const std::string& path,
                   absl::string_view source,
                   const TextFormat::ParseInfoTree& info,
                   ConfigOrigins* origins) {
  const Reflection* reflection = message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const std::string below =
        path.empty() ? field->name() : absl::StrCat(path, ".", field->name());
    const int index = field->is_repeated() ? 0 : -1;
    const int line = info.GetLocation(field, index).line;
    if (line >= 0) {
      (*origins)[below] = {.file = std::string(source), .line = line + 1};
    }
    if (field->is_repeated() ||
        field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      continue;
    }
    const TextFormat::ParseInfoTree* nested =
        info.GetTreeForNested(field, index);
    if (nested == nullptr) continue;
    RecordOrigins(reflection->GetMessage(message, field), below, source,
                  *nested, origins);
  }
}

}  // namespace

absl::Status FillFromTextproto(absl::string_view text, absl::string_view source,
                               ConfigMessage* target) {
  FirstError errors(source, text, *target);
  TextFormat::ParseInfoTree info;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.WriteLocationsTo(&info);
  parser.SetRecursionLimit(kMaxDepth);
  const bool parsed =
      parser.ParseFromString(std::string(text), target->message);
  PW_RETURN_IF_ERROR(errors.status());
  if (!parsed) {
    return InFile(source, 0, absl::InvalidArgumentError("not a text protobuf"));
  }
  RecordOrigins(*target->message, "", source, info, &target->origins);
  return MoveIntoMappings(target);
}

}  // namespace pipewright
