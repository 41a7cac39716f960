// Makes C++ of config.proto: `generate_config FOLDER` writes
// FOLDER/config_choices.h (the structs of RunConfig) and FOLDER/config_rows.cc
// (the rows of config_fields.h). Run by the build.
#include <google/protobuf/descriptor.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sim/proto/config.pb.h"

namespace pipewright {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::FieldDescriptor;

[[noreturn]] void Fail(const FieldDescriptor* field, absl::string_view what) {
  std::cerr << "config.proto: " << field->full_name() << ": " << what << "\n";
  std::exit(1);
}

const proto::Field& SaidOf(const FieldDescriptor* field) {
  return field->options().GetExtension(proto::field);
}

bool IsPairs(const FieldDescriptor* field) {
  return field->is_repeated() &&
         field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
}

bool IsSection(const FieldDescriptor* field) {
  return field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
         !IsPairs(field);
}

// A quoted string of C++.
std::string Quoted(absl::string_view text) {
  return absl::StrCat(
      "\"", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}}), "\"");
}

// "norm-activation" and "gather_type" become NormActivation and GatherType.
std::string Camel(absl::string_view text) {
  std::string out;
  bool up = true;
  for (const char letter : text) {
    if (letter == '-' || letter == '_') {
      up = true;
      continue;
    }
    out +=
        up ? absl::ascii_toupper(static_cast<unsigned char>(letter)) : letter;
    up = false;
  }
  return out;
}

// "optimizer_time" of TIME is optimizer_s, "memory" of BYTES memory_bytes.
std::string MemberOf(const FieldDescriptor* field) {
  absl::string_view name = field->name();
  switch (SaidOf(field).unit()) {
    case proto::TIME:
      absl::ConsumeSuffix(&name, "_time");
      return absl::StrCat(name, "_s");
    case proto::BYTES:
      absl::ConsumeSuffix(&name, "_bytes");
      return absl::StrCat(name, "_bytes");
    case proto::BANDWIDTH:
      absl::ConsumeSuffix(&name, "bandwidth");
      return absl::StrCat(name, "bytes_per_s");
    default:
      return std::string(name);
  }
}

// The C++ enum of a choice; "bool" for the two names of a switch.
std::string EnumOf(const FieldDescriptor* field) {
  const std::string& choice = SaidOf(field).choice();
  return choice.substr(0, choice.find_first_of(": "));
}

struct Kind {
  const char* name;
  std::string type;
};

Kind KindOf(const FieldDescriptor* field) {
  const proto::Field& said = SaidOf(field);
  const bool list = field->is_repeated();
  if (IsSection(field)) return {"kSection", "bool"};
  if (IsPairs(field)) return {"kPairs", "std::map<std::string, std::string>"};
  if (said.unit() != proto::NONE) {
    return list ? Kind{"kQuantities", "std::vector<double>"}
                : Kind{"kQuantity", "std::optional<double>"};
  }
  if (!said.choice().empty()) {
    return {"kChoice", absl::StrCat("std::optional<", EnumOf(field), ">")};
  }
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return list ? Kind{"kTexts", "std::vector<std::string>"}
                  : Kind{"kText", "std::optional<std::string>"};
    case FieldDescriptor::CPPTYPE_BOOL:
      if (list) break;
      return {"kBool", "std::optional<bool>"};
    case FieldDescriptor::CPPTYPE_INT32:
      if (list) break;
      return {"kInt", "std::optional<int>"};
    case FieldDescriptor::CPPTYPE_INT64:
      return list ? Kind{"kInts", "std::vector<int64_t>"}
                  : Kind{"kLong", "std::optional<int64_t>"};
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return list ? Kind{"kReals", "std::vector<double>"}
                  : Kind{"kReal", "std::optional<double>"};
    default:
      break;
  }
  Fail(field, "a type that no member of RunConfig has");
}

class Writer {
 public:
  // The members of the struct for `message`, each behind `prefix`.
  std::string Members(const Descriptor* message, const std::string& prefix) {
    std::string out;
    for (int index = 0; index < message->field_count(); ++index) {
      const FieldDescriptor* field = message->field(index);
      if (!SaidOf(field).key_of().empty()) continue;
      if (!IsSection(field)) {
        absl::StrAppend(&out, "  ", KindOf(field).type, " ", prefix,
                        MemberOf(field), ";\n");
        continue;
      }
      const Descriptor* section = field->message_type();
      if (!SaidOf(field).help().empty()) {
        absl::StrAppend(&out, "  bool ", prefix, field->name(), " = false;\n");
      }
      if (section->options().HasExtension(proto::flat)) {
        absl::StrAppend(
            &out, Members(section,
                          absl::StrCat(prefix, section->options().GetExtension(
                                                   proto::flat))));
        continue;
      }
      Struct(section, section->name());
      absl::StrAppend(&out, "  ", section->name(), " ", field->name(), ";\n");
    }
    return out;
  }

