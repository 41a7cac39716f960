#include "sim/config/config_message.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sim/base/check.h"
#include "sim/base/error_parts.h"
#include "sim/base/names.h"
#include "sim/base/nearest.h"
#include "sim/base/status.h"
#include "sim/config/config_mapping.h"

namespace pipewright {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::Reflection;

std::string AllowedFor(const FieldDescriptor* field, Unit unit) {
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return "an integer below 2^31";
    case FieldDescriptor::CPPTYPE_INT64:
      return "an integer below 2^63";
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return "a finite number";
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true, false";
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      if (IsMapping(field)) return "a mapping of names to values";
      std::vector<std::string> names;
      const Descriptor* section = field->message_type();
      for (int index = 0; index < section->field_count(); ++index) {
        names.push_back(section->field(index)->name());
      }
      return absl::StrCat("a mapping with ", absl::StrJoin(names, ", "));
    }
    default:
      return unit == Unit::kNone ? "a string"
                                 : "a number with its unit, as a string";
  }
}

class Filler {
 public:
  Filler(absl::string_view source, const ConfigEdit* edit,
         ConfigMessage* target)
      : source_(source), edit_(edit), target_(target) {}

  absl::Status Section(const ConfigNode& node, const std::string& path,
                       Message* message) {
    std::set<const FieldDescriptor*> seen;
    for (const ConfigNode::Entry& entry : node.entries) {
      absl::string_view suffix;
      PW_ASSIGN_OR_RETURN(const FieldDescriptor* field,
                          Find(entry, path, message->GetDescriptor(), &suffix));
      if (!seen.insert(field).second) {
        return Error(entry.line, JoinPath(path, entry.key),
                     absl::StrCat("'", field->name(),
                                  "' is given twice, with and without the "
                                  "unit in its name; allowed: one of them"));
      }
      PW_RETURN_IF_ERROR(
          Field(entry, JoinPath(path, field->name()), suffix, field, message));
    }
    return absl::OkStatus();
  }

 private:
  ConfigOrigin Where(int line) const {
    return edit_ != nullptr ? ConfigOrigin{.flag = edit_->origin}
                            : ConfigOrigin{.file = source_, .line = line};
  }
  absl::Status Error(int line, absl::string_view path,
                     const absl::Status& status) const {
    return Prefix(Where(line).Field(path), status);
  }
  absl::Status Error(int line, absl::string_view path,
                     absl::string_view message) const {
    return Error(line, path, absl::InvalidArgumentError(message));
  }
  absl::Status Wrong(const ConfigNode& node, absl::string_view path,
                     absl::string_view allowed) const {
    return BadValue(Where(node.line).Field(path), node.Describe(), allowed);
  }
  // 8k of an integer is named in digits.
  absl::Status NoNumber(const FieldDescriptor* field, const ConfigNode& node,
                        absl::string_view path,
                        absl::string_view allowed) const {
    const auto type = field->cpp_type();
    const absl::Status wrong = Wrong(node, path, allowed);
    return type == FieldDescriptor::CPPTYPE_INT32 ||
                   type == FieldDescriptor::CPPTYPE_INT64
               ? WithDigits(node.text, wrong)
               : wrong;
  }

  // `suffix`: "_ms", where the key carries a unit.
  absl::StatusOr<const FieldDescriptor*> Find(const ConfigNode::Entry& entry,
                                              const std::string& path,
                                              const Descriptor* descriptor,
                                              absl::string_view* suffix) {
    if (const auto* field = descriptor->FindFieldByName(entry.key)) {
      return field;
    }
    const std::string full = JoinPath(path, entry.key);
    const size_t underscore = entry.key.rfind('_');
    if (underscore != std::string::npos) {
      const auto* field =
          descriptor->FindFieldByName(entry.key.substr(0, underscore));
      if (field != nullptr && target_->unit_of(field) != Unit::kNone) {
        *suffix = absl::string_view(entry.key).substr(underscore);
        const absl::Status known =
            ScaleOfSuffix(*suffix, target_->unit_of(field)).status();
        if (known.ok()) return field;
        return Error(entry.line, full, known);
      }
    }
    if (std::count(target_->not_available.begin(), target_->not_available.end(),
                   full) > 0) {
      return Error(entry.line, full, "not available in this version");
    }
    std::vector<std::string> known;
    for (int index = 0; index < descriptor->field_count(); ++index) {
      known.push_back(descriptor->field(index)->name());
    }
    return Error(entry.line, full, UnknownName("field", entry.key, known));
  }

