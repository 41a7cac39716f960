#include "sim/config/config_reference.h"

#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "sim/base/check.h"
#include "sim/base/quantity.h"
#include "sim/config/field_help.h"
#include "sim/config/run_config_fields.h"

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

class Collector {
 public:
  explicit Collector(std::vector<FieldReference>* rows) : rows_(rows) {}

  template <typename Value>
  void Text(const char* path, const Value&) {
    Add(path, "text", "");
  }
  template <typename Value>
  void Texts(const char* path, const Value&) {
    Add(path, "list of texts", "");
  }
  template <typename Value>
  void Bool(const char* path, const Value&) {
    Add(path, "boolean", "true, false");
  }
  template <typename Value>
  void Int(const char* path, const Value&, int64_t least, int64_t most) {
    Add(path, "integer", absl::StrCat(least, " to ", most));
  }
  template <typename Value>
  void Ints(const char* path, const Value&, int64_t least, int64_t most) {
    Add(path, "list of integers", absl::StrCat(least, " to ", most));
  }
  template <typename Value>
  void Real(const char* path, const Value&, double least, double most) {
    Add(path, "number", absl::StrCat(least, " to ", most));
  }
  template <typename Value>
  void Reals(const char* path, const Value&, MayBeZero zero = kMayBeZero) {
    Add(path, "list of numbers",
        absl::StrCat(zero == kMayBeZero ? "0, or " : "", kFactors.least, " to ",
                     kFactors.most));
  }
  template <typename Value>
  void Quantity(const char* path, const Value&, Unit unit) {
    Add(path, WordsOf(unit).one, WordsOf(unit).allowed);
  }
  template <typename Value>
  void Quantity(const char* path, const Value&, Unit unit, double most) {
    Add(path, WordsOf(unit).one,
        absl::StrCat("0 to ", most, " ", SiUnit(unit)));
  }
  template <typename Value>
  void Quantities(const char* path, const Value&, Unit unit) {
    Add(path, WordsOf(unit).several, WordsOf(unit).allowed);
  }
  template <typename Value>
  void Choice(const char* path, const Value&,
              const std::vector<ChoiceRow>& choices) {
    std::vector<std::string> names;
    for (const ChoiceRow& choice : choices) {
      if (choice.available) names.push_back(choice.name);
    }
    Add(path, "name", absl::StrJoin(names, ", "));
  }
  template <typename Value>
  void Pairs(const char* path, const Value&) {
    Add(path, "keys and values", "");
  }
  void Section(const char* path, bool) { Add(path, "section", ""); }

 private:
  void Add(const char* path, const char* type, std::string allowed) {
    const FieldHelp& help = HelpOfField(path);
    rows_->push_back({path, type, std::move(allowed), help.fallback,
                      FlagOf(path), help.meaning});
  }

  std::vector<FieldReference>* rows_;
};

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
    Collector collector(all);
    const RunConfig none;
    VisitFields(none, collector);
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