  // Structs of sections come before those that hold them, each once.
  void Struct(const Descriptor* message, const std::string& name) {
    const std::string head = absl::StrCat("struct ", name, " {\n");
    if (absl::StrContains(structs_, head)) return;
    const std::string members = Members(message, "");
    absl::StrAppend(&structs_, head, members, "};\n\n");
  }

  // The rows of `message`, whose fields are at `path` and below `member`.
  // `first_help`: of its first field, if not "". `needs`: of all its fields.
  void Rows(const Descriptor* message, const std::string& path,
            const std::string& member, std::string first_help = "",
            const std::string& needs = "") {
    for (int index = 0; index < message->field_count(); ++index) {
      const FieldDescriptor* field = message->field(index);
      if (!SaidOf(field).key_of().empty()) continue;
      const std::string at = absl::StrCat(path, field->name());
      if (!IsSection(field)) {
        Row(field, at, absl::StrCat(member, MemberOf(field)), first_help,
            needs);
        first_help.clear();
        continue;
      }
      if (!SaidOf(field).help().empty()) {
        Row(field, at, absl::StrCat(member, field->name()), "", needs);
      }
      const Descriptor* section = field->message_type();
      const auto& options = section->options();
      Rows(section, absl::StrCat(at, "."),
           options.HasExtension(proto::flat)
               ? absl::StrCat(member, options.GetExtension(proto::flat))
               : absl::StrCat(member, field->name(), "."),
           SaidOf(field).first_help(), Joined(needs, SaidOf(field).needs()));
    }
    if (message->options().HasExtension(proto::spec)) Spec(message, path);
  }

  std::string Header() const {
    return absl::StrCat(
        "// Made of sim/proto/config.proto by the build.\n#pragma once\n\n",
        "#include <cstdint>\n#include <map>\n#include <optional>\n"
        "#include <string>\n#include <vector>\n\n"
        "#include \"sim/config/config_types.h\"\n\nnamespace pipewright {\n\n",
        structs_, declarations_, "\n}  // namespace pipewright\n");
  }
  std::string Source() const {
    return absl::StrCat(
        "// Made of sim/proto/config.proto by the build.\n"
        "#include \"sim/config/config_fields.h\"\n"
        "#include \"sim/config/flags.h\"\n\nnamespace pipewright {\n"
        "namespace {\n\nusing namespace limits;\n\n"
        "template <typename Value>\n"
        "std::optional<int> Number(const std::optional<Value>& value) {\n"
        "  if (!value) return {};\n  return static_cast<int>(*value);\n}\n"
        "template <typename Value>\n"
        "void Put(std::optional<int> value, std::optional<Value>* to) {\n"
        "  to->reset();\n  if (value) *to = static_cast<Value>(*value);\n}\n\n"
        "}  // namespace\n\n",
        choices_, "absl::Span<const ConfigField> ConfigFields() {\n",
        "  static const ConfigField rows[] = {\n", rows_,
        "  };\n  return rows;\n}\n\n",
        "const std::vector<ModelSizeRow>& ModelSizeRows() {\n"
        "  static const std::vector<ModelSizeRow> rows = {\n",
        sizes_, "  };\n  return rows;\n}\n\n",
        "const std::vector<ModelPropertyRow>& ModelPropertyRows() {\n"
        "  static const std::vector<ModelPropertyRow> rows = {\n",
        properties_, "  };\n  return rows;\n}\n\n}  // namespace pipewright\n");
  }

 private:
  static std::string Joined(const std::string& needs, const std::string& more) {
    return absl::StrCat(needs, needs.empty() || more.empty() ? "" : ", ", more);
  }

  // `help`: in place of the field's own, if not "". `needs`: of the section.
  void Row(const FieldDescriptor* field, const std::string& path,
           const std::string& member, const std::string& help,
           const std::string& needs) {
    const proto::Field& said = SaidOf(field);
    const std::string meaning = help.empty() ? said.help() : help;
    if (meaning.empty()) Fail(field, "no help");
    const Kind kind = KindOf(field);
    absl::StrAppend(&rows_, "      {.path = ", Quoted(path),
                    ", .kind = FieldKind::", kind.name,
                    ", .meaning = ", Quoted(meaning),
                    ", .fallback = ", Quoted(said.fallback()),
                    ", .needs = ", Quoted(Joined(needs, said.needs())));
    Flag(field);
    if (said.unit() != proto::NONE) {
      absl::StrAppend(&rows_, ", .unit = Unit::k",
                      said.unit() == proto::TIME    ? "Time"
                      : said.unit() == proto::BYTES ? "Bytes"
                                                    : "Bandwidth");
    }
    Range(field, kind.name);
    absl::StrAppend(&rows_,
                    ", .member = [](RunConfig* c) -> void* { return &c->",
                    member, "; }");
    if (!said.choice().empty()) Choice(field, member);
    absl::StrAppend(&rows_, "},\n");
  }

