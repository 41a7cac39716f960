// The keys of a training framework, embedded from frameworks/*.csv: facts with
// the file of their source (docs/dev/frameworks.md).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace pipewright {

// What a key of a file does to a step's time, its memory or its legality.
enum class KeyEffect : uint8_t {
  kMapped,      // sets a field, or a named function reads it
  kNone,        // nothing; ForeignKey::note says why
  kUnmodelled,  // something that has no field; the note says what
};

struct ForeignKey {
  // Spellings, the first one is the usual: flags without their dashes, names of
  // keys in files. Either may be empty. Flags of `clears` set the opposite.
  std::vector<std::string> flags;
  std::vector<std::string> clears;
  std::vector<std::string> names;
  std::vector<std::string> sections;  // that have it in files
  std::string type;  // "int", "float", "str", "bool", "ints", ...
  // By version, the oldest first.
  std::vector<std::pair<std::string, std::string>> defaults;
  std::vector<std::string> choices;
  KeyEffect effect = KeyEffect::kUnmodelled;
  std::string field;                          // a path, "@function", or ""
  std::map<std::string, std::string> values;  // its values as the field's
  std::string note;
  std::string source;

  // What rules and functions call it: the first name, else the first flag with
  // underscores.
  std::string id() const;
  // Default of a version, or of the newest that has the key; "" for none.
  std::string DefaultOf(absl::string_view version) const;
  // The value as the row's values have it, "0" and ">0" for numbers; null for
  // none.
  const std::string* WordOf(const std::string& value) const;
  // Does the value, of an unmodelled key, change nothing?
  bool IsNeutral(const std::string& value, absl::string_view version) const;
};

// A check of the framework at its start or in its first step.
struct ForeignRule {
  std::string version;
  std::string when;     // in ids of keys; "": words alone
  std::string refuses;  // what is wrong
  std::string source;
};

class KeyTable {
 public:
  // "megatron", "bridge", "torchtitan", "deepspeed".
  static const KeyTable& Of(absl::string_view framework);

  const std::vector<ForeignKey>& keys() const { return keys_; }
  const std::vector<ForeignRule>& rules() const { return rules_; }

  // By a flag without dashes, in any of its spellings, '-' and '_' alike.
  // `clears`: it sets the opposite. Null for an unknown one.
  const ForeignKey* FindFlag(absl::string_view flag, bool* clears) const;
  // By the name in a file. `section` "": any; one that no row of this name has
  // finds nothing.
  const ForeignKey* FindName(absl::string_view section,
                             absl::string_view name) const;
  // All rows of a name, in whatever sections.
  std::vector<const ForeignKey*> AllOfName(absl::string_view name) const;
  // By id, by any other spelling, or by "section.name".
  const ForeignKey* FindId(absl::string_view id) const;
  // All spellings, for the nearest known.
  std::vector<std::string> Flags() const;
  std::vector<std::string> Names() const;

 private:
  explicit KeyTable(absl::string_view framework);
  void Index();

  std::vector<ForeignKey> keys_;
  std::vector<ForeignRule> rules_;
  std::map<std::string, std::pair<size_t, bool>> by_flag_;
  std::multimap<std::string, size_t> by_name_;
  std::map<std::string, size_t> by_id_;
};

// Rows of frameworks/NAME.csv, each by the names of its columns.
std::vector<std::map<std::string, std::string>> KeyRows(absl::string_view name);

// Rows of a CSV text (RFC 4180) below its line of names, each by name.
std::vector<std::map<std::string, std::string>> CsvRows(absl::string_view text);

}  // namespace pipewright
