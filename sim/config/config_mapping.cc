#include "sim/config/config_mapping.h"

#include <google/protobuf/text_format.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::Reflection;

std::string KeyOf(const Message& pair) {
  return pair.GetReflection()->GetString(pair, pair.GetDescriptor()->field(0));
}

// Below `message`, which stands at `path`.
absl::Status MoveBelow(const std::string& path, Message* message,
                       ConfigMessage* target) {
  const Reflection* reflection = message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) {
    const std::string given = JoinPath(path, field->name());
    const FieldDescriptor* mapping = target->mapping_of(field);
    if (mapping == nullptr) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
          !IsMapping(field)) {
        PW_RETURN_IF_ERROR(MoveBelow(
            given, reflection->MutableMessage(message, field), target));
      }
      continue;
    }
    ConfigOrigin origin = target->origins[given];
    const std::string held =
        JoinPath(PathBeside(given, mapping->name()), field->name());
    if (IndexOfKey(*message, mapping, field->name()) >= 0) {
      return BothGiven(origin.Field(given), held);
    }
    std::string value;
    google::protobuf::TextFormat::PrintFieldValueToString(*message, field, -1,
                                                          &value);
    Message* pair = reflection->AddMessage(message, mapping);
    const Reflection* inner = pair->GetReflection();
    inner->SetString(pair, mapping->message_type()->field(0), field->name());
    inner->SetString(pair, mapping->message_type()->field(1), value);
    reflection->ClearField(message, field);
    target->origins.erase(given);
    origin.path = given;
    target->origins[held] = std::move(origin);
  }
  return absl::OkStatus();
}

}  // namespace

std::string JoinPath(absl::string_view path, absl::string_view name) {
  return path.empty() ? std::string(name) : absl::StrCat(path, ".", name);
}

std::string PathBeside(absl::string_view path, absl::string_view name) {
  const size_t dot = path.rfind('.');
  return JoinPath(dot == absl::string_view::npos ? "" : path.substr(0, dot),
                  name);
}

bool IsMapping(const FieldDescriptor* field) {
  return field->is_repeated() &&
         field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
}

int IndexOfKey(const Message& message, const FieldDescriptor* mapping,
               absl::string_view key) {
  const Reflection* reflection = message.GetReflection();
  for (int index = 0; index < reflection->FieldSize(message, mapping);
       ++index) {
    if (KeyOf(reflection->GetRepeatedMessage(message, mapping, index)) == key) {
      return index;
    }
  }
  return -1;
}

void RemoveKey(const FieldDescriptor* mapping, absl::string_view key,
               Message* message) {
  int index = IndexOfKey(*message, mapping, key);
  if (index < 0) return;
  const Reflection* reflection = message->GetReflection();
  for (; index + 1 < reflection->FieldSize(*message, mapping); ++index) {
    reflection->SwapElements(message, mapping, index, index + 1);
  }
  reflection->RemoveLast(message, mapping);
}

// FindField only walks the message, which is ours and mutable.
Message* MutableOf(const FieldAt& at) {
  return const_cast<Message*>(at.message);
}

absl::Status MoveIntoMappings(ConfigMessage* target) {
  return MoveBelow("", target->message, target);
}

void ClearPath(absl::string_view path, ConfigMessage* target,
               const std::function<bool(const ConfigOrigin*)>& stays) {
  const FieldAt at = FindField(*target->message, path);
  if (at.message == nullptr) return;
  // Says whether what is held there goes.
  const auto release = [&](const std::string& held) {
    const auto origin = target->origins.find(held);
    const bool known = origin != target->origins.end();
    if (stays != nullptr && stays(known ? &origin->second : nullptr)) {
      return false;
    }
    if (known) target->origins.erase(origin);
    return true;
  };
  const FieldDescriptor* mapping = target->mapping_of(at.field);
  std::vector<std::string> keys;
  if (mapping != nullptr) {
    keys.push_back(at.field->name());
  } else if (IsMapping(at.field)) {
    mapping = at.field;
    const Reflection* reflection = at.message->GetReflection();
    for (int index = 0; index < reflection->FieldSize(*at.message, mapping);
         ++index) {
      keys.push_back(
          KeyOf(reflection->GetRepeatedMessage(*at.message, mapping, index)));
    }
  } else if (release(std::string(path))) {
    at.message->GetReflection()->ClearField(MutableOf(at), at.field);
  }
  for (const std::string& key : keys) {
    if (release(JoinPath(PathBeside(path, mapping->name()), key))) {
      RemoveKey(mapping, key, MutableOf(at));
    }
  }
}

}  // namespace pipewright