  void Flag(const FieldDescriptor* field) {
    const proto::Field& said = SaidOf(field);
    if (said.flag().empty()) return;
    const std::vector<std::string> words =
        absl::StrSplit(said.flag(), absl::MaxSplits(' ', 1));
    if (words.size() != 2) Fail(field, "a flag is \"--name VALUE\"");
    absl::StrAppend(&rows_, ", .flag = ", Quoted(words[0]),
                    ", .flag_value = ", Quoted(words[1]));
    if (!said.other().empty()) {
      const std::vector<std::string> other =
          absl::StrSplit(said.other(), " if ");
      if (other.size() != 2) Fail(field, "other is \"PATH if TEST\"");
      absl::StrAppend(&rows_, ", .other_path = ", Quoted(other[0]),
                      ", .is_other = &", other[1]);
    }
    if (!said.alone().empty()) {
      absl::StrAppend(&rows_, ", .alone = ", Quoted(said.alone()));
    }
  }

  void Range(const FieldDescriptor* field, absl::string_view kind) {
    const std::string& range = SaidOf(field).range();
    const bool whole = kind == "kInt" || kind == "kLong" || kind == "kInts";
    if (kind == "kReals") {
      if (range == "positive") absl::StrAppend(&rows_, ", .positive = true");
      return;
    }
    if (range.empty() && !whole && kind != "kReal") return;
    const std::vector<std::string> ends = absl::StrSplit(range, ", ");
    if (ends.size() != 2) Fail(field, "a number has a range, \"LEAST, MOST\"");
    const char* const type = whole ? "_int" : "";
    absl::StrAppend(&rows_, ", .least", type, " = ", ends[0], ", .most", type,
                    " = ", ends[1]);
  }

  // The table of the field's names, unless one exists, and its place.
  void Choice(const FieldDescriptor* field, const std::string& member) {
    const std::string& choice = SaidOf(field).choice();
    std::string table = absl::StrCat(Camel(field->name()), "Choices");
    const std::vector<std::string> existing = absl::StrSplit(choice, " of ");
    if (existing.size() == 2) {
      table = existing[1];
    } else {
      const std::vector<std::string> parts = absl::StrSplit(choice, ": ");
      if (parts.size() != 2) Fail(field, "a choice is \"Enum: name name\"");
      Table(table, EnumOf(field), absl::StrSplit(parts[1], ' '));
    }
    absl::StrAppend(
        &rows_, ", .choices = &", table,
        ", .chosen = [](const RunConfig& c) { return Number(c.", member,
        "); }, .choose = [](std::optional<int> value, RunConfig* c) "
        "{ Put(value, &c->",
        member, "); }");
  }

  void Table(const std::string& table, const std::string& type,
             const std::vector<std::string>& names) {
    absl::StrAppend(&declarations_, "const std::vector<ChoiceRow>& ", table,
                    "();\n");
    absl::StrAppend(&choices_, "const std::vector<ChoiceRow>& ", table,
                    "() {\n  static const std::vector<ChoiceRow> rows = {\n");
    for (size_t index = 0; index < names.size(); ++index) {
      const std::vector<std::string> name = absl::StrSplit(names[index], '=');
      absl::StrAppend(&choices_, "      {", Quoted(name[0]), ", ");
      if (type == "bool") {
        absl::StrAppend(&choices_, index == 0 ? 1 : 0, "},\n");
        continue;
      }
      const std::string value =
          name.size() == 2 ? name[1] : absl::StrCat("k", Camel(name[0]));
      absl::StrAppend(&choices_, "static_cast<int>(", type, "::", value,
                      ")},\n");
    }
    absl::StrAppend(&choices_, "  };\n  return rows;\n}\n\n");
  }

  void Spec(const Descriptor* message, const std::string& path) {
    const std::string spec = message->options().GetExtension(proto::spec);
    for (int index = 0; index < message->field_count(); ++index) {
      const FieldDescriptor* field = message->field(index);
      const std::string row = absl::StrCat(
          "      {", Quoted(path + field->name()), ", &", message->name(),
          "::", field->name(), ", &", spec, "::", field->name());
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
        absl::StrAppend(&sizes_, row, ", ", SaidOf(field).range(), "},\n");
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_BOOL) {
        absl::StrAppend(&properties_, row, "},\n");
      }
    }
  }

  std::string structs_;
  std::string declarations_;
  std::string choices_;
  std::string rows_;
  std::string sizes_;
  std::string properties_;
};

int Main(const std::string& folder) {
  Writer writer;
  const Descriptor* root = proto::RunConfig::descriptor();
  writer.Struct(root, "RunConfigFields");
  writer.Rows(root, "", "");
  std::ofstream header(absl::StrCat(folder, "/config_choices.h"));
  std::ofstream source(absl::StrCat(folder, "/config_rows.cc"));
  header << writer.Header();
  source << writer.Source();
  header.close();
  source.close();
  if (header && source) return 0;
  std::cerr << "cannot write to " << folder << "\n";
  return 1;
}

}  // namespace
}  // namespace pipewright

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: generate_config FOLDER\n";
    return 2;
  }
  return pipewright::Main(argv[1]);
}