  absl::Status Field(const ConfigNode::Entry& entry, const std::string& path,
                     absl::string_view suffix, const FieldDescriptor* field,
                     Message* message) {
    const ConfigNode& node = entry.value;
    const Reflection* reflection = message->GetReflection();
    if (const FieldDescriptor* mapping = target_->mapping_of(field)) {
      return Pair(entry, path, PathBeside(path, mapping->name()), mapping,
                  message);
    }
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      // A section with all its lines commented out reads as nothing.
      if (node.kind == ConfigNode::Kind::kNull) return absl::OkStatus();
      if (node.kind != ConfigNode::Kind::kMap) {
        return Wrong(node, path, AllowedFor(field, Unit::kNone));
      }
      target_->origins[path] = Where(entry.line);
      if (IsMapping(field)) return Pairs(node, path, field, message);
      return Section(node, path, reflection->MutableMessage(message, field));
    }
    target_->origins[path] = Where(entry.line);
    if (!field->is_repeated()) {
      return Value(node, path, suffix, field, message);
    }
    reflection->ClearField(message, field);
    if (node.kind != ConfigNode::Kind::kList) {
      if (edit_ == nullptr || node.kind != ConfigNode::Kind::kScalar) {
        return Value(node, path, suffix, field, message);
      }
      for (const absl::string_view part : absl::StrSplit(node.text, ',')) {
        ConfigNode item = node;
        item.text = std::string(absl::StripAsciiWhitespace(part));
        PW_RETURN_IF_ERROR(Value(item, path, suffix, field, message));
      }
      return absl::OkStatus();
    }
    if (node.items.empty()) return Wrong(node, path, "at least one value");
    for (const ConfigNode& item : node.items) {
      PW_RETURN_IF_ERROR(Value(item, path, suffix, field, message));
    }
    return absl::OkStatus();
  }

  absl::Status Pairs(const ConfigNode& node, const std::string& path,
                     const FieldDescriptor* mapping, Message* message) {
    for (const ConfigNode::Entry& entry : node.entries) {
      PW_RETURN_IF_ERROR(
          Pair(entry, JoinPath(path, entry.key), path, mapping, message));
    }
    return absl::OkStatus();
  }

  // One key of a mapping, given at `path`. A file gives it once.
  absl::Status Pair(const ConfigNode::Entry& entry, const std::string& path,
                    const std::string& mapping_path,
                    const FieldDescriptor* mapping, Message* message) {
    const Reflection* reflection = message->GetReflection();
    const std::string held = JoinPath(mapping_path, entry.key);
    ConfigOrigin origin = Where(entry.line);
    if (path != held) origin.path = path;
    const auto given = target_->origins.find(held);
    if (edit_ == nullptr && given != target_->origins.end()) {
      return BothGiven(Where(entry.line).Field(path),
                       given->second.Field(held));
    }
    target_->origins[held] = std::move(origin);
    const int index = IndexOfKey(*message, mapping, entry.key);
    Message* pair =
        index < 0 ? reflection->AddMessage(message, mapping)
                  : reflection->MutableRepeatedMessage(message, mapping, index);
    pair->GetReflection()->SetString(pair, mapping->message_type()->field(0),
                                     entry.key);
    return Value(entry.value, path, "", mapping->message_type()->field(1),
                 pair);
  }

  // One scalar, set or, in a repeated field, added.
  absl::Status Value(const ConfigNode& node, const std::string& path,
                     absl::string_view suffix, const FieldDescriptor* field,
                     Message* message) {
    const Reflection* reflection = message->GetReflection();
    const bool add = field->is_repeated();
    const Unit unit = target_->unit_of(field);
    std::string allowed = target_->allowed_of(path);
    if (allowed.empty()) allowed = AllowedFor(field, unit);
    if (node.kind != ConfigNode::Kind::kScalar) {
      return Wrong(node, path, allowed);
    }
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      std::string text = node.text;
      if (!suffix.empty()) {
        double number = 0;
        if (node.quoted || !absl::SimpleAtod(text, &number)) {
          return Wrong(node, path,
                       "a bare number, since the unit is in the name");
        }
        absl::StrAppend(&text, suffix.substr(1));
      }
      add ? reflection->AddString(message, field, text)
          : reflection->SetString(message, field, text);
      return absl::OkStatus();
    }
    if (node.quoted) return NoNumber(field, node, path, allowed);
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32: {
        int32_t value = 0;
        if (!absl::SimpleAtoi(node.text, &value)) break;
        add ? reflection->AddInt32(message, field, value)
            : reflection->SetInt32(message, field, value);
        return absl::OkStatus();
      }
      case FieldDescriptor::CPPTYPE_INT64: {
        int64_t value = 0;
        if (!absl::SimpleAtoi(node.text, &value)) break;
        add ? reflection->AddInt64(message, field, value)
            : reflection->SetInt64(message, field, value);
        return absl::OkStatus();
      }
      case FieldDescriptor::CPPTYPE_DOUBLE: {
        double value = 0;
        if (!absl::SimpleAtod(node.text, &value) || !std::isfinite(value)) {
          break;
        }
        add ? reflection->AddDouble(message, field, value)
            : reflection->SetDouble(message, field, value);
        return absl::OkStatus();
      }
      case FieldDescriptor::CPPTYPE_BOOL: {
        const std::string lower = absl::AsciiStrToLower(node.text);
        if (lower != "true" && lower != "false") break;
        reflection->SetBool(message, field, lower == "true");
        return absl::OkStatus();
      }
      default:
        PW_CHECK(false);
    }
    return NoNumber(field, node, path, allowed);
  }

  std::string source_;
  const ConfigEdit* edit_;
  ConfigMessage* target_;
};

}  // namespace

