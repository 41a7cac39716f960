#include "sim/config/config_reference.h"

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "sim/base/check.h"
#include "sim/base/quantity.h"
#include "sim/config/config_fields.h"

namespace pipewright {
namespace {

struct UnitWords {
  const char* one;
  const char* several;
  const char* allowed;
};

UnitWords WordsOf(Unit unit) {
  switch (unit) {
    case Unit::kTime:
      return {"time", "list of times", "0 to 1e9 s"};
    case Unit::kBytes:
      return {"bytes", "list of bytes", "0 to 1 PiB"};
    case Unit::kBandwidth:
      return {"bandwidth", "list of bandwidths", "1 byte/s to 1e18 bytes/s"};
    case Unit::kNone:
      break;
  }
  return {"number", "list of numbers", ""};
}

// Both forms where a value decides which path the flag stands for.
std::string FlagOf(absl::string_view path) {
  for (const ConfigFlag& flag : ConfigFlags()) {
    if (flag.path == path || flag.other_path == path) {
      return absl::StrCat(flag.flag, " ", flag.value);
    }
  }
  return "";
}

FieldReference ReferenceRow(const ConfigField& field) {
  FieldReference row = {field.path,         "",           "", field.fallback,
                        FlagOf(field.path), field.meaning};
  const auto says = [&row](const char* type, std::string allowed = "") {
    row.type = type;
    row.allowed = std::move(allowed);
  };
  const auto integers = [&field] {
    return absl::StrCat(field.least_int, " to ", field.most_int);
  };
  switch (field.kind) {
    case FieldKind::kText:
      says("text");
      break;
    case FieldKind::kTexts:
      says("list of texts");
      break;
    case FieldKind::kBool:
      says("boolean", "true, false");
      break;
    case FieldKind::kInt:
    case FieldKind::kLong:
      says("integer", integers());
      break;
    case FieldKind::kInts:
      says("list of integers", integers());
      break;
    case FieldKind::kReal:
      says("number", absl::StrCat(field.least, " to ", field.most));
      break;
    case FieldKind::kReals:
      says("list of numbers",
           absl::StrCat(field.positive ? "" : "0, or ", kFactors.least, " to ",
                        kFactors.most));
      break;
    case FieldKind::kQuantity:
      says(WordsOf(field.unit).one,
           field.most > 0
               ? absl::StrCat("0 to ", field.most, " ", SiUnit(field.unit))
               : WordsOf(field.unit).allowed);
      break;
    case FieldKind::kQuantities:
      says(WordsOf(field.unit).several, WordsOf(field.unit).allowed);
      break;
    case FieldKind::kChoice:
      for (const ChoiceRow& choice : field.choices()) {
        if (!choice.available) continue;
        absl::StrAppend(&row.allowed, row.allowed.empty() ? "" : ", ",
                        choice.name);
      }
      row.type = "name";
      break;
    case FieldKind::kPairs:
      says("keys and values");
      break;
    case FieldKind::kSection:
      says("section");
      break;
  }
  return row;
}

const FieldReference& ReferenceOf(absl::string_view path) {
  for (const FieldReference& row : ConfigReference()) {
    if (row.path == path) return row;
  }
  PW_CHECK(false);
}

std::string Code(absl::string_view text) {
  return text.empty() ? "" : absl::StrCat("`", text, "`");
}

constexpr char kIntroduction[] =
    R"(# Configuration: every field and flag

This page is generated. Do not edit it; renew it with
`pipewright list fields --markdown > docs/config.md`.

A configuration is a YAML, JSON or text protobuf file. [concepts.md](concepts.md)
shows one, and `pipewright init -o run.yaml` writes one with comments. A flag wins
over `--set PATH=VALUE`, which wins over the file. `--set` reaches every field;
`--set PATH=` clears one. A list on the command line has commas.

A time, an amount of bytes or a bandwidth has its unit with the value (`18.5ms`,
`80GiB`, `400Gbps`) or in the name (`forward_ms: 18.5`, `hop_bytes: 1024`); 0
needs none. Units are `ns us ms s min h d` (`us` may be `µs`), `B KB MB GB TB KiB
MiB GiB TiB` and `KBps` to `TBps`, `MiBps GiBps`, `Mbps Gbps Tbps`. GB is 1e9
bytes, GiB is 2^30 bytes, Gbps counts bits.

Where a field has no default in the table, nothing stands in for it: the run does
without it, or a message says that it is missing. A preset or a file sets all
fields of its section, and single fields beside it win over it; the defaults of
`model` and `system` hold where neither says otherwise.
)";

}  // namespace

const std::vector<FieldReference>& ConfigReference() {
  static const auto* const rows = [] {
    auto* all = new std::vector<FieldReference>;
    for (const ConfigField& field : ConfigFields()) {
      all->push_back(ReferenceRow(field));
    }
    return all;
  }();
  return *rows;
}

std::string HelpOfFlag(const ConfigFlag& flag) {
  const FieldReference& row = ReferenceOf(flag.path);
  std::string help = absl::StrCat(flag.path, ": ", row.meaning);
  if (row.type == "name") absl::StrAppend(&help, "; one of ", row.allowed);
  if (!flag.other_path.empty()) {
    const bool file = absl::EndsWith(flag.value, "FILE");
    absl::StrAppend(&help, file ? "; a file is " : "; a list is ",
                    flag.other_path);
  }
  if (!row.fallback.empty()) {
    absl::StrAppend(&help, " (default: ", row.fallback, ")");
  }
  return help;
}

std::string MarkdownCell(absl::string_view text) {
  // "](" would begin the target of a link.
  return absl::StrReplaceAll(text,
                             {{"|", "\\|"}, {"*", "\\*"}, {"](", "]\\("}});
}

std::string ConfigReferenceMarkdown() {
  std::string text = kIntroduction;
  std::string section;
  for (const FieldReference& row : ConfigReference()) {
    const size_t dot = row.path.find('.');
    const std::string in =
        dot == std::string::npos ? "top level" : row.path.substr(0, dot);
    if (in != section) {
      section = in;
      absl::StrAppend(&text, "\n## ", dot == std::string::npos ? in : Code(in),
                      "\n\n| Field | Flag | Type | Allowed | Default | Meaning "
                      "|\n|---|---|---|---|---|---|\n");
    }
    absl::StrAppend(&text, "| ", Code(row.path), " | ",
                    // A pipe ends a cell, in code too; `*` in code is plain.
                    Code(absl::StrReplaceAll(row.flag, {{"|", "\\|"}})), " | ",
                    row.type, " | ", MarkdownCell(row.allowed), " | ",
                    MarkdownCell(row.fallback), " | ",
                    MarkdownCell(row.meaning), " |\n");
  }
  return text;
}

}  // namespace pipewright