absl::Status FillFromTree(const ConfigNode& root, absl::string_view source,
                          ConfigMessage* target) {
  if (root.kind == ConfigNode::Kind::kNull) return absl::OkStatus();
  if (root.kind != ConfigNode::Kind::kMap) {
    return InFile(source, root.line,
                  WithValue(absl::InvalidArgumentError(absl::StrCat(
                                root.Describe(),
                                " is not allowed; allowed: a mapping of "
                                "sections")),
                            root.Describe(), "a mapping of sections"));
  }
  return Filler(source, nullptr, target).Section(root, "", target->message);
}

absl::Status ApplyEdit(const ConfigEdit& edit, ConfigMessage* target) {
  if (edit.clears) {
    for (const std::string& path :
         FieldPaths(target->message->GetDescriptor())) {
      if (path == edit.path) {
        ClearPath(path, target);
        return absl::OkStatus();
      }
      absl::string_view key = edit.path;
      if (!absl::ConsumePrefix(&key, absl::StrCat(path, "."))) continue;
      const FieldAt mapping = FindField(*target->message, path);
      if (!IsMapping(mapping.field)) continue;
      if (mapping.message != nullptr) {
        RemoveKey(mapping.field, key, MutableOf(mapping));
      }
      target->origins.erase(edit.path);
      return absl::OkStatus();
    }
  }
  ConfigNode node;
  node.kind = ConfigNode::Kind::kScalar;
  node.text = edit.value;
  const std::vector<std::string> names = absl::StrSplit(edit.path, '.');
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    ConfigNode outer;
    outer.kind = ConfigNode::Kind::kMap;
    outer.entries.push_back({*name, 0, std::move(node)});
    node = std::move(outer);
  }
  return Filler("", &edit, target).Section(node, "", target->message);
}

FieldPath::FieldPath(const Descriptor* root, absl::string_view path) {
  const std::vector<std::string> names = absl::StrSplit(path, '.');
  for (size_t depth = 0; depth + 1 < names.size(); ++depth) {
    sections_.push_back(root->FindFieldByName(names[depth]));
    PW_CHECK(sections_.back() != nullptr);
    root = sections_.back()->message_type();
  }
  field_ = root->FindFieldByName(names.back());
  PW_CHECK(field_ != nullptr);
}

FieldAt FieldPath::In(const Message& root) const {
  const Message* message = &root;
  for (const FieldDescriptor* section : sections_) {
    const Reflection* reflection = message->GetReflection();
    if (!reflection->HasField(*message, section)) return {nullptr, field_};
    message = &reflection->GetMessage(*message, section);
  }
  return {message, field_};
}

FieldAt FindField(const Message& root, absl::string_view path) {
  return FieldPath(root.GetDescriptor(), path).In(root);
}

std::vector<std::string> FieldPaths(const Descriptor* descriptor) {
  std::vector<std::string> paths;
  for (int index = 0; index < descriptor->field_count(); ++index) {
    const FieldDescriptor* field = descriptor->field(index);
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE ||
        IsMapping(field)) {
      paths.push_back(field->name());
      continue;
    }
    for (const std::string& below : FieldPaths(field->message_type())) {
      paths.push_back(JoinPath(field->name(), below));
    }
  }
  return paths;
}

}  // namespace pipewright
